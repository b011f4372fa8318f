"""Means and bands over independent units: prompts, or random seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FEWEST_SEEDS = 2
FEWEST_PROMPTS = 4
RESAMPLES = 2000
LEVEL = 0.95
SEED = 0


class Band(NamedTuple):
    """A mean and its band; `low` and `high` are NaN where too few units make no band."""

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def over_seeds(values: ArrayLike) -> Band:
    """Take mean and mean -+ 1 SD (ddof 0) over random seeds.

    Parameters
    ----------
    values : array, shape (seeds, layers)

    Returns
    -------
    Band
        Of shape (layers,). No band for fewer than two seeds.
    """
    units = np.asarray(values, dtype=np.float64)
    mean = units.mean(axis=0)
    if len(units) < FEWEST_SEEDS:
        return Band(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    deviation = units.std(axis=0)
    return Band(mean, mean - deviation, mean + deviation)


def over_prompts(values: ArrayLike) -> Band:
    """Take the mean over prompts and its bootstrap 95% band (percentiles of 2,000 resamples).

    Parameters
    ----------
    values : array, shape (prompts, layers)
        Seeds already averaged within each prompt: prompts are the unit.

    Returns
    -------
    Band
        Of shape (layers,). No band for fewer than four prompts. The resampling seed is fixed.
    """
    units = np.asarray(values, dtype=np.float64)
    mean = units.mean(axis=0)
    if len(units) < FEWEST_PROMPTS:
        return Band(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    random = np.random.default_rng(SEED)
    chosen = random.integers(len(units), size=(RESAMPLES, len(units)))
    means = units[chosen].mean(axis=1)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return Band(mean, low, high)


def smallest_p(units: int) -> float:
    """Return the smallest two-sided p that a sign test over so many units can reach.

    All differences have one sign: 2 / 2^units (8 prompts: .0078). A design with few prompts
    cannot reject, whatever it finds.
    """
    return min(1.0, 2.0 ** (1 - units))
