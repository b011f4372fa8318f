"""Tables of a weight set: norms of its tensors, spectral radii of its value matrices.

A model is asked, not its file: its parameters have the same names for trained weights, whatever
their file calls them, and for random ones, which are drawn parameter by parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokensphere import baselines, matrices

NORMS = ("tensor", "layer", "trained_norm", "random_norm", "trained_operator_norm",
         "operator_norm", "reason")  # fmt: skip
UNTRAINED = (float("nan"), float("nan"))
NO_TRAINED = "an architecture alone has no trained weights"
VALUES = ("layer", "tensor", "spectral_radius", "reason")


def norms(
    model: Any, trained: Mapping[str, tuple[float, float]] | None = None
) -> list[dict[str, Any]]:
    """List the norms of each tensor of a model.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        In float32, on the CPU.
    trained : mapping, optional
        Tensor -> Frobenius and operator norm of the trained one, empty where an architecture has
        no trained weights; where not given, the model has the trained weights.

    Returns
    -------
    list of dict
        With the keys `NORMS`: `layer` is the number of the block from 1, empty outside of blocks;
        `random_norm` and `operator_norm` are of the model itself.

    Raises
    ------
    ValueError
        If the trained weights have other tensors.
    """
    parameters = dict(model.named_parameters())
    if trained and trained.keys() != parameters.keys():
        odd = sorted(trained.keys() ^ parameters.keys())
        raise ValueError(f"trained and random weights differ in {len(odd)} tensors, first {odd[0]}")
    rows = []
    for name, parameter in parameters.items():
        tensor = parameter.detach().numpy()
        frobenius = baselines.frobenius_norm(tensor)
        operator, reason = matrices.operator_norm(tensor)
        trained_norms = (frobenius, operator) if trained is None else trained.get(name, UNTRAINED)
        if trained == {}:
            reason = "; ".join(filter(None, [reason, NO_TRAINED]))
        row = (name, _number(name), trained_norms[0], frobenius, trained_norms[1], operator, reason)
        rows.append(dict(zip(NORMS, row, strict=True)))
    return rows


def value_radii(model: Any) -> list[dict[str, Any]]:
    """List the spectral radius of each block's value matrix, as `VALUES`, blocks in their order.

    A block without a value matrix that is known by its name has a row that says so.
    """
    heads = getattr(model.config, "num_attention_heads", 1)
    shared = getattr(model.config, "num_key_value_heads", None) or heads
    parameters = dict(model.named_parameters())
    held: dict[int, list[str]] = {}
    for name in parameters:
        block = matrices.block_of(name)
        if block is not None:
            held.setdefault(block, []).append(name)
    rows = []
    for block, names in sorted(held.items()):
        values = [name for name in names if matrices.is_value(name)]
        for name in values or [""]:
            if name:
                tensor = parameters[name].detach().numpy()
                radius, reason = matrices.spectral_radius(
                    matrices.value_matrix(name, tensor, heads, shared)
                )
            else:
                radius, reason = float("nan"), matrices.NONE_FOUND
            rows.append(dict(zip(VALUES, (block, name, radius, reason), strict=True)))
    return rows


def _number(name: str) -> int | str:
    block = matrices.block_of(name)
    return "" if block is None else block
