"""Whose partings are a group's: nodes that have no member of it part from nothing of it. Simulated clusters, with an archiver on
one side only."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.archived import SimulatedArchiver
from transis.client.group import Group
from transis.spark.archive import read_stream, spans
from transis.spark.lineage import life_of
from transis.spark.once import configurations, in_views, messages
from transis.spark.sides import lineage_of
from transis.testing.cluster import Cluster, Clusters

GROUP = "seats"


def stream_when(spark: SparkSession, directory: Path, before: str, apart: str) -> DataFrame:
    """Of a cluster abc that parts into ab and c, and meets again; the archiver is at a. Members come at some nodes before, and at
    others meanwhile."""
    clusters = Clusters(engine="totem")
    try:
        clusters.run(_story(clusters(list("abc"), seed=1, quorum="abc"), directory, before, apart))
    finally:
        clusters.close()
    return read_stream(spark, str(directory), [GROUP])


async def _story(c: Cluster, directory: Path, before: str, apart: str) -> None:
    archiver = SimulatedArchiver(c, GROUP, "first", "totem", directory)
    archiver.start("a")
    await c.settle()
    members = [await _join(c, node) for node in before]
    await c.settle()
    c.partition("ab", "c")
    await c.settle()
    members += [await _join(c, node) for node in apart]
    await members[0].send(b"apart")
    await c.settle()
    c.heal()
    await c.settle()
    await archiver.kill()


async def _join(c: Cluster, node: str) -> Group[bytes]:
    session = await c.connect(node).open()
    return await session.join(GROUP).open()


@pytest.mark.parametrize(
    ("before", "apart", "sides"),
    [("b", "", []), ("bc", "", [["ab", "c"]]), ("b", "c", [["ab", "c"]])],
    ids=["no member there", "a member from the beginning", "a member that came meanwhile"],
)
def test_a_side_is_one_if_a_member_of_the_group_was_there(
    spark: SparkSession, tmp_path: Path, before: str, apart: str, sides: list[list[str]]
) -> None:
    lineage = lineage_of(configurations(stream_when(spark, tmp_path, before, apart)))
    found = [["".join(life_of(node).name for node in side.nodes) for side in parting.sides] for parting in lineage.partings]
    assert found == sides
    assert len(lineage.known) >= 3, "the configurations parted, whatever the group did"


def test_a_view_outlives_a_configuration_that_changes_nothing_in_its_group(spark: SparkSession, tmp_path: Path) -> None:
    """So the message has the view of another configuration, in which nobody lost a member."""
    stream = stream_when(spark, tmp_path, "b", "")
    [row] = in_views(messages(stream, spans(stream)), stream, spans(stream)).collect()
    last = stream.where("kind = 'view'").orderBy("row").collect()[-1]
    assert (bytes(row.value), row["view"]) == (b"apart", last["view"])
    assert row.conf != last.conf
