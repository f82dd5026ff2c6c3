"""A session that somebody else started in this process: it is used, and not ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from transis.spark.progress import plain_failures
from transis.spark.session import spark_session, ui_address
from transis.types.errors import PipelineError, UsageError


def test_a_session_in_this_process_is_used_and_not_ended(spark: SparkSession) -> None:
    with spark_session() as session:
        assert session is spark
    assert spark.range(3).count() == 3
    assert ui_address(spark) == ""


def test_another_master_is_refused_while_a_session_runs(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match=r"local\[3\].*already"), spark_session("local[3]"):
        pass


def test_times_are_utc_and_partitions_few(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"


def test_spark_errors_are_told_in_a_borrowed_session(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "not.parquet").write_text("something else")
    with pytest.raises(PipelineError, match=r"not\.parquet is not a Parquet file"), plain_failures():
        spark.read.parquet(str(tmp_path)).collect()
    with pytest.raises(PipelineError, match="cannot read that kind of address"), plain_failures():
        spark.read.parquet("s3a://bucket/traces").collect()
    with pytest.raises(PipelineError, match=r"/not\.parquet is a file, not a directory"), plain_failures():
        spark.range(3).write.parquet(str(tmp_path / "not.parquet" / "below"))
