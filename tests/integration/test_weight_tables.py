"""Tables of weights, on tiny models and, where they are found, on the study's own."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tokensphere import baselines, hashes, models, tables, weight_cache, weight_tables
from tools import checkpoints
from tools.checkpoints import HEADS, WIDTH

KINDS = ("gpt2", "llama", "bert", "albert")


def tensors(folder: Path) -> dict[str, np.ndarray]:
    """A checkpoint's tensors in float64, read without transformers."""
    return {
        name: one.astype(np.float64)
        for name, one in load_file(folder / "model.safetensors").items()
    }


def load(folder: Path):
    return models.load(folder, "cpu", "this model")


def draw(folder: Path, cache: Path, scheme: str) -> Path:
    return baselines.ensure(
        cache, "sha256:source", folder, scheme, 0, known=hashes.Cache(""), where="this run"
    )


# --- norms


@pytest.mark.parametrize("kind", KINDS)
def test_trained_norms_are_those_of_the_file(checkpoint, kind):
    folder = checkpoint(kind)
    rows = {row["tensor"]: row for row in weight_tables.norms(load(folder))}
    held = tensors(folder)
    assert rows.keys() == held.keys()
    for name, tensor in held.items():
        row = rows[name]
        # Sums of squares in float64, in another order: 1e-12.
        assert row["trained_norm"] == pytest.approx(np.linalg.norm(tensor), rel=1e-12)
        assert row["random_norm"] == row["trained_norm"]
        if tensor.ndim == 2:
            largest = np.linalg.svd(tensor, compute_uv=False)[0]
            assert row["operator_norm"] == pytest.approx(largest, rel=1e-12)
            assert row["reason"] == ""
        else:
            assert np.isnan(row["operator_norm"])
            assert "vector" in row["reason"]
        np.testing.assert_equal(row["trained_operator_norm"], row["operator_norm"])


@pytest.mark.parametrize("kind", KINDS)
def test_random_norms_stand_beside_the_trained_ones_as_the_cache_keeps_them(
    checkpoint, tmp_path, kind
):
    folder = checkpoint(kind)
    place = draw(folder, tmp_path, "shuffled")
    before = {row["tensor"]: row for row in weight_tables.norms(load(folder))}
    trained = {
        name: (row["trained_norm"], row["trained_operator_norm"]) for name, row in before.items()
    }
    rows = {row["tensor"]: row for row in weight_tables.norms(load(place), trained)}
    manifest = json.loads((place / weight_cache.MANIFEST).read_text())
    for kept in manifest["tensors"]:
        row = rows.pop(kept["tensor"])
        assert row["trained_norm"] == pytest.approx(kept["trained_norm"], rel=1e-12)
        assert row["random_norm"] == pytest.approx(kept["random_norm"], rel=1e-12)
        np.testing.assert_equal(
            row["trained_operator_norm"], before[kept["tensor"]]["operator_norm"]
        )
    assert not rows


def test_orthogonal_matrices_have_operator_norm_1(checkpoint, tmp_path):
    model = load(draw(checkpoint("bert"), tmp_path, "orthogonal"))
    rows = [row for row in weight_tables.norms(model) if row["layer"] and not row["reason"]]
    assert rows
    for row in rows:  # entries rounded to float32: 2^-24 of the Frobenius norm at most
        assert row["operator_norm"] == pytest.approx(1, abs=2**-24 * np.sqrt(2 * WIDTH))


def test_the_layer_of_a_tensor_is_its_block_from_1(checkpoint):
    layers = {row["tensor"]: row["layer"] for row in weight_tables.norms(load(checkpoint("gpt2")))}
    assert layers["wte.weight"] == layers["ln_f.weight"] == ""
    assert layers["h.0.attn.c_attn.weight"] == 1
    assert layers["h.1.mlp.c_proj.bias"] == 2


def test_trained_weights_of_another_model_are_refused(checkpoint):
    model = load(checkpoint("gpt2"))
    with pytest.raises(ValueError, match="differ in 1 tensors, first more"):
        names = [name for name, _ in model.named_parameters()]
        weight_tables.norms(model, dict.fromkeys([*names, "more"], (1.0, 1.0)))


