"""Prompts: the text as read, and the tokens as fed to a model."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokensphere.harness.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FEWEST_TOKENS = 3


@dataclass(frozen=True)
class Tokens:
    """A prompt as a model is fed with it.

    Attributes
    ----------
    ids : list of int
    pieces : list of str
        Readable pieces that keep the tokenizer's own markers (a leading Ġ, ▁ or ##).
    special : list of bool
        Added by the tokenizer, not part of the text.
    markers : dict
        The tokenizer's markers, as `piece_markers` finds them.
    truncated : bool
        The text has more tokens than were fed.
    """

    ids: list[int]
    pieces: list[str]
    special: list[bool]
    markers: dict[str, str]
    truncated: bool


def read(path: str | Path, where: str) -> str:
    """Read a prompt's text: UTF-8, without the newline that ends the file.

    Raises
    ------
    UserError
        If the file is missing, empty, not UTF-8, or starts with a byte-order mark.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UserError(
            where,
            f"the prompt file {str(path)!r} cannot be read ({error.strerror})",
            "correct the path; relative paths start in the working directory",
        ) from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            where,
            f"the prompt file {str(path)!r} is not UTF-8 (byte {error.start})",
            "save it as UTF-8",
        ) from error
    if text.startswith("\ufeff"):
        raise UserError(
            where,
            f"the prompt file {str(path)!r} starts with a byte-order mark",
            "save it as UTF-8 without one: it would become a token",
        )
    text = text.replace("\r\n", "\n").removesuffix("\n")
    if not text.strip():
        raise UserError(where, f"the prompt file {str(path)!r} is empty", "write the text into it")
    return text


def read_module(module: str, lines: str, sha: str, where: str) -> str:
    """Read lines of the source of an installed Python module, without importing it.

    Parameters
    ----------
    module : str
        Dotted name.
    lines : str
        `FIRST-LAST`, from 1, both included.
    sha : str
        Expected sha256 of the text.
    where : str
        How errors call the prompt.

    Raises
    ------
    UserError
        If the package is not installed, has no such module, or holds another text there.
    """
    source = find_module(module, where)
    first, last = (int(number) for number in lines.split("-"))
    text = "\n".join(source.read_text(encoding="utf-8").splitlines()[first - 1 : last])
    if sha256(text) != sha:
        raise UserError(
            where,
            f"lines {lines} of {module} are another text than the one with sha256 {sha[:12]}…",
            "install the version that requirements.lock names, or state the lines and sha256 anew "
            f"(here it is {sha256(text)})",
        )
    return text


def find_module(module: str, where: str) -> Path:
    """Find the source of an installed Python module, without importing it.

    Raises
    ------
    UserError
        If the package is not installed or has no such module.
    """
    package, *inside = module.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UserError(
            where, f"the Python package {package!r} is not installed here", f"pip install {package}"
        )
    # Not find_spec of the whole name: that would import the package.
    source = Path(spec.origin)
    if inside:
        source = source.parent.joinpath(*inside).with_suffix(".py")
    if not source.is_file():
        raise UserError(where, f"{package!r} has no module {module!r}", "correct the module's name")
    return source


def load(entry: Mapping[str, Any], where: str) -> str:
    """Read a prompt's text from where its configuration entry says."""
    if "module" in entry:
        return read_module(entry["module"], entry["lines"], entry["sha256"], where)
    return read(entry["file"], where)


def write(path: str | Path, text: str) -> None:
    """Write a prompt's text as `read` takes it: UTF-8, one newline at the end."""
    Path(path).write_bytes((text + "\n").encode("utf-8"))


def sha256(text: str) -> str:
    """Return the sha256 of a prompt's text in UTF-8, without a newline at its end."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def tokenize(tokenizer: PreTrainedTokenizerBase, text: str, most: int, where: str) -> Tokens:
    """Turn a text into the tokens that a model is fed with.

    The tokenizer adds its own special tokens (BERT's [CLS] and [SEP]); none is added where it
    adds none. A longer text is cut to `most` tokens as fed, special ones included.

    Raises
    ------
    UserError
        If fewer than three tokens come out: no pair statistic means anything then.
    """
    full = tokenizer(text, verbose=False)["input_ids"]
    fed: Any = tokenizer(
        text, truncation=True, max_length=most, return_special_tokens_mask=True, verbose=False
    )
    ids = [int(token) for token in fed["input_ids"]]
    if len(ids) < FEWEST_TOKENS:
        raise UserError(
            where,
            f"the prompt has {len(ids)} tokens, the fewest that can be measured is {FEWEST_TOKENS}",
            "use a longer text",
        )
    markers = piece_markers(tokenizer)
    return Tokens(
        ids=ids,
        pieces=[_readable(piece, markers) for piece in tokenizer.convert_ids_to_tokens(ids)],
        special=[bool(flag) for flag in fed["special_tokens_mask"]],
        markers=markers,
        truncated=len(full) > len(ids),
    )


# Byte-level tokenizers write a byte as a letter: itself where that can be seen, else one of these.
_SEEN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _SEEN]
BYTE_OF = {chr(byte): byte for byte in _SEEN} | {chr(256 + i): b for i, b in enumerate(_HIDDEN)}
# The signs of white space that are kept, since they show where a word begins.
BYTE_LEVEL_SIGNS = {" ": "Ġ", "\n": "Ċ", "\t": "ĉ"}


def piece_markers(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Find the signs by which a tokenizer's pieces show where words begin, go on or end.

    Returns
    -------
    dict
        As `pieces.classes` takes it; empty for a tokenizer that uses none.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # a tokenizer in Python alone: its vocabulary tells
        vocabulary = tokenizer.get_vocab()
        if any(piece.startswith("▁") for piece in vocabulary):
            return {"space": "▁"}
        return {"continuation": "##"} if any(p.startswith("##") for p in vocabulary) else {}
    rules = json.loads(backend.to_str())
    steps = json.dumps([rules.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")])
    if '"ByteLevel"' in steps:
        return {"space": "".join(BYTE_LEVEL_SIGNS.values())}
    if json.dumps("▁").strip('"') in steps:
        return {"space": "▁"}
    model = rules["model"]
    if prefix := model.get("continuing_subword_prefix"):
        return {"continuation": prefix}
    if suffix := model.get("end_of_word_suffix"):
        return {"end": suffix}
    return {}


def _readable(piece: str, markers: Mapping[str, str]) -> str:
    """Show a byte-level piece as text (Ã© is é) but keep its sign of a leading space or newline.

    Other tokenizers' pieces are readable as they are. A byte of a character that is cut (half an
    emoji) is shown as SentencePiece does: <0xF0>.
    """
    if markers.get("space") != "".join(BYTE_LEVEL_SIGNS.values()) or not BYTE_OF.keys() >= {*piece}:
        return piece  # an added token is text already
    text = bytes(BYTE_OF[letter] for letter in piece).decode("utf-8", "surrogateescape")
    for sign, shown in BYTE_LEVEL_SIGNS.items():
        text = text.replace(sign, shown)
    return re.sub("[\udc80-\udcff]", lambda cut: f"<0x{ord(cut[0]) - 0xDC00:02X}>", text)
