"""What a finished run leaves behind, and that it is the same wherever it is made."""

import json
import subprocess

import pandas as pd
import pytest
import yaml
from PIL import Image


def drawn(workspace):
    """Read the figures that the workspace has the runs for: one random scheme, and no sweep."""
    entries = yaml.safe_load((workspace.folder / "workflow/figures.yaml").read_text())
    return {
        name: entry
        for name, entry in entries.items()
        if "every" not in entry["weights"] and entry["models"] != "sweeps"
    }


def test_every_figure_has_its_files_and_companion(finished):
    folder = finished.folder / "results/figures"
    names = drawn(finished)
    for name in [name + reading for name in names for reading in ("", "_controlled")]:
        for kind in ("png", "svg", "pdf", "csv", "caption.rst"):
            assert (folder / f"{name}.{kind}").stat().st_size > 0
        assert Image.open(folder / f"{name}.png").height <= 1600


def test_collected_tables_name_the_run_in_front(finished):
    table = pd.read_csv(finished.folder / "results/tables/inner_products.csv")
    assert list(table.columns[:3]) == ["model", "weights", "prompt"]
    assert set(zip(table["weights"], table["weights_are"], strict=True)) == {
        ("trained", "trained"),
        ("norm_matched.0", "norm_matched.0"),
    }
    assert set(table["label"]) == {"tiny"}
    assert len(table[["model", "weights", "prompt"]].drop_duplicates()) == 4


def test_tables_of_weights_have_every_weight_set_beside_the_trained_norms(finished):
    norms, values = (
        pd.read_csv(finished.folder / f"results/tables/{table}.csv")
        for table in ("weights", "value_matrices")
    )
    for table in (norms, values):
        assert list(table.columns[:4]) == ["model", "weights", "label", "weights_are"]
        assert table["weights"].unique().tolist() == ["trained", "norm_matched.0"]
    trained, matched = (one for _, one in norms.groupby("weights", sort=False))
    for norm in ("trained_norm", "trained_operator_norm"):
        assert matched[norm].equals(trained[norm].set_axis(matched.index))
    assert values["layer"].tolist() == [1, 2] * 2


def test_schemes_are_compared_where_there_are_two(workspace):
    config = workspace.config
    config["models"]["tiny"]["weights"].append("shuffled.0")
    workspace.config = config
    workspace.make("fig22_random_schemes")
    caption = (workspace.folder / "results/figures/fig22_random_schemes.caption.rst").read_text()
    assert "shuffled" in caption
    assert (workspace.folder / "results/figures/fig22_random_schemes_controlled.png").is_file()


def test_every_output_has_a_record_that_names_it(finished):
    named = set()
    for path in (finished.folder / "results/records").rglob("*.json"):
        outputs = json.loads(path.read_text())["deterministic"]["outputs"]
        named |= {output["path"] for output in outputs.values()}
    results = finished.folder / "results"
    about = ("logs", "benchmarks", "cache", "records", "README.md")
    made = {
        str(path.relative_to(finished.folder))
        for path in results.rglob("*")
        if path.is_file() and path.relative_to(results).parts[0] not in about
    }
    assert made == named


def test_no_part_and_no_machine_path_remains(finished):
    results = finished.folder / "results"
    assert not list(results.rglob("*.part"))
    for path in [*results.rglob("records/**/*.json"), *results.rglob("figures/*")]:
        if path.suffix == ".json":
            text = json.dumps(json.loads(path.read_text())["deterministic"])
            assert str(finished.folder) not in text
        else:
            assert str(finished.folder).encode() not in path.read_bytes()


def test_every_job_has_a_log_and_a_benchmark(finished):
    results = finished.folder / "results"
    records = {
        path.relative_to(results / "records").with_suffix("")
        for path in (results / "records").rglob("*.json")
    }
    assert {
        path.relative_to(results / "logs").with_suffix("")
        for path in (results / "logs").rglob("*.log")
    } == records
    assert {
        path.relative_to(results / "benchmarks").with_suffix("")
        for path in (results / "benchmarks").rglob("*.tsv")
    } == records


def test_another_folder_and_another_number_of_cores_give_the_same_results(
    fresh, finished, tmp_path
):
    other = fresh.copy(tmp_path / "elsewhere")
    # Another commit, too: files that no job reads change nothing.
    (other.folder / "NOTES.md").write_text("of mine\n")
    git = ["git", "-C", str(other.folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "NOTES.md"], check=True)
    subprocess.run([*git, "commit", "-qm", "Note"], check=True)
    other.make("--cores", "8", "--resources", "gpu=1")
    record = "results/records/fig03_mass_near_one.json"
    assert "commit" in json.loads((other.folder / record).read_text())["run"]["git"]
    assert other.results() == finished.results()


def test_one_core_gives_the_same_stores(fresh, finished, tmp_path):
    other = fresh.copy(tmp_path / "one")
    store = "results/activations/tiny/trained/harbour.zarr.zip"
    other.make("--cores", "1", store)
    assert other.results()[store] == finished.results()[store]


def test_the_report_holds_every_figure_with_its_caption(workspace):
    workspace.make("--report", "report.html")
    page = (workspace.folder / "report.html").read_text()
    for entry in drawn(workspace).values():
        assert entry["title"] in page
    assert "Share of token pairs whose inner product" in page


@pytest.mark.parametrize("target", ["fig03_mass_near_one", "results/tables/inner_products.csv"])
def test_a_figure_or_a_table_can_be_asked_for_by_name(fresh, tmp_path, target):
    other = fresh.copy(tmp_path / "one")
    assert "Collect inner_product_histogram of all runs" not in other.plan(target)


def test_the_workflow_runs_from_any_folder_with_its_own_configuration(fresh, finished, tmp_path):
    code, here = fresh.copy(tmp_path / "code"), tmp_path / "here"
    here.mkdir()
    for name in ("config", "texts", "checkpoints"):
        (code.folder / name).rename(here / name)
    other = type(fresh)(here)
    table = "results/metrics/inner_products/tiny/trained/harbour.csv"
    other.make("-s", str(code.folder / "Snakefile"), "--", table)
    assert other.results()[table] == finished.results()[table]
    assert not list((code.folder / "results").glob("*/"))
    planned = other.make("-s", str(code.folder / "Snakefile"), "-n", "--", table)
    assert "Nothing to be done" in planned
