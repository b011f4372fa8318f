"""Architectures without a checkpoint: a folder that random weights are drawn from."""

from pathlib import Path

import numpy as np
import pytest

from tokensphere import extraction, hashes, shapes, sources, spectrum, sphere, store, weight_sets
from tokensphere.harness.errors import UserError
from tools.runs import load

TINY = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "embedding_size": 16}
ALBERT = {
    "architecture": "albert",
    "config": TINY | {"num_hidden_layers": 3, "vocab_size": 300, "pad_token_id": 0},
}
GPT2 = {
    "architecture": "gpt2",
    "config": {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 256, "n_positions": 128},
}


def find(source, weights, cache):
    identity = sources.look_up(source, "here", hashes.Cache(cache / "hashes.json")).identity
    return weight_sets.find(source, identity, weights, cache, "here")


@pytest.mark.parametrize("weights", ["orthogonal.0", "gaussian.0"])
@pytest.mark.parametrize("source", [ALBERT, GPT2])
def test_random_weights_of_an_architecture_run_on_bytes(source, weights, tmp_path):
    made = find(source, weights, tmp_path)
    run = load(made.folder, "Émile, 1762", **made.facts)
    extraction.extract(run, tmp_path / "run.zarr.zip")
    with store.Activations(tmp_path / "run.zarr.zip") as activations:
        assert activations.attributes["weights_are"] == "random"
        assert activations.attributes["n_tokens"] == len("Émile, 1762".encode())
        # The two bytes of the É.
        assert activations.tokens[2:5] == ["m", "i", "l"]
        assert activations.layers == (3 if source is ALBERT else 2)


def test_the_shape_is_written_once_and_again_alike(tmp_path):
    known = hashes.Cache(tmp_path / "hashes.json")
    one = shapes.ensure(tmp_path / "one", "id", GPT2, known, "here")
    before = hashes.of_file(one / "model.safetensors")
    assert shapes.ensure(tmp_path / "one", "id", GPT2, known, "here") == one
    two = shapes.ensure(tmp_path / "two", "id", GPT2, known, "here")
    assert hashes.of_file(two / "model.safetensors") == before


def test_a_tokenizer_may_come_from_elsewhere(checkpoint, text, tmp_path):
    source = ALBERT | {"tokenizer": str(checkpoint("albert"))}
    source["config"] = source["config"] | {"vocab_size": 2000}
    made = find(source, "orthogonal.0", tmp_path)
    own = load(checkpoint("albert"), text).tokens.ids
    assert load(made.folder, text, **made.facts).tokens.ids == own


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"architecture": "albrt"}, "makes no configuration of the architecture 'albrt'"),
        ({"config": ALBERT["config"] | {"vocab_size": 10}}, "the tokenizer has 256 tokens"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change, says, tmp_path):
    with pytest.raises(UserError) as caught:
        find(ALBERT | change, "orthogonal.0", tmp_path)
    assert says in caught.value.what
    assert caught.value.where == "here"
    left = [
        path for path in (tmp_path / "weights").iterdir() if path.suffix not in (".lock", ".used")
    ]
    assert left == []


def test_draws_do_not_depend_on_what_the_shape_was_filled_with(tmp_path, monkeypatch):
    one = find(GPT2, "orthogonal.0", tmp_path / "one").folder
    seed = shapes.torch.manual_seed
    monkeypatch.setattr(shapes.torch, "manual_seed", lambda number: seed(number + 1))
    two = find(GPT2, "orthogonal.0", tmp_path / "two").folder
    assert hashes.of_file(Path(one) / "model.safetensors") == hashes.of_file(
        Path(two) / "model.safetensors"
    )
    assert np.array_equal(*(sorted(p.name for p in Path(x).iterdir()) for x in (one, two)))


def test_albert_base_with_its_familys_own_weights_collapses_in_48_iterations(tmp_path):
    base = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    source = {
        "architecture": "albert",
        "config": base | {"embedding_size": 128, "num_hidden_layers": 12, "vocab_size": 300},
    }
    made = find(source, "gaussian.0", tmp_path)
    text = "The night ferry smelled of oranges, and nobody on deck was asleep."
    extraction.extract(
        load(made.folder, text, iterations=48, **made.facts), tmp_path / "run.zarr.zip"
    )
    with store.Activations(tmp_path / "run.zarr.zip") as activations:
        first, last = (
            spectrum.effective_rank(
                spectrum.singular_values(sphere.project(activations.residual(layer)))
            )
            for layer in (1, 48)
        )
    assert first > 20
    assert 1 <= last < 2
