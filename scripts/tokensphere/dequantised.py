"""GGUF files: quantised weights turned back into float32, once, into the weight cache."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import gguf  # noqa: F401  (transformers needs it, and the versions of a job name it)
import torch
import transformers

from tokensphere import hashes, models, weight_cache


def ensure(cache: Path, source: str, file: Path, known: hashes.Cache) -> Path:
    """Return the checkpoint folder of a GGUF file, dequantising it if it is not there yet.

    Parameters
    ----------
    cache : Path
        The folder of all cached weight sets.
    source : str
        Identity of the file (`sources.identify`).
    file : Path
        The GGUF file; its tokenizer is inside it.
    known : hashes.Cache
        Hashes of files that did not change since they were last read.
    """

    def write(part: Path) -> dict[str, Any]:
        place: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
        models.hide_progress_bars()
        quantised = transformers.AutoModel.from_pretrained(
            file.parent, dtype=torch.float32, **place
        )
        config = quantised.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config  # the weights are plain float32 now
        model = transformers.AutoModel.from_config(config, dtype=torch.float32)
        model.load_state_dict(quantised.state_dict())
        model.save_pretrained(part)
        transformers.AutoTokenizer.from_pretrained(file.parent, **place).save_pretrained(part)
        return {"source": source, "dequantised_by": f"gguf {metadata.version('gguf')}"}

    return weight_cache.ensure(
        cache, [source, "dequantised", hashes.of_file(__file__)], write, known
    )
