"""Plateaus: stretches of layers in which signals stand still, and the merges between them.

Metastability shows as plateaus: clusters stay as they are for a while, then merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

JOINT = "joint"

# What rounding may add to a difference of shares, so that a value at a bound is within it.
ROUNDING = 1e-12


def flat(values: ArrayLike, window: int, tolerance: float) -> NDArray[np.bool_]:
    """Mark the layers that lie in a window in which a signal stands still.

    Parameters
    ----------
    values : array, shape (layers,)
        NaN where the signal is undefined: it stands still in no window with such a layer.
    window : int
        Neighbouring layers in a window, at least 2.
    tolerance : float
        The largest span of a window, (max - min) / max |value|, at which it stands still.

    Returns
    -------
    array of bool, shape (layers,)
    """
    signal = np.asarray(values, dtype=np.float64)
    marked = np.zeros(len(signal), dtype=bool)
    most = tolerance + ROUNDING
    for start in range(len(signal) - window + 1):
        here = signal[start : start + window]
        if not np.isnan(here).any() and np.ptp(here) <= most * np.abs(here).max():
            marked[start : start + window] = True
    return marked


def stretches(marked: ArrayLike) -> list[tuple[int, int]]:
    """List the first and last index of every run of true values."""
    padded = np.concatenate([[False], np.asarray(marked, dtype=bool), [False]])
    steps = np.diff(padded.astype(int))
    starts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


def find(
    signals: Mapping[str, ArrayLike],
    tolerances: Mapping[str, float],
    *,
    window: int,
    together: int,
) -> list[dict[str, int | str]]:
    """Find the plateaus of every signal, and those of several together.

    Parameters
    ----------
    signals : mapping
        Name -> its value at layers 0..L, NaN where it has none.
    tolerances : mapping
        Name -> the span that counts as standing still.
    window : int
        As `flat` takes it.
    together : int
        How many signals must stand still in a layer of a joint plateau.

    Returns
    -------
    list of dict
        `signal` (a name, or `joint`), `start` and `end`, the first and last layer of a plateau.
        In a run of layers neighbouring windows overlap: a signal that drifts slowly stands still
        in each of them and makes one long plateau.
    """
    marks = {name: flat(values, window, tolerances[name]) for name, values in signals.items()}
    marks[JOINT] = np.sum(list(marks.values()), axis=0) >= together
    return [
        {"signal": name, "start": start, "end": end}
        for name, marked in marks.items()
        for start, end in stretches(marked)
    ]


def merges(
    mass: ArrayLike, merged_at: Iterable[int], jump: float
) -> list[dict[str, int | str | float]]:
    """List the layers into which clusters merge, by what is seen of them.

    Parameters
    ----------
    mass : array, shape (layers,)
        Mass near 1 at layers 0..L.
    merged_at : iterable of int
        The layer of every merge of tracked clusters, one entry a merge.
    jump : float
        A rise of the mass near 1 from one layer to the next that is larger counts as a merge.

    Returns
    -------
    list of dict
        `layer`, `sign` (`clusters`: tracked clusters merge; `mass`: the mass near 1 jumps), and
        `size`: how many clusters merge into others, or by how much the mass rises.
    """
    layers, counts = np.unique(list(merged_at), return_counts=True)
    rises = np.diff(np.asarray(mass, dtype=np.float64))
    found: list[tuple[int, str, float]] = [
        (int(layer), "clusters", int(count)) for layer, count in zip(layers, counts, strict=True)
    ]
    found += [
        (int(at) + 1, "mass", float(rises[at])) for at in np.flatnonzero(rises > jump + ROUNDING)
    ]
    return [{"layer": layer, "sign": sign, "size": size} for layer, sign, size in sorted(found)]
