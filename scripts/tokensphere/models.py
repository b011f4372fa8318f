"""Models: loading a checkpoint folder, and finding where its residual stream runs.

One mechanism serves every architecture: run the model on a few tokens with hooks, see which
modules are its blocks and its final norm, and refuse a model whose states cannot be vouched
for. No architecture is known by name. docs/models.md lists the checks.
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: a checkpoint folder needs no network

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import accelerate
import torch
import transformers
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tokensphere import checks
from tokensphere.harness.errors import UserError

# Parameters that a checkpoint may lack, because the residual stream does not touch them; such a
# head is left out of the model.
HEADS = ("pooler.",)

PROBE_TOKENS = 4

# By how much of its length a state may move when a later token changes, in a model that does not
# see that token. Experts round a token's state by the company that it is computed in: by 1e-6 after
# 48 blocks. In models that see the token, trained or random, some state moves by 0.1 and more.
UNMOVED = 1e-3

# In 16 bits a state is rounded by as much in every block; four roundings are still far from 0.1.
ROUNDINGS = 4

# What configurations call the most tokens that a model can read.
LIMITS = ("max_position_embeddings", "max_seq_len")


@dataclass(frozen=True)
class Anatomy:
    """Where the residual stream runs in a model.

    Attributes
    ----------
    blocks : tuple of nn.Module
        The blocks in the order they are called, one entry a call: a shared block stands in it
        as often as it is called.
    final_norm : nn.Module or None
        The norm after the last block, None where there is none.
    causal : bool
        A token's state does not depend on later tokens (measured, not read from a config).
    width : int
        Entries of a state.
    heads : int or None
        Of every block, None where not every block shows the attention of as many.
    asked : bool
        The blocks show their attention only if `forward` asks for it.
    positions : int or None
        The most tokens that the model can read, None where there is no limit.
    projection : nn.Module or None
        What the model's own last state is made with after the last block, into another width.
    """

    blocks: tuple[nn.Module, ...]
    final_norm: nn.Module | None
    causal: bool
    width: int
    heads: int | None
    asked: bool = False
    positions: int | None = None
    projection: nn.Module | None = None


def hide_progress_bars() -> None:
    """Keep the loading bars of transformers out of a job's output: the job has its own."""
    transformers.utils.logging.disable_progress_bar()


