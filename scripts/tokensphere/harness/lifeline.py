"""A script ends when the Snakemake process that started it does.

A script whose driver was killed would otherwise run on and move its output into place in the
middle of the next run. Importing this module ties the script to the driver, whose process id
`common.smk` puts into TOKENSPHERE_DRIVER; outside a workflow it does nothing. The driver itself
must never import it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1


def driver_pid() -> int | None:
    """Return the process id of the driver, or None outside a workflow."""
    pid = os.environ.get("TOKENSPHERE_DRIVER")
    return int(pid) if pid else None


def _ancestors() -> list[int]:
    import psutil

    return [parent.pid for parent in psutil.Process().parents()]


def is_attached() -> bool:
    """Say whether the driver still lives, or there is none to attach to."""
    driver = driver_pid()
    return driver is None or os.getppid() == driver or driver in _ancestors()


def _end_with(driver: int) -> None:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(driver).wait()
    os.kill(os.getpid(), signal.SIGKILL)


def attach() -> None:
    """Arrange for this process to be killed when the driver ends, however it ends."""
    driver = driver_pid()
    if driver is None:
        return
    armed = sys.platform == "linux"
    if armed:
        # Armed before the check: a driver that dies in between is then noticed by the check.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if not is_attached():
        sys.exit("The Snakemake process that started this job is gone: nothing was written.")
    if not armed or os.getppid() != driver:  # a shell stands between: watch the driver itself
        threading.Thread(target=_end_with, args=(driver,), daemon=True).start()


attach()
