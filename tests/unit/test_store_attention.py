"""Stores of attention: what is in them, and that nothing but attention is accepted."""

import warnings

import numpy as np
import pytest
import zarr

from tokensphere import routing, store
from tools.archives import edit, flip, members, rewrite

LAYERS, HEADS, TOKENS = 2, 3, 4
ATTRIBUTES = {
    "model": "tiny",
    "layers": LAYERS,
    "heads": HEADS,
    "n_tokens": TOKENS,
    "width": 5,
    "final_norm": False,
    "causal": True,
}


def attention_of(block, causal=True, heads=HEADS, tokens=TOKENS):
    """Draw heads whose rows are softmax weights of what the mask shows."""
    scores = np.random.default_rng(block).normal(size=(heads, tokens, tokens)) * 3
    return softmax(scores.astype(np.float32), causal)


def softmax(scores, causal):
    """Weigh scores in float32 throughout, as models do."""
    hidden = np.triu(np.ones(scores.shape[-2:], dtype=bool), 1) & causal
    scores = np.where(hidden, np.float32(-np.inf), scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def write(path, changes=None, **attributes):
    """Write a store; `changes` gives other weights for a block."""
    attributes = ATTRIBUTES | attributes
    with store.AttentionWriter(path, attributes) as writer:
        for block in range(1, attributes["layers"] + 1):
            own = attention_of(block, attributes["causal"])
            writer.write_attention(block, (changes or {}).get(block, own))
    return path


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "run.zarr.zip")


def refusal(path, read=store.check_attention):
    with pytest.raises(store.StoreError) as caught:
        read(path)
    assert caught.value.where == str(path)
    assert "delete the file" in caught.value.hint
    return caught.value.what


# --- the contract


@pytest.mark.parametrize("causal", [True, False])
def test_what_is_written_is_read_back(tmp_path, causal):
    path = write(tmp_path / "run.zarr.zip", causal=causal)
    store.check_attention(path)
    with store.Attention(path) as attention:
        assert (attention.layers, attention.heads, attention.causal) == (LAYERS, HEADS, causal)
        assert attention.attributes == {"schema": 2, **ATTRIBUTES, "causal": causal}
        for block in (2, 1):
            found = attention.block(block)
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, attention_of(block, causal))
        assert [block for block, _ in attention.blocks()] == [1, 2]
        for block, weights in attention.blocks():
            np.testing.assert_array_equal(weights, attention_of(block, causal))


def test_blocks_may_be_written_in_any_order(tmp_path, path):
    with store.AttentionWriter(tmp_path / "other.zarr.zip", ATTRIBUTES) as writer:
        for block in (2, 1):
            writer.write_attention(block, attention_of(block))
    assert members(tmp_path / "other.zarr.zip") == members(path)


def test_the_array_has_one_block_a_chunk(path):
    with zarr.storage.ZipStore(path, mode="r") as archive:
        found = zarr.open_group(archive, mode="r", zarr_format=3)["attention"]
        assert found.shape == (LAYERS, HEADS, TOKENS, TOKENS)
        assert found.chunks == (1, HEADS, TOKENS, TOKENS)
        assert found.dtype == "float32"


MEMBERS = {"zarr.json", "attention/zarr.json", "attention/c/0/0/0/0", "attention/c/1/0/0/0"}


def test_the_archive_holds_one_member_a_block(path):
    assert set(members(path)) == MEMBERS


@pytest.mark.parametrize("layers, heads, tokens", [(1, 1, 1), (3, 2, 5)])
def test_the_attributes_imply_the_members(tmp_path, layers, heads, tokens):
    path = tmp_path / "run.zarr.zip"
    attributes = {"layers": layers, "heads": heads, "n_tokens": tokens, "causal": True}
    with store.AttentionWriter(path, attributes) as writer:
        for block in range(1, layers + 1):
            writer.write_attention(block, attention_of(block, True, heads, tokens))
    store.check_attention(path)
    chunks = {name for name in members(path) if "/c/" in name}
    assert chunks == {f"attention/c/{block}/0/0/0" for block in range(layers)}


def test_the_same_run_makes_the_same_members(tmp_path):
    one, two = write(tmp_path / "one.zarr.zip"), write(tmp_path / "two.zarr.zip")
    assert members(one) == members(two)


