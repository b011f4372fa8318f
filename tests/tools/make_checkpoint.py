"""Checkpoints of the study's true shapes with random weights, to rehearse a run without a network.

    python tests/tools/make_checkpoint.py gpt2-xl FOLDER [--seed 0] [--tiny]

writes a folder that loads as the published checkpoint does: its shape, its family's own random
initialisation in float32, and a tokenizer of its family's kind that makes about as many tokens of
the prompts. A file beside the weights says what it is (`sources.STAND_IN`), and whatever is made
from it says so too. With `--tiny`, a narrow model of few layers, for tests.
"""

from __future__ import annotations

import argparse
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: nothing here needs a network

import hashlib
import json
import math
import shutil
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, processors
from tokenizers import pre_tokenizers as splitters
from tokenizers.trainers import BpeTrainer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))  # before an installed one, of another checkout

from tokensphere import prompts, sources  # noqa: E402

# What the published configurations say beside the defaults of their classes.
GPT2 = transformers.GPT2Config
BERT = transformers.BertConfig
ALBERT = transformers.AlbertConfig
SHAPES: dict[str, tuple[str, Any, dict[str, int]]] = {
    "gpt2": ("openai-community", GPT2, {}),
    "gpt2-medium": ("openai-community", GPT2, {"n_layer": 24, "n_head": 16, "n_embd": 1024}),
    "gpt2-large": ("openai-community", GPT2, {"n_layer": 36, "n_head": 20, "n_embd": 1280}),
    "gpt2-xl": ("openai-community", GPT2, {"n_layer": 48, "n_head": 25, "n_embd": 1600}),
    "bert-base-uncased": ("google-bert", BERT, {}),
    "bert-large-uncased": (
        "google-bert",
        BERT,
        {
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "hidden_size": 1024,
            "intermediate_size": 4096,
        },
    ),
    "albert-base-v2": (
        "albert",
        ALBERT,
        {"num_attention_heads": 12, "hidden_size": 768, "intermediate_size": 3072},
    ),
    "albert-xlarge-v2": (
        "albert",
        ALBERT,
        {
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "hidden_size": 2048,
            "intermediate_size": 8192,
        },
    ),
}
# The larger the model, the more layers and the wider, as among the true ones.
TINY = {"gpt2": (2, 32), "gpt2-medium": (3, 32), "gpt2-large": (4, 40), "gpt2-xl": (5, 48),
        "bert-base-uncased": (2, 32), "bert-large-uncased": (3, 40),
        "albert-base-v2": (2, 32), "albert-xlarge-v2": (3, 48)}  # fmt: skip
TINY_WORDS = 4000
TINY_RANGE = 0.2  # at this width a block then moves a state by about its own length

# In shards of this size: a shard is copied while it is written.
SHARD = "500MB"

# How many pieces are learnt of the prompts so that they come out at about their true lengths.
PIECES = {"gpt2": 2200, "bert": 1800, "albert": 1750}
# French is learnt from half of its prompt only: the true tokenizers know little of it.
HALF = "camus_letranger"
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ALBERT_SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
BLANK = "▁"


def texts() -> dict[str, str]:
    """Read the study's prompts."""
    config = yaml.safe_load((ROOT / "config/paper.yaml").read_text(encoding="utf-8"))
    read = {}
    for name, entry in config["prompts"].items():
        if "file" in entry:
            entry = entry | {"file": str(ROOT / entry["file"])}
        read[name] = prompts.load(entry, name)
    return read


def _to_learn(read: dict[str, str]) -> list[str]:
    return [text[: len(text) // 2] if name == HALF else text for name, text in read.items()]


def _learn(tokenizer: Tokenizer, read: dict[str, str], letters: list[str], family: str) -> None:
    trainer = BpeTrainer(vocab_size=PIECES[family], initial_alphabet=letters, show_progress=False)
    tokenizer.train_from_iterator(_to_learn(read), trainer)


def _by_id(tokenizer: Tokenizer) -> list[str]:
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=lambda piece: vocabulary[piece])


def _letters(normalizer: Any, read: dict[str, str]) -> list[str]:
    return sorted({*normalizer.normalize_str("".join(read.values()))} - {*" \n\t"})


def _surround(tokenizer: Tokenizer) -> None:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["[CLS]", "$A", "[SEP]"],
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )


# WordPiece and Unigram take what BPE has learnt: their own trainers give another vocabulary in
# every process.


