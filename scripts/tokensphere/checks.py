"""Checks: what makes a checkpoint or a model one whose states cannot be vouched for.

Each refuses with its name, as docs/models.md lists them; those that need a model's modules stand in
models.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tokensphere.harness.errors import UserError


def refusal(where: str, check: str, what: str, hint: str | None = None) -> UserError:
    """Make the error of a check that failed, for the caller to raise."""
    hint = hint or "this architecture is not supported"
    return UserError(where, f"check {check!r} failed: {what}", hint)


def kind(folder: Path, where: str) -> None:
    """Refuse a checkpoint that would be run as something else than it is, or not at all."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model_type = config.get("model_type")
    if config.get("auto_map"):
        raise refusal(
            where,
            "code",
            "config.json asks for Python code of its own (auto_map), which is never run",
            f"if transformers' own {model_type!r} is the same model, delete auto_map from it",
        )
    if config.get("quantization_config"):
        raise refusal(
            where,
            "quantisation",
            "the weights are quantised (quantization_config in config.json)",
            "use the checkpoint in float32, float16 or bfloat16, or a GGUF file",
        )
    try:
        known = transformers.AutoConfig.for_model(model_type) if model_type else None
    except ValueError:
        known = None
    if known is None or type(known) not in transformers.MODEL_MAPPING:
        raise refusal(
            where, "architecture", f"transformers has no base model of type {model_type!r}"
        )
    if config.get("is_encoder_decoder", known.is_encoder_decoder):
        raise refusal(
            where,
            "one stack",
            f"{model_type!r} is an encoder and a decoder, with two residual streams",
            "use an encoder or a decoder alone",
        )


def unused(model: Any, unexpected: Iterable[str]) -> list[str]:
    """List tensors that a checkpoint has for modules which take others only.

    A bias that the configuration denies would be left out without a word. Tensors of heads, which
    the base model lacks, and what old checkpoints hold beside parameters are no such fault.
    """
    takers = {
        name
        for name, module in model.named_modules()
        if not any(module.children()) and any(True for _ in module.parameters())
    }

    def taker(key: str) -> str:
        return key.removeprefix(f"{model.base_model_prefix}.").rpartition(".")[0]

    return sorted(key for key in unexpected if taker(key) in takers)


def switches(model: Any) -> dict[str, str | bool]:
    """List what modules are told by words and flags, such as a kind of attention."""
    return {
        f"{place}.{name}": value
        for place, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, str | bool)
    }


def steady(before: Mapping[str, str | bool], after: Mapping[str, str | bool], where: str) -> None:
    """Refuse a model that a short text puts into another mode: a longer one would be misread."""
    for name, value in after.items():
        if value != before.get(name, value):
            raise refusal(
                where,
                "steady",
                f"reading a few tokens changed the model: {name} from {before[name]!r} to "
                f"{value!r}",
            )


def finite(stream: list[Tensor], own: Tensor, where: str) -> None:
    """Refuse weights that give infinite or undefined states; name the first such layer."""
    named = [(f"residual layer {layer}", states) for layer, states in enumerate(stream)]
    for place, states in [*named, ("the model's last state", own)]:
        if not torch.isfinite(states).all():
            raise refusal(
                where,
                "finite",
                f"{place} holds values that are not finite",
                "the checkpoint is damaged: fetch it again",
            )


def width(stream: list[Tensor], tokens: int, settings: Any, where: str) -> int:
    """Refuse states that are not one a token, all of the width that the configuration says."""
    shapes = {tuple(states.shape) for states in stream}
    width = stream[0].shape[-1]
    configured = getattr(settings, "hidden_size", width)
    if shapes != {(tokens, configured)}:
        raise refusal(
            where,
            "width",
            f"{tokens} tokens have states of shape {sorted(shapes)}, not {(tokens, configured)}",
        )
    return width


def heads(weights: list[Tensor], causal: bool, settings: Any, where: str) -> int | None:
    """Count the heads of every block; refuse others than the configuration or the states say."""
    if len({one.shape for one in weights}) != 1:
        return None
    heads = weights[0].shape[0]
    configured = getattr(settings, "num_attention_heads", heads)
    if heads != configured:
        raise refusal(
            where, "heads", f"the blocks show {heads} heads, the configuration says {configured}"
        )
    if causal == any(bool(one.triu(1).any()) for one in weights):
        sees, moves = ("see", "do not move") if causal else ("do not see", "move")
        raise refusal(
            where, "causal", f"queries {sees} later keys, though their states {moves} with them"
        )
    return heads


def is_norm(module: nn.Module, states: Tensor) -> bool:
    """Tell whether a module takes the length out of a state."""
    with torch.inference_mode():
        # States so long that the small number in a norm's denominator is nothing.
        states = states - states.mean(dim=-1, keepdim=True)
        states = states / states.std(dim=-1, keepdim=True)
        one, two = module(states), module(1000 * states)
    # In 16 bits each of states, their thousandfold and both outputs is rounded. What is no norm
    # makes a thousandfold output.
    most = max(1e-3, 4 * torch.finfo(states.dtype).eps)
    return torch.allclose(one, two, rtol=most, atol=most * float(one.abs().max()))
