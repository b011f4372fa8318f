"""Bad input: refused while planning where that can see it, else by the one job it concerns."""

import json

import pytest
from safetensors.numpy import load_file, save_file


def change(workspace, edit):
    config = workspace.config
    edit(config)
    workspace.config = config


def unknown_key(workspace):
    def misspell(config):
        config["models"]["tiny"]["wieghts"] = config["models"]["tiny"].pop("weights")

    change(workspace, misspell)


def misspelt_scheme(workspace):
    change(workspace, lambda config: config["models"]["tiny"].update(weights=["norm_mached.0"]))


def missing_prompt(workspace):
    (workspace.folder / "texts/harbour.txt").unlink()


def empty_prompt(workspace):
    (workspace.folder / "texts/harbour.txt").write_text("\n")


def absent_package(workspace):
    source = {"package": "not_there", "path": "model"}
    change(workspace, lambda config: config["models"]["tiny"].update(source=source))


def no_safetensors(workspace):
    folder = workspace.folder / "checkpoints/tiny"
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def dangling_role(workspace):
    change(workspace, lambda config: config["roles"].update(focus="tinny"))


BEFORE_ANY_JOB = [
    (unknown_key, "models.tiny", "'wieghts'", "did you mean 'weights'?"),
    (misspelt_scheme, "models.tiny.weights", "'norm_mached.0'", "did you mean 'norm_matched'?"),
    (missing_prompt, "prompts.harbour", "texts/harbour.txt", "correct the path"),
    (empty_prompt, "prompts.harbour", "is empty", "write the text"),
    (absent_package, "models.tiny.source", "'not_there'", "pip install --no-deps not-there"),
    (no_safetensors, "models.tiny.source", "only a pickle", "convert it"),
    (dangling_role, "roles.focus", "'tinny'", "did you mean 'tiny'?"),
]


@pytest.mark.parametrize(
    ("spoil", "where", "what", "hint"),
    BEFORE_ANY_JOB,
    ids=[case[0].__name__ for case in BEFORE_ANY_JOB],
)
@pytest.mark.parametrize("state", ["fresh", "finished"])
def test_refused_while_the_snakefile_is_read(state, spoil, where, what, hint, request, tmp_path):
    workspace = request.getfixturevalue(state).copy(tmp_path / "work")
    before = workspace.results()
    spoil(workspace)
    done = workspace.run()
    assert done.returncode != 0
    assert len(done.stdout.splitlines()) <= 5, done.stdout
    for words in (f"config/test.yaml: {where}", what, f"Hint: {hint}"):
        assert words in done.stdout
    assert workspace.results() == before


def test_resources_for_a_rule_that_is_none_are_refused(fresh, tmp_path):
    workspace = fresh.copy(tmp_path / "work")
    done = workspace.run("-n", "--set-resources", "extrct:mem_mb=9000")
    assert done.returncode == 1
    assert "there is no such rule" in done.stdout
    assert "Hint: did you mean 'extract'?" in done.stdout
    # A figure that this configuration lacks the runs for is none the less a rule.
    workspace.make("-n", "--set-resources", "fig22_random_schemes:mem_mb=9000")


def test_a_prompt_too_short_fails_alone_and_the_others_finish(workspace):
    workspace.add_prompt("word", "I")
    done = workspace.run("--keep-going")
    assert done.returncode != 0
    assert "the prompt has 1 tokens, the fewest that can be measured is 3" in done.stdout
    assert not list((workspace.folder / "results").rglob("word.zarr.zip"))
    assert not list((workspace.folder / "results").rglob("*.part"))
    # The figures of the one prompt do not need the new one.
    assert "Draw fig04_histogram_random" not in workspace.plan()


def spoil_weights(workspace, **tensors):
    place = workspace.folder / "checkpoints/tiny/model.safetensors"
    weights = load_file(place)
    for name, value in tensors.items():
        weights[name][:] = value
    save_file(weights, place, metadata={"format": "pt"})


def test_a_state_that_is_not_finite_fails_its_run_and_names_the_layer(workspace):
    spoil_weights(workspace, **{"h.1.mlp.c_proj.bias": float("nan")})
    done = workspace.run("results/activations/tiny/trained/harbour.zarr.zip")
    assert done.returncode != 0
    assert "residual layer 2 holds values that are not finite" in done.stdout
    log = (workspace.folder / "results/logs/extract/tiny/trained/harbour.log").read_text()
    assert "Traceback" in log
    assert "Hint:" in log.splitlines()[-1]
    assert not (workspace.folder / "results/activations/tiny/trained/harbour.zarr.zip").exists()


def test_a_library_of_another_version_is_refused_with_its_hint(workspace):
    lock = (workspace.folder / "requirements.lock").read_text()
    line = next(line for line in lock.splitlines() if line.startswith("matplotlib=="))
    workspace.edit("requirements.lock", line, "matplotlib==99.0")
    done = workspace.run("fig03_mass_near_one")
    assert done.returncode != 0
    assert "matplotlib 99.0 is locked" in done.stdout
    assert "make install" in done.stdout


def test_a_damaged_store_is_refused_by_name(workspace):
    store = workspace.folder / "results/activations/tiny/trained/harbour.zarr.zip"
    store.write_bytes(store.read_bytes()[:-100])
    done = workspace.run("results/metrics/inner_products/tiny/trained/harbour.csv")
    assert done.returncode != 0
    assert "no complete zip archive" in done.stdout
    assert "harbour.zarr.zip" in done.stdout


def test_records_say_what_was_read(finished):
    record = json.loads(
        (finished.folder / "results/records/extract/tiny/norm_matched.0/harbour.json").read_text()
    )["deterministic"]
    assert record["params"]["source"].startswith("sha256:")
    assert record["seeds"] == {"weights": 0}
    assert record["inputs"]["text"][0]["path"] == "results/prompts/harbour.txt"
    assert "scripts/tokensphere/extraction.py" in record["code"]
