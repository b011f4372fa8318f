"""A run as the tests load it: on the CPU, with so many threads, called `this run` in errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokensphere import extraction

THREADS = 2


def load(
    folder: Path,
    text: str,
    *,
    max_tokens: int = 512,
    iterations: int = 0,
    settings: dict[str, Any] | None = None,
    **describe: Any,
) -> extraction.Run:
    return extraction.load(
        folder,
        text,
        device="cpu",
        threads=THREADS,
        max_tokens=max_tokens,
        describe=describe,
        where="this run",
        iterations=iterations,
        **settings or {},
    )
