"""What every unit test may use: the repository, the reference values, one hypothesis profile."""

import json
import sys
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


@pytest.fixture(autouse=True)
def closed():
    """Close what a test drew."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def saved_twice(tmp_path, monkeypatch):
    """Return a function that draws a figure under each of two clocks: the bytes of its files."""
    from tokensphere.drawing import style

    def save(draw):
        for clock in ("1000000000", "1700000000"):
            monkeypatch.setenv("SOURCE_DATE_EPOCH", clock)  # matplotlib's
            paths = [tmp_path / f"{clock}.{kind}" for kind in ("png", "svg", "pdf")]
            style.save(draw(), *paths, stamp="a stamp")
            yield [path.read_bytes() for path in paths]

    return save
