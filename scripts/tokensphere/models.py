"""Models: loading a checkpoint folder, and finding where its residual stream runs.

One mechanism serves every architecture: run the model once on a few tokens with hooks, see
which modules are its blocks and its final norm, and refuse a model whose states cannot be
vouched for.
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: a checkpoint folder needs no network

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tokensphere.harness.errors import UserError

# Parameters that a checkpoint may lack, because the residual stream does not touch them; such a
# head is left out of the model.
HEADS = ("pooler.",)

PROBE_TOKENS = 4


@dataclass(frozen=True)
class Anatomy:
    """Where the residual stream runs in a model.

    Attributes
    ----------
    blocks : tuple of nn.Module
        The blocks in the order they are called, one entry a call: a shared block stands in it
        as often as it is called.
    final_norm : nn.Module or None
        The norm after the last block, None where the last block's output is the model's own.
    causal : bool
        A token's state does not depend on later tokens (measured, not read from a config).
    """

    blocks: tuple[nn.Module, ...]
    final_norm: nn.Module | None
    causal: bool


def hide_progress_bars() -> None:
    """Keep the loading bars of transformers out of a job's output: the job has its own."""
    transformers.utils.logging.disable_progress_bar()


def load_tokenizer(folder: Path) -> transformers.PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint folder."""
    return transformers.AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )


def load(folder: Path, device: str, where: str, iterations: int = 0) -> Any:
    """Load the base model of a checkpoint folder in float32 with eager attention.

    Parameters
    ----------
    folder : Path
        `config.json` and `*.safetensors`.
    device : str
        A torch device.
    where : str
        How errors call the model.
    iterations : int
        How often the block of a model with shared weights runs; 0, as its configuration says.

    Returns
    -------
    transformers.PreTrainedModel
        In evaluation mode, without a language-model head.

    Raises
    ------
    UserError
        If the checkpoint lacks a tensor that the residual stream needs, or one has another
        shape: transformers would fill it with random numbers.
    """
    hide_progress_bars()
    model, loading = transformers.AutoModel.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # they are refused below, by name
        **({"num_hidden_layers": iterations} if iterations else {}),
    )
    missing = sorted(key for key in loading["missing_keys"] if not key.startswith(HEADS))
    mismatched = sorted(str(entry[0]) for entry in loading["mismatched_keys"])
    for problem, names in (("lacks", missing), ("has in another shape", mismatched)):
        if names:
            raise UserError(
                where,
                f"the checkpoint {problem} {len(names)} tensors, first {names[0]}",
                "use the checkpoint of this architecture (see its config.json)",
            )
    # transformers has filled a missing head with random numbers, other ones in every process;
    # a random draw would take their norms for trained ones.
    for head in {key.partition(".")[0] for key in loading["missing_keys"]}:
        setattr(model, head, None)
    return model.eval().to(device)


def resolve_device(device: str) -> str:
    """Turn `auto` into `cuda` where there is one and `cpu` elsewhere; refuse an absent `cuda`."""
    available = torch.cuda.is_available()
    if device == "auto":
        return "cuda" if available else "cpu"
    if device == "cuda" and not available:
        raise UserError(
            "config: device", "cuda is asked for, but torch finds no GPU", "set device: cpu or auto"
        )
    return device


def forward(model: Any, ids: list[int]) -> Tensor:
    """Run one prompt through a model; return its own last state, shape (tokens, width)."""
    device = next(model.parameters()).device
    tokens = torch.tensor([ids], device=device)
    with torch.inference_mode():
        out = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
    state: Tensor = out.last_hidden_state[0]
    return state


def _stream_in(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
    """Return the hidden states that a module is called with, first positional or by name."""
    states: Tensor = arguments[0] if arguments else keywords["hidden_states"]
    return states


def _stream_out(output: Any) -> Tensor:
    """Return the hidden states that a module returns, first of a tuple or alone."""
    states: Tensor = output[0] if isinstance(output, tuple) else output
    return states


@contextmanager
def residual_stream(
    blocks: tuple[nn.Module, ...], receive: Callable[[int, Tensor], None]
) -> Iterator[None]:
    """Hand every layer of the raw residual stream to `receive` while a model runs.

    Parameters
    ----------
    blocks : tuple of nn.Module
        As in `Anatomy`.
    receive : callable (layer, states)
        Called with layer 0 (the input of the first block), then 1..L (each block's output),
        states of shape (tokens, width); they are gone after the call unless copied.
    """
    layer = 0

    def enter(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if layer == 0:
            receive(0, _stream_in(arguments, keywords)[0])

    def leave(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        nonlocal layer
        layer += 1
        receive(layer, _stream_out(output)[0])

    handles = [blocks[0].register_forward_pre_hook(enter, with_kwargs=True)]
    handles += [block.register_forward_hook(leave) for block in dict.fromkeys(blocks)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def attention(
    blocks: tuple[nn.Module, ...], receive: Callable[[int, Tensor], None]
) -> Iterator[None]:
    """Hand the attention of every block to `receive` while a model runs.

    Attention weights are what the first module inside a block returns in the shape of them, (1,
    heads, tokens, tokens); a module around it may return the same once more.

    Parameters
    ----------
    blocks : tuple of nn.Module
        As in `Anatomy`.
    receive : callable (block, weights)
        Called with block 1..L at most once a block, weights of shape (heads, queries, keys), float
        of the model's type; they are gone after the call unless copied.
    """
    block, received = 0, 0

    def enter(module: nn.Module, arguments: Any) -> None:
        nonlocal block
        block += 1

    def leave(module: nn.Module, arguments: Any, output: Any) -> None:
        nonlocal received
        if received < block and (weights := _weights_in(output)) is not None:
            received = block
            receive(block, weights[0])

    once = dict.fromkeys(blocks)
    inside = dict.fromkeys(module for one in once for module in one.modules() if module not in once)
    handles = [one.register_forward_pre_hook(enter) for one in once]
    handles += [module.register_forward_hook(leave) for module in inside]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _weights_in(output: Any) -> Tensor | None:
    """Find attention weights in what a module returns: a square of tokens for each head."""
    for one in output if isinstance(output, tuple) else ():
        if isinstance(one, Tensor) and one.dim() == 4 and one.shape[-1] == one.shape[-2]:
            return one
    return None


def dissect(model: Any, ids: list[int], where: str) -> Anatomy:
    """Find the blocks and the final norm of a model by running it on a few tokens.

    The blocks are the members of the outermost module list that is called as often as the
    configuration says the model has layers. The final norm is the module whose output is the
    model's own last state and whose input is the last block's output.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    ids : list of int
        Tokens of a prompt, at least three.
    where : str
        How errors call the model.

    Raises
    ------
    UserError
        If the blocks are not found, do not hand their state from one to the next, a state is not
        finite, or the model's last state is neither the last block's output nor a norm of it.
    """
    ids = ids[:PROBE_TOKENS]
    calls = _probe(model, ids)
    blocks = _find_blocks(model, calls, where)
    stream: list[Tensor] = []
    with residual_stream(blocks, lambda layer, states: stream.append(states.clone())):
        own = forward(model, ids)
    _check_finite(stream, own, where)  # first: a NaN equals nothing and would fail every check
    _check_chain(calls, blocks, where)
    final_norm = None
    if not torch.equal(own, stream[-1]):
        final_norm = next(
            (
                module
                for module, entered, left in reversed(calls)
                if module not in blocks
                and torch.equal(left[0], own)
                and torch.equal(entered[0], stream[-1])
            ),
            None,
        )
        if final_norm is None:
            raise UserError(
                where,
                "check 'final norm' failed: the model's last state is neither its last block's "
                "output nor one module applied to it",
                "this architecture is not supported",
            )
    return Anatomy(blocks, final_norm, _is_causal(model, ids, blocks))


Call = tuple[nn.Module, Tensor, Tensor]


def _probe(model: Any, ids: list[int]) -> list[Call]:
    """Run a model and list its modules' calls that map hidden states to hidden states."""
    calls: list[Call] = []

    def leave(
        module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any
    ) -> None:
        if not arguments and "hidden_states" not in keywords:
            return
        entered, left = _stream_in(arguments, keywords), _stream_out(output)
        if all(isinstance(one, Tensor) and one.dim() == 3 for one in (entered, left)):
            calls.append((module, entered.clone(), left.clone()))

    handles = [module.register_forward_hook(leave, with_kwargs=True) for module in model.modules()]
    try:
        forward(model, ids)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _find_blocks(model: Any, calls: list[Call], where: str) -> tuple[nn.Module, ...]:
    layers = model.config.num_hidden_layers
    for _, parent in model.named_modules():
        if isinstance(parent, nn.ModuleList):
            children = list(parent)
            called = tuple(module for module, _, _ in calls if module in children)
            if len(called) == layers:
                return called
    raise UserError(
        where,
        f"check 'blocks' failed: no module list is called {layers} times in a forward pass",
        "this architecture is not supported",
    )


def _check_finite(stream: list[Tensor], own: Tensor, where: str) -> None:
    """Refuse weights that give infinite or undefined states; name the first such layer."""
    named = [(f"residual layer {layer}", states) for layer, states in enumerate(stream)]
    for place, states in [*named, ("the model's last state", own)]:
        if not torch.isfinite(states).all():
            raise UserError(
                where,
                f"check 'finite' failed: {place} holds values that are not finite",
                "the checkpoint is damaged: fetch it again",
            )


def _check_chain(calls: list[Call], blocks: tuple[nn.Module, ...], where: str) -> None:
    """Refuse a model that changes the state between two blocks: the hooks would miss it."""
    chain = [(entered, left) for module, entered, left in calls if module in blocks]
    for layer, ((_, left), (entered, _)) in enumerate(pairwise(chain), start=1):
        if not torch.equal(left, entered):
            raise UserError(
                where,
                f"check 'chain' failed: block {layer + 1} is not fed with block {layer}'s output",
                "this architecture is not supported",
            )


def _is_causal(model: Any, ids: list[int], blocks: tuple[nn.Module, ...]) -> bool:
    """Change the last token and see whether an earlier token's state moves."""

    def earlier_states(last: int) -> list[Tensor]:
        states: list[Tensor] = []
        with residual_stream(blocks, lambda layer, state: states.append(state[:-1].clone())):
            forward(model, [*ids[:-1], last])
        return states

    other = next(token for token in range(model.config.vocab_size) if token != ids[-1])
    before, after = earlier_states(ids[-1]), earlier_states(other)
    return all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def facts(model: Any, anatomy: Anatomy) -> dict[str, Any]:
    """Return the architecture facts that a store's attributes carry."""
    norms = {
        "rmsnorm" if "rms" in type(module).__name__.lower() else "layernorm"
        for module in model.modules()
        if "norm" in type(module).__name__.lower()
    }
    return {
        "architecture": model.config.model_type,
        "layers": len(anatomy.blocks),
        "heads": model.config.num_attention_heads,
        "width": model.config.hidden_size,
        "causal": anatomy.causal,
        "norm": "+".join(sorted(norms)),
        "norm_place": "post" if anatomy.final_norm is None else "pre",
        "final_norm": anatomy.final_norm is not None,
    }
