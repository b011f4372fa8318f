"""Matrices of weights: their largest stretch, and the value matrix of a block."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating[Any]]

# Beyond, the eigenvalues of the smaller Gram matrix take many minutes of one core.
LARGEST = 6144
VECTOR = "a vector: no matrix"
NOT_FINITE = "it holds values that are not finite"
TOO_LARGE = f"the smaller side is above {LARGEST}: not computed"

# What holds the values of a block, by name; GPT-2 keeps them behind queries and keys.
FUSED = "c_attn"
VALUE = re.compile(rf"\.({FUSED}|v_proj|value|v_lin)\.weight$")
NOT_SELF = re.compile(r"cross|encoder_attn|encdec", re.IGNORECASE)
NONE_FOUND = "no value matrix (c_attn, v_proj, value or v_lin) in this block"


def operator_norm(tensor: Matrix) -> tuple[float, str]:
    """Return the largest singular value, from the eigenvalues of the smaller Gram matrix.

    Parameters
    ----------
    tensor : ndarray
        With more than two axes it is a matrix of its first axis against all others.

    Returns
    -------
    norm : float
        NaN of a vector, of a matrix whose smaller side is above `LARGEST`, and where a value is
        not finite.
    reason : str
        Why it is NaN; empty where it is not.
    """
    if not np.isfinite(tensor).all():
        return np.nan, NOT_FINITE
    if tensor.ndim < 2:
        return np.nan, VECTOR
    matrix = tensor.reshape(len(tensor), -1).astype(np.float64)
    if min(matrix.shape) > LARGEST:
        return np.nan, TOO_LARGE
    # Scaled, so that no square overflows or vanishes.
    scale = float(np.abs(matrix).max(initial=0.0))
    if scale == 0:
        return 0.0, ""
    matrix /= scale
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return scale * float(np.sqrt(np.linalg.eigvalsh(gram)[-1])), ""


def spectral_radius(matrix: Matrix) -> tuple[float, str]:
    """Return the largest magnitude of an eigenvalue; NaN, and why, where a matrix has none."""
    rows, columns = matrix.shape
    if not np.isfinite(matrix).all():
        return np.nan, NOT_FINITE
    if rows != columns:
        return np.nan, f"the value matrix is {rows} x {columns}: only a square one has eigenvalues"
    if rows > LARGEST:
        return np.nan, TOO_LARGE
    return float(np.abs(np.linalg.eigvals(matrix.astype(np.float64))).max()), ""


def block_of(name: str) -> int | None:
    """Return the number of the block that a parameter is in, from 1; None outside of blocks.

    It is the first number in the parameter's name, counted from 1. ALBERT's one block, which
    all layers share, is block 1.
    """
    numbers = [part for part in name.split(".") if part.isdigit()]
    return int(numbers[0]) + 1 if numbers else None


def is_value(name: str) -> bool:
    """Say whether a parameter holds the value matrix of a block's self-attention."""
    return bool(VALUE.search(name)) and not NOT_SELF.search(name)


def value_matrix(name: str, tensor: Matrix, heads: int, value_heads: int) -> Matrix:
    """Return the map from a state to the values of all heads, one below the other.

    Parameters
    ----------
    name : str
        For which `is_value` is true.
    tensor : ndarray
        (all values, width), or for `c_attn` (width, queries, keys and values side by side).
    heads, value_heads : int
        Of queries; of values, where several heads share one: each is then repeated for the heads
        that share it, so that the map is as wide as the heads together.
    """
    if f".{FUSED}." in name:
        return tensor[:, -(tensor.shape[1] // 3) :].T
    if value_heads == heads:
        return tensor
    by_head = tensor.reshape(value_heads, -1, tensor.shape[1])
    return np.repeat(by_head, heads // value_heads, axis=0).reshape(-1, tensor.shape[1])