def test_the_tables_can_be_written_and_read(checkpoint, tmp_path):
    model = load(checkpoint("albert"))
    tables.write(tmp_path / "norms.csv", weight_tables.norms(model), keys=["tensor"])
    frame = tables.read(tmp_path / "norms.csv")
    assert list(frame) == list(weight_tables.NORMS)
    assert set(frame["layer"].dropna()) == {1}
    tables.write(
        tmp_path / "values.csv",
        weight_tables.value_radii(model),
        keys=["layer", "tensor"],
        columns=weight_tables.VALUES,
    )
    assert list(tables.read(tmp_path / "values.csv")) == list(weight_tables.VALUES)


# --- value matrices


def effective(folder: Path, kind: str, block: int) -> np.ndarray:
    """The value matrix of a block, put together by hand."""
    held = tensors(folder)
    if kind == "gpt2":
        return held[f"h.{block}.attn.c_attn.weight"][:, 2 * WIDTH :]
    if kind == "llama":
        shared = held[f"layers.{block}.self_attn.v_proj.weight"]
        size = WIDTH // HEADS
        rows = [shared[head // 2 * size + row] for head in range(HEADS) for row in range(size)]
        return np.array(rows)
    if kind == "albert":
        return held["encoder.albert_layer_groups.0.albert_layers.0.attention.value.weight"]
    return held[f"encoder.layer.{block}.attention.self.value.weight"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_spectral_radius_is_that_of_each_blocks_value_matrix(checkpoint, kind):
    folder = checkpoint(kind)
    rows = weight_tables.value_radii(load(folder))
    blocks = [1] if kind == "albert" else [1, 2]  # its one block is shared
    assert [row["layer"] for row in rows] == blocks
    for row in rows:
        twin = np.abs(np.linalg.eigvals(effective(folder, kind, row["layer"] - 1))).max()
        # Of a transpose, too, the same eigenvalues up to roundings.
        assert row["spectral_radius"] == pytest.approx(twin, rel=1e-10)
        assert row["reason"] == ""


def test_blocks_are_in_their_order_beyond_ten(tmp_path):
    folder = checkpoints.write("gpt2", tmp_path, layers=11)
    assert [row["layer"] for row in weight_tables.value_radii(load(folder))] == [*range(1, 12)]


def test_a_block_whose_values_have_no_known_name_says_so(checkpoint):
    model = load(checkpoint("llama"))
    for layer in model.layers:
        layer.self_attn.values = layer.self_attn.v_proj
        del layer.self_attn.v_proj
    rows = weight_tables.value_radii(model)
    assert [row["layer"] for row in rows] == [1, 2]
    assert all(np.isnan(row["spectral_radius"]) for row in rows)
    assert all("no value matrix" in row["reason"] for row in rows)


def test_a_value_matrix_that_is_not_square_says_so(tmp_path):
    folder = checkpoints.write("llama", tmp_path, head_dim=4)
    for row in weight_tables.value_radii(load(folder)):
        assert np.isnan(row["spectral_radius"])
        assert f"{4 * HEADS} x {WIDTH}" in row["reason"]


# --- the study's own checkpoints

# What the study found of its checkpoints' value matrices: the mean over blocks.
FOUND = {
    "albert-base-v2": 1.506,
    "albert-xlarge-v2": 1.278,
    "gpt2": 3.28,
    "gpt2-medium": 3.21,
    "gpt2-large": 1.38,
    "gpt2-xl": 1.33,
    "bert-base-uncased": 0.94,
}
CHECKPOINTS = os.environ.get("TOKENSPHERE_CHECKPOINTS", "")


@pytest.mark.parametrize("name", FOUND)
def test_spectral_radii_of_the_studys_checkpoints_are_those_it_found(name):
    if not CHECKPOINTS:
        pytest.skip("set TOKENSPHERE_CHECKPOINTS to a folder with one folder a checkpoint")
    folder = Path(CHECKPOINTS) / name
    if not folder.is_dir():
        pytest.skip(f"TOKENSPHERE_CHECKPOINTS holds no {name}")
    radii = [row["spectral_radius"] for row in weight_tables.value_radii(load(folder))]
    digits = len(f"{FOUND[name]}".partition(".")[2])
    assert np.mean(radii) == pytest.approx(FOUND[name], abs=0.51 * 10**-digits)


def test_an_architecture_has_no_trained_norms_and_says_so(checkpoint):
    model = models.load(checkpoint("gpt2"), "cpu", "here")
    for row in weight_tables.norms(model, {}):
        assert np.isnan([row["trained_norm"], row["trained_operator_norm"]]).all()
        assert row["random_norm"] > 0
        assert row["reason"].endswith("an architecture alone has no trained weights")
