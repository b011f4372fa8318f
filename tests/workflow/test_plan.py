"""What a change makes out of date: exactly what depends on it."""

import os
import shutil
from pathlib import Path

import yaml

from tokensphere import audit, chain
from tools import checkpoints

REPOSITORY = Path(__file__).parents[2]
# The workspace has one random scheme, nothing to compare schemes with; and no sweep.
FIGURES = {
    name: entry
    for name, entry in yaml.safe_load((REPOSITORY / "workflow/figures.yaml").read_text()).items()
    if "every" not in entry["weights"] and entry["models"] != "sweeps"
}
METRICS = yaml.safe_load((REPOSITORY / "workflow/metrics.yaml").read_text())
RUNS = [
    f"tiny ({weights}) on {prompt}"
    for weights in ("trained", "norm_matched.0")
    for prompt in ("harbour", "kitchen")
]
WEIGHTS = {f"Measure the weights of {run.partition(' on ')[0]}" for run in RUNS}
WEIGHT_TABLES = {f"Collect {table} of all weight sets" for table in ("weights", "value_matrices")}
SHEET = {"Put all figures on one sheet"}


def figures(**wanted) -> set[str]:
    """Return the jobs that draw the figures whose entries say so."""
    return {
        f"Draw {name}"
        for name, entry in FIGURES.items()
        if all(entry[key] == value for key, value in wanted.items())
    }


ALL_FIGURES = figures()
# Table -> what the job that writes it says it does.
TABLES = {
    table: metric["message"]
    for metric in METRICS.values()
    for table in metric["writes"].values()
    if table in metric["collect"]
}


def kinds(plan: set[str]) -> set[str]:
    return {sentence.split()[0] for sentence in plan}


def test_a_finished_run_has_nothing_to_do(workspace):
    assert workspace.plan() == set()


def test_touching_every_file_plans_nothing(workspace):
    for path in workspace.folder.rglob("*"):
        if path.is_file() and "results" not in path.parts and ".snakemake" not in path.parts:
            os.utime(path)
    assert workspace.plan() == set()


def test_tables_that_no_figure_draws_are_made_when_asked_for(workspace):
    workspace.config |= {
        "tables": "drawn",
        "figures": {"prompt": "harbour", "draw": ["fig04_histogram_random"]},
    }
    out = workspace.make("-n", "--forceall")
    jobs = {
        line.split()[0]: line.split()[-1] for line in out.splitlines() if len(line.split()) == 2
    }
    assert jobs["inner_product_histogram"] == jobs["extract"] == "2"  # of four runs
    assert not {"kmeans", "attention", "weights"} & set(jobs)
    plan = workspace.plan("results/tables/kmeans.csv", "--forceall")
    assert plan >= {f"Partition by k-means of {run}" for run in RUNS}


def test_an_edited_measure_reruns_its_tables_and_figures_but_no_extraction(workspace):
    workspace.edit("scripts/tokensphere/sphere.py", '"""Tokens', '"""The tokens')
    plan = workspace.plan()
    assert not {"Extract", "Store"} & kinds(plan)
    # Tables that are read from labels alone follow if the labels' job runs.
    assert plan >= {f"Collect {table} of its runs" for table in TABLES}
    assert plan >= ALL_FIGURES


def test_edited_clusters_make_no_attention_and_no_fiedler_value_anew(workspace):
    workspace.edit("scripts/tokensphere/clusters.py", '"""', '"""Of tokens: ')
    plan = workspace.plan()
    assert plan >= {f"Find clusters of {run}" for run in RUNS}
    of_attention = {
        metric["message"]
        for metric in METRICS.values()
        if "attention" in metric["reads"] or metric["writes"].get("table") == "fiedler"
    }
    assert len(of_attention) == 5
    assert not [one for one in plan if one.startswith(("Extract", "Store", *of_attention))]
    # What compares attention with clusters follows if the labels change.
    assert plan >= {
        f"Compare what clustered and unclustered tokens receive of {run}" for run in RUNS
    }


