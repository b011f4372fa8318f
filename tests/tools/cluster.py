"""A SLURM cluster of this machine and two pretended GPUs a node, run from a folder of its own.

python tests/tools/cluster.py start FOLDER [--nodes N] [--cpus N] [--accounting] [--enforce-memory]
python tests/tools/cluster.py stop FOLDER

`start` prints the lines that let SLURM's commands, and Snakemake, find the cluster, of one that
runs already, too. Nothing is written outside the folder: with no SLURM configuration in /etc,
programs that look for one in passing do not wait for a cluster that is gone. Needs root and the
Debian packages slurm-wlm and munge; for accounting slurmdbd and mariadb-server, too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

GPUS = 2
PROGRAMS = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "munged": "munge"}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server"}
ACCOUNT = "lab"
PATIENCE = 30.0  # seconds that a daemon is given to answer


def missing(*, accounting: bool = False) -> str:
    """Say what a cluster needs and this machine lacks; empty if nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a SLURM cluster for tests is started on Linux, as root"
    wanted = PROGRAMS | (ACCOUNTING if accounting else {})
    packages = sorted({package for name, package in wanted.items() if not shutil.which(name)})
    if packages:
        return f"SLURM is not installed: apt-get install {' '.join(packages)}"
    return ""


class Cluster:
    """The daemons of one cluster.

    Parameters
    ----------
    folder : Path
        For state, logs and configuration. Every folder above it must be open to other users:
        munge and the database run as users of their own.
    accounting : bool
        Whether `sacct` answers: with a database, as large clusters have it.
    enforce_memory : bool
        Whether a job that takes more memory than it asked for is killed.
    nodes : int
        How many nodes the machine pretends to be: each has all its memory and CPUs.
    cpus : int
        How many CPUs a node says it has; default, as many as there are, four at least.
    """

    def __init__(
        self,
        folder: Path,
        *,
        accounting: bool = False,
        enforce_memory: bool = False,
        nodes: int = 1,
        cpus: int | None = None,
    ) -> None:
        self.folder = folder
        self.accounting = accounting
        self.enforce_memory = enforce_memory
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.cpus = cpus or max(4, os.cpu_count() or 1)  # a job of profiles/slurm asks for four
        self._list = folder / "daemons.json"

    @property
    def environment(self) -> dict[str, str]:
        """What lets SLURM's commands, and those that jobs call, find the cluster."""
        return {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
        }

    def ask(self, *command: str, check: bool = True) -> str:
        """Run a command of SLURM; return what it prints."""
        done = subprocess.run(
            command,
            env=os.environ | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}")
        return done.stdout.strip()

    def start(self) -> None:
        """Start the daemons, if they do not run; return when all nodes take jobs."""
        if self._list.exists():
            with suppress(RuntimeError, subprocess.TimeoutExpired):
                self.ask("scontrol", "ping")
                return  # it runs
            self.stop()
        for name in ("bin", "state", "spool", "log", "dev", "munge"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._configure()
        try:
            self._start_munge()
            if self.accounting:
                self._start_accounting()
            self._daemon("slurmctld", "slurmctld", "-f", self.folder / "slurm.conf")
            for node in self.nodes:
                self._daemon(node, "slurmd", "-N", node, "-f", self.folder / "slurm.conf")
            state = ("sinfo", "-h", "-p", "main", "-o", "%T")
            self._wait("a node", lambda: self.ask(*state) == "idle")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> bool:
        """End the daemons that `start` started, and these alone; say whether there were any."""
        if not self._list.exists():
            return False
        with suppress(RuntimeError, subprocess.TimeoutExpired):
            self.ask("scancel", "--user=root", "--quiet", check=False)
            time.sleep(0.5)  # the nodes kill the jobs' processes
        for pid, started in reversed(json.loads(self._list.read_text())):
            with suppress(psutil.NoSuchProcess):
                daemon = psutil.Process(pid)
                if daemon.create_time() == started:  # and not another that has its number now
                    daemon.terminate()
                    try:
                        daemon.wait(15)
                    except psutil.TimeoutExpired:
                        daemon.kill()
        self._list.unlink()
        return True

    def _configure(self) -> None:
        host = socket.gethostname().partition(".")[0]
        memory = psutil.virtual_memory().total // 2**20 - 512
        controller, database, *ports = _free_ports(2 + len(self.nodes))
        nodes = "\n".join(
            f"NodeName={node} NodeHostName={host} NodeAddr=127.0.0.1 Port={port} CPUs={self.cpus} "
            f"RealMemory={memory} Gres=gpu:{GPUS}"
            for node, port in zip(self.nodes, ports, strict=True)
        )
        # A gpu needs a character device each; these are copies of /dev/null.
        for index in range(GPUS):
            device = self.folder / f"dev/gpu{index}"
            if not device.exists():
                os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))
        self._write("gres.conf", f"Name=gpu File={self.folder}/dev/gpu[0-{GPUS - 1}]\n")
        self._write(
            "slurm.conf",
            f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge/socket
# No control groups: they need more than a container may have.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
MinJobAge=3600
KillWait=2
OverTimeLimit=0
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/%n.pid
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool/%n
SlurmctldLogFile={self.folder}/log/slurmctld.log
SlurmdLogFile={self.folder}/log/%n.log
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
{"JobAcctGatherParams=OverMemoryKill" if self.enforce_memory else ""}
{self._accounting_lines(database)}
DefMemPerCPU=500
{nodes}
# Jobs of `urgent` take the place of those of `requeued`, which wait again, and of `cancelled`.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=DEFAULT Nodes=ALL DefaultTime=10 MaxTime=600 State=UP PreemptMode=OFF
PartitionName=main Default=YES
PartitionName=gpu
PartitionName=urgent PriorityTier=2
PartitionName=requeued PreemptMode=REQUEUE
PartitionName=cancelled PreemptMode=CANCEL
""",
        )
        # Snakemake takes SLURM's variables from the steps of a job, this one among them.
        step = self.folder / "bin/srun"
        step.write_text(
            f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {shutil.which("srun")} "$@"\n'
        )
        step.chmod(0o755)
        if self.accounting:
            self._write(
                "slurmdbd.conf",
                f"""
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge/socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={database}
SlurmUser=root
PidFile={self.folder}/slurmdbd.pid
LogFile={self.folder}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
""",
            )

    def _accounting_lines(self, port: int) -> str:
        if not self.accounting:
            return "AccountingStorageType=accounting_storage/none"
        return (
            "AccountingStorageType=accounting_storage/slurmdbd\n"
            "AccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={port}\n"
            f"AccountingStoragePass={self.folder}/munge/socket\n"
            "AccountingStorageTRES=gres/gpu"
        )

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text.lstrip())
        path.chmod(0o600 if name == "slurmdbd.conf" else 0o644)

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        for path in (folder, key):
            shutil.chown(path, "munge", "munge")
            path.chmod(0o700 if path is key else 0o755)
        key.chmod(0o400)
        self._daemon(
            "munged",
            *("setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups", "munged"),
            *(f"--socket={folder}/socket", f"--key-file={key}"),
            *(f"--pid-file={folder}/munged.pid", f"--log-file={folder}/log"),
            f"--seed-file={folder}/seed",
            pid_file=folder / "munged.pid",
        )

    def _start_accounting(self) -> None:
        data, answer = self.folder / "database", self.folder / "database/socket"
        if not data.exists():
            data.mkdir()
            shutil.chown(data, "mysql")
            subprocess.run(
                ["mariadb-install-db", "--user=mysql", f"--datadir={data}", "--skip-test-db",
                 "--auth-root-authentication-method=normal"],
                check=True, capture_output=True,
            )  # fmt: skip
        with open(self.folder / "log/mariadb.log", "wb") as log:
            subprocess.Popen(
                ["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}",
                 f"--socket={answer}", "--skip-networking", f"--pid-file={data}/pid",
                 "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900",
                 "--innodb-flush-log-at-trx-commit=0"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._remember("mariadbd", data / "pid")
        self._wait("mariadbd", answer.exists)
        self.ask("mariadb", "-S", str(answer), "-e",
                 "create database if not exists slurm;"
                 "create user if not exists slurm@localhost identified by 'slurm';"
                 "grant all on slurm.* to slurm@localhost")  # fmt: skip
        self._daemon("slurmdbd", "slurmdbd", MYSQL_UNIX_PORT=str(answer))
        self._wait("slurmdbd", lambda: self.ask("sacctmgr", "-n", "list", "cluster") is not None)
        for entry in ("cluster test", f"account {ACCOUNT}", f"user root Account={ACCOUNT}"):
            self.ask("sacctmgr", "-i", "-Q", "add", *entry.split(), check=False)  # or is there

    def _daemon(
        self, name: str, *command: object, pid_file: Path | None = None, **more: str
    ) -> None:
        """Run a program that goes into the background by itself and leaves its pid in a file."""
        pid_file = pid_file or self.folder / f"{name}.pid"
        pid_file.unlink(missing_ok=True)
        log = self.folder / f"log/{name}.start"
        with open(log, "wb") as out:
            done = subprocess.run(
                [str(word) for word in command],
                env=os.environ | self.environment | more,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=PATIENCE,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(f"{name} did not start: {log.read_text()}")
        self._remember(name, pid_file)

    def _remember(self, name: str, pid_file: Path) -> None:
        self._wait(name, lambda: pid_file.exists() and pid_file.read_text().strip())
        pid = int(pid_file.read_text())
        known = json.loads(self._list.read_text()) if self._list.exists() else []
        known.append([pid, psutil.Process(pid).create_time()])
        self._list.write_text(json.dumps(known))

    def _wait(self, what: str, ready: Callable[[], object]) -> None:
        end, last = time.monotonic() + PATIENCE, ""
        while time.monotonic() < end:
            try:
                if ready():
                    return
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                last = str(error)
            time.sleep(0.1)
        raise RuntimeError(f"{what} is not ready after {PATIENCE:.0f} s; {self.folder}/log; {last}")


def _free_ports(number: int) -> list[int]:
    """Return numbers of ports that nobody listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def main() -> None:
    """Start or stop a cluster by hand."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["start", "stop"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accounting", action="store_true")
    parser.add_argument("--enforce-memory", action="store_true")
    parser.add_argument("--nodes", type=int, default=1, help="pretend to be so many")
    parser.add_argument("--cpus", type=int, help="pretend that a node has so many")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    cluster = Cluster(
        folder,
        accounting=arguments.accounting,
        enforce_memory=arguments.enforce_memory,
        nodes=arguments.nodes,
        cpus=arguments.cpus,
    )
    if arguments.what == "stop":
        if not cluster.stop():
            sys.exit(f"no cluster runs from {folder}")
        return
    lacking = missing(accounting=arguments.accounting)
    if lacking:
        sys.exit(lacking)
    try:
        cluster.start()
    except RuntimeError as error:
        sys.exit(str(error))
    for name, value in cluster.environment.items():
        print(f"export {name}={value}")


if __name__ == "__main__":
    main()
