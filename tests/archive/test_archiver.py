"""Archivers on a cluster that comes apart and heals, and that are killed themselves: the table is what was handed to them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.archive.simulated import LIMITS, Row, Running, handed, member_of, rows_of, token_of, without_basic
from tests.archive.written import files_of_at_most
from tests.cli.running import environment
from transis import Service
from transis.archive.archiver import WAITING_BYTES
from transis.archive.directory import ArchiveDirectory
from transis.sessions.host import SessionPolicy
from transis.testing import Cluster, Clusters
from transis.trace.reader import node_name
from transis.types.config import ENGINES
from transis.types.errors import ArchiveError, ConnectError, SessionLost, UsageError

T = TypeVar("T")

NODES = {"first": "a", "second": "b"}


async def speak(c: Cluster, name: str) -> None:
    """Somebody who is no member, on a node that may be gone."""
    while True:
        try:
            async with c.connect(name) as session:
                while True:
                    await session.send_many("g", [b"m"] * c.random.between(1, 30), c.random.pick(tuple(Service)))
                    await c.run_for(c.random.between(5, 60) / 1000)
        except (SessionLost, ConnectError):
            await c.run_for(0.05)


async def strike(c: Cluster, archivers: list[Running]) -> None:
    drawn = c.random
    name = drawn.pick(c.names)
    what = drawn.pick(("partition", "heal", "crash", "restart", "kill", "kill", "kill"))
    if what == "kill":
        killed = drawn.pick(archivers)
        await killed.kill()
        killed.start()
    elif what == "partition":
        c.partition(drawn.some(c.names, 2))
    elif what == "heal":
        c.heal()
    elif (name in c.alive) is (what != "restart"):
        getattr(c, what)(name)


async def run(c: Cluster, directory: Path, strikes: int) -> None:
    archivers = [Running(c, node, directory, name) for name, node in NODES.items()]
    speakers = [asyncio.create_task(speak(c, name)) for name in "ac"]
    await c.run_for(0.3)
    for _ in range(strikes):
        await c.run_for(c.random.stretched(5_000, 200_000) / 1e6)
        await strike(c, archivers)
    c.heal()
    for name in c.names:
        if name not in c.alive:
            c.restart(name)
    await c.run_for(0.5)
    for speaker in speakers:
        speaker.cancel()
    await asyncio.wait(speakers)
    for archiver in archivers:
        await archiver.stop()
    await c.settle()


def by_life(rows: list[Row]) -> list[list[Row]]:
    return [list(life) for _, life in groupby(rows, key=lambda row: (row["archiver"], row["life"]))]


def position(row: Row) -> tuple[Any, ...]:
    return (row["ring_seq"], row["ring_rep"], row["place_seq"], row["place_index"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(3))
async def test_an_archive_is_what_its_archivers_were_handed(cluster: Clusters, tmp_path: Path, seed: int, engine: str) -> None:
    c = cluster(4, seed=seed, engine=engine)
    await run(c, tmp_path, 8)
    rows = rows_of(tmp_path)
    lives = by_life(rows)
    assert len(lives) > 2
    assert list((tmp_path / "open").glob("*.journal")) == []
    traces = {node_name(trace.node): trace for trace in c.history().nodes}
    for life in lives:
        compare(life, traces, engine)
    follow_each_other(lives)
    agree(rows)


def compare(life: list[Row], traces: dict[str, Any], engine: str) -> None:
    """Row by row what the node says that it handed over, up to where the life ended."""
    assert [row["row"] for row in life] == list(range(1, len(life) + 1))
    assert life[0]["kind"] == "begin"
    first = next(at for at, row in enumerate(life) if row["kind"] == "view")
    node, _, number = member_of(life, NODES[life[0]["archiver"]]).rpartition("#")
    truth = without_basic(handed(traces[node], int(number), engine))
    found = without_basic([token_of(row) for row in life[first:]])
    assert found == truth[: len(found)]


def follow_each_other(lives: list[list[Row]]) -> None:
    """Each life says where the one before it ended."""
    for before, after in pairwise(lives):
        begin = after[0]
        since = tuple(begin[f"since_{name}"] for name in ("ring_seq", "ring_rep", "place_seq", "place_index"))
        if before[0]["archiver"] == begin["archiver"]:
            assert since == position(before[-1])
        else:
            assert since == (None,) * 4


def agree(rows: list[Row]) -> None:
    """One place, one thing; one message or view, one place: at all archivers and in all their lives."""
    at: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    of: dict[Any, set[tuple[Any, ...]]] = defaultdict(set)
    for row in rows:
        if row["kind"] in ("message", "view"):
            what = (row["process"], row["counter"]) if row["kind"] == "message" else (row["view"],)
            if row["ordered"]:
                at[row["kind"], *position(row)].add(what)
            if row["ordered"] or row["kind"] == "view":
                of[what].add(position(row))
    assert [key for key, found in at.items() if len(found) > 1] == []
    assert [what for what, found in of.items() if len(found) > 1] == [], "also those of transitional views"


# --- ends and beginnings ------------------------------------------------------------------------------------------------------


async def test_stopping_writes_everything_up_to_the_leave_and_publishes_it(cluster: Clusters, tmp_path: Path) -> None:
    c = cluster(3)
    archiver = Running(c, "a", tmp_path, "")
    await c.run_for(0.5)
    async with c.connect("b") as session:
        await (await session.send_many("g", [b"%d" % number for number in range(500)]))
        await c.run_for(2)
        assert len(rows_of(tmp_path)) == 503, "what is old enough is published, also if nothing comes any more"
        await (await session.send("g", b"500"))
    await archiver.stop()
    rows = rows_of(tmp_path)
    assert [row["value"] for row in rows if row["kind"] == "message"] == [b"%d" % number for number in range(501)]
    assert {row["archiver"] for row in rows} == {"a"}, "it is called as its node unless it is told"
    assert rows[0]["why"] == "started"
    figures = await archiver.archiver.statistics()
    assert (figures["rows"], figures["gaps"], figures["behind_bytes"]) == (len(rows), 0, 0)
    assert figures["files"] == len(list((tmp_path / "stream").iterdir()))


async def test_a_node_that_is_gone_is_a_gap_and_the_archiver_comes_back(cluster: Clusters, tmp_path: Path) -> None:
    c = cluster(3)
    archiver = Running(c, "a", tmp_path, "first")
    await c.run_for(0.5)
    c.crash("a")
    await c.run_for(1)
    c.restart("a")
    await c.run_for(8)
    await archiver.stop()
    first, second = by_life(rows_of(tmp_path))
    assert "connecting again; what is missed is a gap" in archiver.said[0]
    assert "the session with" in second[0]["why"]
    assert second[0]["since_ring_seq"] == first[-1]["ring_seq"]


async def test_acknowledged_rows_are_there_whatever_happens_next(cluster: Clusters, tmp_path: Path) -> None:
    c = cluster(2)
    archiver = Running(c, "a", tmp_path, "first")
    async with c.connect("b") as session:
        for _ in range(20):
            await session.send_many("g", [b"x"] * 50)
            await c.run_for(0.05)
    acknowledged = (await archiver.archiver.statistics())["acknowledged"]
    await archiver.kill()
    archiver.start()
    await c.run_for(0.5)
    await archiver.stop()
    first = by_life(rows_of(tmp_path))[0]
    assert acknowledged["row"] > 100
    assert first[acknowledged["row"] - 1]["row"] == acknowledged["row"]
    assert [first[acknowledged["row"] - 1][name] for name in ("place_seq", "place_index")] == acknowledged["place"]


async def test_a_disk_without_room_is_left_alone_until_there_is_some(cluster: Clusters, tmp_path: Path) -> None:
    """It asks for more than any disk has, joins, sees that, and leaves; nothing it took is lost."""
    c = cluster(2)
    archiver = Running(c, "a", tmp_path, "first", LIMITS._replace(free_bytes=1 << 62))
    await c.run_for(10)
    assert any("MB are free" in line and "left the group" in line for line in archiver.said)
    await archiver.stop()
    (life,) = by_life(rows_of(tmp_path))
    assert [row["kind"] for row in life] == ["begin", "configuration", "view"]


async def test_a_disk_that_refuses_ends_a_life_at_its_last_whole_row_and_the_next_one_begins_when_it_can(
    cluster: Clusters, tmp_path: Path
) -> None:
    c = cluster(2)
    archiver = Running(c, "a", tmp_path, "first")
    async with c.connect("b") as session:
        await c.run_for(0.5)
        await session.send_many("g", [b"before"] * 100)
        await c.run_for(0.5)
        with files_of_at_most(3_000):
            await session.send_many("g", [b"lost" * 100] * 100)
            await c.run_for(1)
        await c.run_for(12)
        await session.send_many("g", [b"after"] * 100)
        await c.run_for(1)
    await archiver.stop()
    rows = rows_of(tmp_path)
    values = [row["value"] for row in rows if row["kind"] == "message"]
    assert any("the disk refused (File too large), so the archiver left the group" in line for line in archiver.said)
    assert values == [b"before"] * 100 + [b"after"] * 100
    follow_each_other(by_life(rows))
    traces = {node_name(trace.node): trace for trace in c.history().nodes}
    for life in by_life(rows):
        compare(life, traces, "totem")


def name_of(work: Callable[[], Any]) -> str:
    """What a strand is asked to do."""
    return str((work.func if isinstance(work, partial) else work).__name__)


@pytest.mark.parametrize("is_after_the_first_write", [False, True])
async def test_a_disk_that_refuses_although_it_has_room_is_tried_less_and_less_often(
    cluster: Clusters, tmp_path: Path, is_after_the_first_write: bool
) -> None:
    """A quota, for instance. Every attempt is two views of the whole group, also if it can acknowledge its first rows."""
    c = cluster(2)

    async def refuses(work: Callable[[], T]) -> T:
        life = getattr(getattr(work, "func", None), "__self__", None)
        if name_of(work) == "write" and (not is_after_the_first_write or getattr(life, "acknowledged", None)):
            raise OSError(122, "Disk quota exceeded")
        return work()

    archiver = Running(c, "a", tmp_path, "first", disk=refuses)
    async with c.connect("b") as session:
        for _ in range(60):
            await session.send("g", b"x")
            await c.run_for(0.5)
    lives = [line for line in archiver.said if "the disk refused (Disk quota exceeded)" in line]
    assert 8 <= len(lives) <= 12, "every 5 s in the end"
    await archiver.stop()


async def test_after_a_life_that_went_well_it_comes_back_at_once(cluster: Clusters, tmp_path: Path) -> None:
    c = cluster(2)
    archiver = Running(c, "a", tmp_path, "first")
    for _ in range(6):
        await c.run_for(2)
        c.crash("a")
        c.restart("a")
    await c.run_for(2)
    await archiver.stop()
    assert len(by_life(rows_of(tmp_path))) == 7, "with pauses that grow it would have missed some"


@pytest.mark.parametrize("refused", ["free_bytes", "require_cluster", "begin_life"])
async def test_whatever_the_disk_refuses_the_archiver_comes_back_when_it_does_not(
    cluster: Clusters, tmp_path: Path, refused: str
) -> None:
    """A mount that is gone for a while: nothing that is asked of it may end the archiver."""
    c = cluster(2)
    is_gone = False

    async def mounted(work: Callable[[], T]) -> T:
        if is_gone and name_of(work) == refused:
            raise OSError(116, "Stale file handle")
        return work()

    archiver = Running(c, "a", tmp_path, "first", disk=mounted)
    await c.run_for(2)
    is_gone = True
    c.crash("a")
    c.restart("a")
    await c.run_for(20)
    assert not archiver.task.done()
    is_gone = False
    await c.run_for(6)
    await archiver.stop()
    assert len(by_life(rows_of(tmp_path))) == 2
    assert [row["row"] for row in by_life(rows_of(tmp_path))[1]][:3] == [1, 2, 3]


async def test_a_disk_that_says_nothing_of_its_room_is_left_alone(cluster: Clusters, tmp_path: Path) -> None:
    c = cluster(2)
    is_gone = False

    async def mounted(work: Callable[[], T]) -> T:
        if is_gone and name_of(work) == "free_bytes":
            raise OSError(116, "Stale file handle")
        return work()

    archiver = Running(c, "a", tmp_path, "first", disk=mounted)
    await c.run_for(2)
    is_gone = True
    await c.run_for(3)
    assert archiver.said == [
        "the disk refused (Stale file handle), so the archiver left the group: connecting again; what is missed is a gap"
    ]
    await archiver.stop()


async def test_a_file_may_be_moved_away_as_soon_as_it_is_published(cluster: Clusters, tmp_path: Path) -> None:
    c = cluster(2)
    moved: list[str] = []

    async def moves(work: Callable[[], T]) -> T:
        done = work()
        for path in (tmp_path / "stream").glob("*.parquet"):
            moved.append(path.rename(tmp_path / path.name).name)
        return done

    archiver = Running(c, "a", tmp_path, "first", publishing=moves)
    await c.run_for(3)
    await archiver.stop()
    figures = await archiver.archiver.statistics()
    assert figures["files"] == len(moved) > 0
    assert figures["bytes"] == sum((tmp_path / name).stat().st_size for name in moved)
    assert archiver.said == []


async def test_a_damaged_journal_is_told_at_every_start(cluster: Clusters, tmp_path: Path) -> None:
    """And the life that wrote it has a hole in its rows, where the damage is."""
    c = cluster(2)
    archiver = Running(c, "a", tmp_path, "first", LIMITS._replace(segment_s=60, segment_bytes=1 << 20))
    async with c.connect("b") as session:
        for number in range(3):
            await c.run_for(0.5)
            await session.send_many("g", [b"%d" % number * 40] * 10)
        await c.run_for(0.5)
    await archiver.kill()
    [journal] = tmp_path.glob("open/*.journal")
    content = bytearray(journal.read_bytes())
    content[content.index(b"1" * 40)] ^= 1
    journal.write_bytes(content)
    for _ in range(2):
        archiver.start()
        await c.run_for(1)
        await archiver.stop()
    told = [line for line in archiver.said if f"{journal.name}.damaged cannot be read: its rows are a gap" in line]
    assert len(told) == 2
    first, *_ = by_life(rows_of(tmp_path))
    assert {row["value"] for row in first if row["kind"] == "message"} == {b"0" * 40, b"2" * 40}
    [hole] = [(one["row"], other["row"]) for one, other in pairwise(first) if other["row"] != one["row"] + 1]
    assert hole[1] - hole[0] == 11


@pytest.mark.parametrize("harm", ["the magic is wrong", "it is moved away"])
async def test_a_journal_that_cannot_be_published_does_not_keep_others_back(cluster: Clusters, tmp_path: Path, harm: str) -> None:
    c = cluster(2)
    harmed: list[Path] = []

    async def harms(work: Callable[[], T]) -> T:
        if not harmed:
            (journal,) = tmp_path.glob("open/*.journal")
            harmed.append(journal)
            if harm == "it is moved away":
                journal.rename(tmp_path / "moved")
            else:
                journal.write_bytes(b"X" + journal.read_bytes()[1:])
        return work()

    archiver = Running(c, "a", tmp_path, "first", publishing=harms)
    async with c.connect("b") as session:
        for _ in range(5):
            await session.send_many("g", [b"x"] * 10)
            await c.run_for(1)
    await archiver.stop()
    [told] = archiver.said
    assert harmed[0].name in told
    assert "its rows are a gap" in told
    assert list(tmp_path.glob("open/*.journal")) == []
    assert list(tmp_path.glob("open/*.damaged")) == ([] if harm == "it is moved away" else [Path(f"{harmed[0]}.damaged")])
    assert len(list(tmp_path.glob("stream/*.parquet"))) >= 4


async def test_what_the_disk_does_not_let_be_published_waits_behind_the_others(cluster: Clusters, tmp_path: Path) -> None:
    """And when the archiver ends, all are tried once more."""
    c = cluster(2)
    is_refused = True

    async def refuses(work: Callable[[], T]) -> T:
        (journal,) = work.args[1:] if isinstance(work, partial) else ()
        if is_refused and journal.name.endswith(("-000001.journal", "-000002.journal")):
            raise OSError(5, "Input/output error")
        return work()

    archiver = Running(c, "a", tmp_path, "first", publishing=refuses)
    async with c.connect("b") as session:
        for _ in range(25):
            await session.send_many("g", [b"x"] * 10)
            await c.run_for(1)
    assert len(list(tmp_path.glob("open/*.journal"))) <= 5
    await archiver.stop()
    assert [path.name[-14:-8] for path in sorted(tmp_path.glob("open/*.journal"))] == ["000001", "000002"]
    assert archiver.said[-1].startswith("2 journals remain unpublished: the next start publishes them")
    is_refused = False
    archiver.start()
    await c.run_for(1)
    await archiver.stop()
    first, _ = by_life(rows_of(tmp_path))
    assert [row["row"] for row in first] == list(range(1, len(first) + 1))


async def test_a_disk_that_stands_still_makes_a_slow_client_not_a_large_one(cluster: Clusters, tmp_path: Path) -> None:
    """Beyond what may wait nothing is taken; the node ends the session, and the archiver comes back with a gap."""
    c = cluster(2, policy=SessionPolicy(queue_max=1 << 20, patience_us=3_000_000))
    goes_on = asyncio.Event()

    async def stands(work: Callable[[], T]) -> T:
        if name_of(work) == "write":
            await goes_on.wait()
        return work()

    archiver = Running(c, "a", tmp_path, "first", disk=stands)
    async with c.connect("b") as session:
        await c.run_for(0.5)
        for number in range(20):
            await (await session.send_many("g", [b"%d" % number + bytes(60_000)] * 16))
        await c.run_for(5)
        goes_on.set()
        await c.run_for(2)
        await (await session.send("g", b"last"))
        await c.run_for(1)
    await archiver.stop()
    assert "too slow" in archiver.said[0]
    first, second = by_life(rows_of(tmp_path))
    taken = sum(len(row["value"] or b"") for row in first)
    assert WAITING_BYTES // 2 < taken < WAITING_BYTES + (4 << 20) + (2 << 20)
    assert [row["value"] for row in second if row["kind"] == "message"] == [b"last"]
    follow_each_other([first, second])


async def test_two_of_one_name_are_one_too_many(cluster: Clusters, tmp_path: Path) -> None:
    c = cluster(2)
    first = Running(c, "a", tmp_path, "same")
    await c.run_for(0.5)
    second = Running(c, "b", tmp_path, "same")
    with pytest.raises(ArchiveError, match="give this one another --name"):
        await second.task
    await first.stop()


@pytest.mark.parametrize("name", ["", "g" * 129])
def test_a_name_that_no_group_can_have_is_refused_before_anything_is_made(cluster: Clusters, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not a group name: use 1 to 128 bytes"):
        Running(cluster(1), "a", tmp_path / "to", "x", group=name)
    assert not (tmp_path / "to").exists()


async def test_a_cluster_that_was_begun_anew_is_another_one_whatever_it_is_called(cluster: Clusters, tmp_path: Path) -> None:
    """Its rings are numbered from the start, so its rows would stand before and among those that are there."""
    c = cluster(2)
    async with c.connect("a") as session:
        before = ArchiveDirectory(tmp_path, "g", "first")
        before.open(session.cluster, session.process.node._replace(boot=1))
        before.close()
    with pytest.raises(ArchiveError, match="if the cluster was started anew, give another --to"):
        await Running(c, "a", tmp_path, "first").task
    other = Running(c, "b", tmp_path, "first")
    await c.run_for(1)
    await other.stop()
    assert len(rows_of(tmp_path)) == 3, "of other nodes nobody knows anything"


def test_an_archiver_needs_neither_spark_nor_pandas() -> None:
    show = "import sys, transis.cli.archive, transis.archive.archiver; print({'pyspark', 'pandas'} & set(sys.modules))"
    command = [sys.executable, "-c", show]
    assert subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout == "set()\n"
