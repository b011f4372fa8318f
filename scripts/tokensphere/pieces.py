"""What kind of text each token is: punctuation, number, word, part of a word, or special.

Tokenizers mark where words begin or go on: byte-level ones (GPT-2) and SentencePiece put a sign
for the space in front of a piece, WordPiece (BERT) puts one in front of a continuation, some put
one behind the end of a word. A store says which signs its tokenizer uses (`piece_markers`). Without
the signs the pieces are text again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

SPECIAL, PUNCTUATION, NUMBER, SUBWORD, WORD = CLASSES = (
    "special",
    "punctuation",
    "number",
    "subword",
    "word",
)
FIRST = "first"  # position 0, where a table sets it apart: causal models make it the sink

# A byte of a character that the tokenizer has cut into pieces, as SentencePiece writes it.
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
# White space that is more than a space; every other sign of white space stands for one.
LINES_AND_TABS = {"Ċ": "\n", "ĉ": "\t"}


def classes(
    pieces: Sequence[str], special: Iterable[bool], markers: Mapping[str, str]
) -> list[str]:
    """Classify tokens by the text that they stand for.

    Parameters
    ----------
    pieces : sequence of str
        Readable pieces, one a token, in the order of the text.
    special : iterable of bool
        Which tokens the tokenizer added.
    markers : mapping
        The signs of the tokenizer: `space`, characters that stand for white space (`Ġ`, `▁`);
        `continuation`, what a piece begins with that goes on a word (`##`); `end`, what a piece
        ends with that ends one (`</w>`). Empty where there are none.

    Returns
    -------
    list of str
        For each token the first that holds: `special`; `punctuation`, no letter or digit is left
        once the signs are stripped; `number`, of letters and digits only digits; `subword`, it
        begins with a letter or digit and so ends the piece before it, with no white space
        between, or it begins within a character; `word`.
    """
    texts = [
        b" " if added else _text(piece, markers)
        for piece, added in zip(pieces, special, strict=True)
    ]
    characters = _characters(b"".join(texts))
    found, start = [], 0
    for text, added in zip(texts, special, strict=True):
        found.append(SPECIAL if added else _class(characters, start, start + len(text)))
        start += len(text)
    return found


def texts(
    pieces: Sequence[str], special: Iterable[bool], markers: Mapping[str, str]
) -> list[list[str]]:
    """Turn tokens back into the text that they stand for.

    Parameters
    ----------
    pieces, special, markers
        As `classes` takes them.

    Returns
    -------
    list of list of str
        For each token text and cut bytes in turn, text first: a character that lies in several
        tokens is the `<0xF0>` of its bytes in each. A special token is its own text. WordPiece
        keeps neither line breaks nor which words had a space between them.
    """
    parts = [
        piece.encode("utf-8", "replace") if added else _text(piece, markers)
        for piece, added in zip(pieces, special, strict=True)
    ]
    characters = _characters(b"".join(parts))
    found, start = [], 0
    for part in parts:
        found.append(_shown(part, characters, start))
        start += len(part)
    return found


def _shown(part: bytes, characters: Sequence[tuple[str, bool]], start: int) -> list[str]:
    """List text and cut bytes in turn of the bytes of one token, which begin at `start`."""
    shown, place = [""], 0
    while place < len(part):
        character, first = characters[start + place]
        size = len(character.encode("utf-8", "surrogateescape"))
        whole = first and place + size <= len(part) and not "\udc80" <= character <= "\udcff"
        if whole is (len(shown) % 2 == 0):
            shown.append("")
        shown[-1] += character if whole else f"<0x{part[place]:02X}>"
        place += size if whole else 1
    return shown


def _text(piece: str, markers: Mapping[str, str]) -> bytes:
    """Turn a piece into the bytes of its text, white space in the place of signs."""
    goes_on, end = markers.get("continuation", ""), markers.get("end", "")
    before = after = ""
    if goes_on:
        before = "" if piece.startswith(goes_on) else " "
        piece = piece.removeprefix(goes_on)
    if end:
        after = " " if piece.endswith(end) else ""
        piece = piece.removesuffix(end)
    text = piece.translate(
        {ord(sign): LINES_AND_TABS.get(sign, " ") for sign in markers.get("space", "")}
    )
    parts = BYTE.split(before + text + after)  # text and the digits of a byte in turn
    return b"".join(
        bytes.fromhex(part) if index % 2 else part.encode("utf-8", "replace")
        for index, part in enumerate(parts)
    )


def _characters(text: bytes) -> list[tuple[str, bool]]:
    """Say for each byte of a text in which character it lies, and whether it is its first."""
    characters: list[tuple[str, bool]] = []
    for character in text.decode("utf-8", "surrogateescape"):
        size = len(character.encode("utf-8", "surrogateescape"))
        characters += [(character, index == 0) for index in range(size)]
    return characters


def _class(characters: Sequence[tuple[str, bool]], start: int, stop: int) -> str:
    inside = [character for character, _ in characters[start:stop] if character.isalnum()]
    if not inside:
        return PUNCTUATION
    # A letter may be numeric too: 一 is the word "one", as well as a part of longer words.
    if all(character.isnumeric() and not character.isalpha() for character in inside):
        return NUMBER
    first, whole = characters[start]
    goes_on = start > 0 and first.isalnum() and characters[start - 1][0].isalnum()
    return SUBWORD if goes_on or not whole else WORD
