"""What a run on a SLURM cluster needs of it, asked before the first job is submitted."""

from __future__ import annotations

import getpass
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from tokensphere.harness.errors import UserError, suggest

PATIENCE = 60  # seconds that SLURM is given to answer
# Seconds. Snakemake asks after its jobs at least so often; SLURM must remember them for longer.
LONGEST_PAUSE = 180
BETWEEN_LOOKS = 60  # seconds between two looks at what waits
# Why SLURM lets a job wait that can never start as it was submitted; time ends all other waits.
NEVER = re.compile(
    r"Partition(Config|NodeLimit|TimeLimit)|BadConstraints|Invalid(Account|QOS)"
    r"|(Account|QOS)NotAllowed|\w+PerJob(Limit)?"
)


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
    code, answer = _ask("scontrol", "show", "config")
    if code:
        raise UserError(
            "the cluster",
            f"SLURM does not answer ({answer})",
            "run Snakemake where sinfo shows the partitions: on a login node",
        )
    if status_command == "sacct":
        code, said = _ask("sacct", "-X", "--starttime", "now")
        if code:
            raise UserError(
                "the cluster",
                f"SLURM keeps no accounts that sacct could show ({said})",
                "add --slurm-status-command squeue",
            )
        return
    age = re.search(r"MinJobAge\s*=\s*(\d+)", answer)
    if age and int(age[1]) <= LONGEST_PAUSE:
        raise UserError(
            "the cluster",
            f"SLURM forgets a job {age[1]} s after its end (MinJobAge), and squeue is asked every "
            f"{LONGEST_PAUSE} s",
            "add --slurm-status-command sacct (docs/clusters.md says what it costs), or ask the "
            "administrators for a larger MinJobAge",
        )


def refuse_unknown_rules(named: Iterable[str], known: Iterable[str]) -> None:
    """Refuse resources for a rule that is none: Snakemake would leave them out without a word.

    Parameters
    ----------
    named : iterable of str
        The rules of `--set-resources`, or of `set-resources` in a profile.
    known : iterable of str
        All rules that there can be.

    Raises
    ------
    UserError
        If one is not known.
    """
    known = set(known)
    for rule in named:
        if rule not in known:
            raise UserError(
                f"--set-resources {rule}",
                "there is no such rule",
                suggest(rule, known, "snakemake --list-rules names all"),
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


def watch(folder: str, say: Callable[[str], None]) -> None:
    """Tell of jobs that will never run (again), while Snakemake waits for them.

    Parameters
    ----------
    folder : str
        Where Snakemake runs; its jobs run there too.
    say : callable
        Takes a sentence for each such job that was not there before, once. It is called from a
        thread of its own, which ends with the process.
    """

    def look() -> None:
        told = {number for number, _ in stuck(folder)}  # what an earlier run left
        while True:
            time.sleep(BETWEEN_LOOKS)
            for number, sentence in stuck(folder):
                if number not in told:
                    told.add(number)
                    say(sentence)

    threading.Thread(target=look, name="jobs that never run", daemon=True).start()


def stuck(folder: str) -> Iterator[tuple[str, str]]:
    """List this user's jobs from a folder that ask for more than they can ever get, or are lost.

    A job is lost that was cancelled for one of a higher priority: SLURM puts it into its queue
    again, or does not, as its partition says.

    Yields
    ------
    number, sentence : str
        The job's number, and which job it is, why it does not run, and what can be done.
    """
    states, fields = "PENDING,PREEMPTED", "%i|%T|%r|%C|%m|%l|%P|%k|%Z"
    code, answer = _ask("squeue", "-h", "-t", states, "-u", getpass.getuser(), "-o", fields)
    for line in [] if code else answer.splitlines():
        number, state, reason, cpus, memory, limit, partition, comment, where = line.split("|", 8)
        if where != folder:
            continue
        if state == "PREEMPTED":
            yield (
                number,
                f"SLURM job {number} ({comment}) was preempted, and partition {partition} cancels "
                "what it preempts: Snakemake would wait for it for ever. Put it back into the "
                f"queue: scontrol requeue {number}",
            )
        elif NEVER.fullmatch(reason):
            yield (
                number,
                f"SLURM job {number} ({comment}) will not start ({reason}): it asks partition "
                f"{partition} for {cpus} CPUs, {memory} of memory and {limit} of time. "
                "Press Ctrl-C, then name another partition or ask for less: "
                'docs/clusters.md, "A job waits for ever"',
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