def test_attention_that_is_not_kept_is_gone_and_not_missed(fresh, tmp_path, monkeypatch):
    other = fresh.copy(tmp_path / "lean")
    other.config |= {"keep_attention": False}
    tables = [
        f"results/metrics/{table}/tiny/trained/harbour.csv"
        for table in ("fiedler", "attention_entropy")
    ]
    other.make(*tables)
    assert not list((other.folder / "results/attention").rglob("*.zip"))
    assert other.plan(*tables) == set()
    monkeypatch.chdir(other.folder)
    report = audit.verify(chain.read(), Path())
    assert report.findings == []
    assert [note for note in report.notes if note.startswith("gone by design")]
    # Another measure runs the model again, and measures anew what depends on it.
    leaders = "results/metrics/attention_leaders/tiny/trained/harbour.csv"
    assert {one.split()[0] for one in other.plan(*tables, leaders)} == {"Store", "Measure", "Find"}


def test_an_edited_script_reruns_its_own_tables_and_figures(workspace):
    workspace.edit("scripts/inner_product_histogram.py", '"""Count', '"""Count all')
    plan = workspace.plan()
    assert kinds(plan) == {"Count", "Collect", "Draw", "Put"}
    assert "Draw fig03_mass_near_one" not in plan


def test_edited_tables_of_weights_make_nothing_else_anew(workspace):
    workspace.edit("scripts/tokensphere/matrices.py", '"""Matrices', '"""The matrices')
    assert workspace.plan() == WEIGHTS | WEIGHT_TABLES


def test_an_edited_harness_reruns_nothing(workspace):
    for path in (workspace.folder / "scripts/tokensphere/harness").glob("*.py"):
        path.write_text(path.read_text() + "# a comment\n")
    assert workspace.plan() == set()


def test_a_colour_of_one_figure_redraws_that_figure_alone(workspace):
    workspace.edit("workflow/figures.yaml", 'bars: "#8c8c8c"', 'bars: "#777777"')
    assert workspace.plan() == {"Draw fig04_histogram_random"} | SHEET


def test_the_style_file_redraws_the_figures_alone(workspace):
    workspace.edit(
        "scripts/tokensphere/drawing/style.py", '"grid.linewidth": 0.6', '"grid.linewidth": 0.5'
    )
    assert workspace.plan() == ALL_FIGURES | SHEET


def test_a_caption_redraws_its_figures_alone(workspace):
    workspace.edit("workflow/report/curves.rst", "Solid: trained", "Full lines: trained")
    assert workspace.plan() == figures(caption="curves") | SHEET


def test_what_a_caption_says_of_one_figure_redraws_that_figure_alone(workspace):
    workspace.edit("workflow/figures.yaml", "Near 1,", "Close to 1,")
    assert workspace.plan() == {"Draw fig03_mass_near_one"} | SHEET


def test_a_new_prompt_runs_itself_and_redraws_figures_of_many_prompts(workspace):
    workspace.add_prompt("attic", "Rain came in under the slates, so we slept in the kitchen.")
    plan = workspace.plan()
    runs = {run.replace("harbour", "attic") for run in RUNS if run.endswith("harbour")}
    assert plan == (
        {"Read the prompt attic"}
        | figures(prompts="all")
        | SHEET
        | {f"{verb} {run}" for verb in ("Extract", "Store the attention of") for run in runs}
        | {
            f"{metric['message']} of {run}"
            for name, metric in METRICS.items()
            for run in runs
            # Projections are made for figures of one prompt alone.
            if metric["writes"] or name == "attention_profiles"
        }
        | {f"Collect {table} of its runs" for table in TABLES}
    )


def test_a_new_model_redraws_no_figure_that_does_not_draw_it(workspace):
    checkpoints.write("bert", workspace.folder / "checkpoints/other")
    other = {"source": {"local": "checkpoints/other"}, "weights": ["trained"]}
    workspace.config |= {"models": workspace.config["models"] | {"other": other}}
    plan = workspace.plan()
    assert {one for one in plan if one.startswith("Draw")} == figures(models="all")
    assert not [one for one in plan if "tiny" in one]


