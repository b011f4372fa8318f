"""GGUF files: the weights are those that the gguf package dequantises, and this is done once."""

import json
from importlib import metadata

import gguf
import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file

from tokensphere import baselines, dequantised, hashes, models, sources, weight_cache
from tools import quantised

TEXT = "The night ferry smelled of oranges and diesel."

# llama.cpp's names of tensors -> those of transformers.
TOP = {"token_embd": "embed_tokens", "output_norm": "norm"}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@pytest.fixture(scope="session")
def tokenizer(checkpoint):
    return checkpoint("gpt2")


@pytest.fixture(scope="session")
def file(tokenizer, tmp_path_factory):
    """A tiny GGUF file, not to be changed."""
    return quantised.write(tmp_path_factory.mktemp("gguf") / "tiny.Q4_1.gguf", tokenizer)


def ensure(cache, file, source="sha256:source"):
    return dequantised.ensure(cache, source, file, hashes.Cache(""))


@pytest.fixture(scope="session")
def place(file, tmp_path_factory):
    """The dequantised checkpoint, not to be changed."""
    return ensure(tmp_path_factory.mktemp("cache"), file)


@pytest.fixture
def loads(monkeypatch):
    """Count how often a GGUF file's weights are read."""
    begun = []
    load = transformers.AutoModel.from_pretrained

    def counted(*arguments, **keywords):
        begun.append(keywords.get("gguf_file"))
        return load(*arguments, **keywords)

    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", counted)
    return begun


def files(folder):
    return {path.name: hashes.of_file(path) for path in folder.iterdir()}


def rotary(rows, heads):
    """Order a query or key matrix as transformers does.

    llama.cpp keeps the two rows that a rotation turns side by side, transformers the first of
    all pairs before the second of all pairs, head by head.
    """
    each = len(rows) // heads
    order = [head * each + pair * 2 + which
             for head in range(heads) for which in (0, 1) for pair in range(each // 2)]  # fmt: skip
    return rows[order]


def test_every_tensor_is_the_one_that_the_gguf_package_dequantises(file, place):
    found = load_file(place / "model.safetensors")
    for tensor in gguf.GGUFReader(file).tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        name = tensor.name.removesuffix(".weight")
        if name in TOP:
            name = TOP[name]
        else:
            _, layer, kind = name.split(".")
            name = f"layers.{layer}.{BLOCK[kind]}"
            if kind in ("attn_q", "attn_k"):
                values = rotary(values, {"attn_q": quantised.HEADS}.get(kind, quantised.KEY_HEADS))
        stored = found.pop(f"{name}.weight")
        assert stored.dtype == np.float32
        np.testing.assert_array_equal(stored, values, err_msg=name)
    assert not found


def test_the_checkpoint_is_an_ordinary_one(place):
    config = json.loads((place / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["dtype"] == "float32"
    # The folder passes every check of a source that a person gives.
    assert sources.locate({"local": str(place)}, "here") == place
    assert len(sources.weight_files(place)) == 1


def test_the_tokenizer_is_the_one_inside_the_file(place, tokenizer):
    ours, theirs = models.load_tokenizer(place), models.load_tokenizer(tokenizer)
    assert ours(TEXT)["input_ids"] == theirs(TEXT)["input_ids"]


def test_it_runs_as_a_causal_model_with_a_final_norm(place):
    model = models.load(place, "cpu", "this run")
    ids = models.load_tokenizer(place)(TEXT)["input_ids"]
    anatomy = models.dissect(model, ids, "this run")
    assert len(anatomy.blocks) == quantised.LAYERS
    assert anatomy.causal
    assert anatomy.final_norm is not None


@pytest.mark.parametrize("scheme", list(baselines.SCHEMES))
def test_random_weights_are_drawn_from_it_as_from_any_checkpoint(place, tmp_path, scheme):
    drawn = baselines.ensure(
        tmp_path, "sha256:source", place, scheme, 0, known=hashes.Cache(""), where="this run"
    )
    shapes = [
        {name: one.shape for name, one in load_file(folder / "model.safetensors").items()}
        for folder in (place, drawn)
    ]
    assert shapes[0] == shapes[1]
    model = models.load(drawn, "cpu", "this run")
    ids = models.load_tokenizer(drawn)(TEXT)["input_ids"]
    assert np.isfinite(models.forward(model, ids).numpy()).all()


# --- the cache


def test_a_file_is_dequantised_once(file, tmp_path, loads):
    first, second = (ensure(tmp_path, file) for _ in range(2))
    assert first == second
    assert loads == [file.name]


def test_the_manifest_names_source_package_and_files(place):
    manifest = json.loads((place / weight_cache.MANIFEST).read_text())
    assert manifest["source"] == "sha256:source"
    assert manifest["dequantised_by"] == f"gguf {metadata.version('gguf')}"
    stated = {name: sha for name, sha in files(place).items() if name != weight_cache.MANIFEST}
    assert manifest["files"] == stated
    assert set(stated) >= {"config.json", "model.safetensors", "tokenizer.json"}


def test_source_and_code_each_decide_the_place(file, tmp_path, monkeypatch):
    # The place alone is of interest.
    monkeypatch.setattr(
        weight_cache, "ensure", lambda cache, key, write, known: hashes.of_value(list(key))
    )
    places = [ensure(tmp_path, file), ensure(tmp_path, file, "sha256:other")]
    monkeypatch.setattr(dequantised, "__file__", str(file))
    places.append(ensure(tmp_path, file))
    assert len(set(places)) == 3


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-1])),
        ("tokenizer.json", lambda path: path.unlink()),
        ("model-2.safetensors", lambda path: path.write_text("left by another writer")),
    ],
)
def test_a_damaged_folder_is_written_again_with_the_same_bytes(file, tmp_path, loads, name, damage):
    place = ensure(tmp_path, file)
    before = files(place)
    damage(place / name)
    assert ensure(tmp_path, file) == place
    assert files(place) == before
    assert len(loads) == 2


def test_the_file_is_left_as_it_was(tokenizer, tmp_path):
    file = quantised.write(tmp_path / "mine.Q4_1.gguf", tokenizer)
    before = hashes.of_file(file)
    ensure(tmp_path / "cache", file)
    assert hashes.of_file(file) == before
    assert [path.name for path in tmp_path.glob("*.gguf")] == [file.name]
