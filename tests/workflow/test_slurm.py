"""Runs on a real SLURM cluster of two nodes: the same results, and what goes wrong on clusters.

Where SLURM is not installed these are skipped. TOKENSPHERE_SLURM=tiny adds all of config/tiny.yaml
(as in CI), TOKENSPHERE_SLURM=all what goes wrong, too.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from tools.cluster import Cluster, missing

REPOSITORY = Path(__file__).parents[2]
PLUGIN = Path(os.environ.get("TOKENSPHERE_SLURM_PLUGIN", f"{sys.prefix}/slurm"))
WANTED = os.environ.get("TOKENSPHERE_SLURM")
LONG = pytest.mark.skipif(WANTED != "all", reason="takes minutes: set TOKENSPHERE_SLURM=all")
WHOLE = pytest.mark.skipif(
    WANTED not in ("all", "tiny"), reason="takes minutes: set TOKENSPHERE_SLURM=tiny"
)

FIGURE = "fig04_histogram_random"
NEIGHBOURS = "results/metrics/neighbours/tiny/trained/harbour.csv"
STORE = "results/activations/tiny/trained/harbour.zarr.zip"
PATIENCE = 300  # seconds for what takes less than one on a quiet machine


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=LONG)])
def cluster(request):
    """Start a cluster, without accounting and with it."""
    lacking = missing(accounting=request.param)
    if lacking:
        pytest.skip(lacking)
    if not (PLUGIN / "snakemake_executor_plugin_slurm").is_dir():
        pytest.skip(f"Snakemake's plugin for SLURM is not in {PLUGIN}: make slurm")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # not pytest's own folder, which is closed to other users
        # With more CPUs than the machine may have: jobs run side by side.
        made = Cluster(Path(folder), accounting=request.param, enforce_memory=True, nodes=2)
        made.start()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="module")
def before(fresh, tmp_path_factory):
    """Nothing has run, and extractions ask for a GPU. Copy it, do not change it."""
    made = fresh.copy(tmp_path_factory.mktemp("slurm") / "work")
    made.config |= {"device": "auto"}
    return made


@pytest.fixture(scope="module")
def local(before, tmp_path_factory):
    """What the same work gives without a cluster."""
    made = before.copy(tmp_path_factory.mktemp("local") / "work")
    made.make(FIGURE, NEIGHBOURS)
    return made


@pytest.fixture
def workspace(before, tmp_path):
    return before.copy(tmp_path / "work")


class Submitting:
    """A workspace whose jobs go to a cluster.

    Parameters
    ----------
    first : str
        Python that the first script to run on the cluster executes before all else, no other.
    """

    def __init__(self, workspace, cluster, first=""):
        self.workspace, self.cluster = workspace, cluster
        self.log = workspace.folder / "driver.log"
        self.process = None
        hooks = workspace.folder / "hooks"
        hooks.mkdir(exist_ok=True)
        # Python runs it at its start; the folder is made once, by whoever comes first.
        (hooks / "sitecustomize.py").write_text(
            "import os, sys, time\n"
            "if 'SLURM_JOB_ID' in os.environ and any(\n"
            "    '.snakemake/scripts' in word for word in sys.orig_argv\n"
            "):\n"
            "    try:\n"
            f"        os.mkdir({str(workspace.folder / 'first')!r})\n"
            "    except FileExistsError:\n"
            "        pass\n"
            "    else:\n"
            f"        {first or 'pass'}\n"
        )

    def start(self, *arguments):
        """Start Snakemake in the background; a later `stop` ends it if nothing else did."""
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "snakemake", "--configfile", "config/test.yaml"),
                    *("--profile", "profiles/slurm"),
                    *("--slurm-init-seconds-before-status-checks", "6", *arguments),
                ],
                cwd=self.workspace.folder,
                env=self.workspace.environment(
                    **self.cluster.environment,
                    PYTHONPATH=os.pathsep.join([str(PLUGIN), str(self.workspace.folder / "hooks")]),
                ),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.process

    def stop(self):
        """End what a failed test left."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.cluster.ask("scancel", "--user=root", "--quiet", check=False)

    def make(self, *arguments):
        """Run to the end, and return what Snakemake says."""
        process = self.start(*arguments)
        return self.ends(process)

    def ends(self, process, patience=PATIENCE):
        """Wait for Snakemake to end well."""
        try:
            status = process.wait(patience)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"no end: {self.log.read_text()}") from error
        assert status == 0, self.log.read_text()
        return self.log.read_text()

    def jobs(self, what="%T"):
        """Ask squeue for one field of every job, ended ones too; the youngest last."""
        out = self.cluster.ask("squeue", "-h", "--states=all", "--sort=i", "-o", what)
        return out.splitlines()

    def waits_for(self, state):
        """Wait until the youngest job is in a state; return its identifier."""

        def found():
            jobs = self.jobs("%i %T")[-1:]
            return jobs[0].split()[0] if jobs and jobs[0].endswith(state) else None

        return wait_until(
            found, lambda: f"no job {state}: {self.jobs('%i %T %k')}; {self.log.read_text()}"
        )


