"""One Spark session for all tests that need one, one audit for those that compare it with the checkers,
and one real cluster for those that ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from transis.audit.plans.judge import Result


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from transis.spark.session import spark_session

    with spark_session("local[1]") as session:
        yield session


@pytest.fixture(scope="session")
def audit(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """What the audit found in the histories of `together.py`."""
    from tests.audit.together import audited_together

    return audited_together(spark, tmp_path_factory.mktemp("histories"))


@pytest.fixture(scope="session")
def standalone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark master with two workers, each a process of its own."""
    from tests.spark.cluster import running_cluster

    directory: Path = tmp_path_factory.mktemp("cluster")
    with running_cluster(directory, workers=2) as master:
        yield master
