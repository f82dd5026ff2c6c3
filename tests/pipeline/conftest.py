"""One Spark session for all tests of the pipeline, as small as they are, and one real cluster for those that ask for it.

Of the processes that `make test` has, two do these tests and nothing else: Java is started and warmed up twice, no audit that
several tests look at is made twice, and the other processes have room for tests that mostly wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.cluster import running_cluster
from transis.pipeline.session import spark_session

HERE: Final = Path(__file__).parent


FIRST_HALF: Final = ("test_cluster", "test_audit_command", "test_causal_apart", "test_measure")
"""Modules that take about as long together as all others."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            half = "first" if item.path.stem in FIRST_HALF else "second"
            item.add_marker(pytest.mark.xdist_group(f"{half} half of the pipeline"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[1]") as session:
        yield session


@pytest.fixture(scope="session")
def standalone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark master with two workers, each a process of its own."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    with running_cluster(directory, workers=2) as master:
        yield master
