"""Errors that a user can mend: what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something in the user's hands is wrong: a config key, a prompt, a checkpoint, an install.

    Parameters
    ----------
    where : str
        The file, key or run, as the user knows it.
    what : str
        What is wrong, with the value that was found.
    hint : str
        What to do about it.
    """

    def __init__(self, where: str, what: str, hint: str) -> None:
        super().__init__(where, what, hint)
        self.where, self.what, self.hint = where, what, hint

    def __str__(self) -> str:
        return f"Error in {self.where}:\n  {self.what}\nHint: {self.hint}"


def suggest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Say which known word may have been meant; without one, `otherwise`, or list them all."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return otherwise or f"known here: {', '.join(known)}"
