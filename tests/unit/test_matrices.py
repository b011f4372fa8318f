"""Matrices of weights, against NumPy's singular values and eigenvalues."""

import numpy as np
import pytest

from tokensphere import matrices

RANDOM = np.random.default_rng(0)


def drawn(*shape, scale=1.0):
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


# --- the operator norm


@pytest.mark.parametrize("shape", [(5, 5), (3, 40), (40, 3), (1, 7), (7, 1), (4, 3, 5)])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_the_operator_norm_is_the_largest_singular_value(shape, scale):
    tensor = drawn(*shape, scale=scale)
    twin = np.linalg.svd(tensor.reshape(len(tensor), -1).astype(np.float64), compute_uv=False)
    # Both in float64: the largest eigenvalue of a Gram matrix is good to about 40 roundings.
    assert matrices.operator_norm(tensor) == (pytest.approx(twin[0], rel=1e-14, abs=0), "")


def test_the_operator_norm_of_one_direction_is_its_length():
    tensor = np.outer([3, 4], [5, 12]).astype(np.float32)
    assert matrices.operator_norm(tensor)[0] == pytest.approx(65, rel=1e-14)


def test_a_matrix_of_zeros_has_norm_0():
    assert matrices.operator_norm(np.zeros((3, 2), np.float32)) == (0.0, "")


@pytest.mark.parametrize("shape", [(), (5,)])
def test_a_vector_has_no_operator_norm_and_says_so(shape):
    norm, reason = matrices.operator_norm(np.ones(shape, np.float32))
    assert np.isnan(norm)
    assert "vector" in reason


def test_a_matrix_too_large_to_compute_is_said_to_be(monkeypatch):
    monkeypatch.setattr(matrices, "LARGEST", 3)
    assert matrices.operator_norm(drawn(3, 9))[1] == ""
    for norm, reason in (
        matrices.operator_norm(drawn(4, 9)),
        matrices.spectral_radius(drawn(4, 4)),
    ):
        assert np.isnan(norm)
        assert "not computed" in reason


@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
def test_a_tensor_that_is_not_finite_has_no_norm_and_no_radius_and_says_so(spoilt):
    tensor = drawn(3, 3)
    tensor[1, 1] = spoilt
    for norm, reason in (
        matrices.operator_norm(tensor),
        matrices.operator_norm(tensor[1]),
        matrices.spectral_radius(tensor),
    ):
        assert np.isnan(norm)
        assert "not finite" in reason


# --- the spectral radius


@pytest.mark.parametrize("size", [1, 2, 17])
def test_the_spectral_radius_is_the_largest_magnitude_of_an_eigenvalue(size):
    matrix = drawn(size, size)
    # A twin without LAPACK's eigenvalues: |A^k|^(1/k) tends to it (Gelfand), for k = 2^30 to far
    # below a rounding; each of 30 squarings adds a few roundings, halved again by each root.
    power, log = matrix.astype(np.float64), 0.0
    for step in range(30):
        norm = np.linalg.norm(power)
        power, log = power / norm, log + np.log(norm) / 2**step
        power = power @ power
    radius, reason = matrices.spectral_radius(matrix)
    assert (radius, reason) == (pytest.approx(np.exp(log), rel=1e-7), "")


def test_a_rotation_has_complex_eigenvalues_of_magnitude_1():
    assert matrices.spectral_radius(np.array([[0, -1], [1, 0]], np.float32))[0] == 1.0


def test_a_matrix_that_is_not_square_has_no_eigenvalues_and_says_so():
    radius, reason = matrices.spectral_radius(drawn(3, 4))
    assert np.isnan(radius)
    assert "3 x 4" in reason


# --- names


@pytest.mark.parametrize(
    "name, block",
    [
        ("wte.weight", None),
        ("h.0.attn.c_attn.weight", 1),
        ("layers.29.mlp.up_proj.weight", 30),
        ("encoder.albert_layer_groups.0.albert_layers.0.attention.value.weight", 1),
        ("layers.3.mlp.experts.7.w1.weight", 4),
    ],
)
def test_the_block_of_a_parameter_is_read_from_its_name(name, block):
    assert matrices.block_of(name) == block


@pytest.mark.parametrize(
    "name, found",
    [
        ("h.0.attn.c_attn.weight", True),
        ("layers.0.self_attn.v_proj.weight", True),
        ("encoder.layer.0.attention.self.value.weight", True),
        ("transformer.layer.0.attention.v_lin.weight", True),
        ("h.0.attn.c_attn.bias", False),
        ("h.0.attn.c_proj.weight", False),
        ("layers.0.self_attn.k_proj.weight", False),
        ("encoder.layer.0.crossattention.self.value.weight", False),
        ("layers.0.encoder_attn.v_proj.weight", False),
    ],
)
def test_the_value_matrix_of_self_attention_is_known_by_name(name, found):
    assert matrices.is_value(name) == found


# --- the value matrix


def test_gpt2_keeps_values_behind_queries_and_keys():
    tensor = drawn(4, 12)
    value = matrices.value_matrix("h.0.attn.c_attn.weight", tensor, 2, 2)
    state = drawn(4)
    np.testing.assert_allclose(value @ state, (state @ tensor)[8:], rtol=1e-5, atol=1e-6)


def test_a_separate_value_matrix_is_itself():
    tensor = drawn(4, 4)
    assert matrices.value_matrix("layers.0.attn.v_proj.weight", tensor, 2, 2) is tensor


def test_heads_that_share_values_each_have_them():
    heads, shared, size, width = 6, 2, 2, 12
    tensor = drawn(shared * size, width)
    value = matrices.value_matrix("layers.0.self_attn.v_proj.weight", tensor, heads, shared)
    assert value.shape == (width, width)
    for head in range(heads):
        group = head // (heads // shared)  # neighbours share, as in transformers' repeat_kv
        np.testing.assert_array_equal(
            value[head * size : (head + 1) * size], tensor[group * size : (group + 1) * size]
        )
