"""How the tests are shared out, where several workers run them (make test)."""

from typing import Any

import pytest

# Tests of the workflow that no run is made for but their own.
APART = ("conda", "rehearsal", "slurm", "sweeps")


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give what takes longest to a worker each, first, and whatever is left to those that are free.

    All tests that start from a finished run of the workflow are one such piece, so that it is made
    once; those of the cluster, which mostly wait, are another.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if not file.startswith("tests/workflow/"):
                return nodeid
            own = file.removeprefix("tests/workflow/test_").removesuffix(".py")
            return own if own in APART else "a finished run"

    return Sharing(config, log)
