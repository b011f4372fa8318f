"""What a run on a SLURM cluster needs of it, asked before the first job is submitted."""

from __future__ import annotations

import getpass
import re
import subprocess

from tokensphere.harness.errors import UserError

PATIENCE = 60  # seconds that SLURM is given to answer
# Seconds. Snakemake asks after its jobs at least so often; SLURM must remember them for longer.
LONGEST_PAUSE = 180


def refuse_silence(status_command: str | None) -> None:
    """Refuse a cluster that would not tell when a job has ended: Snakemake would wait for ever.

    Parameters
    ----------
    status_command : str or None
        What Snakemake asks: `sacct`, or `squeue`.

    Raises
    ------
    UserError
        If SLURM does not answer, keeps no accounts for `sacct`, or forgets what has ended before
        `squeue` is asked again.
    """
    if status_command == "sacct":
        code, answer = _ask("sacct", "-X", "--starttime", "now")
        if code:
            raise UserError(
                "the cluster",
                f"SLURM keeps no accounts that sacct could show ({answer})",
                "add --slurm-status-command squeue",
            )
        return
    code, answer = _ask("scontrol", "show", "config")
    if code:
        raise UserError(
            "the cluster",
            f"SLURM does not answer ({answer})",
            "run Snakemake where sinfo shows the partitions: on a login node",
        )
    age = re.search(r"MinJobAge\s*=\s*(\d+)", answer)
    if age and int(age[1]) <= LONGEST_PAUSE:
        raise UserError(
            "the cluster",
            f"SLURM forgets a job {age[1]} s after its end (MinJobAge), and squeue is asked every "
            f"{LONGEST_PAUSE} s",
            "add --slurm-status-command sacct, or ask the administrators for a larger MinJobAge",
        )


def refuse_unknown_accounts(named: str | None) -> None:
    """Refuse an account that SLURM does not know of this user: no group would be submitted.

    Parameters
    ----------
    named : str or None
        The resource `slurm_account`: one account or several, with commas between. Where SLURM does
        not say which there are, any will do.

    Raises
    ------
    UserError
        If SLURM lists this user's accounts and one that is named is not there.
    """
    wanted = {one for one in re.split(r"[,\s]+", str(named or "")) if one}
    code, answer = _ask(
        "sacctmgr",
        "-n",
        "-P",
        "list",
        "associations",
        f"user={getpass.getuser()}",
        "format=account",
    )
    known = set(answer.lower().split())
    unknown = {one for one in wanted if one.lower() not in known}
    if not code and known and unknown:
        raise UserError(
            "default-resources: slurm_account",
            f"SLURM knows no account {', '.join(sorted(unknown))} of yours",
            f"yours are: {', '.join(sorted(known))}",
        )


def _ask(*command: str) -> tuple[int, str]:
    """Run a command; return its status and what it printed, or why it did not."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except FileNotFoundError:
        return 127, f"there is no command {command[0]}"
    except subprocess.TimeoutExpired:
        return 124, f"no answer from {command[0]} within {PATIENCE} s"
    return done.returncode, done.stdout.strip()
