"""Means and bands, against loops over units and resamples."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from tokensphere import statistics

# Means of a few dozen float64 numbers of order 1, in another order.
ROUNDING = 1e-12


def units(count, layers=5, seed=0):
    return np.random.default_rng(seed).normal(size=(count, layers))


def approx(values):
    return pytest.approx(np.array(values), abs=ROUNDING, rel=0, nan_ok=True)


def mean(values):
    return sum(values) / len(values)


def percentile(values, share):
    """The value below which a share lies, with linear interpolation between ranks."""
    ranked = sorted(values)
    rank = share * (len(ranked) - 1)
    low = math.floor(rank)
    return ranked[low] + (rank - low) * (ranked[min(low + 1, len(ranked) - 1)] - ranked[low])


@pytest.mark.parametrize("seeds", [2, 3, 7])
def test_over_seeds_is_mean_and_one_standard_deviation(seeds):
    values = units(seeds)
    band = statistics.over_seeds(values)
    means = [mean(layer) for layer in values.T]
    deviations = [
        math.sqrt(mean([(value - middle) ** 2 for value in layer]))
        for layer, middle in zip(values.T, means, strict=True)
    ]
    assert band.mean == approx(means)
    assert band.low == approx([m - d for m, d in zip(means, deviations, strict=True)])
    assert band.high == approx([m + d for m, d in zip(means, deviations, strict=True)])


def test_over_prompts_is_the_mean_and_percentiles_of_two_thousand_resampled_means():
    values = units(6, layers=3)
    band = statistics.over_prompts(values)
    draws = np.random.default_rng(0).integers(6, size=(2000, 6))
    for layer in range(3):
        means = [mean([values[unit, layer] for unit in chosen]) for chosen in draws]
        assert band.mean[layer] == pytest.approx(mean(values[:, layer]), abs=ROUNDING)
        assert band.low[layer] == pytest.approx(percentile(means, 0.025), abs=ROUNDING)
        assert band.high[layer] == pytest.approx(percentile(means, 0.975), abs=ROUNDING)


def test_the_band_over_prompts_covers_the_error_of_the_mean():
    values = units(400, layers=1)
    band = statistics.over_prompts(values)
    expected = 2 * 1.96 * values.std() / math.sqrt(400)
    # 400 units make the bootstrap normal to well below 1%; the 2.5% quantile of 2,000 resamples
    # has a standard error of about 3% of the half width, so 10% is three of them.
    assert (band.high - band.low)[0] == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    "function, fewest", [(statistics.over_seeds, 2), (statistics.over_prompts, 4)]
)
def test_too_few_units_make_a_mean_but_no_band(function, fewest):
    for count in range(1, fewest):
        band = function(units(count))
        assert band.mean == approx([mean(layer) for layer in units(count).T])
        assert np.isnan(band.low).all()
        assert np.isnan(band.high).all()
    enough = function(units(fewest))
    assert np.isfinite(enough.low).all()
    assert np.isfinite(enough.high).all()


def test_the_same_units_make_the_same_band():
    one, two = statistics.over_prompts(units(8)), statistics.over_prompts(units(8))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_smallest_p_is_that_of_a_sign_test_in_which_all_units_agree(count):
    expected = binomtest(count, count).pvalue
    assert statistics.smallest_p(count) == approx(expected)


def test_no_unit_rejects_nothing():
    assert statistics.smallest_p(0) == 1.0


@pytest.mark.parametrize("function", [statistics.over_seeds, statistics.over_prompts])
def test_a_band_moves_and_grows_with_its_units(function):
    before, after = function(units(8)), function(3 * units(8) + 2)
    for one, two in zip(before, after, strict=True):
        assert two == approx(3 * one + 2)


@pytest.mark.parametrize("function", [statistics.over_seeds, statistics.over_prompts])
def test_equal_units_make_a_band_of_no_width(function):
    band = function(np.full((5, 2), 0.25))
    assert band.low == approx([0.25, 0.25])
    assert band.high == approx([0.25, 0.25])


@pytest.mark.parametrize("function", [statistics.over_seeds, statistics.over_prompts])
def test_one_undefined_unit_makes_its_layer_undefined_and_no_other(function):
    values = units(8)
    values[2, 1] = np.nan
    for part in function(values):
        assert np.isnan(part).tolist() == [False, True, False, False, False]
