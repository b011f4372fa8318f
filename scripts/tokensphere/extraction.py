"""Extraction: a forward pass of one model over one prompt, streamed into a store.

One pass stores the residual stream, another the attention, so that neither is computed again
because the other is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokensphere import models, prompts, store
from tokensphere.harness.errors import UserError

# The check repeats the norm on the same numbers with the same kernel: equal up to the order of
# a sum, in units of the state itself, which a final norm brings to order 1..100. In 16 bits the sum
# is still one of float32, but where it falls between two numbers of 16 bits, the result is either:
# they are one eps of the type apart.
NORM_TOLERANCE = 1e-5

Progress = Callable[[int], Callable[[], None]]


@dataclass(frozen=True)
class Run:
    """A model that is loaded, and the prompt that it is to read.

    Attributes
    ----------
    model : transformers.PreTrainedModel
    anatomy : models.Anatomy
    tokens : prompts.Tokens
    attributes : dict
        What a store says of the run: `describe`, the architecture, the prompt and the versions.
    where : str
        How errors call the run.
    """

    model: Any
    anatomy: models.Anatomy
    tokens: prompts.Tokens
    attributes: dict[str, Any]
    where: str


def load(
    folder: Path,
    text: str,
    *,
    device: str,
    threads: int,
    max_tokens: int,
    describe: Mapping[str, Any],
    where: str,
    iterations: int = 0,
    dtype: str = "float32",
    device_map: str = "",
    max_memory: Mapping[str, str] | None = None,
    offload: Path | None = None,
) -> Run:
    """Load the model of one run, find its parts, and cut its prompt into tokens.

    Parameters
    ----------
    folder : Path
        The checkpoint folder of the weights.
    text : str
        The prompt.
    device : str
        `auto`, `cpu` or `cuda`.
    threads : int
        Threads that torch uses: the last bits of the states depend on it.
    max_tokens : int
        A longer prompt is cut to so many tokens as fed.
    describe : mapping
        Further attributes of the store: what the model, weights, prompt and files are.
    where : str
        How errors call the run.
    iterations : int
        How often the block of a model with shared weights runs; 0, as its configuration says.
    dtype, device_map, max_memory, offload
        As `models.load` takes them; a store has the states of any type as float32.

    Raises
    ------
    UserError
        If the prompt is too short or the model's states cannot be vouched for.
    """
    torch.set_num_threads(threads)
    device = models.resolve_device(device)
    _compute_exactly()
    model = models.load(
        folder,
        device,
        where,
        iterations,
        dtype=dtype,
        device_map=device_map,
        max_memory=max_memory,
        offload=offload,
    )
    tokenizer = models.load_tokenizer(folder)
    tokens = prompts.tokenize(tokenizer, text, max_tokens, where)
    anatomy = models.dissect(model, tokens.ids, where)
    if anatomy.positions is not None and len(tokens.ids) > anatomy.positions:
        tokens = prompts.tokenize(tokenizer, text, anatomy.positions, where)
    attributes = {
        **describe,
        **models.facts(model, anatomy),
        "n_tokens": len(tokens.ids),
        "truncated": tokens.truncated,
        "piece_markers": tokens.markers,
        "text_sha256": prompts.sha256(text),
        "dtype": dtype,
        "device": models.computed_on(model, device),
        "threads": threads,
        "versions": {
            name: metadata.version(name) for name in ("torch", "transformers", "tokenizers")
        },
    }
    return Run(model, anatomy, tokens, attributes, where)


def extract(run: Run, path: Path, progress: Progress = lambda total: lambda: None) -> None:
    """Write the store of one run: every layer of the residual stream, and the final norm.

    The states leave the model layer by layer, so that memory holds the model and two layers.
    When all is written, the store is opened again, read whole and checked.

    Parameters
    ----------
    run : Run
    path : Path
        The file to write; the caller moves it into place.
    progress : callable (number of layers) -> callable ()
        What it returns is called after each layer.

    Raises
    ------
    UserError
        If the end of the store is not the model's own last state.
    store.StoreError
        If what was written is not what was meant.
    """
    step = progress(run.attributes["layers"] + 1)
    with store.Writer(path, run.attributes) as writer:
        writer.write_tokens(run.tokens.ids, run.tokens.pieces, run.tokens.special)

        def receive(layer: int, states: Tensor) -> None:
            if len(states) != len(run.tokens.ids):
                raise UserError(
                    run.where,
                    f"check 'width' failed: residual layer {layer} has {len(states)} states for "
                    f"{len(run.tokens.ids)} tokens",
                    "this architecture is not supported",
                )
            writer.write_residual(layer, _array(states))
            step()

        with models.residual_stream(run.anatomy.blocks, receive):
            own = models.forward(run.model, run.tokens.ids)
        if run.anatomy.final_norm is not None:
            writer.write_final_norm(_array(own))
    store.check(path)
    check_last_state(path, run.anatomy, _array(own), run.where)


def attend(run: Run, path: Path, progress: Progress = lambda total: lambda: None) -> None:
    """Write the attention of one run: every head of every block.

    The weights leave the model block by block, and each block's are checked as they leave it.
    When all is written, the store is opened again, read whole and checked.

    Parameters
    ----------
    run, path, progress
        As `extract` takes them.

    Raises
    ------
    UserError
        If a block shows no attention weights, or they are no weights: a row does not add up to
        1, or a query of a causal model sees a later key.
    store.StoreError
        If what was written is not what was meant.
    """
    layers, heads, tokens = (run.attributes[key] for key in ("layers", "heads", "n_tokens"))
    if heads is None:
        raise _no_attention(run.where, "not every block shows its attention, of as many heads")
    step = progress(layers)
    received: list[int] = []
    with store.AttentionWriter(path, run.attributes) as writer:

        def receive(block: int, weights: Tensor) -> None:
            matrices = _array(weights)
            problem = store.attention_problem(matrices, run.anatomy.causal, run.attributes["dtype"])
            if matrices.shape != (heads, tokens, tokens):
                problem = f"its weights have shape {matrices.shape}, not {(heads, tokens, tokens)}"
            if problem:
                raise _no_attention(run.where, f"block {block}, {problem}")
            received.append(block)
            writer.write_attention(block, matrices)
            step()

        with models.attention(run.anatomy.blocks, receive):
            models.forward(run.model, run.tokens.ids, ask=run.anatomy.asked)
        if received != list(range(1, layers + 1)):
            block = next(block for block in range(1, layers + 1) if block not in received)
            raise _no_attention(run.where, f"block {block} shows none")
    store.check_attention(path)


def _no_attention(where: str, what: str) -> UserError:
    return UserError(
        where,
        f"check 'attention' failed: {what}",
        "the attention of this architecture is not supported; its residual stream may be",
    )


def check_last_state(
    path: Path, anatomy: models.Anatomy, own: np.ndarray[Any, Any], where: str
) -> None:
    """Compare the end of a store with the model's own output.

    Where the model has a final norm, it is applied to the stored residual stream of layer L and
    must give both the stored final norm and the model's own last state; where it has a projection,
    that must give the model's own; where it has neither, the stored layer L must be that state.

    Raises
    ------
    UserError
        If they differ by more than 1e-5 of the largest entry, or of 1 where that is smaller; in 16
        bits by more than one rounding of it.
    """
    with store.Activations(path) as activations:
        last, name = activations.residual(activations.layers), "residual layer L"
        dtype = getattr(torch, activations.attributes["dtype"])
        for part in ("final_norm", "projection"):
            if (module := getattr(anatomy, part)) is not None:
                device = models.device_of(module, anatomy.blocks[-1])  # some norms have no weights
                with torch.inference_mode():
                    last = _array(module(torch.from_numpy(last).to(device, dtype)[None])[0])
                name = f"{part}({name})"
        pairs = [(name, last)]
        if anatomy.final_norm is not None:
            pairs.append(("the stored final norm", activations.final_norm()))
    for name, state in pairs:
        error = float(np.abs(state - own).max())
        most = max(NORM_TOLERANCE, 0 if dtype == torch.float32 else torch.finfo(dtype).eps)
        if not error <= most * max(1.0, float(np.abs(own).max())):
            raise UserError(
                where,
                f"check 'last state' failed: {name} differs from the model's output by {error:.3g}",
                "the store would be wrong: report this model",
            )


def _array(states: Tensor) -> np.ndarray[Any, Any]:
    return states.detach().to("cpu", torch.float32).contiguous().numpy()


def _compute_exactly() -> None:
    """Keep float32 products in float32, and choose kernels that repeat themselves."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)