@pytest.fixture
def submit(cluster, workspace):
    """Return a function that makes a workspace of jobs for the cluster, ended with the test."""
    made = []

    def make(first=""):
        made.append(Submitting(workspace, cluster, first))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def running(submit):
    """Return a function that starts an extraction whose script, the first time, sleeps: as it runs.

    It returns what submitted it, Snakemake's process and the job's number.
    """

    def start(*arguments):
        submitting = submit(first="time.sleep(600)")
        process = submitting.start(STORE, *arguments)
        number = submitting.waits_for("RUNNING")
        wait_until((submitting.workspace.folder / "first").exists, submitting.log.read_text)
        return submitting, process, number

    return start


def wait_until(ready, explain):
    """Return what `ready` returns, once it is something; after a while fail with an explanation."""
    end = time.monotonic() + PATIENCE
    while not (found := ready()):
        assert time.monotonic() < end, explain()
        time.sleep(0.5)
    return found


def assert_same(workspace, local):
    """Compare all that was made, and see that nothing is left of what was not."""
    made, expected = workspace.results(), local.results()
    assert made == {name: expected[name] for name in made}
    assert not list((workspace.folder / "results").rglob("*.part"))


def test_a_run_on_the_cluster_gives_what_a_local_run_gives(cluster, submit, workspace, local):
    submitting = submit()
    known = set(submitting.jobs("%i"))
    out = submitting.make(FIGURE, NEIGHBOURS)
    assert workspace.results() == local.results()
    assert not list((workspace.folder / "results").rglob("*.part"))
    # 8 jobs: the prompt here, two extractions, one job for the metrics of each run, the figure.
    assert "8 of 8 steps (100%) done" in out
    listed = cluster.ask(
        *("squeue", "-h", "--states=all"),
        *("-O", "JobID:12,State:14,tres-per-job:20,Comment:80"),
    )
    jobs = [job for job in listed.splitlines() if job.split()[0] not in known]
    assert len(jobs) == 5
    assert all(job.split()[1] == "COMPLETED" for job in jobs)
    # Only what runs a model asks for a GPU.
    with_gpu = [job for job in jobs if "gpu" in job.split()[2]]
    assert len(with_gpu) == 2
    assert all("rule_extract" in job for job in with_gpu)


@WHOLE
def test_tiny_yaml_on_the_cluster_gives_what_a_local_run_gives(
    cluster, submit, workspace, before, tmp_path
):
    if cluster.accounting:
        pytest.skip("once is enough")
    for made in (workspace, local := before.copy(tmp_path / "local")):
        made.config = yaml.safe_load((made.folder / "config/tiny.yaml").read_text())
    local.make()
    submitting = submit()
    out = submitting.ends(submitting.start(), patience=4 * PATIENCE)
    assert workspace.results() == local.results()
    assert not list((workspace.folder / "results").rglob("*.part"))
    # Of 108 jobs 85 go to the cluster, those of the metrics and text views as one for each run.
    assert "108 of 108 steps (100%) done" in out
    logs = re.findall(r"has been submitted with SLURM jobid \d+ \(log: \S+/slurm/(\w+)", out)
    assert len(logs) == 30
    assert logs.count("group_metrics") == 4


def test_without_accounts_nothing_is_submitted_that_would_never_be_seen_to_end(
    cluster, submit, workspace
):
    if cluster.accounting:
        pytest.skip("this cluster keeps accounts")
    submitting = submit()
    before = submitting.jobs()
    process = submitting.start(STORE, "--slurm-status-command", "sacct")
    assert process.wait(PATIENCE) == 1
    out = submitting.log.read_text()
    assert "Hint: add --slurm-status-command squeue" in out
    assert "Slurm accounting storage is disabled" in out
    assert submitting.jobs() == before
    assert not workspace.run("--unlock").returncode


@LONG
def test_a_cancelled_job_is_submitted_again(cluster, running, workspace, local):
    submitting, process, number = running()
    cluster.ask("scancel", number)
    assert "CANCELLED" in submitting.ends(process)
    assert_same(workspace, local)


@LONG
def test_a_job_past_its_time_is_submitted_again(cluster, submit, workspace, local):
    submitting = submit(first="time.sleep(600)")
    out = submitting.make(STORE, "--set-resources", "extract:runtime=1")
    assert "SLURM status is: 'TIMEOUT'" in out
    assert_same(workspace, local)


