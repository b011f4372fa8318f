"""A working copy of the workflow, run for real on a tiny model made in place."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from tools import checkpoints

REPOSITORY = Path(__file__).parents[2]
TEXTS = {
    "harbour": "The harbour froze in January, and the pilots walked to work across the ice.",
    "kitchen": "Charlotte Brontë was",  # three tokens: every measure of a prompt that short, too
}


def base_config() -> dict:
    return {
        "device": "cpu",
        "models": {
            "tiny": {
                "source": {"local": "checkpoints/tiny"},
                "weights": ["trained", "norm_matched.0"],
            }
        },
        "prompts": {name: {"file": f"texts/{name}.txt"} for name in TEXTS},
        "roles": {"focus": "tiny", "second": "tiny"},
        "figures": {"prompt": "harbour"},
        "tables": "all",
    }


class Workspace:
    """A folder with a copy of the code, a configuration and a tiny GPT-2-shape checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared = False

    @property
    def config(self) -> dict:
        return yaml.safe_load((self.folder / "config/test.yaml").read_text())

    @config.setter
    def config(self, config: dict) -> None:
        (self.folder / "config/test.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    def add_prompt(self, name: str, text: str) -> None:
        (self.folder / f"texts/{name}.txt").write_text(text + "\n")
        self.config |= {"prompts": self.config["prompts"] | {name: {"file": f"texts/{name}.txt"}}}

    def command(self, *arguments: str) -> list[str]:
        return [
            *(sys.executable, "-m", "snakemake", "--configfile", "config/test.yaml"),
            *("--cores", "2", *arguments),
        ]

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key != "TOKENSPHERE_DRIVER"}
        return kept | extra

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess:
        assert not self.shared, "other tests stand on this folder: copy it"
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(**extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def make(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def plan(self, *arguments: str) -> set[str]:
        """List the messages of the jobs that a run would execute."""
        out = self.make("-n", *arguments)
        jobs = [line for line in out.splitlines() if line.startswith("Job ") and ": " in line]
        planned = {line.partition(": ")[2] for line in jobs}
        assert planned or "Nothing to be done" in out, out
        return planned

    def edit(self, path: str, old: str, new: str) -> None:
        place = self.folder / path
        text = place.read_text()
        assert old in text, f"{path} holds no {old!r}"
        place.write_text(text.replace(old, new, 1))

    def results(self) -> dict[str, str]:
        """Name everything that must not depend on when and where it was made."""
        sys.path.insert(0, str(REPOSITORY / "scripts"))
        from tokensphere.harness import records

        found = {}
        for path in sorted((self.folder / "results").rglob("*")):
            name = str(path.relative_to(self.folder))
            kind = path.relative_to(self.folder / "results").parts[0]
            if not path.is_file() or kind in ("logs", "benchmarks", "cache"):
                continue
            if kind == "records":
                record = json.loads(path.read_text())
                found[name] = json.dumps(record["deterministic"], sort_keys=True)
            else:
                found[name] = next(reversed(records.fingerprint(path).values()))
        return found

    def copy(self, folder: Path) -> "Workspace":
        """Copy code, inputs and results with their time stamps, as an earlier run left them."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Workspace(folder)


def tracked_files() -> list[str]:
    listed = subprocess.run(
        ["git", "-C", REPOSITORY, "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if (REPOSITORY / name).is_file()]


@pytest.fixture(scope="session")
def fresh(tmp_path_factory) -> Workspace:
    """Nothing has run yet. Copy it, do not change it."""
    folder = tmp_path_factory.mktemp("fresh") / "work"
    for name in tracked_files():
        if not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    checkpoints.write("gpt2", folder / "checkpoints/tiny")
    (folder / "texts").mkdir()
    for name, text in TEXTS.items():
        (folder / f"texts/{name}.txt").write_text(text + "\n")
    workspace = Workspace(folder)
    workspace.config = base_config()
    workspace.shared = True
    return workspace


@pytest.fixture(scope="session")
def finished(fresh, tmp_path_factory) -> Workspace:
    """Everything has run, once for all workers. Copy it, do not change it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "finished/work"
    folder.parent.mkdir(exist_ok=True)
    workspace, done = Workspace(folder), folder.parent / "done"
    with FileLock(folder.parent / "lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            fresh.copy(folder)
            workspace.make()
            done.touch()
    workspace.shared = True
    return workspace


@pytest.fixture
def workspace(finished, tmp_path) -> Workspace:
    """A copy of the finished run to do anything with."""
    return finished.copy(tmp_path / "work")
