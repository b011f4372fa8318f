"""How the tests are shared out, where several workers run them (make test)."""

from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give one worker all tests that run the workflow, first, and the other whatever is left.

    A finished run is then made once, for all of them.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "workflow" if nodeid.startswith("tests/workflow/") else nodeid

    return Sharing(config, log)
