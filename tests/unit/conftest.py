"""What every unit test may use: the repository, the reference values, one hypothesis profile."""

import json
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[2]

# No deadline: a busy machine is no failure. Derandomised: a failure must come back.
settings.register_profile("unit", deadline=None, max_examples=60, derandomize=True, database=None)
settings.load_profile("unit")


@pytest.fixture(scope="session")
def root():
    """The repository's top folder."""
    return ROOT


@pytest.fixture(scope="session")
def reference():
    """Look up an entry of tests/data/reference_values.json by its id."""
    entries = json.loads((ROOT / "tests/data/reference_values.json").read_text(encoding="utf-8"))
    return {entry["id"]: entry for entry in entries}.__getitem__
