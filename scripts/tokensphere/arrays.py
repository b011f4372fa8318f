"""Arrays: .npz files, for what is no table: many numbers of one shape, each known by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and check them. Equal arrays are equal files: NumPy gives members no date.

    Parameters
    ----------
    path : str or Path
        Of any suffix.
    arrays : mapping
        Name -> array.

    Raises
    ------
    ValueError
        If there is none.
    RuntimeError
        If what is read back differs.
    """
    if not arrays:
        raise ValueError("a file of arrays needs at least one")
    with open(path, "wb") as file:  # by its name NumPy would add a suffix
        np.savez(file, **dict(arrays))  # type: ignore[arg-type]
    found = read(path)
    if list(found) != list(arrays):
        raise RuntimeError(f"{path} holds {list(found)}, not {list(arrays)}")
    for name, array in arrays.items():
        if found[name].dtype != array.dtype or found[name].tobytes() != array.tobytes():
            raise RuntimeError(f"{path}: {name} was not written as it is")


def read(path: str | Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of a file, in the order in which they were written."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
