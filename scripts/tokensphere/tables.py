"""Tables: tidy CSV files, one a run and metric.

Numbers are written with as many digits as reading them back needs. An undefined value is an
empty field, and the column `reason` of its row says why.
"""

from __future__ import annotations

import csv
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Row = Mapping[str, Any]

# Columns of names: read as text even where every name looks like a number.
TEXT = ("model", "sweep", "weights", "prompt", "series", "where", "reason")


def write(
    path: str | Path,
    rows: Iterable[Row],
    keys: Sequence[str],
    empty: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> None:
    """Write a table and check it.

    Parameters
    ----------
    path : str or Path
    rows : iterable of mappings
        All with the same columns, in the order of the first row.
    keys : sequence of str
        The columns that together name a row.
    empty : sequence of str
        Columns that may be undefined without a reason (a band that too few units make).
    columns : sequence of str
        The columns of a table that may have no row; where not given, it needs one.

    Raises
    ------
    ValueError
        If there is no row and no `columns`, a row has other columns, two rows have the same keys,
        or a value is undefined without a reason.
    """
    rows = list(rows)
    if not rows and not columns:
        raise ValueError("a table needs at least one row")
    columns = list(columns or rows[0])
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        if list(row) != columns:
            raise ValueError(f"columns {list(row)} differ from the first row's {columns}")
        key = tuple(row[name] for name in keys)
        if key in seen:
            raise ValueError(f"two rows have the same {', '.join(keys)}: {key}")
        seen.add(key)
        undefined = [n for n, value in row.items() if _is_nan(value) and n not in empty]
        if undefined and not row.get("reason"):
            raise ValueError(f"row {key}: {undefined[0]} is undefined without a reason")
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow(_field(value) for value in row.values())


def _is_nan(value: Any) -> bool:
    return _is_real(value) and math.isnan(value)


def _is_real(value: Any) -> bool:
    """Say whether a value is a floating-point number: Python's, or NumPy's of any precision."""
    return isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral)


def _field(value: Any) -> str:
    if _is_nan(value):
        return ""
    return repr(float(value)) if _is_real(value) else str(value)


def read(path: str | Path) -> pd.DataFrame:
    """Read a table; an empty field is NaN, but a text column keeps its empty texts."""
    import pandas as pd

    # From pandas 3.1 on the default precision reads every number back to its last bit.
    frame = pd.read_csv(
        path, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(TEXT, "str")
    )
    for name in TEXT:
        if name in frame:
            frame[name] = frame[name].fillna("")
    return frame


def read_labels(path: str | Path) -> dict[tuple[int, str], NDArray[np.int64]]:
    """Read a table of cluster labels: (layer, state) -> the label of each token."""
    frame = read(path)
    return {
        (int(rows["layer"].iloc[0]), str(rows["state"].iloc[0])): rows.sort_values("token")[
            "label"
        ].to_numpy()
        for _, rows in frame.groupby(["layer", "state"])
    }


def states(rows: pd.DataFrame, reading: str) -> pd.DataFrame:
    """Choose the rows of one state a layer, as a reading wants it, in the order of layers.

    Parameters
    ----------
    rows : DataFrame
        Of one table of states or several, with `layer` and `state`.
    reading : str
        Published: the final norm, where there is one, in the place of the last layer; controlled:
        the raw residual stream.
    """
    normed = rows["state"] == "final_norm"
    if reading == "published" and normed.any():
        rows = rows[normed | (rows["layer"] < rows["layer"].max())]
    else:
        rows = rows[~normed]
    return rows.sort_values("layer", kind="stable")


def joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join tables of the states of one run by layer and state; of a column in several, the first.

    Raises
    ------
    pandas.errors.MergeError
        If one has two rows of a state.
    """
    every = frames[0]
    for frame in frames[1:]:
        more = [name for name in frame if name not in every or name in ("layer", "state")]
        every = every.merge(frame[more], on=["layer", "state"], validate="one_to_one")
    return every


def collect(
    paths: Sequence[str | Path], runs: Sequence[Mapping[str, str]], into: str | Path
) -> None:
    """Concatenate the per-run tables of one metric, each row with its run in front.

    Parameters
    ----------
    paths : sequence of paths
        Per-run tables with the same columns.
    runs : sequence of mappings
        For each table what names its run (model, weights, prompt, label, ...); all the same keys.
    into : str or Path

    Raises
    ------
    ValueError
        If two tables differ in their columns.
    """
    header: list[str] | None = None
    with open(into, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        for path, run in zip(paths, runs, strict=True):
            with open(path, newline="", encoding="utf-8") as table:
                reader = csv.reader(table)
                columns = [*run, *next(reader)]
                if header is None:
                    header = columns
                    writer.writerow(header)
                elif columns != header:
                    raise ValueError(f"{path} has columns {columns}, not {header}")
                writer.writerows([*run.values(), *row] for row in reader)