def load_tokenizer(folder: Path) -> transformers.PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint folder."""
    return transformers.AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )


def load(
    folder: Path,
    device: str,
    where: str,
    iterations: int = 0,
    *,
    dtype: str = "float32",
    device_map: str = "",
    max_memory: Mapping[str, str] | None = None,
    offload: Path | None = None,
) -> Any:
    """Load the base model of a checkpoint folder with eager attention.

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
    dtype : str
        The type of the weights and of the forward pass.
    device_map : str
        `auto`: accelerate spreads the model over what there is of the device's kind, then the main
        memory, then the disk. Empty, all of it is on the device.
    max_memory : mapping, optional
        `cpu`, or the number of a GPU -> the most that weights may take there, such as 4GB. What is
        not named is not used. Default, what is free.
    offload : Path, optional
        A folder for weights that are kept on the disk in another type than the checkpoint's.

    Returns
    -------
    transformers.PreTrainedModel
        In evaluation mode, without a language-model head.

    Raises
    ------
    UserError
        If the checkpoint is of a kind that is not read (`checks.kind`), or if it lacks a tensor
        that the residual stream needs, or one has another shape: transformers would fill it with
        random numbers; if accelerate cannot spread this architecture.
    """
    checks.kind(folder, where)
    hide_progress_bars()
    spread = {}
    if device_map:
        spread = {
            "device_map": device_map,
            "max_memory": _room(device, max_memory, where),
            "offload_folder": offload,
        }
    try:
        model, loading = transformers.AutoModel.from_pretrained(
            folder,
            dtype=getattr(torch, dtype),
            attn_implementation="eager",
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            **spread,
            **({"num_hidden_layers": iterations} if iterations else {}),
        )
    except ValueError as error:
        if "device_map" not in str(error):
            raise
        raise checks.refusal(
            where,
            "device map",
            f"it cannot be spread over devices ({str(error).partition(chr(10))[0]})",
            "leave device_map out for this model",
        ) from error
    missing = sorted(key for key in loading["missing_keys"] if not key.startswith(HEADS))
    mismatched = sorted(str(entry[0]) for entry in loading["mismatched_keys"])
    unused = checks.unused(model, loading["unexpected_keys"])
    for problem, names in (
        ("lacks", missing),
        ("has in another shape", mismatched),
        ("has in modules that do not use them", unused),
    ):
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
    return model.eval() if device_map else model.eval().to(device)


def _room(
    device: str, max_memory: Mapping[str, str] | None, where: str
) -> dict[int | str, int | str]:
    """Return the devices that weights may be put on, and how much of them on each."""
    free: dict[int | str, int | str] = accelerate.utils.get_max_memory()
    if max_memory is None:
        return {place: size for place, size in free.items() if place == "cpu" or device != "cpu"}
    room = {int(place) if place.isdigit() else place: size for place, size in max_memory.items()}
    if absent := [place for place in room if place not in free]:
        gpus = sum(place != "cpu" for place in free)
        raise UserError(
            where,
            f"max_memory names GPU {absent[0]}, torch finds {gpus}",
            "give the GPUs of this machine, counted from 0, and cpu",
        )
    return dict(room)


def device_of(*modules: nn.Module) -> torch.device:
    """Return where to put what the first of these modules that has weights is given.

    What keeps its weights elsewhere until it runs (they are then on the device `meta`) moves what
    it is given by itself.
    """
    weights = (one for module in modules for one in module.parameters())
    places = (one.device for one in weights if one.device.type != "meta")
    return next(places, torch.device("cpu"))


def placed(model: Any) -> dict[str, str]:
    """Return on which device each part of a model is kept that is spread; empty of any other."""
    return {part: str(place) for part, place in getattr(model, "hf_device_map", {}).items()}


def computed_on(model: Any, device: str) -> str:
    """Say which devices a model computes on: of a model that is spread, its GPUs alone.

    Weights that are kept in main memory or on the disk are brought to the first GPU, if there is
    one; so the numbers do not depend on where weights are kept.
    """
    places = {*placed(model).values()}
    gpus = sorted(place.removeprefix("cuda:") for place in places - {"cpu", "disk"})
    if not gpus:
        return device
    return "cuda:" + "+".join(gpus)


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


def forward(model: Any, ids: list[int], *, ask: bool = False) -> Tensor:
    """Run one prompt through a model; return its own last state, shape (tokens, width).

    With `ask`, modules are asked for their attention: some of them return it only then. All of
    it is then in memory at once.
    """
    tokens = torch.tensor([ids], device=device_of(model))
    asked = {"output_attentions": True} if ask else {}
    with torch.inference_mode():
        out = model(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False, **asked
        )
    state: Tensor = out.last_hidden_state[0]
    return state


def _stream_in(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Return the hidden states that a module is called with, first positional or by name."""
    return arguments[0] if arguments else keywords.get("hidden_states")


def _stream_out(output: Any) -> Any:
    """Return the hidden states that a module returns, first of a tuple or alone."""
    return output[0] if isinstance(output, tuple | list) and output else output


def _copy(states: Tensor) -> Tensor:
    """Return a copy in main memory, where states from different devices can be compared."""
    return states.detach().to("cpu", copy=True)


