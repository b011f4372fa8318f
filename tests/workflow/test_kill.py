"""Killed runs: no orphan finishes, and the rerun gives what an undisturbed run gives."""

import os
import random
import signal
import subprocess
import time

import psutil
import pytest

TRIALS = range(int(os.environ.get("TOKENSPHERE_TRIALS", "1")))
STORE = "results/activations/tiny/trained/harbour.zarr.zip"
JOB = "Extract tiny (trained) on harbour"
FIGURE = "fig03_mass_near_one"
# Seconds: a job takes about five here, the first two go to imports.
IMPORTS, LONGEST = 2.0, 5.0


def start(workspace, *arguments, **extra) -> subprocess.Popen:
    return subprocess.Popen(
        workspace.command(*arguments),
        cwd=workspace.folder,
        env=workspace.environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen, words: str) -> None:
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the run ended without saying {words!r}")


def scripts_of(workspace) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(workspace.folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill(process: subprocess.Popen, whom: str) -> None:
    if whom == "group":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def assert_recovers(workspace, finished) -> None:
    """Check that no script outlives its driver, then unlock, rerun and compare.

    One figure stands for all: what else was made from the store is there and compared, too.
    """
    psutil.wait_procs(scripts_of(workspace), timeout=10)
    assert scripts_of(workspace) == []
    workspace.make("--unlock")
    workspace.make(STORE, FIGURE)
    assert workspace.results() == finished.results()
    assert not list((workspace.folder / "results").rglob("*.part"))


@pytest.mark.trial
@pytest.mark.parametrize("seed", TRIALS)
@pytest.mark.parametrize("whom", ["group", "driver"])
def test_killed_during_an_extraction(workspace, finished, whom, seed):
    results = workspace.folder / "results"
    for path in [
        *results.glob("activations/**/harbour.*"),
        *results.glob("metrics/inner_products/**/harbour.csv"),
        *results.glob(f"figures/{FIGURE}*"),
    ]:
        path.unlink()
    process = start(workspace, STORE)
    wait_for(process, JOB)
    # Every second trial falls into the imports.
    moment = random.Random(f"{whom}.{seed}").uniform(0, LONGEST if seed % 2 else IMPORTS)
    time.sleep(moment)
    kill(process, whom)
    assert_recovers(workspace, finished)


# Loaded by every script of the run: an output is written, but not yet in place.
SLOW_FSYNC = """
import os, sys, time
if any(".snakemake/scripts" in word for word in sys.orig_argv):
    os.fsync = lambda file: time.sleep(60)
"""


def test_killed_before_an_output_is_in_place(workspace, finished, tmp_path):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/sitecustomize.py").write_text(SLOW_FSYNC)
    store = workspace.folder / STORE
    store.unlink()
    process = start(workspace, STORE, PYTHONPATH=str(tmp_path / "slow"))
    wait_for(process, JOB)
    while not list(store.parent.glob(f".{store.name}.*.part")):
        assert process.poll() is None
        assert not store.exists()
        time.sleep(0.01)
    kill(process, "driver")
    assert not store.exists()
    assert_recovers(workspace, finished)


# Moves files slowly, so that a kill falls in between.
SLOW_REPLACE = """
import os, time
_replace = os.replace
def replace(source, target):
    _replace(source, target)
    if "fig03" in str(target):
        time.sleep(0.5)
os.replace = replace
"""


@pytest.mark.trial
@pytest.mark.parametrize("seed", TRIALS)
@pytest.mark.parametrize("whom", ["group", "driver"])
def test_killed_between_two_files_of_a_figure(workspace, finished, tmp_path, whom, seed):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/sitecustomize.py").write_text(SLOW_REPLACE)
    figures = workspace.folder / "results/figures"
    files = sorted(figures.glob("fig03*"))
    for path in files:
        path.unlink()
    process = start(workspace, FIGURE, PYTHONPATH=str(tmp_path / "slow"))
    wait_for(process, "Draw fig03")
    moved = random.Random(f"figure.{whom}.{seed}").randrange(1, len(files))
    while len(list(figures.glob("fig03*"))) < moved:
        assert process.poll() is None
        time.sleep(0.01)
    kill(process, whom)
    assert 0 < len(list(figures.glob("fig03*"))) < len(files)
    assert_recovers(workspace, finished)
