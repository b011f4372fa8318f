"""One log a job: everything to its file, warnings and errors to the terminal as well."""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path

from tokensphere.harness.errors import UserError

logger = logging.getLogger("tokensphere")


def start(path: str | Path) -> None:
    """Send the log of this process to a new file at `path`, and its warnings to stderr too."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(path, mode="w", encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.WARNING)
    terminal.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    root = logging.getLogger()
    root.handlers = [file, terminal]
    root.setLevel(logging.WARNING)
    logger.setLevel(logging.DEBUG)
    logging.captureWarnings(True)


def report(error: BaseException) -> None:
    """Log a failure: the traceback to the file, what the user needs to know to both."""
    trace = "".join(traceback.format_exception(error))
    logger.info("%s", trace.rstrip())  # below WARNING: the file alone
    if isinstance(error, UserError):
        logger.error("%s", error)
    else:
        logger.error("%s: %s (traceback in the job's log)", type(error).__name__, error)


class Progress:
    """Count a job's steps: a bar on a terminal, one line a step in the log.

    The bar shows only where work takes more than two seconds.

    Parameters
    ----------
    unit : str
        What a step is, in the singular.
    total : int
    description : str
        What stands before the bar.
    """

    def __init__(self, unit: str, total: int, description: str) -> None:
        from tqdm import tqdm

        self._unit, self._total, self._done = unit, total, 0
        self._bar = tqdm(
            total=total,
            unit=unit,
            desc=description,
            delay=2,
            leave=False,
            disable=not sys.stderr.isatty(),
        )

    def step(self) -> None:
        """Note that one more step is done; the last one ends the bar."""
        self._done += 1
        logger.info("%s %d of %d", self._unit, self._done, self._total)
        self._bar.update()
        if self._done == self._total:
            self._bar.close()
