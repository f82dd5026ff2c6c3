"""What all tests share: the hypothesis profiles, the flag that rewrites worked examples, that Ctrl-C works, and, when there are
several processes, which tests run in the same one.

`ci` is the default and draws the same examples every time, so that a red test is red for everybody; `explore` draws
fresh ones (`HYPOTHESIS_PROFILE=explore`). Neither has a deadline: no test here asserts a wall-clock time.
"""

import os
import signal
import threading
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from transis.model.config import ENGINES

settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """Whoever is started in the background of a shell ignores Ctrl-C, and so would the commands that tests interrupt."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


SHARED: Final = {"spark": "spark", "standalone_cluster": "cluster", "up": "", "ann": "", "lan": ""}
"""Fixtures that take long to make. Tests that ask for one run in one process: that of the group named here, or of their file."""


@pytest.hookimpl(tryfirst=True)  # xdist looks for groups in this hook, too, and would do so first.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes: each shared thing is made once, and what takes long does not begin last."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        asked_for = SHARED.keys() & getattr(item, "fixturenames", ())
        if asked_for and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(SHARED[min(asked_for)] or item.path.stem))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the outcome of each tests/scripts/*.txt back into it")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Who orders: a test that asks for it runs once with each engine."""
    return str(request.param)
