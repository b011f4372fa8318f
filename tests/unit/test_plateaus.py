"""Plateaus and merges, against loops, planted ones, signals with gaps and values at a bound."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokensphere import plateaus

NAN = math.nan

seeds = st.integers(0, 10**6)
windows = pytest.mark.parametrize("window", [2, 3, 5])


def signal_of(seed, layers=16, gaps=True):
    """Draw a signal that stands still, drifts, jumps, and is undefined in places."""
    random = np.random.default_rng(seed)
    steps = random.choice([0, 0, 0.01, 0.06, -0.3, 1], size=layers)
    signal = random.choice([-1, 1]) * (0.5 + np.cumsum(steps))
    if gaps:
        signal[random.random(layers) < 0.1] = NAN
    return signal


# --- twins: the definitions, in loops


def twin_flat(signal, window, tolerance):
    """Is there a window with this layer in it in which all values differ by so little?"""
    layers = len(signal)
    found = []
    for layer in range(layers):
        still = False
        for start in range(layer - window + 1, layer + 1):
            if start < 0 or start + window > layers:
                continue
            here = [float(signal[at]) for at in range(start, start + window)]
            if any(value != value for value in here):
                continue
            span, size = max(here) - min(here), max(abs(value) for value in here)
            still = still or span <= tolerance * size * (1 + 1e-9)
        found.append(still)
    return found


def twin_stretches(marked):
    found, start = [], None
    for at, mark in enumerate([*marked, False]):
        if mark and start is None:
            start = at
        if not mark and start is not None:
            found.append((start, at - 1))
            start = None
    return found


def twin_merges(mass, merged_at, jump):
    rows = []
    for layer in range(len(mass)):
        if count := sum(at == layer for at in merged_at):
            rows.append({"layer": layer, "sign": "clusters", "size": count})
        if layer and mass[layer] - mass[layer - 1] > jump:
            size = mass[layer] - mass[layer - 1]
            rows.append({"layer": layer, "sign": "mass", "size": pytest.approx(size)})
    return rows


@windows
@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("seed", range(8))
def test_a_layer_is_flat_in_any_window_that_stands_still(seed, tolerance, window):
    signal = signal_of(seed)
    found = plateaus.flat(signal, window, tolerance)
    assert found.dtype == bool
    assert found.tolist() == twin_flat(signal, window, tolerance)


@given(st.lists(st.booleans(), max_size=20))
def test_stretches_are_the_runs_of_true_values(marked):
    assert plateaus.stretches(marked) == twin_stretches(marked)


@pytest.mark.parametrize(
    "marked, expected",
    [
        ([], []),
        ([False, False], []),
        ([True], [(0, 0)]),
        ([True, True, False, True], [(0, 1), (3, 3)]),
        ([False, True, False, True, True], [(1, 1), (3, 4)]),
    ],
)
def test_stretches_of_known_marks(marked, expected):
    assert plateaus.stretches(marked) == expected


@windows
@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_plateaus_are_the_stretches_of_each_signal_and_of_several(seed, together, window):
    signals = {name: signal_of(3 * seed + at) for at, name in enumerate("abc")}
    tolerances = {"a": 0.0, "b": 0.05, "c": 0.3}
    marks = {name: twin_flat(signal, window, tolerances[name]) for name, signal in signals.items()}
    marks["joint"] = [sum(layer) >= together for layer in zip(*marks.values(), strict=True)]
    assert plateaus.find(signals, tolerances, window=window, together=together) == [
        {"signal": name, "start": start, "end": end}
        for name, marked in marks.items()
        for start, end in twin_stretches(marked)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_merges_are_those_of_clusters_and_the_jumps_of_the_mass(seed):
    random = np.random.default_rng(seed)
    mass = random.random(10)
    mass[random.random(10) < 0.2] = NAN
    merged_at = random.integers(1, 10, size=6).tolist()
    found = plateaus.merges(mass, merged_at, 0.1)
    assert found == twin_merges(mass.tolist(), merged_at, 0.1)
    assert {row["sign"] for row in found} == {"clusters", "mass"}


# --- planted


@windows
@pytest.mark.parametrize("seed", range(8))
def test_a_planted_plateau_is_found_with_its_ends(seed, window):
    random = np.random.default_rng(seed)
    start, length = int(random.integers(1, 10)), int(random.integers(window, 10))
    # Neighbours outside differ by half at least; inside by 2% at most, of a tolerance of 5%.
    signal = 2.0 ** np.where(np.arange(24) % 2, 1, -1) * random.uniform(0.9, 1.1, 24)
    end = start + length - 1
    signal[start : end + 1] = 10 * random.uniform(0.99, 1, length)
    assert plateaus.stretches(plateaus.flat(signal, window, 0.05)) == [(start, end)]


def test_a_plateau_is_as_long_as_a_window_at_least():
    signal = [1, 2, 2, 4, 5, 5, 5, 8]
    assert plateaus.stretches(plateaus.flat(signal, 2, 0.1)) == [(1, 2), (4, 6)]
    assert plateaus.stretches(plateaus.flat(signal, 3, 0.1)) == [(4, 6)]
    assert not plateaus.flat(signal, 4, 0.1).any()
    assert not plateaus.flat(signal, 9, 10.0).any()  # no window fits
    assert plateaus.flat(signal, 8, 0.875).all()


def test_a_slow_drift_is_one_long_plateau():
    signal = 1.04 ** np.arange(20)  # doubles, 3.8% a layer
    assert plateaus.stretches(plateaus.flat(signal, 2, 0.05)) == [(0, 19)]
    assert not plateaus.flat(signal, 3, 0.05).any()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_joint_plateau_needs_so_many_signals(count):
    still, moving = np.ones(6), 2.0 ** np.arange(6)
    signals = {name: still if at < count else moving for at, name in enumerate("abc")}
    found = plateaus.find(signals, dict.fromkeys("abc", 0.1), window=2, together=2)
    assert [row for row in found if row["signal"] == "joint"] == (
        [{"signal": "joint", "start": 0, "end": 5}] if count >= 2 else []
    )


def test_signals_of_a_joint_plateau_may_take_turns():
    signals = {"a": [1, 1, 1, 2, 4], "b": [1, 2, 3, 3, 3], "c": [1, 2, 2, 2, 4]}
    found = plateaus.find(signals, dict.fromkeys("abc", 0.0), window=2, together=2)
    assert found == [
        {"signal": "a", "start": 0, "end": 2},
        {"signal": "b", "start": 2, "end": 4},
        {"signal": "c", "start": 1, "end": 3},
        {"signal": "joint", "start": 1, "end": 3},
    ]


# --- gaps, zeros, signs, and values at the bound


def test_no_window_with_an_undefined_value_stands_still():
    signal = [NAN, 1, 1, NAN, 1, NAN, 1, 1, 1]
    assert plateaus.stretches(plateaus.flat(signal, 2, 0.1)) == [(1, 2), (6, 8)]
    assert plateaus.stretches(plateaus.flat(signal, 3, 0.1)) == [(6, 8)]
    assert not plateaus.flat(np.full(5, NAN), 2, 10.0).any()


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.5])
def test_zero_stands_still_at_any_tolerance(tolerance):
    assert plateaus.stretches(plateaus.flat([0, 0, 1, 0, 0], 2, tolerance)) == [(0, 1), (3, 4)]


def test_the_largest_magnitude_counts_of_whatever_sign():
    assert plateaus.flat([-10, -9.6], 2, 0.05).all()
    assert not plateaus.flat([-10, -9.4], 2, 0.05).any()
    assert not plateaus.flat([-1, 1], 2, 1.9).any()
    assert plateaus.flat([-1, 1], 2, 2.0).all()
    assert plateaus.flat([-4, -3, -2], 3, 0.5).all()


@pytest.mark.parametrize(
    "values, tolerance",
    [
        ([1, 2], 0.5),
        ([9, 10], 0.1),
        ([0.9, 1.0], 0.1),
        ([0.18, 0.2], 0.1),  # .2 - .18 is more than .1 * .2 by rounding
        ([71, 100], 0.29),  # and so is 29 than .29 * 100
        ([0.95, 1.0], 0.05),
        ([0.49, 0.5], 0.02),
        ([-0.18, -0.2], 0.1),
    ],
)
def test_a_span_of_exactly_the_tolerance_stands_still(values, tolerance):
    assert plateaus.flat(values, 2, tolerance).all()
    assert plateaus.flat(values[::-1], 2, tolerance).all()
    assert not plateaus.flat(values, 2, tolerance - 1e-9).any()


def test_a_signal_that_stands_still_but_for_rounding_does_at_tolerance_0():
    assert plateaus.flat([0.1 + 0.2, 0.3], 2, 0.0).all()
    assert not plateaus.flat([0.3, 0.3 + 1e-9], 2, 0.0).any()


@windows
@given(seed=seeds, exponent=st.integers(-30, 30), sign=st.sampled_from([-1, 1]))
def test_scaling_a_signal_changes_nothing(window, seed, exponent, sign):
    signal = signal_of(seed)
    scaled = sign * signal * 3.0**exponent
    for tolerance in (0.0, 0.05, 0.5):
        found = plateaus.flat(signal, window, tolerance)
        assert found.tolist() == plateaus.flat(scaled, window, tolerance).tolist()


@windows
@given(seed=seeds)
def test_reversing_the_layers_mirrors_the_plateaus(window, seed):
    signal = signal_of(seed)
    once, again = (
        plateaus.stretches(plateaus.flat(each, window, 0.05)) for each in (signal, signal[::-1])
    )
    assert again == [(15 - end, 15 - start) for start, end in reversed(once)]


@windows
@given(seed=seeds)
def test_a_larger_tolerance_or_a_shorter_window_only_adds(window, seed):
    signal = signal_of(seed)
    found = plateaus.flat(signal, window, 0.05)
    assert (found <= plateaus.flat(signal, window, 0.1)).all()
    if window > 2:
        assert (found <= plateaus.flat(signal, window - 1, 0.05)).all()


# --- merges


def test_merges_stand_by_layer_and_clusters_before_mass():
    found = plateaus.merges([0.0, 0.5, 0.5, 0.1, 0.9, 0.9], [4, 2, 4, 4], 0.1)
    assert found == [
        {"layer": 1, "sign": "mass", "size": 0.5},
        {"layer": 2, "sign": "clusters", "size": 1},
        {"layer": 4, "sign": "clusters", "size": 3},
        {"layer": 4, "sign": "mass", "size": pytest.approx(0.8)},
    ]


def test_a_fall_a_small_rise_and_a_gap_are_no_merge():
    assert plateaus.merges([0.9, 0.1, 0.15, NAN, 0.9, NAN], [], 0.1) == []
    assert plateaus.merges([0.3], [], 0.1) == []


@pytest.mark.parametrize("low, high", [(0.2, 0.3), (0.3, 0.4), (0.0, 0.1), (0.7, 0.8)])
def test_a_rise_of_exactly_the_jump_is_no_merge(low, high):
    # Some of these differences are more than .1 by rounding, some less.
    assert plateaus.merges([low, high], [], 0.1) == []
    assert len(plateaus.merges([low, high + 1e-9], [], 0.1)) == 1


def test_layers_of_merges_may_come_from_a_table():
    pandas = pytest.importorskip("pandas")
    assert plateaus.merges([0, 0], pandas.Series([], dtype=object), 0.1) == []
    assert plateaus.merges([0, 0], pandas.Series([1, 1]), 0.1) == [
        {"layer": 1, "sign": "clusters", "size": 2}
    ]
