"""A cluster that would not say when a job has ended is refused before any is submitted."""

import time

import pytest

from tokensphere.harness import cluster
from tokensphere.harness.errors import UserError


@pytest.fixture
def slurm(monkeypatch, tmp_path):
    """Return a function that puts commands of SLURM into place: name -> shell script."""

    def has(**commands):
        if "sacct" in commands:
            commands = {"scontrol": "exit 0", **commands}
        for name, script in commands.items():
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if commands else str(tmp_path))

    return has


def test_accounts_that_answer_are_enough(slurm):
    slurm(sacct='[ "$1" = -X ] && echo "JobID"')
    cluster.refuse_silence("sacct")


def test_accounting_that_is_off_is_refused_with_the_way_out(slurm):
    slurm(sacct="echo Slurm accounting storage is disabled >&2; exit 1")
    with pytest.raises(UserError, match="accounting storage is disabled") as refused:
        cluster.refuse_silence("sacct")
    assert refused.value.hint == "add --slurm-status-command squeue"


def test_accounting_that_hangs_is_refused(slurm, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    slurm(sacct="exec sleep 20")
    with pytest.raises(UserError, match=r"no answer from sacct within 0\.2 s"):
        cluster.refuse_silence("sacct")


@pytest.mark.parametrize("asked", ["sacct", "squeue"])
def test_a_cluster_that_cannot_be_reached_is_told_from_one_without_accounts(slurm, asked):
    slurm(scontrol="echo DNS SRV lookup failed; exit 1", sacct="exit 1")
    with pytest.raises(UserError, match=r"SLURM does not answer \(DNS SRV lookup failed\)"):
        cluster.refuse_silence(asked)


@pytest.mark.parametrize("seconds", [181, 300])
def test_squeue_is_enough_where_jobs_are_remembered_for_long(slurm, seconds):
    slurm(scontrol=f'echo "MinJobAge               = {seconds} sec"')
    cluster.refuse_silence("squeue")


@pytest.mark.parametrize("seconds", [2, 180])
def test_squeue_is_refused_where_jobs_are_forgotten_soon(slurm, seconds):
    slurm(scontrol=f'echo "MinJobAge               = {seconds} sec"')
    with pytest.raises(UserError, match=rf"{seconds} s after its end") as refused:
        cluster.refuse_silence("squeue")
    assert "--slurm-status-command sacct" in refused.value.hint


def test_a_machine_that_is_no_part_of_a_cluster_is_refused(slurm):
    slurm()
    with pytest.raises(UserError, match="there is no command scontrol"):
        cluster.refuse_silence("squeue")
    with pytest.raises(UserError, match="there is no command scontrol"):
        cluster.refuse_silence(None)


@pytest.mark.parametrize("named", ["Lab", "lab, second", None, ""])
def test_accounts_of_the_user_are_taken(slurm, named):
    slurm(sacctmgr="printf 'lab\\nsecond\\n'")
    cluster.refuse_unknown_accounts(named)


def test_an_account_of_nobody_is_refused_with_those_there_are(slurm):
    slurm(sacctmgr="printf 'lab\\nsecond\\n'")
    with pytest.raises(UserError, match="no account nope of yours") as refused:
        cluster.refuse_unknown_accounts("lab,nope")
    assert refused.value.hint == "yours are: lab, second"


@pytest.mark.parametrize("script", ["exit 1", "true"])
def test_where_slurm_lists_no_accounts_any_will_do(slurm, script):
    slurm(sacctmgr=script)
    cluster.refuse_unknown_accounts("any")


def test_resources_of_a_rule_that_is_none_are_refused():
    cluster.refuse_unknown_rules(["extract"], ["extract", "fiedler"])
    with pytest.raises(UserError, match="no such rule") as refused:
        cluster.refuse_unknown_rules(["extract", "fidler"], ["extract", "fiedler"])
    assert "--set-resources fidler" in str(refused.value)
    assert refused.value.hint == "did you mean 'fiedler'?"


QUEUE = """\
7|PENDING|PartitionTimeLimit|4|2052M|1:16:00|short|rule_metrics.gpt2.trained.wiki|/scratch/study
8|PENDING|PartitionConfig|4|1872M|38:00|main|rule_metrics.bert.trained.wiki|/scratch/study
9|PENDING|QOSMaxCpuPerJobLimit|4|1872M|38:00|main|rule_metrics.albert.trained.wiki|/scratch/study
10|PENDING|Priority|1|900M|9:00|main|rule_extract_wildcards_gpt2|/scratch/study
11|PENDING|Resources|1|900M|9:00|main|rule_extract_wildcards_bert|/scratch/study
12|PENDING|QOSMaxJobsPerUserLimit|1|900M|9:00|main|rule_extract_wildcards_bert|/scratch/study
13|PENDING|PartitionTimeLimit|1|900M|9:00|short|rule_extract_wildcards_bert|/scratch/study2
14|PREEMPTED|None|1|900M|9:00|spare|rule_extract_wildcards_gpt2|/scratch/study
15|PREEMPTED|None|1|900M|9:00|spare|rule_extract_wildcards_gpt2|/scratch/study2
"""


def test_jobs_that_never_run_are_told_from_those_that_wait(slurm):
    slurm(squeue=f"printf '{QUEUE}'")
    found = dict(cluster.stuck("/scratch/study"))
    assert set(found) == {"7", "8", "9", "14"}
    assert found["7"].startswith(
        "SLURM job 7 (rule_metrics.gpt2.trained.wiki) will not start (PartitionTimeLimit): it asks "
        "partition short for 4 CPUs, 2052M of memory and 1:16:00 of time."
    )
    assert found["14"].startswith("SLURM job 14 (rule_extract_wildcards_gpt2) was preempted")
    assert found["14"].endswith("scontrol requeue 14")


def test_a_queue_that_does_not_answer_is_no_finding(slurm):
    slurm(squeue="echo squeue: error; exit 1")
    assert not list(cluster.stuck("/scratch/study"))


def test_each_job_that_never_runs_is_told_of_once_and_none_of_an_earlier_run(
    slurm, monkeypatch, tmp_path
):
    looks = tmp_path / "looks"
    # At the first look only job 7 is there.
    seen = f"if test -e {looks}; then cat; else head -1; fi"
    slurm(squeue=f"printf '{QUEUE}' | {seen}; echo >> {looks}")
    monkeypatch.setattr(cluster, "BETWEEN_LOOKS", 0.01)
    said = []
    cluster.watch("/scratch/study", said.append)
    end = time.monotonic() + 20
    while not looks.exists() or len(looks.read_text()) < 4:
        assert time.monotonic() < end
        time.sleep(0.01)
    monkeypatch.setattr(cluster, "BETWEEN_LOOKS", 10**6)
    assert [sentence.split()[2] for sentence in said] == ["8", "9", "14"]
