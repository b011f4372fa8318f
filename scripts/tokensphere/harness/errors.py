"""Errors that a user can mend: what is wrong, where, and what to do."""

from __future__ import annotations


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
