"""A figure's real caption, from the numbers that the figure drew, as a reader sees it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import docutils.core
import jinja2
import pandas as pd

from tokensphere import tables
from tokensphere.drawing import captions

REPORT = Path(__file__).resolve().parents[2] / "workflow/report"


def as_read(caption: str) -> str:
    """Return what a reader sees: through Jinja, as Snakemake's report passes it, and docutils."""
    assert jinja2.Template(caption).render() == caption.rstrip("\n")
    complaints = io.StringIO()
    document = docutils.core.publish_doctree(
        caption, settings_overrides={"warning_stream": complaints, "report_level": 1}
    )
    assert complaints.getvalue() == ""
    assert len(document.children) == 1
    return document.astext()


def read(
    template: str,
    data: pd.DataFrame,
    reading: str,
    facts: Mapping[str, Any],
    csv: Path,
    *,
    keys: Sequence[str],
    empty: Sequence[str],
) -> str:
    """Write the rows of a reading as the figure's csv, and read the caption that follows it."""
    shown = ["published"] if reading == "published" else ["published", "controlled"]
    rows = data[data["reading"].isin(shown)].to_dict("records")
    tables.write(csv, rows, ["reading", *keys], empty=empty)
    return as_read(captions.render(REPORT / f"{template}.rst", csv, reading, facts))
