"""The pytest plugin: the fixture `cluster`, tests that are coroutines, and repetition over seeds.

1. It is loaded in every run of pytest wherever the package is installed, so it imports nothing of it before a test asks for a
   cluster.
2. It touches only tests that use the fixture. A test `async def` among them runs in virtual time; it is made an ordinary function
   before other plugins for asynchronous tests look, so that it does not matter which of them are there.
3. A test that fails shows the seed, what was done to its clusters, and the line that repeats it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from transis.testing.cluster import Clusters
    from transis.types.config import EngineName

SEEDS_MAX: Final = 1_000_000
"""The most repetitions of each test: pytest makes an item of every one before it starts."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("transis", "simulated clusters of transis")
    group.addoption("--transis-seed", metavar="N", help="run tests that use `cluster` with this seed, whatever theirs is")
    group.addoption("--transis-seeds", metavar="A:B", help="run each of them once with every seed from A up to B, B not included")
    group.addoption("--transis-engine", metavar="NAME", help="order by this engine in all of them: totem or lansis")


def pytest_configure(config: pytest.Config) -> None:
    """Report a mistake in an option before anything runs."""
    _seeds(config)
    _engine(config)


def _engine(config: pytest.Config) -> EngineName | None:
    name: EngineName | None = config.getoption("transis_engine")
    if name not in (None, "totem", "lansis"):
        raise pytest.UsageError(f"--transis-engine {name!r}: must be totem or lansis")
    return name


def _seeds(config: pytest.Config) -> range | None:
    one, many = config.getoption("transis_seed"), config.getoption("transis_seeds")
    if one is None and many is None:
        return None
    if one is not None and many is not None:
        raise pytest.UsageError("give --transis-seed or --transis-seeds, not both")
    text = one if one is not None else many
    first, colon, end = text.partition(":")
    try:
        seeds = range(int(first), int(end)) if colon else range(int(first), int(first) + 1)
    except ValueError:
        seeds = range(0)
    if not 1 <= len(seeds) <= SEEDS_MAX or seeds[0] < 0 or bool(colon) != (many is not None):
        wanted = "a seed is a number from 0 on" if many is None else f"seeds are A:B with A below B, at most {SEEDS_MAX} of them"
        raise pytest.UsageError(f"{text!r}: {wanted}")
    return seeds


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "transis_seed" in metafunc.fixturenames:
        seeds = _seeds(metafunc.config)
        if seeds is not None:
            metafunc.parametrize("transis_seed", seeds, ids=[f"seed{seed}" for seed in seeds])


@pytest.fixture
def transis_seed() -> int | None:
    """The seed that the command line asks for; None if it asks for none."""
    return None


@pytest.fixture
def cluster(request: pytest.FixtureRequest, transis_seed: int | None) -> Iterator[Clusters]:
    """Call it for a simulated cluster: `cluster(5, seed=7)`. All guarantees are checked when the test has ended."""
    from transis.testing.cluster import Clusters

    engine = _engine(request.config)
    option = "" if transis_seed is None else f" --transis-seed {transis_seed}"
    option += "" if engine is None else f" --transis-engine {engine}"
    clusters = Clusters(transis_seed, f'pytest "{request.node.nodeid}"{option}', engine)
    yield clusters
    clusters.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
    clusters = _clusters_of(pyfuncitem)
    if clusters is None:
        yield
        return
    original = pyfuncitem.obj
    pyfuncitem.obj = _synchronous(pyfuncitem, clusters)
    outcome = yield
    pyfuncitem.obj = original
    if outcome.excinfo is not None:
        pyfuncitem.add_report_section("call", "transis", clusters.story())


def _clusters_of(item: pytest.Function) -> Clusters | None:
    """What the fixture gave this test; None if it does not use it, or has another one of that name."""
    value = item.funcargs.get("cluster")
    if value is None:
        return None
    from transis.testing.cluster import Clusters

    return value if isinstance(value, Clusters) else None


def _synchronous(item: pytest.Function, clusters: Clusters) -> Any:
    """The test as an ordinary function. pytest-asyncio wraps what it takes for its own; what it wrapped is run here instead."""
    function = item.obj
    if type(item).__module__.split(".")[0] == "pytest_asyncio":
        function = inspect.unwrap(function)
    if not inspect.iscoroutinefunction(function):
        return item.obj

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        clusters.run(function(*args, **kwargs))

    return run
