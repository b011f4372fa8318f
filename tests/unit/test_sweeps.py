"""Sweeps: revisions become models with a step, or are refused with what to write instead."""

import pytest
import yaml

from tokensphere import config, sweeps
from tokensphere.harness.errors import UserError

COMMIT = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
HUB = {"hub": "zoo/lion"}


@pytest.fixture
def mine(root, tmp_path, monkeypatch):
    """Check a configuration of two models, the first with revisions."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fox.txt").write_text("The quick brown fox.\n")
    for name in ("step0", "step1000", "notes"):
        (tmp_path / "run" / name).mkdir(parents=True)

    def check(revisions, source=None, focus="bert", **entry):
        lion = {"source": source or {"local": "run"}, "weights": ["trained"], **entry}
        given = {
            "models": {
                "lion": lion | {"revisions": revisions},
                "bert": {"source": {"local": "bert"}, "weights": ["trained"]},
            },
            "prompts": {"fox": {"file": "fox.txt"}},
            "roles": {"focus": focus, "second": "bert"},
            "figures": {"prompt": "fox"},
        }
        schema = root / "workflow/schemas/config.schema.yaml"
        return config.check(given, schema, ["fig03_mass_near_one"], "my.yaml")

    return check


@pytest.fixture
def refusal(mine):
    def check(*arguments, **entry):
        with pytest.raises(UserError) as caught:
            mine(*arguments, **entry)
        error = caught.value
        assert len(str(error).splitlines()) <= 5
        return error.where, error.what, error.hint

    return check


# --- the step


@pytest.mark.parametrize(
    "name, step",
    [
        ("step1000", 1000),
        ("step0", 0),
        ("checkpoint-500", 500),
        ("global_step_64", 64),
        ("v2-000300", 300),
        ("7", 7),
        # The word decides before the place.
        ("stage1-step1000-tokens3B", 1000),
        ("main", None),
        ("epoch-0.25", None),
        ("v1.5", None),
    ],
)
def test_a_name_tells_its_step(name, step):
    assert sweeps.step_of(name) == step


# --- expansion


def test_every_sub_folder_becomes_a_model_in_the_place_of_its_sweep(mine):
    models = mine(["step1000", "step0"])["models"]
    assert list(models) == ["lion@step1000", "lion@step0", "bert"]
    assert models["lion@step1000"] == {
        "source": {"local": "run/step1000"},
        "weights": ["trained"],
        "dtype": "float32",
        "label": "lion",
        "step": 1000,
    }
    assert "step" not in models["bert"]


def test_a_revision_has_all_that_its_entry_has(mine):
    shared = {"weights": ["trained", "norm_matched.0"], "colour": "#123456", "label": "Lion"}
    shared |= {"iterations": 24, "cut": 12, "dtype": "bfloat16"}
    models = mine(["step0", "step1000"], **shared)["models"]
    for step in (0, 1000):
        source = {"local": f"run/step{step}"}
        assert models[f"lion@step{step}"] == shared | {"source": source, "step": step}


def test_a_mapping_gives_names_to_folders_commits_and_branches(mine):
    models = mine({"step7": "notes"})["models"]
    assert models["lion@step7"]["source"] == {"local": "run/notes"}
    models = mine({"step0": COMMIT, "step9": "main"}, HUB)["models"]
    assert models["lion@step0"]["source"] == HUB | {"revision": COMMIT}
    assert models["lion@step9"]["source"] == HUB | {"ref": "main"}
    assert models["lion@step9"]["step"] == 9


def test_a_list_of_a_hub_source_is_of_branches(mine):
    models = mine(["step0", "step8"], HUB)["models"]
    assert models["lion@step8"]["source"] == HUB | {"ref": "step8"}


def test_a_role_may_be_a_revision(mine):
    assert mine(["step0", "step1000"], focus="lion@step0")["roles"]["focus"] == "lion@step0"


def test_the_name_of_a_sweep_is_what_stands_in_the_configuration():
    assert sweeps.sweep_of("lion@step0") == "lion"
    assert sweeps.sweep_of("bert") == "bert"


# --- what is refused

PLACE = "my.yaml: models.lion.revisions"


def test_a_missing_folder_is_named_with_those_that_are_there(refusal):
    assert refusal(["step0", "step2000"]) == (
        PLACE,
        "the folder 'run' holds no folder 'step2000'",
        "folders there: notes, step0, step1000",
    )
    assert refusal(["step0"], {"local": "absent"})[2] == "folders there: none"


def test_a_name_without_a_step_is_refused_with_how_to_say_it(refusal):
    assert refusal(["step0", "notes"]) == (
        PLACE,
        "the name 'notes' tells no training step (it holds no whole number)",
        "name it by its step: `revisions: {step1000: notes, ...}`",
    )


def test_two_revisions_of_one_step_are_refused(refusal):
    where, what, hint = refusal({"step1000": "step0", "again-1000": "step1000"})
    assert (where, what) == (PLACE, "'step1000' and 'again-1000' are both step 1000")
    assert "{step1000: step1000, ...}" in hint


@pytest.mark.parametrize(
    "source, key",
    [
        ({"package": "zoo", "path": "lion"}, "package"),
        ({"package": "zoo", "gguf": "lion.gguf"}, "package"),
    ],
)
def test_a_source_of_one_checkpoint_has_no_revisions(refusal, source, key):
    where, what, hint = refusal(["step0"], source)
    assert (where, what) == (PLACE, f"a source with the key {key!r} has no revisions")
    assert "{local: FOLDER}" in hint


def test_an_architecture_has_no_revisions(refusal):
    source = {"architecture": "gpt2", "config": {}}
    assert refusal(["step0"], source, weights=["gaussian.0"])[1].startswith(
        "a source with the key 'architecture'"
    )


def test_a_source_names_one_revision_or_the_model_many(refusal):
    where, what, hint = refusal(["step0"], HUB | {"revision": COMMIT})
    assert where == PLACE
    assert COMMIT in what
    assert hint == "leave `revision` out of the source"


@pytest.mark.parametrize(
    "revisions, where, what",
    [
        ([], "", "[] should be non-empty"),
        ({}, "", "{} should be non-empty"),
        (["step0", "step0"], "", "['step0', 'step0'] has non-unique elements"),
        (["a/step0"], ".0", "'a/step0' is not a legal value"),
        (["one@step0"], ".0", "'one@step0' is not a legal value"),
        ([1000], ".0", "1000 is not of type 'string'"),
        ({"step0": 7}, ".step0", "7 is not of type 'string'"),
        ("step0", "", "'step0' is not of type 'array', 'object'"),
    ],
)
def test_an_illegal_list_of_revisions_is_shown(refusal, revisions, where, what):
    assert refusal(revisions)[:2] == (PLACE + where, what)


def test_a_misspelt_key_is_explained(refusal):
    hint = refusal(["step0"], revision=["step0"])[2]
    assert hint == "did you mean 'revisions'?"


def test_a_name_of_a_model_holds_no_at(root):
    rules = yaml.safe_load((root / "workflow/schemas/config.schema.yaml").read_text())
    assert sweeps.AT not in rules["$defs"]["name"]["pattern"]


def test_a_role_of_a_sweep_must_name_a_revision(refusal):
    assert refusal(["step0", "step1000"], focus="lion") == (
        "my.yaml: roles.focus",
        "there is no 'lion'",
        "name a revision of it: lion@step0, lion@step1000",
    )
