"""The audit of real results: every figure answers for itself, and every kind of change shows."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from PIL import Image

from tokensphere import audit, chain
from tokensphere.harness import records
from tools import archives, flips

STORE = "results/activations/tiny/trained/harbour.zarr.zip"
FLIPS = 12


@pytest.fixture
def here(workspace, monkeypatch):
    """Work in a copy of the finished run."""
    monkeypatch.chdir(workspace.folder)
    return workspace


def verify(*wanted):
    return audit.verify(chain.read(), audit.workflow_folder(), wanted)


def command(workspace, *arguments, **extra):
    return subprocess.run(
        [sys.executable, "-m", "tokensphere.command", *arguments],
        cwd=workspace.folder,
        env=os.environ | {"PYTHONPATH": str(workspace.folder / "scripts")} | extra,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_record_fits_its_schema(finished):
    rules = yaml.safe_load((finished.folder / "workflow/schemas/record.schema.yaml").read_text())
    validator = Draft202012Validator(rules)
    places = sorted((finished.folder / "results/records").rglob("*.json"))
    assert len(places) > 100
    for place in places:
        text = place.read_text()
        records.unseal(text)
        assert [error.message for error in validator.iter_errors(json.loads(text))] == [], place


def test_every_picture_carries_the_input_id_of_its_record(finished):
    pictures = [
        path
        for path in (finished.folder / "results/figures").iterdir()
        if path.suffix in (".png", ".svg", ".pdf")
    ]
    assert pictures
    for path in pictures:
        name = path.name.partition(".")[0].removesuffix("_controlled")
        record = json.loads((finished.folder / f"results/records/{name}.json").read_text())
        stamp = records.read_stamp(path)
        assert stamp["input_id"] == record["deterministic"]["input_id"], path
        assert stamp["figure"] == name
        assert stamp["models"][0] == "tiny/trained" or "random" in name
        if path.suffix == ".png":
            assert stamp["input_id"] in Image.open(path).text["Description"]
    sheet = records.read_stamp(finished.folder / "results/contact_sheet.png")
    assert sheet["figure"] == "contact_sheet"


def test_the_records_reach_every_checkpoint_file_and_prompt(finished):
    record = json.loads(
        (finished.folder / "results/records/extract/tiny/norm_matched.0/harbour.json").read_text()
    )
    files = {"model.safetensors", "config.json", "tokenizer.json"}
    assert files <= record["deterministic"]["external"]["checkpoint"].keys()
    assert record["run"]["places"]["checkpoint"]["folder"] == "checkpoints/tiny"
    assert record["run"]["configuration"] == ["config/test.yaml"]


def test_a_finished_run_holds_and_so_does_a_moved_one(workspace):
    done = command(workspace, "verify")
    assert done.returncode == 0, done.stdout
    assert "All holds" in done.stdout
    assert "not compared" not in done.stdout
    moved = workspace.folder.rename(workspace.folder.with_name("moved"))
    again = command(type(workspace)(moved), "verify", "--json")
    assert json.loads(again.stdout)["holds"] is True


def test_random_flips_of_real_results_are_all_found(here):
    truth = flips.dependents()
    workflow = audit.workflow_folder()
    said = [flips.trial(seed, truth, workflow) for seed in range(FLIPS)]
    assert [one for one in said if one] == []


def figures(here):
    return set(verify().figures)


def test_what_is_changed_by_hand_is_told_apart(here):
    every = figures(here)
    archives.flip(here.folder / STORE, "residual/c/1/0/0")
    svg = here.folder / "results/figures/fig03_mass_near_one.svg"
    svg.write_text(svg.read_text().replace("</svg>", "<text>better</text></svg>"))
    later = svg.stat().st_mtime + 3600
    os.utime(svg, (later, later))
    here.edit("scripts/tokensphere/spectrum.py", '"""', '"""Of points: ')
    found = {one.what: one for one in verify().findings}
    assert found.keys() == {
        STORE,
        "results/figures/fig03_mass_near_one.svg",
        "scripts/tokensphere/spectrum.py",
    }
    assert found[STORE].parts == ["residual layer 1"]
    assert set(found[STORE].figures) <= every
    assert "fig05_histogram_trained" in found[STORE].figures
    assert "fig01_projections_random" not in found[STORE].figures
    assert found["results/figures/fig03_mass_near_one.svg"].kind == "edited"
    assert found["results/figures/fig03_mass_near_one.svg"].figures == ["fig03_mass_near_one"]
    code = found["scripts/tokensphere/spectrum.py"]
    assert code.kind == "stale"
    assert "fig10_effective_rank" in code.figures
    assert "fig04_histogram_random" not in code.figures


def test_changed_texts_and_weights_make_their_figures_stale(here):
    with open(here.folder / "texts/kitchen.txt", "a") as file:
        file.write("No more.\n")
    (one,) = [one for one in verify().findings if one.kind == "stale"]
    assert one.what == "texts/kitchen.txt"
    assert "fig05_histogram_trained" not in one.figures  # it shows the harbour alone
    assert "fig03_mass_near_one" in one.figures
    place = here.folder / "checkpoints/tiny/model.safetensors"
    data = bytearray(place.read_bytes())
    data[-1] ^= 1
    place.write_bytes(data)
    weights = [one for one in verify().findings if one.what.startswith("checkpoints")]
    assert [one.what for one in weights] == ["checkpoints/tiny/model.safetensors"]
    assert set(weights[0].figures) == figures(here)


def test_a_constant_of_the_configuration_is_compared(here):
    here.config |= {"metrics": {"near_one": 0.8}}
    (one,) = verify().findings
    assert (one.kind, one.what) == ("stale", "metrics.near_one")
    assert one.says == "0.9 in the record, 0.8 in config/test.yaml"
    # What Snakemake would draw anew for it, and its companion.
    planned = {job.removeprefix("Draw ") for job in here.plan() if job.startswith("Draw")}
    drawn = {name.removesuffix("_controlled") for name in one.figures if name.startswith("fig")}
    assert drawn == planned


def test_a_colour_of_the_catalogue_is_compared(here):
    here.edit("workflow/figures.yaml", 'bars: "#8c8c8c"', 'bars: "#777777"')
    (one,) = verify().findings
    assert one.what.startswith("fig04_histogram_random: options")
    assert set(one.figures) == {
        "fig04_histogram_random",
        "fig04_histogram_random_controlled",
        "contact_sheet",
    }


def test_a_library_locked_in_another_version_is_compared(here):
    lock = (here.folder / "requirements.lock").read_text()
    line = next(line for line in lock.splitlines() if line.startswith("matplotlib=="))
    here.edit("requirements.lock", line, "matplotlib==99.0")
    (one,) = verify().findings
    assert (one.kind, one.what) == ("stale", "library matplotlib")
    assert {name for name in one.figures if name.startswith("fig")} == {
        name for name in figures(here) if name.startswith("fig")
    }


def test_what_the_configuration_no_longer_asks_for_is_noted_and_still_compared(here):
    config = here.config
    config["models"]["tiny"]["weights"] = ["trained"]
    here.config = config
    report = verify()
    (note,) = [note for note in report.notes if "no longer asked for" in note]
    assert "norm_matched.0" in note
    table = here.folder / "results/metrics/energy/tiny/norm_matched.0/harbour.csv"
    table.write_text(table.read_text().replace("0", "1", 1))
    assert str(table.relative_to(here.folder)) in {one.what for one in verify().findings}


def test_explain_of_a_picture_from_elsewhere(workspace, tmp_path):
    picture = tmp_path / "theirs.pdf"
    shutil.copy(workspace.folder / "results/figures/fig03_mass_near_one_controlled.pdf", picture)
    done = command(workspace, "explain", str(picture))
    assert done.returncode == 0, done.stdout
    for words in (
        "fig03_mass_near_one, input id",
        "model.safetensors",
        "texts/harbour.txt",
        "is, byte for byte, what fig03_mass_near_one made here",
        "snakemake --forcerun fig03_mass_near_one",
    ):
        assert words in done.stdout
    with open(workspace.folder / "texts/harbour.txt", "a") as file:
        file.write("No more.\n")
    done = command(workspace, "explain", str(picture))
    assert done.returncode == 1
    assert "stale texts/harbour.txt" in done.stdout


def test_the_page_is_written_whether_all_holds_or_not(here):
    here.make("audit")
    page = here.folder / "results/audit.html"
    assert "figures are what their records say" in page.read_text()
    assert command(here, "verify").returncode == 0  # the audit's own record has no part in it
    archives.flip(here.folder / STORE, "residual/c/1/0/0")
    done = here.run("audit")
    assert done.returncode != 0
    assert "figures do not hold" in done.stdout
    assert "residual layer 1" in page.read_text()
    assert "fig05_histogram_trained" in page.read_text()


def test_redacted_results_name_no_host_no_user_and_no_text(fresh, tmp_path):
    other = fresh.copy(tmp_path / "work")
    home = tmp_path / "home/alice.liddell"
    home.mkdir(parents=True)
    text = "Down the rabbit hole went Alice, never once considering how to get out again."
    (home / "private.txt").write_text(text + "\n")
    (other.folder / "checkpoints/tiny").rename(home / "weights")
    config = other.config | {"redact": True, "figures": {"prompt": "private"}}
    config["prompts"] = {"private": {"file": str(home / "private.txt")}}
    config["models"]["tiny"]["source"] = {"local": str(home / "weights")}
    other.config = config
    drawn = ["fig02_projections_trained", "fig05_histogram_trained", "fig19_cluster_lives"]
    other.make(*drawn)
    results = other.folder / "results"
    files = [*results.rglob("records/**/*.json"), *results.glob("figures/*")]
    assert len(files) > 10 * len(drawn)
    host = re.compile(rb"\b" + re.escape(os.uname().nodename).encode() + rb"\b")
    for path in files:
        data = path.read_bytes()
        if path.suffix not in (".png", ".pdf"):  # a short name may be in any picture, by chance
            assert not host.search(data), path
        for word in ("alice", str(tmp_path), "rabbit", "considering"):
            assert word.encode() not in data, (path, word)
    view = "results/text/tiny/trained/private.html"
    refused = other.run(view)
    assert refused.returncode != 0
    assert "a text view shows the prompt, and the configuration says `redact: true`" in (
        refused.stdout
    )
    assert not [one for one in other.plan() if one.startswith("Show")]
    done = command(other, "verify", *drawn)
    assert done.returncode == 0, done.stdout
    assert "redacted" in done.stdout


def test_the_chain_reaches_the_code_from_another_folder(fresh, finished, tmp_path, monkeypatch):
    """A run from elsewhere draws the same file, and its records are the same."""
    code, away = fresh.copy(tmp_path / "code"), tmp_path / "away"
    away.mkdir()
    for name in ("config", "texts", "checkpoints"):
        (code.folder / name).rename(away / name)
    other = type(fresh)(away)
    other.make("-s", str(code.folder / "Snakefile"), "--", "fig05_histogram_trained")
    for name in (
        "results/figures/fig05_histogram_trained.png",
        "results/records/fig05_histogram_trained.json",
    ):
        assert other.results()[name] == finished.results()[name]
    monkeypatch.chdir(away)
    assert audit.verify(chain.read(), Path(os.path.relpath(code.folder))).findings == []
