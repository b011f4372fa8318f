"""Each job on a machine of several GPUs has one alone; no GPU is needed to see it."""

import os
import signal
import subprocess
import sys

import pytest

from tokensphere.harness import devices
from tools.stand_in import SCRIPTS

TWO = """\
GPU 0: NVIDIA A100 (UUID: GPU-aaaa)
GPU 1: NVIDIA A100 (UUID: GPU-bbbb)
"""
# The first is split: jobs take its parts, never the whole.
SPLIT = """\
GPU 0: NVIDIA A100 (UUID: GPU-aaaa)
  MIG 3g.20gb     Device  0: (UUID: MIG-cccc)
  MIG 3g.20gb     Device  1: (UUID: MIG-dddd)
GPU 1: NVIDIA A100 (UUID: GPU-bbbb)
"""

# Takes a device, says which, and holds it until its input ends.
HOLDER = """
import logging, sys
from tokensphere.harness import devices
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
with devices.some_of(sys.argv[2:], int(sys.argv[1])) as held:
    print("holds", *held, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch, tmp_path):
    """Leave the machine's own locks and devices alone."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(devices, "PAUSE", 0.01)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that gives the machine the devices that `nvidia-smi -L` would list."""

    def has(listed):
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin/nvidia-smi"
        program.write_text(f"#!/bin/sh\n[ \"$*\" = -L ] && cat <<'END'\n{listed}END\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return has


def test_devices_are_named_by_what_does_not_depend_on_their_order(machine):
    machine(TWO)
    assert devices.installed() == ["GPU-aaaa", "GPU-bbbb"]


def test_parts_of_a_split_device_stand_for_it(machine):
    machine(SPLIT)
    assert devices.installed() == ["MIG-cccc", "MIG-dddd", "GPU-bbbb"]


def test_a_machine_without_gpus_has_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices.installed() == []
    assert devices.choice() == []


def test_a_job_chooses_among_several_devices(machine):
    machine(TWO)
    assert devices.choice() == ["GPU-aaaa", "GPU-bbbb"]


def test_one_device_is_no_choice(machine):
    machine(TWO.splitlines(keepends=True)[0])
    assert devices.choice() == []


def test_what_slurm_gave_is_kept(machine, monkeypatch):
    machine(TWO)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert devices.choice() == []


@pytest.mark.parametrize(("named", "chosen"), [("2, 3", ["2", "3"]), ("1", []), ("", [])])
def test_a_user_may_name_the_devices(machine, monkeypatch, named, chosen):
    machine(TWO)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert devices.choice() == chosen


def test_cuda_sees_the_device_that_is_held_and_only_while_it_is(monkeypatch):
    with devices.some_of(["a", "b"]) as one, devices.some_of(["a", "b"]) as other:
        assert sorted(one + other) == ["a", "b"]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == other[0]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "a,b")
    with devices.some_of(["a", "b"]):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "a"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "a,b"


@pytest.mark.parametrize(("count", "seen"), [(2, "a,b"), (3, "a,b,c"), (4, "a,b,c")])
def test_a_model_that_is_spread_holds_as_many_as_it_asks_for(count, seen):
    with devices.some_of(["a", "b", "c"], count) as held:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen == ",".join(held)


def holder(*names, count=1):
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(count), *names],
        env=os.environ | {"PYTHONPATH": str(SCRIPTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def held(process):
    """Wait until a process holds a device: return it, and what the process said before."""
    said = []
    for line in process.stdout:
        if line.startswith("holds"):
            return line.split()[1], "".join(said)
        said.append(line)
    raise AssertionError("".join(said))


def test_more_jobs_than_devices_wait_for_one_and_say_so():
    first, second = holder("a", "b"), holder("a", "b")
    taken = {held(first)[0], held(second)[0]}
    assert taken == {"a", "b"}
    third = holder("a", "b")
    assert third.stdout.readline() == (
        "waits for a GPU: other jobs hold those of a, b; none waits with --resources gpu=2\n"
    )
    # Killed, not ended: nobody gives the lock back but the kernel.
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert held(third)[0] in taken
    for process in (second, third):
        process.communicate()


def test_a_job_that_finds_too_few_holds_none_meanwhile():
    first = holder("a", "b")
    assert held(first)[0] == "a"
    wide = holder("a", "b", count=2)
    assert wide.stdout.readline().startswith("waits for a GPU")
    # b is free for a job that needs no more.
    second = holder("b")
    assert held(second)[0] == "b"
    for process in (first, second):
        process.communicate()
    assert wide.stdout.readline().startswith("takes GPU a, b")
    wide.communicate()
