"""What all tests share: the hypothesis profiles, the flag that rewrites worked examples, that Ctrl-C works, and, when there are
several processes, which tests run in the same one.

`ci` is the default and draws the same examples every time, so that a red test is red for everybody; `explore` draws
fresh ones (`HYPOTHESIS_PROFILE=explore`). Neither has a deadline: no test here asserts a wall-clock time.
"""

import atexit
import os
import shutil
import signal
import tempfile
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from transis.types.config import ENGINES

pytest_plugins = ["tests.spark.fixtures"]

OWN_STATE = "TRANSIS_TESTS_STATE"

settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """Nodes on loopback have the key of a user who is only here, the same for all processes of the tests. And whoever is started
    in the background of a shell ignores Ctrl-C, and so would the commands that tests interrupt."""
    if not os.environ.get(OWN_STATE):
        os.environ[OWN_STATE] = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="transis-state-")
        atexit.register(shutil.rmtree, os.environ[OWN_STATE], ignore_errors=True)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Asked by xdist, if it is there: `--dist loadgroup` is our way to share the work out."""
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.packing import Packed

    return Packed(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        from tests.packing import turn_of

        items.sort(key=lambda item: turn_of(item.nodeid))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the outcome of each worked example back into it")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Who orders: a test that asks for it runs once with each engine."""
    return str(request.param)
