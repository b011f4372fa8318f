"""A GPU of its own for each job that runs on one machine with others.

On a workstation with several GPUs, `--resources gpu=N` lets N jobs run at once, and every one of
them would take the first device. Here a job locks one that is free, and sees no other. A lock is
the kernel's, on a file: it goes with the process that holds it, however that ends. The number of a
device cannot change a result.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokensphere.harness.log import logger

if TYPE_CHECKING:
    from filelock import FileLock

VISIBLE = "CUDA_VISIBLE_DEVICES"
PAUSE = 1.0  # seconds between two looks for a free device


def installed() -> list[str]:
    """List the devices of this machine by their identifiers; a split one by those of its parts."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    found: list[str] = []
    whole = ""
    for kind, rest in re.findall(r"\(UUID: (GPU|MIG)(-[^)\s]+)\)", listed):
        if kind == "MIG" and whole in found:
            found.remove(whole)
        found.append(kind + rest)
        whole = kind + rest if kind == "GPU" else whole
    return found


def choice() -> list[str]:
    """List the devices among which a job may choose; empty where there is nothing to choose.

    A scheduler has chosen already: SLURM sets CUDA_VISIBLE_DEVICES. A user who sets it to several
    devices keeps the jobs on these.
    """
    if "SLURM_JOB_ID" in os.environ:
        return []
    named = os.environ.get(VISIBLE)
    devices = installed() if named is None else [one.strip() for one in named.split(",")]
    return devices if len(devices) > 1 else []


@contextlib.contextmanager
def some_of(devices: Sequence[str], count: int = 1) -> Iterator[list[str]]:
    """Hold so many devices, alone, and let CUDA see no other; wait while too many are taken.

    To be entered before torch is imported.

    Parameters
    ----------
    devices : sequence of str
        As CUDA_VISIBLE_DEVICES takes them; at least one.
    count : int
        How many to hold, one or more; all, where there are no more.

    Yields
    ------
    list of str
        The devices, in their order.
    """
    from filelock import FileLock  # here: most jobs take no GPU

    folder = Path(tempfile.gettempdir()) / f"tokensphere-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    locks = {device: FileLock(folder / f"{device}.lock") for device in devices}
    waited = 0.0
    while len(held := _lock(locks, min(count, len(locks)))) < min(count, len(locks)):
        if not waited:
            logger.info(
                "waits for a GPU: other jobs hold those of %s; none waits with --resources gpu=%d",
                ", ".join(devices),
                len(devices),
            )
        time.sleep(PAUSE)
        waited += PAUSE
    before = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = ",".join(held)
    logger.info("takes GPU %s, after %.0f s", ", ".join(held), waited)
    try:
        yield held
    finally:
        for device in held:
            locks[device].release()
        if before is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = before


def _lock(locks: Mapping[str, FileLock], count: int) -> list[str]:
    """Lock so many devices; none if fewer are free, or two jobs of one each would wait for ever."""
    from filelock import Timeout

    held: list[str] = []
    for device, lock in locks.items():
        if len(held) < count:
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=0)
                held.append(device)
    if len(held) < count:
        for device in held:
            locks[device].release()
        return []
    return held