def test_a_swapped_checkpoint_of_the_same_size_and_time_reruns_its_runs(workspace, tmp_path):
    assert workspace.plan() == set()  # and the hashes of its files are known now
    place = workspace.folder / "checkpoints/tiny/model.safetensors"
    checkpoints.write("gpt2", tmp_path / "swap", seed=1)
    swap = tmp_path / "swap/model.safetensors"
    before = place.stat()
    assert swap.stat().st_size == before.st_size
    shutil.copy(swap, place)
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    plan = workspace.plan()
    assert len([one for one in plan if one.startswith("Extract")]) == len(RUNS)
    assert plan >= ALL_FIGURES | WEIGHTS | WEIGHT_TABLES


def test_a_moved_checkpoint_reruns_nothing(workspace):
    (workspace.folder / "checkpoints/tiny").rename(workspace.folder / "checkpoints/moved")
    config = workspace.config
    config["models"]["tiny"]["source"] = {"local": "checkpoints/moved"}
    workspace.config = config
    assert workspace.plan() == set()


def test_the_page_of_the_text_views_makes_them_alone(workspace):
    workspace.edit("workflow/report/text_view.html", "<title>Text view", "<title>Text views")
    assert workspace.plan() == {
        "Show the text of harbour in tiny (trained)",
        "Show the text of harbour in tiny (norm_matched.0)",
    }


def test_an_upgraded_library_reruns_what_uses_it(workspace):
    lock = (workspace.folder / "requirements.lock").read_text()
    line = next(line for line in lock.splitlines() if line.startswith("matplotlib=="))
    workspace.edit("requirements.lock", line, "matplotlib==99.0")
    assert workspace.plan() == ALL_FIGURES | SHEET


def test_a_constant_reruns_the_measures_that_take_it(workspace):
    workspace.config |= {"metrics": {"histogram_bins": 40}}
    plan = workspace.plan()
    assert kinds(plan) == {"Count", "Collect", "Draw", "Put"}
    assert not plan & figures(draw="curves")


def test_a_constant_that_no_figure_shows_reruns_its_measure_alone(workspace):
    workspace.config |= {"metrics": {"kmeans_starts": 2}}
    assert kinds(workspace.plan()) == {"Partition", "Collect"}


def test_a_constant_of_the_drawing_counts_nothing_anew(workspace):
    workspace.config |= {"metrics": {"near_one": 0.8}}
    plan = workspace.plan()
    assert not [one for one in plan if one.startswith("Count")]
    assert plan >= {"Draw fig03_mass_near_one", "Draw fig04_histogram_random"}


def test_another_type_runs_the_model_again_and_measures_no_weights(workspace):
    config = workspace.config
    config["models"]["tiny"]["dtype"] = "bfloat16"
    workspace.config = config
    plan = workspace.plan()
    assert plan >= {
        f"{verb} {run}" for verb in ("Extract", "Store the attention of") for run in RUNS
    }
    assert plan >= ALL_FIGURES
    assert not plan & WEIGHTS


def test_a_limit_of_the_cache_reruns_nothing(workspace):
    workspace.config |= {"cache_limit_gb": 0.000001}
    assert workspace.plan() == set()


def test_deleting_the_cache_reruns_nothing(workspace):
    workspace.make("clean_cache")
    assert not (workspace.folder / "results/cache/weights").exists()
    assert workspace.plan() == set()


def test_a_configfile_replaces_the_default_and_never_mixes(workspace):
    out = workspace.make("-n", "--forceall")
    assert "minilm" not in out
    stats = {
        line.split()[0]: line.split()[-1] for line in out.splitlines() if len(line.split()) == 2
    }
    assert int(stats["extract"]) == len(RUNS)
    assert stats["weights"] == "2"
