"""How the tests are shared out, where several workers run them (make test)."""

from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the files of tests that run the workflow to a worker each, first, then all other tests.

    Those files take longest: at the end of them there must be enough to do for every worker.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0] if nodeid.startswith("tests/workflow/") else nodeid

    return Sharing(config, log)
