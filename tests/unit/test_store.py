"""Stores: what is in them, and that a store with one thing wrong does not open."""

import numpy as np
import pytest
import zarr

from tokensphere import store
from tools.archives import edit, flip, members, rewrite

LAYERS, TOKENS, WIDTH = 2, 3, 4
IDS, PIECES, SPECIAL = [101, 7, 7], ["[CLS]", "Ġé", "漢"], [True, False, False]


def states(layer):
    return np.random.default_rng(layer).normal(size=(TOKENS, WIDTH)).astype(np.float32)


def write(path, final_norm=True, **changes):
    """Write a store; `changes` gives another state for a layer (layer_1=...)."""
    attributes = {
        "model": "tiny",
        "layers": LAYERS,
        "n_tokens": TOKENS,
        "width": WIDTH,
        "final_norm": final_norm,
    }
    with store.Writer(path, attributes) as writer:
        writer.write_tokens(IDS, PIECES, SPECIAL)
        for layer in range(LAYERS + 1):
            writer.write_residual(layer, changes.get(f"layer_{layer}", states(layer)))
        if final_norm:
            writer.write_final_norm(changes.get("final", states(9)))
    return path


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "run.zarr.zip")


def refusal(path, read=store.check):
    with pytest.raises(store.StoreError) as caught:
        read(path)
    assert caught.value.where == str(path)
    assert "delete the file" in caught.value.hint
    return caught.value.what


# --- the contract


def test_what_is_written_is_read_back(path):
    store.check(path)
    with store.Activations(path) as activations:
        for layer in range(LAYERS + 1):
            assert np.array_equal(activations.residual(layer), states(layer))
        assert np.array_equal(activations.final_norm(), states(9))
        assert activations.token_ids.tolist() == IDS
        assert activations.tokens == PIECES
        assert activations.special.tolist() == SPECIAL


@pytest.mark.parametrize(
    "array, shape, dtype, chunks",
    [
        ("residual", (3, 3, 4), "float32", (1, 3, 4)),
        ("final_norm", (3, 4), "float32", (3, 4)),
        ("token_ids", (3,), "int64", (3,)),
        ("tokens", (3,), np.dtypes.StringDType(), (3,)),
        ("special", (3,), "bool", (3,)),
    ],
)
def test_arrays_have_their_shape_type_and_one_layer_a_chunk(path, array, shape, dtype, chunks):
    with zarr.storage.ZipStore(path, mode="r") as archive:
        found = zarr.open_group(archive, mode="r", zarr_format=3)[array]
        assert (found.shape, found.dtype, found.chunks) == (shape, dtype, chunks)


def test_attributes_are_those_given_and_the_schema_version(path):
    with store.Activations(path) as activations:
        assert activations.attributes == {
            "schema": 2,
            "model": "tiny",
            "layers": 2,
            "n_tokens": 3,
            "width": 4,
            "final_norm": True,
        }


MEMBERS = {
    "zarr.json",
    "residual/zarr.json",
    "residual/c/0/0/0",
    "residual/c/1/0/0",
    "residual/c/2/0/0",
    "token_ids/zarr.json",
    "token_ids/c/0",
    "tokens/zarr.json",
    "tokens/c/0",
    "special/zarr.json",
    "special/c/0",
}


def test_the_archive_holds_one_member_a_layer(tmp_path):
    with_norm = write(tmp_path / "with.zarr.zip")
    without = write(tmp_path / "without.zarr.zip", final_norm=False)
    assert set(members(with_norm)) == MEMBERS | {"final_norm/zarr.json", "final_norm/c/0/0"}
    assert set(members(without)) == MEMBERS


def test_a_layer_of_zeros_is_a_member_like_any_other(tmp_path):
    path = write(tmp_path / "run.zarr.zip", layer_1=np.zeros((TOKENS, WIDTH), np.float32))
    store.check(path)
    assert "residual/c/1/0/0" in members(path)


def test_the_same_run_makes_the_same_members(tmp_path):
    one, two = write(tmp_path / "one.zarr.zip"), write(tmp_path / "two.zarr.zip")
    assert members(one) == members(two)


def test_the_final_norm_stands_beside_the_last_layer_never_in_its_place(path):
    with store.Activations(path) as activations:
        found = list(activations.states())
        assert activations.n_states == len(found) == 4
    assert [(layer, state) for layer, state, _ in found] == [
        (0, "residual"),
        (1, "residual"),
        (2, "residual"),
        (2, "final_norm"),
    ]
    assert np.array_equal(found[2][2], states(2))
    assert np.array_equal(found[3][2], states(9))


def test_a_model_without_a_final_norm_has_the_residual_layers_alone(tmp_path):
    path = write(tmp_path / "run.zarr.zip", final_norm=False)
    with store.Activations(path) as activations:
        assert not activations.has_final_norm
        assert [layer for layer, _, _ in activations.states()] == [0, 1, 2]
        assert activations.n_states == 3