@LONG
def test_a_job_past_its_memory_is_submitted_again(cluster, submit, workspace, local):
    submitting = submit(first="x = b'x' * 3 * 10**9; time.sleep(600)")
    out = submitting.make(STORE, "--set-resources", "extract:mem_mb=2000")
    assert re.search("SLURM status is: '(FAILED|OUT_OF_MEMORY|CANCELLED)'", out)
    logs = (workspace.folder / "results/logs/slurm").rglob("*.log")
    assert any("exceeded memory limit" in log.read_text() for log in logs)
    assert_same(workspace, local)


@LONG
def test_drained_nodes_delay_the_run(cluster, submit, workspace, local):
    nodes = f"nodename={','.join(cluster.nodes)}"
    cluster.ask("scontrol", "update", nodes, "state=drain", "reason=test")
    submitting = submit()
    process = submitting.start(STORE)
    submitting.waits_for("PENDING")
    time.sleep(20)
    assert process.poll() is None
    assert not (workspace.folder / STORE).exists()
    cluster.ask("scontrol", "update", nodes, "state=resume")
    submitting.ends(process)
    assert_same(workspace, local)


@LONG
def test_a_job_on_a_node_that_fails_runs_on_another(cluster, running, workspace, local):
    submitting, process, number = running()
    failed = submitting.jobs("%N")[-1]
    for state in ("down", "drain"):  # its daemon answers, so that it would come back by itself
        cluster.ask("scontrol", "update", f"nodename={failed}", f"state={state}", "reason=test")
    try:
        submitting.ends(process)
    finally:
        cluster.ask("scontrol", "update", f"nodename={failed}", "state=resume")
    assert submitting.jobs("%i %T")[-1] == f"{number} COMPLETED"  # the same job, in the queue again
    assert {failed, submitting.jobs("%N")[-1]} == set(cluster.nodes)
    assert_same(workspace, local)


@LONG
def test_a_preempted_job_goes_back_into_the_queue(cluster, running, workspace, local):
    submitting, process, number = running("--set-resources", "extract:slurm_partition=requeued")
    preempt(cluster)
    submitting.ends(process, patience=2 * PATIENCE)
    assert f"{number} COMPLETED" in submitting.jobs("%i %T")
    assert_same(workspace, local)


@LONG
def test_a_job_cancelled_for_another_can_be_put_back(cluster, running, workspace, local):
    """As Snakemake's output says."""
    submitting, process, number = running("--set-resources", "extract:slurm_partition=cancelled")
    preempt(cluster)
    says = f"scontrol requeue {number}"
    wait_until(lambda: says in submitting.log.read_text(), submitting.log.read_text)
    cluster.ask(*says.split())
    submitting.ends(process, patience=2 * PATIENCE)
    assert f"{number} COMPLETED" in submitting.jobs("%i %T")
    assert_same(workspace, local)


@LONG
def test_a_killed_driver_is_followed_by_another(cluster, running, workspace, local):
    """As docs/clusters.md says: cancel what still runs, unlock, run again."""
    submitting, process, number = running()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert submitting.waits_for("RUNNING") == number  # it knows of nothing
    refused = submitting.start(STORE)
    assert refused.wait(PATIENCE) == 1
    assert "LockException" in submitting.log.read_text()
    cluster.ask("scancel", number)
    submitting.waits_for("CANCELLED")
    workspace.make("--unlock")
    submitting.make(STORE)
    assert_same(workspace, local)


def preempt(cluster):
    """Ask for every node, for two seconds, with a priority that others have not."""
    cluster.ask(*("sbatch", "--wait", "--partition=urgent", f"--nodes={len(cluster.nodes)}"),
                *("--exclusive", "--output=/dev/null", "--wrap=sleep 2"))  # fmt: skip


# --- the profile, without a cluster


def test_the_profile_holds_what_the_default_holds():
    default, slurm = (
        yaml.safe_load((REPOSITORY / f"profiles/{name}/config.yaml").read_text())
        for name in ("default", "slurm")
    )
    assert default.items() <= slurm.items()


def test_the_profile_puts_all_metrics_of_a_run_into_one_job():
    profile = yaml.safe_load((REPOSITORY / "profiles/slurm/config.yaml").read_text())
    metrics = yaml.safe_load((REPOSITORY / "workflow/metrics.yaml").read_text())
    assert set(profile["groups"]) == {*metrics, "text_view"}
    (name,) = {*profile["groups"].values(), *profile["group-components"]}
    # The plugin submits no group with a slash in its name, and does not say so.
    assert name.endswith("{model}.{weights}.{prompt}")
    assert "/" not in name