def _byte_level(read: dict[str, str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitters.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    _learn(tokenizer, read, sorted(splitters.ByteLevel.alphabet()), "gpt2")
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def _word_piece(read: dict[str, str]) -> Tokenizer:
    normalizer = normalizers.BertNormalizer(lowercase=True)
    letters = _letters(normalizer, read)
    learnt = Tokenizer(models.BPE())
    learnt.normalizer = normalizer
    learnt.pre_tokenizer = splitters.Sequence(
        [
            splitters.BertPreTokenizer(),
            splitters.Metaspace(prepend_scheme="always", split=False),
        ]
    )
    _learn(learnt, read, letters, "bert")
    pieces = [
        *BERT_SPECIAL,
        *letters,
        *(f"##{letter}" for letter in letters),
        *(
            piece.removeprefix(BLANK) if piece.startswith(BLANK) else f"##{piece}"
            for piece in _by_id(learnt)
            if piece != BLANK
        ),
    ]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.add_special_tokens(BERT_SPECIAL)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitters.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    _surround(tokenizer)
    return tokenizer


def _unigram(read: dict[str, str]) -> Tokenizer:
    normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"\s+"), " "),
        ]
    )
    letters = _letters(normalizer, read)
    learnt = Tokenizer(models.BPE())
    learnt.normalizer = normalizer
    learnt.pre_tokenizer = splitters.Sequence([splitters.Metaspace(), splitters.Punctuation()])
    _learn(learnt, read, letters, "albert")
    found = Counter(piece for text in _to_learn(read) for piece in learnt.encode(text).tokens)
    # A sign after a blank is one piece, as likely as the sign.
    for letter in letters:
        found[BLANK + letter] = max(found[BLANK + letter], found[letter])
    pieces = dict.fromkeys([*_by_id(learnt), *(BLANK + letter for letter in letters)])
    total = math.log(found.total())
    scores = [(piece, math.log(found[piece] + 0.5) - total) for piece in pieces]
    tokenizer = Tokenizer(models.Unigram([*((one, 0.0) for one in ALBERT_SPECIAL), *scores], 1))
    tokenizer.add_special_tokens(ALBERT_SPECIAL)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitters.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    _surround(tokenizer)
    return tokenizer


LEARN = {"gpt2": _byte_level, "bert": _word_piece, "albert": _unigram}


@cache
def tokenizer_of(family: str) -> Tokenizer:
    """Make a tokenizer of a family's kind from the prompts; the same in every process."""
    return LEARN[family](texts())


def configuration(name: str, *, tiny: bool = False) -> Any:
    """Return the published configuration of a model, or a tiny one of its family."""
    _, make, shape = SHAPES[name]
    if not tiny:
        return make(**shape)
    layers, width = TINY[name]
    small = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "vocab_size": TINY_WORDS,
        "initializer_range": TINY_RANGE,
    }
    if make is not GPT2:
        small["intermediate_size"] = 2 * width
    else:  # the ids of its special tokens are the last
        small |= {"bos_token_id": TINY_WORDS - 1, "eos_token_id": TINY_WORDS - 1}
    if make is ALBERT:
        small["embedding_size"] = width // 2
    return make(**small)


def repository(name: str) -> str:
    """Return the repository of the hub that a model stands in for."""
    return f"{SHAPES[name][0]}/{name}"


def write(name: str, folder: str | Path, *, seed: int = 0, tiny: bool = False) -> Path:
    """Write a stand-in for a published checkpoint.

    Parameters
    ----------
    name : str
        A key of `SHAPES`.
    folder : str or Path
        Must not exist. It appears when it is complete.
    seed : int
        Of the weights. The same seed gives the same bytes.
    tiny : bool
        A narrow model of few layers.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    FileExistsError
        If the folder is there: it may hold the published weights.
    """
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder} exists; choose another place, or delete it first")
    transformers.utils.logging.disable_progress_bar()
    config = configuration(name, tiny=tiny)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer_of(config.model_type)
    )
    assert len(tokenizer) <= config.vocab_size
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Models of one shape are not one model.
        digest = hashlib.sha256(f"{name}.{seed}".encode()).digest()
        torch.manual_seed(int.from_bytes(digest[:4], "big"))
        model = transformers.AutoModel.from_config(config, dtype=torch.float32)
        model.save_pretrained(part, max_shard_size=SHARD)
        tokenizer.save_pretrained(part)
        marker = {"stands_in_for": repository(name), "weights": "random"}
        (part / sources.STAND_IN).write_text(json.dumps(marker) + "\n", encoding="utf-8")
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="a narrow model of few layers")
    arguments = parser.parse_args()
    try:
        write(arguments.name, arguments.folder, seed=arguments.seed, tiny=arguments.tiny)
    except FileExistsError as error:
        parser.exit(1, f"Error: {error}\n")
