"""A sweep over four revisions through the whole workflow, and what one more of them makes."""

import shutil

import pandas as pd
import pytest
import yaml
from PIL import Image
from safetensors.numpy import load_file, save_file

from tools import checkpoints, hub

FIGURE = "fig23_training_steps"
TABLES = ("inner_products", "effective_rank", "clusters")
STEPS = (0, 10, 200, 3000)
ONLINE = {"HF_HUB_OFFLINE": "0"}


def write(folder, step):
    """Write a checkpoint on the straight way from one draw of all weights to another."""
    first, last = (checkpoints.write("gpt2", folder / f"ends/{seed}", seed=seed) for seed in (0, 1))
    share = step / STEPS[-1]
    ends = [load_file(end / "model.safetensors") for end in (first, last)]
    weights = {name: (1 - share) * ends[0][name] + share * ends[1][name] for name in ends[0]}
    shutil.copytree(first, folder / f"step{step}")
    save_file(weights, folder / f"step{step}/model.safetensors", metadata={"format": "pt"})
    return folder / f"step{step}"


def sweep(config, steps=STEPS):
    config["models"] = {
        "mine": {
            "source": {"local": "checkpoints/run"},
            "revisions": [f"step{step}" for step in steps],
            "label": "Mine",
            "weights": ["trained"],
        },
        "tiny": {"source": {"local": "checkpoints/tiny"}, "weights": ["trained"]},
    }
    config["roles"] = {"focus": "tiny", "second": "mine@step0"}
    config["prompts"] = {"harbour": {"file": "texts/harbour.txt"}}
    config["figures"]["draw"] = [FIGURE]
    return config


@pytest.fixture(scope="module")
def swept(fresh, tmp_path_factory):
    """The figure of a sweep has been drawn. Copy it, do not change it."""
    workspace = fresh.copy(tmp_path_factory.mktemp("swept") / "work")
    for step in STEPS:
        write(workspace.folder / "checkpoints/run", step)
    workspace.config = sweep(workspace.config)
    workspace.make(FIGURE, "results/tables/effective_rank.csv", "results/tables/weights.csv")
    return workspace


def test_the_figure_draws_the_numbers_of_every_revision(swept):
    for name in (FIGURE, f"{FIGURE}_controlled"):
        for kind in ("png", "svg", "pdf", "csv", "caption.rst"):
            assert (swept.folder / f"results/figures/{name}.{kind}").stat().st_size > 0
        assert Image.open(swept.folder / f"results/figures/{name}.png").height <= 1600
    data = pd.read_csv(swept.folder / f"results/figures/{FIGURE}.csv")
    drawn = data[(data["measure"] == "rank") & (data["layer"] == 1)].sort_values("step")
    expected = []
    for step in STEPS:
        place = f"results/metrics/effective_rank/mine@step{step}/trained/harbour.csv"
        table = pd.read_csv(swept.folder / place)
        expected += table[table["layer"] == 1]["raw"].tolist()
    assert drawn["step"].tolist() == list(STEPS)
    assert drawn["value"].tolist() == expected
    assert len(set(expected)) == len(STEPS)  # the weights do change
    caption = (swept.folder / f"results/figures/{FIGURE}.caption.rst").read_text()
    assert "Mine: 4 revisions, layers 0, 1 and 2." in caption


def test_collected_tables_can_be_grouped_by_step(swept):
    for table in ("effective_rank", "weights"):
        rows = pd.read_csv(swept.folder / f"results/tables/{table}.csv")
        assert sorted(rows.groupby(["sweep", "step"]).groups) == [("mine", step) for step in STEPS]
        named = rows[["model", "label", "sweep", "step"]].drop_duplicates().to_numpy().tolist()
        assert named[1] == ["mine@step10", "Mine, step 10", "mine", 10]
        assert named[4][:2] == ["tiny", "tiny"]
        assert pd.isna(named[4][2:]).all()


def test_another_revision_runs_itself_and_redraws_its_figure_alone(swept, tmp_path):
    workspace = swept.copy(tmp_path / "work")
    assert workspace.plan(FIGURE) == set()
    write(workspace.folder / "checkpoints/run", 1000)
    workspace.config = sweep(workspace.config, (*STEPS, 1000))
    metrics = yaml.safe_load((workspace.folder / "workflow/metrics.yaml").read_text())
    verbs = ["Extract", *(f"{metrics[table]['message']} of" for table in TABLES)]
    run = "mine@step1000 (trained) on harbour"
    assert workspace.plan(FIGURE) == {f"{verb} {run}" for verb in verbs} | {f"Draw {FIGURE}"}


def test_a_sweep_that_is_asked_for_and_not_there_is_said_once(fresh, tmp_path):
    workspace = fresh.copy(tmp_path / "work")
    said = f"{FIGURE} is skipped"
    assert said not in workspace.make("-n")
    config = workspace.config
    config["figures"]["draw"] = [FIGURE, "fig03_mass_near_one"]
    workspace.config = config
    assert f"{said}: add `revisions:` to a model (docs/sweeps.md)" in workspace.make("-n")


def test_branches_of_the_hub_are_pinned_and_downloaded_each(fresh, tmp_path):
    workspace = fresh.copy(tmp_path / "work")
    config = workspace.config
    config["models"]["tiny"] |= {
        "source": {"hub": "zoo/tiny"},
        "revisions": {"step0": "init", "step9": "step9", "step10": hub.COMMIT},
    }
    config["roles"] = {"focus": "tiny@step0", "second": "tiny@step9"}
    workspace.config = config
    branches = {
        name: checkpoints.write("gpt2", tmp_path / name, seed=seed)
        for seed, name in enumerate(("init", "step9"), 7)
    }
    cache = {"HF_HOME": str(tmp_path / "cache")}
    refused = " ".join(workspace.run("-n", **cache).stdout.split())
    assert "models.tiny@step0.source: no revision of zoo/tiny@init is pinned" in refused
    with hub.serve("zoo/tiny", workspace.folder / "checkpoints/tiny", branches) as (address, _):
        done = workspace.run("download_models", HF_ENDPOINT=address, **cache | ONLINE)
    assert done.returncode == 0, done.stdout
    # The commit that the configuration names needs no pin, and none is overwritten by another.
    lock = yaml.safe_load((workspace.folder / "config/revisions.lock.yaml").read_text())
    assert lock == {f"zoo/tiny@{name}": hub.commit_of(name) for name in branches}
    snapshots = tmp_path / "cache/hub/models--zoo--tiny/snapshots"
    fetched = {
        place.name: load_file(place / "model.safetensors")["wte.weight"].tobytes()
        for place in snapshots.iterdir()
    }
    assert fetched.keys() == {hub.COMMIT, *map(hub.commit_of, branches)}
    assert len(set(fetched.values())) == 3
    planned = workspace.run("-n", **cache)
    assert "Extract tiny@step9 (trained) on harbour" in planned.stdout, planned.stdout