def _of_prompt(states: Tensor) -> Tensor:
    """Return the states of the one prompt of a batch, whichever axis is that of the batch."""
    return states[:, 0] if states.shape[1] == 1 else states[0]


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
            receive(0, _of_prompt(_stream_in(arguments, keywords)))

    def leave(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        nonlocal layer
        layer += 1
        receive(layer, _of_prompt(_stream_out(output)))

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
    for one in output if isinstance(output, tuple | list) else ():
        if isinstance(one, Tensor) and one.dim() == 4:
            if one.shape[2] == 1 and one.shape[0] == one.shape[1]:  # the batch stands third
                return one.permute(2, 3, 0, 1)
            if one.shape[2] == one.shape[3]:
                return one
    return None


def dissect(model: Any, ids: list[int], where: str) -> Anatomy:
    """Find the blocks and the final norm of a model by running it on a few tokens.

    The blocks are the members of the outermost module list that is called as often as the
    configuration says the model has layers, and whose members hand the state from one to the next.
    The final norm is the module whose output is the model's own last state, whose input is the
    last block's output, and which takes the length out of a state.

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
        If a check fails that docs/models.md lists; the message names it.
    """
    ids = ids[:PROBE_TOKENS]
    settings = model.config.get_text_config()
    calls, own, positions = _probe(model, ids, where)
    blocks = _find_blocks(model, calls, getattr(settings, "num_hidden_layers", None), where)
    # Of the same pass as the model's last state: another may differ in its last bits.
    links = [(entered, left) for module, entered, left in calls if module in blocks]
    stream = [_of_prompt(states) for states in (links[0][0], *(left for _, left in links))]
    shown: dict[int, Tensor] = {}

    def show(block: int, weights: Tensor) -> None:
        shown[block] = weights.clone()

    with attention(blocks, show):
        forward(model, ids)
    if asked := len(shown) < len(blocks):
        with attention(blocks, show):
            forward(model, ids, ask=True)
    checks.finite(stream, own, where)  # first: a NaN equals nothing and would fail every check
    width = checks.width(stream, len(ids), settings, where)
    _check_chain(calls, blocks, where)
    final_norm, projection = _find_end(calls, blocks, stream[-1], own, where)
    causal = _is_causal(model, ids, blocks, where)
    weights = [shown[block] for block in sorted(shown)] if len(shown) == len(blocks) else []
    limits = [getattr(settings, name, None) for name in LIMITS]
    found = [most for most in (*positions, *limits) if most is not None and most > 0]
    return Anatomy(
        blocks=blocks,
        final_norm=final_norm,
        causal=causal,
        width=width,
        heads=checks.heads(weights, causal, settings, where),
        asked=asked,
        positions=min(found, default=None),
        projection=projection,
    )


Call = tuple[nn.Module, Tensor, Tensor]


class _Positions(TorchFunctionMode):
    """Watch the look-ups in tables while a model runs, and see how many positions they have.

    A table of positions is looked up at successive rows. Where the first is not row 0 (RoBERTa
    starts after its padding token), those before it are not for tokens.
    """

    def __init__(self, tokens: list[int]) -> None:
        super().__init__()
        self.tokens = tokens
        self.found: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.embedding and len(args) > 1:
            rows = args[0].flatten().tolist()
            successive = rows == [*range(min(rows), min(rows) + len(self.tokens))]
            if successive and rows != self.tokens:  # those are looked up in the vocabulary
                self.found.append(args[1].shape[0] - min(rows))
        return func(*args, **(kwargs or {}))


def _probe(model: Any, ids: list[int], where: str) -> tuple[list[Call], Tensor, list[int]]:
    """Run a model and list its modules' calls that map hidden states to hidden states.

    Returns
    -------
    calls : list of Call
    own : Tensor
        The model's own last state.
    positions : list of int
        How many positions the model's tables of positions have.
    """
    calls: list[Call] = []

    def leave(
        module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any
    ) -> None:
        entered, left = _stream_in(arguments, keywords), _stream_out(output)
        if all(isinstance(one, Tensor) and one.dim() == 3 for one in (entered, left)):
            calls.append((module, _copy(entered), _copy(left)))

    handles = [module.register_forward_hook(leave, with_kwargs=True) for module in model.modules()]
    before = checks.switches(model)
    try:
        with _Positions(ids) as tables:
            own = _copy(forward(model, ids))
    except Exception as error:  # of a model's own code, which may ask for anything
        raise checks.refusal(
            where,
            "forward",
            "the model cannot run on tokens alone, or has no last state "
            f"({type(error).__name__}: {str(error).partition(chr(10))[0]})",
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    checks.steady(before, checks.switches(model), where)
    return calls, own, tables.found


def _find_blocks(
    model: Any, calls: list[Call], layers: int | None, where: str
) -> tuple[nn.Module, ...]:
    lists = [[*one] for one in model.modules() if isinstance(one, nn.ModuleList)]
    called = [tuple(module for module, _, _ in calls if module in members) for members in lists]
    right = [blocks for blocks in called if len(blocks) == layers]
    if not right:
        raise checks.refusal(
            where, "blocks", f"no module list is called {layers} times in a forward pass"
        )
    return next((blocks for blocks in right if not _gap(calls, blocks)), right[0])


def _gap(calls: list[Call], blocks: tuple[nn.Module, ...]) -> int:
    """Return the first block whose output is not what the next one is fed with, 0 if none."""
    links = [(entered, left) for module, entered, left in calls if module in blocks]
    for layer, ((_, left), (entered, _)) in enumerate(pairwise(links), start=1):
        if not torch.equal(left, entered):
            return layer
    return 0


def _check_chain(calls: list[Call], blocks: tuple[nn.Module, ...], where: str) -> None:
    """Refuse a model that changes the state between two blocks: the hooks would miss it."""
    if layer := _gap(calls, blocks):
        raise checks.refusal(
            where, "chain", f"block {layer + 1} is not fed with block {layer}'s output"
        )


def _find_end(
    calls: list[Call], blocks: tuple[nn.Module, ...], last: Tensor, own: Tensor, where: str
) -> tuple[nn.Module | None, nn.Module | None]:
    """Find what makes the model's own last state of the last block's output.

    Returns
    -------
    final_norm, projection : nn.Module or None
        One of them at most.
    """
    if torch.equal(own, last):
        return None, None
    for module, entered, left in reversed(calls):
        if (
            module not in blocks
            and torch.equal(_of_prompt(left), own)
            and torch.equal(_of_prompt(entered), last)
        ):
            if isinstance(module, nn.Linear):
                return None, module
            if checks.is_norm(module, entered.to(device_of(module))):
                return module, None
    raise checks.refusal(
        where,
        "final norm",
        "the model's last state is neither its last block's output nor one norm of it",
    )


def _is_causal(model: Any, ids: list[int], blocks: tuple[nn.Module, ...], where: str) -> bool:
    """Change the last token and see whether an earlier token's state moves."""

    def states(ids: list[int]) -> Tensor:
        layers: list[Tensor] = []
        with residual_stream(blocks, lambda layer, states: layers.append(_copy(states))):
            forward(model, ids)
        return torch.stack(layers)

    def moved(place: int) -> Tensor:
        """Tell which tokens' states move, in any layer, with the token at a place."""
        # Rather to one of the prompt: token 0 may be padding, which models treat in their own way.
        others = chain(reversed(ids), range(model.config.get_text_config().vocab_size))
        other = next(token for token in others if token != ids[place])
        after = states([other if at == place else token for at, token in enumerate(ids)]).float()
        far, length = ((one**2).sum(dim=-1).sqrt() for one in (after - before, before))
        return (far > unmoved * length).any(dim=0)

    before = states(ids)
    unmoved = max(UNMOVED, ROUNDINGS * torch.finfo(before.dtype).eps)
    before = before.float()
    if moved(len(ids) - 1)[:-1].any():
        return False
    if not moved(0)[1:].any():
        raise checks.refusal(where, "mixing", "no token's state depends on another token")
    return True


def facts(model: Any, anatomy: Anatomy) -> dict[str, Any]:
    """Return the architecture facts that a store's attributes carry."""
    end = [] if anatomy.final_norm is None else [anatomy.final_norm]
    norms = {
        "rmsnorm" if "rms" in type(module).__name__.lower() else "layernorm"
        for part in (*anatomy.blocks, *end)
        for module in part.modules()
        if "norm" in type(module).__name__.lower()
    }
    return {
        "architecture": model.config.model_type,
        "layers": len(anatomy.blocks),
        "heads": anatomy.heads,
        "width": anatomy.width,
        "causal": anatomy.causal,
        "norm": "+".join(sorted(norms)),
        "norm_place": "post" if anatomy.final_norm is None else "pre",
        "final_norm": anatomy.final_norm is not None,
    }
