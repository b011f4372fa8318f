"""A script ends when the process that drives it is killed.

Every process here writes to one pipe and keeps it open. Reading that pipe to its end waits
until all of them are gone; a script that outlived its driver says so first.
"""

import os
import signal
import subprocess
import sys

import pytest

from tools.stand_in import SCRIPTS

SCRIPT = """
from tokensphere.harness import lifeline
import time
print("tied", flush=True)
time.sleep(20)
print("survived", flush=True)
"""

DRIVER = """
import os, subprocess, sys
os.environ["TOKENSPHERE_DRIVER"] = str(os.getpid())
subprocess.run(sys.argv[1:])
"""


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SCRIPTS)} | more


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-c", SCRIPT],
        # The shell runs a second command after the script, so it stays between the two.
        ["sh", "-c", '"$0" -c "$1"; echo shell done', sys.executable, SCRIPT],
    ],
    ids=["child", "grandchild"],
)
def test_a_script_ends_when_its_driver_is_killed(command):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *command],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout.readline() == "tied\n"
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert "survived" not in driver.stdout.read()


def test_a_script_whose_driver_is_already_gone_does_nothing():
    gone = subprocess.Popen(["true"])
    gone.wait()
    script = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment(TOKENSPHERE_DRIVER=str(gone.pid)),
        capture_output=True,
        text=True,
    )
    assert script.returncode == 1
    assert script.stdout == ""
    assert "The Snakemake process that started this job is gone" in script.stderr


def test_outside_a_workflow_a_script_is_tied_to_nothing():
    script = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("time.sleep(20)", "")],
        env={k: v for k, v in environment().items() if k != "TOKENSPHERE_DRIVER"},
        capture_output=True,
        text=True,
    )
    assert script.stdout == "tied\nsurvived\n"