def test_a_block_that_is_all_zeros_is_a_member_like_any_other(tmp_path):
    # No attention is, so that the check refuses the block itself and misses no member.
    path = write(tmp_path / "run.zarr.zip", {2: np.zeros((HEADS, TOKENS, TOKENS), np.float32)})
    assert set(members(path)) == MEMBERS
    assert refusal(path) == "block 2, head 0: the row of query 0 adds up to 1 but for 1"


def test_masked_attention_is_stored_smaller_than_it_is(tmp_path):
    path = tmp_path / "run.zarr.zip"
    attributes = ATTRIBUTES | {"layers": 1, "n_tokens": 128}
    with store.AttentionWriter(path, attributes) as writer:
        writer.write_attention(1, attention_of(1, True, HEADS, 128))
    # Half of it is zeros, and of the rest sign and exponent repeat.
    assert path.stat().st_size < 0.6 * HEADS * 128 * 128 * 4


# --- one thing wrong: the store does not open


@pytest.mark.parametrize("member", sorted(MEMBERS - {"zarr.json"}))
def test_a_dropped_member_is_missed(path, member):
    rewrite(path, {member: None})
    assert refusal(path, store.Attention) == f"1 members are missing, first {member}"


def test_a_pass_that_ended_too_early_is_noticed(tmp_path):
    with store.AttentionWriter(tmp_path / "run.zarr.zip", ATTRIBUTES) as writer:
        writer.write_attention(1, attention_of(1))
    what = refusal(tmp_path / "run.zarr.zip", store.Attention)
    assert what == "1 members are missing, first attention/c/1/0/0/0"


@pytest.mark.parametrize("member", ["attention/c/2/0/0/0", "notes.txt", "residual/zarr.json"])
def test_a_surplus_member_is_noticed(path, member):
    rewrite(path, {member: b"{}"})
    assert refusal(path, store.Attention) == f"1 members too many, first {member}"


def test_a_member_written_twice_is_noticed(path):
    rewrite(path, {}, twice=["attention/c/1/0/0/0"])
    assert refusal(path, store.Attention) == "a member was written twice"


