"""A rehearsal of the study: run without a network, and called what it is wherever it shows."""

import json
import re
import subprocess
import sys

import pandas as pd
import pytest
import yaml

from tokensphere import store
from tools import make_checkpoint, rehearsal

MODELS = ["gpt2", "bert-base-uncased"]
IN_PLACE = {
    name: f"random weights in place of {make_checkpoint.repository(name)}" for name in MODELS
}
FIGURES = ["fig03_mass_near_one", "fig04_histogram_random"]
TABLE = "results/tables/inner_products.csv"


def paper():
    return yaml.safe_load((rehearsal.ROOT / "config/paper.yaml").read_text())


def test_a_rehearsal_is_the_study_with_one_seed_of_each_scheme():
    config = rehearsal.configure(paper(), [], rehearsal.PROMPTS)
    assert list(config["models"]) == list(paper()["models"])
    assert config["models"]["gpt2-large"]["weights"] == [
        "trained", "norm_matched.0", "orthogonal.0", "gaussian.0", "shuffled.0"
    ]  # fmt: skip
    assert config["models"]["albert-base-v2"]["weights"] == [
        "trained", "norm_matched.0", "orthogonal.0"
    ]  # fmt: skip
    assert config["models"]["albert-xlarge-v2"]["iterations"] == 48
    assert list(config["prompts"]) == list(rehearsal.PROMPTS)
    for key in ("roles", "figures", "keep_attention"):
        assert config[key] == paper()[key]


def test_a_part_of_the_study_keeps_its_roles_where_it_can():
    config = rehearsal.configure(paper(), ["gpt2", "albert-base-v2"], ["homer_iliad"], tiny=True)
    assert config["roles"] == {"focus": "gpt2", "second": "albert-base-v2"}
    assert config["figures"]["prompt"] == "homer_iliad"
    assert config["models"]["albert-base-v2"]["iterations"] == 6


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """Two tiny models on one short prompt, two figures and a table."""
    folder = tmp_path_factory.mktemp("rehearsal") / "here"
    done = subprocess.run(
        [
            *(sys.executable, rehearsal.__file__, folder, "--tiny", "--cores", "2"),
            *("--models", *MODELS, "--prompts", "short_heterogeneous"),
            *("--snakemake", *FIGURES, TABLE),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return folder, done.stdout


def test_no_process_of_a_rehearsal_reaches_a_network(rehearsed):
    folder, _ = rehearsed
    tried = subprocess.run(
        [sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 9), 1)"],
        env=rehearsal.environment(folder),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert "a socket was opened to ('127.0.0.1', 9)" in tried.stderr


def test_a_store_says_what_its_weights_are(rehearsed):
    folder, _ = rehearsed
    said = {}
    for place in (folder / "results/activations").rglob("*.zarr.zip"):
        with store.Activations(place) as activations:
            attributes = activations.attributes
            said[attributes["model"], attributes["weights"]] = attributes["weights_are"]
            assert attributes["source"].endswith(IN_PLACE[attributes["model"]])
    assert said == {
        (model, weights): text
        for model in MODELS
        for weights, text in (
            ("trained", IN_PLACE[model]),
            ("norm_matched.0", f"random, drawn from {IN_PLACE[model]}"),
        )
    }


def test_a_table_says_what_its_weights_are(rehearsed):
    table = pd.read_csv(rehearsed[0] / TABLE)
    for model, rows in table.groupby("model"):
        said = dict(zip(rows["weights"], rows["weights_are"], strict=True))
        assert said == {
            "trained": IN_PLACE[model],
            "norm_matched.0": f"norm_matched.0 of {IN_PLACE[model]}",
        }


@pytest.mark.parametrize("reading", ["", "_controlled"])
@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_can_be_taken_for_a_result(rehearsed, name, reading):
    place = rehearsed[0] / f"results/figures/{name}{reading}"
    numbers = pd.read_csv(place.with_suffix(".csv"))
    models = MODELS if "model" in numbers else MODELS[:1]
    assert set(numbers["stand_in"]) == {IN_PLACE[model] for model in models}
    caption = place.with_suffix(".caption.rst").read_text()
    assert caption.startswith("**No result.** Drawn with random weights in place of openai-")
    assert all(IN_PLACE[model] in caption for model in models)
    assert "(stand-in weights: no result).**" in caption
    picture = place.with_suffix(".svg").read_text()
    stamp, picture = re.fullmatch("(.*</metadata>)(.*)", picture, re.DOTALL).groups()
    assert "gpt2/trained (stand-in)" in stamp or "trained" not in stamp
    words = " ".join(re.findall(r">([^<>]+)<", picture))
    assert "no result" in words
    assert "stand-in" in words
    assert "trained" not in words


def test_a_record_says_what_was_run(rehearsed):
    records = rehearsed[0] / "results/records"
    for model in MODELS:
        for weights, said in (("trained", ""), ("norm_matched.0", "random, drawn from ")):
            (path,) = (records / f"extract/{model}/{weights}").glob("*.json")
            assert json.loads(path.read_text())["run"]["weights_are"] == said + IN_PLACE[model]
    collected = json.loads((records / "collect/inner_products.json").read_text())
    said = {run["weights_are"] for run in collected["deterministic"]["params"]["runs"]}
    assert said >= set(IN_PLACE.values())


def test_at_the_end_each_rule_is_summed_up(rehearsed):
    folder, said = rehearsed
    lines = {line.split()[0]: line.split() for line in said.splitlines() if line.strip()}
    runs = 2 * len(MODELS)
    assert lines["extract"][1] == lines["inner_products"][1] == str(runs)
    assert lines["fig03_mass_near_one"][1] == "1"
    costs = list(rehearsal.costs(folder / "results"))
    extractions = [cost for cost in costs if cost.rule == "extract"]
    assert all(cost.seconds > 0 and cost.peak_mb > 100 for cost in extractions)
    total = sum(cost.seconds for cost in extractions)
    assert float(lines["extract"][2]) == pytest.approx(total, abs=0.06)
    assert float(lines["results/activations"][1]) > 0
    assert "wall time of this run" in said


def test_what_stood_in_is_made_anew_once_it_does_not(rehearsed):
    """The published weights in the same place would be run, and so is a folder without a mark."""
    folder, _ = rehearsed
    target = f"results/activations/{MODELS[0]}/trained/short_heterogeneous.zarr.zip"
    marker = folder / f"checkpoints/{MODELS[0]}/{rehearsal.make_checkpoint.sources.STAND_IN}"
    text = marker.read_text()

    def plan():
        return subprocess.run(
            rehearsal.command(folder, 1, "-n", target),
            env=rehearsal.environment(folder),
            capture_output=True,
            text=True,
            check=True,
        )

    assert "Nothing to be done" in (done := plan()).stdout + done.stderr
    marker.unlink()
    try:
        assert f"Extract {MODELS[0]} (trained)" in (done := plan()).stdout + done.stderr
    finally:
        marker.write_text(text)
