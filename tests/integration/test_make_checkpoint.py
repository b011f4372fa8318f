"""Stand-ins for published checkpoints: shapes, tokenizers, and what they say they are."""

import json

import pytest
import torch
import yaml

from tokensphere import baselines, models, prompts, sources
from tools import checkpoints, make_checkpoint

# Millions of parameters of the base models, as published: layers, widths and vocabulary at once.
MILLIONS = {
    "gpt2": 124.4,
    "gpt2-medium": 354.8,
    "gpt2-large": 774.0,
    "gpt2-xl": 1557.6,
    "bert-base-uncased": 109.5,
    "bert-large-uncased": 335.1,
    "albert-base-v2": 11.7,
    "albert-xlarge-v2": 58.7,
}
HEADS = {
    "gpt2": 12,
    "gpt2-medium": 16,
    "gpt2-large": 20,
    "gpt2-xl": 25,
    "bert-base-uncased": 12,
    "bert-large-uncased": 16,
    "albert-base-v2": 12,
    "albert-xlarge-v2": 16,
}


@pytest.mark.parametrize("name", list(make_checkpoint.SHAPES))
def test_a_shape_is_the_published_one(name):
    config = make_checkpoint.configuration(name)
    with torch.device("meta"):  # shapes alone
        model = models.transformers.AutoModel.from_config(config)
    millions = sum(one.numel() for one in model.parameters()) / 1e6
    assert millions == pytest.approx(MILLIONS[name], abs=0.06)
    assert config.num_attention_heads == HEADS[name]


def test_every_model_of_the_study_has_a_shape_under_its_own_repository():
    paper = yaml.safe_load((make_checkpoint.ROOT / "config/paper.yaml").read_text())
    assert {name: model["source"]["hub"] for name, model in paper["models"].items()} == {
        name: make_checkpoint.repository(name) for name in make_checkpoint.SHAPES
    }


@pytest.fixture(scope="module", params=["gpt2-medium", "bert-base-uncased", "albert-xlarge-v2"])
def written(request, tmp_path_factory):
    """A tiny stand-in of each family."""
    folder = tmp_path_factory.mktemp("stand-in") / request.param
    return request.param, make_checkpoint.write(request.param, folder, tiny=True)


def test_prompts_come_out_at_about_their_true_lengths(written):
    name, folder = written
    tokenizer = models.load_tokenizer(folder)
    for prompt, text in make_checkpoint.texts().items():
        tokens = prompts.tokenize(tokenizer, text, 10_000, "here")
        assert len(tokens.ids) == pytest.approx(checkpoints.PROMPT_TOKENS[prompt], rel=0.15), prompt
        assert max(tokens.ids) < make_checkpoint.configuration(name, tiny=True).vocab_size
        pieces = tokenizer.convert_ids_to_tokens(tokens.ids)
        assert not {"[UNK]", "<unk>"} & set(pieces)
        added = [piece for piece, own in zip(pieces, tokens.special, strict=True) if own]
        assert added == ([] if name.startswith("gpt2") else ["[CLS]", "[SEP]"])


def test_a_stand_in_says_what_it_is_and_is_drawn_as_its_family_is(written):
    name, folder = written
    source = sources.resolve({"local": str(folder)}, name, "", "here")
    repository = make_checkpoint.repository(name)
    assert source["stand_in"] == f"random weights in place of {repository}"
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == name.partition("-")[0].removesuffix("2") + "2" * ("gpt" in name)
    model = models.load(folder, "cpu", "here")
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    plain = baselines.plain_norms(
        model, {n: p.detach().numpy() for n, p in model.named_parameters()}
    )
    state = dict(model.named_parameters())
    assert all(torch.equal(state[one], torch.from_numpy(value)) for one, value in plain.items())


def test_the_same_seed_gives_the_same_bytes_and_another_one_other_weights(tmp_path):
    first, again, other = (
        make_checkpoint.write("gpt2", tmp_path / str(place), seed=seed, tiny=True)
        for place, seed in enumerate([0, 0, 1])
    )
    names = {path.name for path in first.iterdir()}
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in names)
    weights = "model.safetensors"
    assert (first / weights).read_bytes() != (other / weights).read_bytes()


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    published = checkpoints.write("gpt2", tmp_path / "gpt2")
    before = (published / "model.safetensors").read_bytes()
    with pytest.raises(FileExistsError, match="exists"):
        make_checkpoint.write("gpt2", published, tiny=True)
    assert (published / "model.safetensors").read_bytes() == before
    assert not (published / sources.STAND_IN).exists()


def test_what_fails_halfway_leaves_nothing(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise OSError("the disk is full")

    monkeypatch.setattr(models.transformers.PreTrainedTokenizerFast, "save_pretrained", fail)
    with pytest.raises(OSError, match="the disk is full"):
        make_checkpoint.write("gpt2", tmp_path / "gpt2", tiny=True)
    assert list(tmp_path.iterdir()) == []
