"""Extraction: one forward pass of one model over one prompt, streamed into a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokensphere import models, prompts, store
from tokensphere.harness.errors import UserError

# The check repeats the norm on the same numbers with the same kernel: equal up to the order of
# a sum, in units of the state itself, which a final norm brings to order 1..100.
NORM_TOLERANCE = 1e-5


def extract(
    folder: Path,
    text: str,
    path: Path,
    *,
    device: str,
    threads: int,
    max_tokens: int,
    describe: Mapping[str, Any],
    where: str,
    progress: Callable[[int], Callable[[], None]] = lambda total: lambda: None,
) -> dict[str, Any]:
    """Write the store of one run: every layer of the residual stream, and the final norm.

    The states leave the model layer by layer, so that memory holds the model and two layers.
    When all is written, the store is opened again, read whole and checked.

    Parameters
    ----------
    folder : Path
        The checkpoint folder of the weights.
    text : str
        The prompt.
    path : Path
        The file to write; the caller moves it into place.
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
    progress : callable (number of layers) -> callable ()
        Called once the model is known; what it returns is called after each layer.

    Returns
    -------
    dict
        The store's attributes.

    Raises
    ------
    UserError
        If the prompt is too short or the model's states cannot be vouched for.
    store.StoreError
        If what was written is not what was meant.
    """
    torch.set_num_threads(threads)
    device = models.resolve_device(device)
    _compute_exactly()
    model = models.load(folder, device, where)
    most = min(max_tokens, getattr(model.config, "max_position_embeddings", max_tokens))
    tokens = prompts.tokenize(models.load_tokenizer(folder), text, most, where)
    anatomy = models.dissect(model, tokens.ids, where)
    attributes = {
        **describe,
        **models.facts(model, anatomy),
        "n_tokens": len(tokens.ids),
        "truncated": tokens.truncated,
        "piece_markers": tokens.markers,
        "text_sha256": prompts.sha256(text),
        "dtype": "float32",
        "device": device,
        "threads": threads,
        "versions": {
            name: metadata.version(name) for name in ("torch", "transformers", "tokenizers")
        },
    }
    step = progress(attributes["layers"] + 1)
    with store.Writer(path, attributes) as writer:
        writer.write_tokens(tokens.ids, tokens.pieces, tokens.special)

        def receive(layer: int, states: Tensor) -> None:
            writer.write_residual(layer, _array(states))
            step()

        with models.residual_stream(anatomy.blocks, receive):
            own = models.forward(model, tokens.ids)
        if anatomy.final_norm is not None:
            writer.write_final_norm(_array(own))
    store.check(path)
    check_last_state(path, anatomy, _array(own), where)
    return dict(writer.attributes)


def check_last_state(
    path: Path, anatomy: models.Anatomy, own: np.ndarray[Any, Any], where: str
) -> None:
    """Compare the end of a store with the model's own output.

    Where the model has a final norm, it is applied to the stored residual stream of layer L and
    must give both the stored final norm and the model's own last state; where it has none, the
    stored layer L must be that state.

    Raises
    ------
    UserError
        If they differ by more than 1e-5 of the largest entry, or of 1 where that is smaller.
    """
    with store.Activations(path) as activations:
        last = activations.residual(activations.layers)
        if anatomy.final_norm is None:
            pairs = [("residual layer L", last)]
        else:
            # Not the norm's own device: some norms have no parameters.
            device = next(anatomy.blocks[-1].parameters()).device
            with torch.inference_mode():
                normed = anatomy.final_norm(torch.from_numpy(last).to(device)[None])[0]
            pairs = [
                ("final_norm(residual layer L)", _array(normed)),
                ("the stored final norm", activations.final_norm()),
            ]
    for name, state in pairs:
        error = float(np.abs(state - own).max())
        if not error <= NORM_TOLERANCE * max(1.0, float(np.abs(own).max())):
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
