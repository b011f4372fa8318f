"""Interaction energy, against double loops, closed forms, known values and poor clouds."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import i0

from tokensphere import energy, sphere

# Sums of a few hundred float64 exponentials of at most exp(5), in another order.
ROUNDING = 1e-13

BETAS = [0.1, 1, 2, 5]


def cloud(seed, tokens=9, width=4):
    """Draw token vectors of very different lengths."""
    random = np.random.default_rng(seed)
    return random.normal(size=(tokens, width)) * 10.0 ** random.uniform(-3, 3, (tokens, 1))


def gram(states):
    return sphere.gram(sphere.project(states))


clouds = st.builds(cloud, st.integers(0, 10**6), tokens=st.integers(1, 12), width=st.integers(1, 8))
betas = st.floats(0.05, 10)


def approx(expected):
    return pytest.approx(expected, rel=ROUNDING, abs=ROUNDING, nan_ok=True)


# --- twins: the definitions, in loops


def twin_energy(states, beta):
    total = 0.0
    for x in states:
        for y in states:
            lengths = math.sqrt(sum(a * a for a in x)) * math.sqrt(sum(b * b for b in y))
            total += math.exp(beta * sum(a * b for a, b in zip(x, y, strict=True)) / lengths)
    return total / (2 * beta * len(states) ** 2)


def twin_common(states, beta):
    mean = [0.0] * len(states[0])
    for x in states:
        length = math.sqrt(sum(a * a for a in x))
        mean = [m + a / length / len(states) for m, a in zip(mean, x, strict=True)]
    return math.exp(beta * sum(m * m for m in mean)) / (2 * beta)


def twin_falls(before, after, beta, most):
    n = len(before)
    falls = []
    for i in range(n):
        for j in range(i + 1, n):
            # Both orders of the pair stand in the sum over all i, j.
            change = 2 * (math.exp(beta * after[i][j]) - math.exp(beta * before[i][j]))
            falls.append((change / (2 * beta * n**2), i, j))
    return [(i, j, change) for change, i, j in sorted(falls)[:most]]


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("seed", range(5))
def test_energy_is_the_sum_over_all_ordered_pairs_the_diagonal_included(seed, beta):
    states = cloud(seed)
    assert energy.energy(gram(states), beta) == approx(twin_energy(states, beta))


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("seed", range(5))
def test_the_common_part_is_that_of_the_mean_point(seed, beta):
    states = cloud(seed)
    assert energy.common_energy(gram(states), beta) == approx(twin_common(states, beta))


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("seed", range(5))
def test_the_spread_is_what_the_mean_point_does_not_make(seed, beta):
    states = cloud(seed)
    row = energy.summarise(gram(states), None, beta)
    # A difference of two values of at most exp(5) / 10: their rounding is what is left.
    assert row["spread"] == pytest.approx(
        twin_energy(states, beta) - twin_common(states, beta), abs=ROUNDING * math.exp(beta)
    )
    assert row["common"] + row["spread"] == approx(row["energy"])


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("seed", range(5))
def test_the_pairs_that_fall_most_come_first(seed, beta):
    before, after = gram(cloud(seed)), gram(cloud(seed + 100))
    found = energy.largest_falls(before, after, beta, 10)
    expected = twin_falls(before, after, beta, 10)
    assert [pair[:2] for pair in found] == [pair[:2] for pair in expected]
    assert [pair[2] for pair in found] == approx([pair[2] for pair in expected])


# --- invariances


@given(clouds, betas, st.integers(0, 10**6))
def test_energy_does_not_depend_on_rotation_length_or_order(states, beta, seed):
    random = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(random.normal(size=(states.shape[1],) * 2))
    lengths = 10.0 ** random.uniform(-3, 3, (len(states), 1))
    other = (states @ rotation * lengths)[random.permutation(len(states))]
    for part in (energy.energy, energy.common_energy):
        # exp(10) times the rounding of an inner product, 1e-15, relative to a value above it.
        assert part(gram(other), beta) == pytest.approx(part(gram(states), beta), rel=1e-12)


@given(clouds, betas)
def test_the_common_part_is_at_most_the_energy(states, beta):
    matrix = gram(states)
    # Jensen's inequality; equal where all tokens coincide, so rounding may turn it.
    assert energy.common_energy(matrix, beta) <= energy.energy(matrix, beta) * (1 + 1e-12)
    assert energy.summarise(matrix, None, beta)["spread"] >= -1e-12 * energy.energy(matrix, beta)


@given(clouds, betas)
def test_energy_lies_between_opposite_and_coincident_tokens(states, beta):
    value = energy.energy(gram(states), beta)
    # Among n points the diagonal alone gives exp(b)/n, every other term at least exp(-b).
    assert math.exp(-beta) / (2 * beta) * (1 - 1e-12) <= value
    assert value <= math.exp(beta) / (2 * beta) * (1 + 1e-12)


# --- closed forms and known values


@pytest.mark.parametrize("name", ["n8_b1_r0", "n8_b1_r0.5", "n8_b1_r1"])
def test_energy_of_equally_correlated_tokens(reference, name):
    entry = reference(f"energy_equicorr_{name}")
    n, beta, r = entry["inputs"]["n"], entry["inputs"]["beta"], entry["inputs"]["r"]
    matrix = np.full((n, n), r) + (1 - r) * np.eye(n)
    assert energy.energy(matrix, beta) == pytest.approx(entry["value"], abs=entry["tolerance"])
    # The mean of such tokens has |m|^2 = (1 + (n-1) r) / n.
    common = math.exp(beta * (1 + (n - 1) * r) / n) / (2 * beta)
    assert energy.common_energy(matrix, beta) == approx(common)


def circle(points):
    angles = 2 * np.pi * np.arange(points) / points
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_equally_spaced_points_reach_the_energy_of_the_uniform_circle(reference):
    entry = reference("energy_uniform_circle")
    beta, (uniform, dirac) = entry["inputs"]["beta"], entry["value"]
    excess = []
    for points in (2, 4, 8, 16, 32, 64):
        excess.append(energy.energy(gram(circle(points)), beta) - uniform)
    # The uniform measure is the global minimum, and the sum is a trapezoid rule of a periodic
    # analytic function: what is left falls faster than any power until rounding.
    assert all(one > -entry["tolerance"] for one in excess)
    assert all(later < earlier / 2 for earlier, later in pairwise(excess[:4]))
    assert excess[-1] == pytest.approx(0, abs=entry["tolerance"])
    assert uniform == pytest.approx(i0(beta) / (2 * beta), abs=entry["tolerance"])
    assert energy.energy(gram(np.ones((7, 2))), beta) == pytest.approx(dirac, abs=1e-9)


def test_orthogonal_tokens_have_a_mean_of_squared_length_1_over_n():
    n, beta = 6, 2
    matrix = gram(np.eye(n))
    assert energy.energy(matrix, beta) == approx((math.exp(beta) + n - 1) / (2 * beta * n))
    assert energy.common_energy(matrix, beta) == approx(math.exp(beta / n) / (2 * beta))


# --- poor clouds


@pytest.mark.parametrize("tokens", [1, 2, 3, 20])
@pytest.mark.parametrize("beta", BETAS)
def test_coincident_tokens_have_the_largest_energy_all_of_it_common(tokens, beta):
    row = energy.summarise(gram(np.full((tokens, 3), 0.7)), None, beta)
    assert row["energy"] == approx(math.exp(beta) / (2 * beta))
    assert row["common"] == approx(row["energy"])
    assert row["spread"] == pytest.approx(0, abs=ROUNDING * math.exp(beta))


def test_two_opposite_tokens():
    row = energy.summarise(gram([[1.0, 0.0], [-2.0, 0.0]]), None, 1)
    assert row["energy"] == approx(math.cosh(1) / 2)
    assert row["common"] == approx(0.5)
    assert row["spread"] == approx((math.cosh(1) - 1) / 2)


def test_a_token_without_direction_leaves_the_energy_undefined():
    whole, broken = gram(np.eye(3)), gram([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    for after, before in ((broken, whole), (broken, None), (whole, broken)):
        row = energy.summarise(after, before, 1)
        assert row["reason"] == "a token's vector is zero: it has no direction"
        assert math.isnan(row["energy"]) == (after is broken)
        assert math.isnan(row["common"]) == (after is broken)
        assert math.isnan(row["spread"]) == (after is broken)
        assert math.isnan(row["drop_absolute"])
        assert math.isnan(row["drop_relative"])
        assert (row["violation_published"], row["violation_controlled"]) == (False, False)


# --- falls


def test_the_first_layer_has_nothing_to_fall_from():
    row = energy.summarise(gram(np.eye(3)), None, 1)
    assert row["reason"] == "the first layer: there is nothing to fall from"
    assert math.isnan(row["drop_absolute"])
    assert math.isnan(row["drop_relative"])
    assert (row["violation_published"], row["violation_controlled"]) == (False, False)


@pytest.mark.parametrize("beta", BETAS)
def test_a_fall_is_positive_and_a_share_of_the_value_before(beta):
    high, low = gram(np.ones((3, 2))), gram(np.eye(3))
    first, second = energy.energy(high, beta), energy.energy(low, beta)
    assert first > second
    row = energy.summarise(low, high, beta)
    assert row["drop_absolute"] == approx(first - second)
    assert row["drop_relative"] == approx((first - second) / first)
    assert row["reason"] == ""
    rise = energy.summarise(high, low, beta)
    assert rise["drop_absolute"] == approx(second - first)
    assert rise["drop_relative"] == approx((second - first) / second)
    assert (rise["violation_published"], rise["violation_controlled"]) == (False, False)


def apart(shift):
    """Two tokens whose inner product is 1 - shift."""
    return np.array([[1, 1 - shift], [1 - shift, 1]])


@pytest.mark.parametrize(
    "shift, published, controlled",
    [(0.0, False, False), (1e-7, False, False), (1e-4, True, False), (0.1, True, True)],
)
def test_a_fall_breaks_the_published_rule_by_size_and_the_controlled_one_by_share(
    shift, published, controlled
):
    # At b = 1 the energy of these falls by about shift * e/4, of e/2.
    row = energy.summarise(apart(shift), apart(0.0), 1)
    assert row["violation_published"] is published
    assert row["violation_controlled"] is controlled


def test_both_rules_are_strict():
    before, after = apart(0.0), apart(0.1)
    fall = energy.summarise(after, before, 1)
    absolute, share = fall["drop_absolute"], fall["drop_relative"]
    assert absolute != share
    at = energy.summarise(after, before, 1, drop=absolute, drop_relative=share)
    assert (at["violation_published"], at["violation_controlled"]) == (False, False)
    below = energy.summarise(
        after, before, 1, drop=np.nextafter(absolute, 0), drop_relative=np.nextafter(share, 0)
    )
    assert (below["violation_published"], below["violation_controlled"]) == (True, True)


# --- the pairs that fall most


def test_equal_falls_stand_in_the_order_of_their_tokens():
    before, after = np.ones((4, 4)), np.eye(4)
    found = energy.largest_falls(before, after, 1, 4)
    assert [pair[:2] for pair in found] == [(0, 1), (0, 2), (0, 3), (1, 2)]
    assert len({pair[2] for pair in found}) == 1
    assert found[0][2] == approx((1 - math.e) / 16)


def test_many_equal_falls_stand_in_order_too():
    # NumPy's default sort keeps the order of few equal values, not of many.
    after = np.random.default_rng(0).choice([-0.5, 0.0, 0.5], size=(40, 40))
    after = np.triu(after, 1) + np.triu(after, 1).T + np.eye(40)
    found = energy.largest_falls(np.ones((40, 40)), after, 1, 780)
    every = [(i, j) for i in range(40) for j in range(i + 1, 40)]
    assert [pair[:2] for pair in found] == sorted(every, key=lambda pair: (after[pair], pair))


@pytest.mark.parametrize("tokens, pairs", [(1, 0), (2, 1), (3, 3)])
def test_there_are_no_more_falls_than_pairs(tokens, pairs):
    found = energy.largest_falls(np.ones((tokens, tokens)), np.eye(tokens), 1, 10)
    assert len(found) == pairs


def test_the_falls_of_all_pairs_add_up_to_the_change_of_the_energy():
    before, after = gram(cloud(1)), gram(cloud(2))
    every = energy.largest_falls(before, after, 2, 10**6)
    assert len(every) == 9 * 8 / 2
    change = energy.energy(after, 2) - energy.energy(before, 2)  # the diagonal does not change
    assert sum(pair[2] for pair in every) == approx(change)


def test_a_pair_without_direction_has_no_fall():
    whole, broken = np.ones((3, 3)), gram([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    for before, after in ((whole, broken), (broken, whole)):
        (only,) = energy.largest_falls(before, after, 1, 3)
        assert only[:2] == (0, 2)
        assert abs(only[2]) == approx((math.e - 1) / 9)
    assert energy.largest_falls(whole, gram(np.zeros((3, 2))), 1, 3) == []


def test_the_matrices_are_left_as_they_were():
    before, after = gram(cloud(1)), gram(cloud(2))
    copies = before.copy(), after.copy()
    energy.summarise(after, before, 2)
    energy.largest_falls(before, after, 2, 5)
    np.testing.assert_array_equal(before, copies[0])
    np.testing.assert_array_equal(after, copies[1])