@pytest.mark.parametrize("final_norm", [True, False])
def test_every_state_comes_with_the_one_before_it(tmp_path, final_norm):
    with store.Activations(write(tmp_path / "run.zarr.zip", final_norm)) as activations:
        found = list(activations.successions())
        expected = [(layer, state) for layer, state, _ in activations.states()]
        assert len(found) == activations.n_states
    assert [(layer, state) for layer, state, _, _ in found] == expected
    before = {(0, "residual"): None, (1, "residual"): states(0), (2, "residual"): states(1)}
    # Before the final norm comes layer L - 1, in whose successor's place it stands.
    before[(2, "final_norm")] = states(1)
    own = {(layer, "residual"): states(layer) for layer in range(3)} | {
        (2, "final_norm"): states(9)
    }
    for layer, state, earlier, vectors in found:
        np.testing.assert_array_equal(vectors, own[layer, state])
        if before[layer, state] is None:
            assert earlier is None
        else:
            np.testing.assert_array_equal(earlier, before[layer, state])


# --- one thing wrong: the store does not open


@pytest.mark.parametrize("member", sorted(MEMBERS - {"zarr.json"}))
def test_a_dropped_member_is_missed(path, member):
    rewrite(path, {member: None})
    assert refusal(path, store.Activations) == f"1 members are missing, first {member}"


def test_a_missing_layer_is_named(tmp_path):
    path = tmp_path / "run.zarr.zip"
    attributes = {"layers": 1, "n_tokens": TOKENS, "width": WIDTH, "final_norm": False}
    with store.Writer(path, attributes) as writer:  # as an extraction that ended too early
        writer.write_tokens(IDS, PIECES, SPECIAL)
        writer.write_residual(0, states(0))
    assert refusal(path, store.Activations) == "1 members are missing, first residual/c/1/0/0"


@pytest.mark.parametrize("member", ["residual/c/3/0/0", "notes.txt", "attention/zarr.json"])
def test_a_surplus_member_is_noticed(path, member):
    rewrite(path, {member: b"{}"})
    assert refusal(path, store.Activations) == f"1 members too many, first {member}"


def test_a_member_written_twice_is_noticed(path):
    rewrite(path, {}, twice=["residual/c/1/0/0"])
    assert refusal(path, store.Activations) == "a member was written twice"


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_truncated_archive_is_refused(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    assert refusal(path, store.Activations).startswith("it is no complete zip archive")


def test_an_archive_that_is_no_store_is_refused(path):
    rewrite(path, {"zarr.json": None})
    assert "No group found" in refusal(path, store.Activations)


@pytest.mark.parametrize("attribute", ["schema", "layers", "n_tokens", "width", "final_norm"])
def test_a_missing_attribute_is_named(path, attribute):
    edit(path, "zarr.json", lambda document: document["attributes"].pop(attribute))
    assert refusal(path, store.Activations) == f"its attributes cannot be read ('{attribute}')"


def test_an_attribute_of_another_type_is_refused(path):
    edit(path, "zarr.json", lambda document: document["attributes"].update(layers="two"))
    assert refusal(path, store.Activations).startswith("its attributes cannot be read")


def test_a_store_of_another_schema_is_refused(path):
    edit(path, "zarr.json", lambda document: document["attributes"].update(schema=1))
    assert refusal(path, store.Activations) == "it has schema 1, this version reads schema 2"


@pytest.mark.parametrize(
    "member, array",
    [
        ("residual/c/1/0/0", "residual"),
        ("final_norm/c/0/0", "final_norm"),
        ("token_ids/c/0", "token_ids"),
        ("tokens/c/0", "tokens"),
        ("special/c/0", "special"),
        ("residual/zarr.json", "residual"),
        ("tokens/zarr.json", "tokens"),
    ],
)
def test_a_flipped_bit_is_noticed(path, member, array):
    flip(path, member)
    what = refusal(path)
    assert what.startswith(f"array {array} cannot be read")
    assert "CRC" in what


def test_a_flipped_bit_in_a_layer_is_noticed_when_that_layer_is_read(path):
    flip(path, "residual/c/1/0/0")
    with store.Activations(path) as activations:
        activations.residual(0)
        with pytest.raises(store.StoreError, match="array residual cannot be read"):
            activations.residual(1)


@pytest.mark.parametrize(
    "array, shape", [("residual", [3, 3, 5]), ("token_ids", [4]), ("final_norm", [3, 5])]
)
def test_a_wrong_shape_is_named(path, array, shape):
    edit(path, f"{array}/zarr.json", lambda document: document.update(shape=shape))
    assert refusal(path).startswith(f"{array} has shape {tuple(shape)}, not (")


def test_a_wrong_type_is_named(path):
    edit(path, "token_ids/zarr.json", lambda document: document.update(data_type="float64"))
    assert refusal(path) == "token_ids has type float64, not int64"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name, place", [("layer_1", "residual layer 1"), ("final", "the final norm")]
)
def test_a_state_that_is_not_finite_is_named(tmp_path, name, place, value):
    damaged = states(0)
    damaged[1, 2] = value
    path = write(tmp_path / "run.zarr.zip", **{name: damaged})
    assert refusal(path) == f"{place} holds values that are not finite"