def test_a_block_written_twice_is_noticed(tmp_path):
    path = tmp_path / "run.zarr.zip"
    with store.AttentionWriter(path, ATTRIBUTES) as writer, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of it
        for block in (1, 2, 2):
            writer.write_attention(block, attention_of(block))
    assert refusal(path, store.Attention) == "a member was written twice"


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_truncated_archive_is_refused(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    assert refusal(path, store.Attention).startswith("it is no complete zip archive")


@pytest.mark.parametrize("attribute", ["schema", "layers", "heads", "n_tokens", "causal"])
def test_a_missing_attribute_is_named(path, attribute):
    edit(path, "zarr.json", lambda document: document["attributes"].pop(attribute))
    assert refusal(path, store.Attention) == f"its attributes cannot be read ('{attribute}')"


@pytest.mark.parametrize("attribute", ["layers", "heads", "n_tokens", "causal"])
def test_no_store_is_written_that_would_not_open(tmp_path, attribute):
    attributes = {name: value for name, value in ATTRIBUTES.items() if name != attribute}
    with pytest.raises(KeyError, match=attribute):
        store.AttentionWriter(tmp_path / "run.zarr.zip", attributes)


def test_an_attribute_of_another_type_is_refused(path):
    edit(path, "zarr.json", lambda document: document["attributes"].update(layers="two"))
    assert refusal(path, store.Attention).startswith("its attributes cannot be read")


def test_a_store_of_another_schema_is_refused(path):
    edit(path, "zarr.json", lambda document: document["attributes"].update(schema=1))
    assert refusal(path, store.Attention) == "it has schema 1, this version reads schema 2"


@pytest.mark.parametrize("member", ["attention/c/0/0/0/0", "attention/zarr.json"])
def test_a_flipped_bit_is_noticed(path, member):
    flip(path, member)
    what = refusal(path)
    assert what.startswith("array attention cannot be read")
    assert "CRC" in what


def test_a_flipped_bit_in_a_block_is_noticed_when_that_block_is_read(path):
    flip(path, "attention/c/1/0/0/0")
    with store.Attention(path) as attention:
        attention.block(1)
        with pytest.raises(store.StoreError, match="array attention cannot be read"):
            attention.block(2)


def test_a_wrong_shape_is_named(path):
    shape = [LAYERS, HEADS, TOKENS, 5]
    edit(path, "attention/zarr.json", lambda document: document.update(shape=shape))
    assert refusal(path) == f"attention has shape {tuple(shape)}, not (2, 3, 4, 4)"


def test_a_wrong_type_is_named(path):
    edit(path, "attention/zarr.json", lambda document: document.update(data_type="int32"))
    assert refusal(path) == "attention has type int32, not float32"


def test_neither_kind_of_store_opens_as_the_other(tmp_path, path):
    states = tmp_path / "states.zarr.zip"
    with store.Writer(states, ATTRIBUTES) as writer:  # the same run, the same attributes
        writer.write_tokens([1] * TOKENS, ["a"] * TOKENS, [False] * TOKENS)
        for layer in range(LAYERS + 1):
            writer.write_residual(layer, np.ones((TOKENS, 5), np.float32))
    store.check(states)
    store.check_attention(path)
    assert refusal(states, store.Attention).startswith("3 members are missing, first attention/")
    assert refusal(path, store.Activations).startswith("10 members are missing, first residual/")


# --- only attention is accepted


def damaged(head, query, key, value):
    weights = attention_of(2)
    weights[head, query, key] = value
    return weights


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_refused(tmp_path, value):
    path = write(tmp_path / "run.zarr.zip", {2: damaged(1, 3, 2, value)})
    assert refusal(path) == "block 2, head 1: a weight is not finite"


def test_a_negative_weight_is_refused_though_its_row_adds_up_to_1(tmp_path):
    weights = damaged(2, 3, 0, -0.25)
    weights[2, 3, 1:] = [0.25, 0.5, 0.5]
    path = write(tmp_path / "run.zarr.zip", {1: weights})
    assert refusal(path) == "block 1, head 2: a weight is negative"


@pytest.mark.parametrize("off", [1e-4, -1e-4, 2e-5])
def test_a_row_that_does_not_add_up_to_1_is_named(tmp_path, off):
    weights = damaged(1, 2, [0, 1, 2], [0.25, 0.25, 0.5 + off])
    path = write(tmp_path / "run.zarr.zip", {2: weights})
    what = refusal(path)
    place = "block 2, head 1: the row of query 2 adds up to 1 but for "
    assert what.startswith(place)
    # float32 stores .5 + off to about 3e-8, of which three digits are told.
    assert float(what.removeprefix(place)) == pytest.approx(abs(off), abs=1e-7)


def test_a_row_that_adds_up_to_1_but_for_rounding_is_accepted(tmp_path):
    weights = damaged(1, 2, [0, 1, 2], [0.25, 0.25, 0.5 + 5e-6])
    store.check_attention(write(tmp_path / "run.zarr.zip", {2: weights}))


def test_a_query_of_a_causal_model_sees_no_later_key(tmp_path):
    weights = damaged(2, 0, [0, 1], [0.5, 0.5])
    path = write(tmp_path / "run.zarr.zip", {1: weights})
    assert refusal(path) == "block 1, head 2: a query sees a later key, though the model is causal"
    store.check_attention(write(tmp_path / "open.zarr.zip", {1: weights}, causal=False))


def test_the_first_head_with_a_problem_is_named():
    weights = attention_of(1)
    assert store.attention_problem(weights, True) == ""
    weights[1:, 2] *= 1.5
    assert store.attention_problem(weights, True).startswith("head 1: the row of query 2 ")


def test_one_tiny_weight_on_a_later_key_is_too_much():
    weights = np.eye(4, dtype=np.float32)[None].copy()
    weights[0, 1, 2] = 1e-30
    assert "a query sees a later key" in store.attention_problem(weights, True)
    assert store.attention_problem(weights, False) == ""


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", [0.0, 1.0, 300.0])
def test_a_softmax_of_many_tokens_in_float32_passes(size, causal):
    scores = np.random.default_rng(0).normal(size=(1, 2048, 2048)).astype(np.float32)
    assert store.attention_problem(softmax(scores * np.float32(size), causal), causal) == ""


@pytest.mark.parametrize("causal", [True, False])
def test_even_attention_passes(causal):
    even = routing.content_free(2048, causal).astype(np.float32)[None]
    assert store.attention_problem(even, causal) == ""
