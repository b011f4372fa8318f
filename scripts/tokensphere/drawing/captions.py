"""Captions: rendered from a template and the numbers that the figure drew."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from tokensphere import statistics, tables


def render(template: Path, csv: Path, reading: str, facts: Mapping[str, Any]) -> str:
    """Render a caption in reStructuredText.

    Parameters
    ----------
    template : Path
        A Jinja template. It sees `data` (the figure's own csv as a data frame), `reading`
        (`published` or `controlled`) and the facts.
    csv : Path
        The numbers drawn: every number in the caption is read from it.
    reading : str
    facts : mapping
        Title, constants and options of the figure.

    Returns
    -------
    str
        One paragraph, white space collapsed.
    """
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    environment.filters |= {
        "number": number,
        "plain": plain,
        "listed": listed,
        "smallest_p": lambda units: number(statistics.smallest_p(int(units))),
    }
    text = environment.from_string(template.read_text(encoding="utf-8")).render(
        data=tables.read(csv), reading=reading, **facts
    )
    return " ".join(text.split()) + "\n"


def filled(value: Any, constants: Mapping[str, Any]) -> Any:
    """Fill constants into every text of nested options: `{near_one}` becomes 0.9."""
    if isinstance(value, str):
        return value.format(**constants)
    if isinstance(value, Mapping):
        return {key: filled(one, constants) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, constants) for one in value]
    return value


def number(value: float) -> str:
    """Write a number with three significant digits or more, `undefined` where there is none."""
    if value != value:
        return "undefined"
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def plain(text: object) -> str:
    """Write a text as reStructuredText and Jinja show it unchanged; braces become parentheses."""
    return re.sub(r"([\\*`|_])", r"\\\1", str(text)).replace("{", "(").replace("}", ")")


def listed(items: Any) -> str:
    """Join words as a sentence does: a, b and c."""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
