"""What audits and reconciliations find in evidence that never changes did not change (tests/house/lock.py)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.house.lock import ON_SPARK, difference


@pytest.mark.slow
@pytest.mark.parametrize("part", ON_SPARK)
def test_what_is_found_is_what_it_was(spark: SparkSession, part: str) -> None:
    changed = difference(part, ON_SPARK[part][1]())
    assert not changed, f"\n{changed}\n\nIf this is meant: python -m tests.house.lock --write {part}"
