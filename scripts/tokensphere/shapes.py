"""Shapes: architectures without a checkpoint, for random weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders
from tokenizers import models as tokenizer_models
from tokenizers.pre_tokenizers import ByteLevel

from tokensphere import hashes, models, weight_cache
from tokensphere.harness.errors import UserError


def ensure(
    cache: Path, identity: str, source: Mapping[str, Any], known: hashes.Cache, where: str
) -> Path:
    """Return a checkpoint folder of an architecture, writing it if it is not there yet.

    Its tensors are what the family's own initialisation draws. They give random schemes their names
    and shapes; nothing is ever measured on them.

    Parameters
    ----------
    cache : Path
        The folder of all cached weight sets.
    identity : str
        Of the source (`sources.look_up`).
    source : mapping
        `architecture`, the `model_type` of a family; `config`, what differs from its default
        configuration; `tokenizer`, a folder with one: without, each byte of a text is a token.
    known : hashes.Cache
        Hashes of files that did not change since they were last read.
    where : str
        How errors call the run.

    Raises
    ------
    UserError
        If transformers has no such family, or its vocabulary is smaller than the tokenizer's.
    """

    def write(part: Path) -> dict[str, Any]:
        models.hide_progress_bars()
        try:
            config = transformers.AutoConfig.for_model(source["architecture"], **source["config"])
        except (ValueError, TypeError) as error:
            raise UserError(
                where,
                f"transformers {transformers.__version__} makes no configuration of the "
                f"architecture {source['architecture']!r} ({str(error).partition(chr(10))[0]})",
                "give the model_type of a config.json, and keys that its family has",
            ) from error
        tokenizer = _tokenizer(source)
        if len(tokenizer) > config.vocab_size:
            raise UserError(
                where,
                f"the tokenizer has {len(tokenizer)} tokens, vocab_size is {config.vocab_size}",
                f"set config.vocab_size to {len(tokenizer)} or more",
            )
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(config, dtype=torch.float32)
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        return {"source": identity}

    return weight_cache.ensure(cache, [identity, "shape", hashes.of_file(__file__)], write, known)


def _tokenizer(source: Mapping[str, Any]) -> Any:
    if "tokenizer" in source:
        return models.load_tokenizer(Path(source["tokenizer"]))
    letters = {letter: index for index, letter in enumerate(sorted(ByteLevel.alphabet()))}
    of_bytes = Tokenizer(tokenizer_models.BPE(vocab=letters, merges=[]))
    of_bytes.pre_tokenizer = ByteLevel(add_prefix_space=False)
    of_bytes.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=of_bytes)
