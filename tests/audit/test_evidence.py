"""Data quality: each kind of damage is told by its name, and in the same cases as the reader of directories tells it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.audit.agreement import said_by_audit
from tests.audit.frames import events_of_files
from tests.audit.written import longest, open_trace, record, write_traces
from tests.guarantees.oracle import good_history
from transis.audit.guarantees.property import BROKEN, HELD, PENDING
from transis.audit.plans import evidence as quality
from transis.audit.plans.evidence import CHAIN, CLOCKS, DENSITY, MEMBERS, MIXED, READABLE
from transis.audit.plans.lay import Tables, lay_out
from transis.trace.events import Delivery, Gap, History
from transis.trace.reader import read_trace
from transis.trace.segment import MAGIC, SCHEMA, Header, SegmentWriter, frame, segment_name
from transis.trace.tables import RunKeys

HISTORY = good_history(5, steps=400)
LIFE = longest(HISTORY)

PROPERTY_OF = {
    "chain broken": CHAIN,
    "missing segment": CHAIN,
    "still open": CHAIN,
    "density": DENSITY,
    "dropped": DENSITY,
    "truncated tail": READABLE,
    "unknown version": READABLE,
    "mixed runs": MIXED,
}
"""Which verdict has what the reader of directories finds."""


def _segments_of_life(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{LIFE.node.name}-{LIFE.node.incarnation}-*.trace"))


def _changed(events: list[Any]) -> History:
    return HISTORY._replace(nodes=[LIFE._replace(events=events) if trace is LIFE else trace for trace in HISTORY.nodes])


def good(directory: Path, run: str) -> None:
    write_traces(directory, HISTORY, run, limit=1500)


def torn(directory: Path, run: str) -> None:
    write_traces(directory, HISTORY, run)
    [path] = _segments_of_life(directory)
    path.write_bytes(path.read_bytes()[:-3])


def behind_the_seal(directory: Path, run: str) -> None:
    write_traces(directory, HISTORY, run)
    [path] = _segments_of_life(directory)
    path.write_bytes(path.read_bytes() + b"more")


def head_missing(directory: Path, run: str) -> None:
    good(directory, run)
    _segments_of_life(directory)[0].unlink()


def middle_missing(directory: Path, run: str) -> None:
    good(directory, run)
    _segments_of_life(directory)[1].unlink()


def exchanged(directory: Path, run: str) -> None:
    good(directory, run)
    other = directory / "other"
    write_traces(other, _changed([event._replace(time_us=1) for event in LIFE.events]), run, limit=1500)
    second = _segments_of_life(directory)[1]
    second.write_bytes((other / second.name).read_bytes())
    for path in other.iterdir():
        path.unlink()


def false_seal(directory: Path, run: str) -> None:
    write_traces(directory, HISTORY, run)
    [path] = _segments_of_life(directory)
    digest = path.read_bytes()[-100:].partition(b"digest")[2][2:66]
    payload = path.read_bytes().replace(digest, bytes(reversed(digest)))
    place = payload.rindex(b"F\x85") - 8
    path.write_bytes(payload[:place] + frame(b"F", payload[place + 9 :]))


def open_at_the_end(directory: Path, run: str) -> None:
    write_traces(directory, HISTORY._replace(nodes=[trace for trace in HISTORY.nodes if trace is not LIFE]), run)
    writer = open_trace(directory, LIFE, run)
    record(writer, LIFE, 0, len(LIFE.events))
    writer.release()


def lost_unseen(directory: Path, run: str) -> None:
    write_traces(directory, _changed(LIFE.events[:10] + LIFE.events[12:]), run)


def dropped(directory: Path, run: str) -> None:
    gap = Gap(LIFE.events[12].lseq, LIFE.events[12].time_us, LIFE.events[10].lseq, LIFE.events[11].lseq)
    write_traces(directory, _changed([*LIFE.events[:10], gap, *LIFE.events[13:]]), run)


def later_version(directory: Path, run: str) -> None:
    write_traces(directory, HISTORY, run)
    header = Header("test", run, LIFE.node, SCHEMA + 1, number=2)
    (directory / segment_name(header)).write_bytes(MAGIC + frame(b"H", msgspec.msgpack.encode(header)))


def mixed(directory: Path, run: str) -> None:
    write_traces(directory, HISTORY, run)
    SegmentWriter(directory, Header("test", "another run", LIFE.node._replace(name="other"))).close(True)


def no_segment(directory: Path, run: str) -> None:
    write_traces(directory, HISTORY, run)
    (directory / "letter.trace").write_text("dear reader")


def clock_goes_back(directory: Path, run: str) -> None:
    at = LIFE.events[20].time_us
    write_traces(
        directory, _changed([*LIFE.events[:20], *(event._replace(time_us=event.time_us - at) for event in LIFE.events[20:])]), run
    )


def clock_goes_back_between_segments(directory: Path, run: str) -> None:
    late = [event._replace(time_us=event.time_us + 10**9) for event in LIFE.events[:50]]
    write_traces(directory, _changed(late + LIFE.events[50:]), run, limit=1500)


def delivered_before_it_was_sent(directory: Path, run: str) -> None:
    own = next(event for event in LIFE.events if isinstance(event, Delivery) and event.process.node == LIFE.node)
    early = own._replace(origin_us=own.time_us + 5)
    write_traces(directory, _changed([early if event is own else event for event in LIFE.events]), run)


def member_missing(directory: Path, run: str) -> None:
    write_traces(directory, HISTORY._replace(nodes=[trace for trace in HISTORY.nodes if trace is not LIFE]), run)


def positions_skip(directory: Path, run: str) -> None:
    ordered = [event for event in LIFE.events if isinstance(event, Delivery) and event.tpos >= 0]
    skipped = ordered[-1]._replace(tpos=ordered[-1].tpos + 1)
    write_traces(directory, _changed([skipped if event is ordered[-1] else event for event in LIFE.events]), run)


NAME = f"{LIFE.node}"
CASES: dict[Callable[[Path, str], None], tuple[dict[str, str], str]] = {
    good: ({}, ""),
    torn: ({READABLE: PENDING, CHAIN: PENDING}, "bytes are no whole batch: its node was cut off, or writes"),
    behind_the_seal: ({READABLE: BROKEN}, "4 bytes stand behind its seal"),
    head_missing: ({CHAIN: PENDING, DENSITY: PENDING}, f"segments 1 to 1 of {NAME} are not there"),
    middle_missing: ({CHAIN: BROKEN, DENSITY: PENDING}, f"segments 2 to 2 of {NAME} are not there"),
    exchanged: ({CHAIN: BROKEN, CLOCKS: BROKEN}, f"it does not follow the segment of {NAME} that stands before it"),
    false_seal: ({CHAIN: BROKEN}, "its content is not what its seal says"),
    open_at_the_end: ({CHAIN: PENDING}, f"not sealed: {NAME} still writes, or was cut off"),
    lost_unseen: ({DENSITY: BROKEN}, f"event {LIFE.events[10].lseq} of {NAME} is not there, though the events around it are"),
    dropped: ({DENSITY: PENDING}, f"the recorder of {NAME} dropped events {LIFE.events[10].lseq} to {LIFE.events[11].lseq}"),
    later_version: ({READABLE: BROKEN}, f"schema {SCHEMA + 1}, this reader knows {SCHEMA - 1} and {SCHEMA}"),
    mixed: ({MIXED: BROKEN}, "is in one directory with traces of other runs, 2 in all"),
    no_segment: ({READABLE: BROKEN}, "letter.trace: byte 0: not a trace segment"),
    clock_goes_back: ({CLOCKS: BROKEN}, f"the clock of {NAME} went back from {LIFE.events[19].time_us} to 0 µs"),
    clock_goes_back_between_segments: ({CLOCKS: BROKEN}, f"the clock of {NAME} went back from "),
    delivered_before_it_was_sent: ({CLOCKS: BROKEN}, f"{NAME} delivered its own message at "),
    member_missing: ({MEMBERS: PENDING}, f"{NAME} is a member of "),
    positions_skip: ({DENSITY: BROKEN}, f"{NAME} delivered "),
}
"""Of each case: the verdicts that are not `held`, and what one of the explanations says."""


class Judged(NamedTuple):
    verdicts: dict[tuple[str, str], str]
    sentences: dict[str, set[str]]
    directory: Path


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """All cases in one job, a run each."""
    directory = tmp_path_factory.mktemp("quality")
    for case in CASES:
        case(directory / case.__name__, case.__name__)
    tables = tmp_path_factory.mktemp("tables")
    laid = lay_out(Tables(events_of_files(spark, [directory], tables).cache()))
    laid = replace(laid, **{name: getattr(laid, name).cache() for name in ("node_names", "confs", "lives", "stays")})
    found = quality.check(laid)
    said = {key: verdict for key, (verdict, _, _) in said_by_audit(found).items()}
    keys = {RunKeys("test", case.__name__).run: case.__name__ for case in CASES}
    told = found.broken.unionByName(quality.reasons(laid)).select("run", "explanation").collect()
    sentences: dict[str, set[str]] = {name: set() for name in keys.values()}
    for run, sentence in told:
        if run in keys:
            sentences[keys[run]].add(sentence)
    return Judged({(keys[run], name): verdict for (run, name), verdict in said.items() if run in keys}, sentences, directory)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_each_kind_of_damage_is_told_by_its_name(judged: Judged, case: Callable[[Path, str], None]) -> None:
    expected, sentence = CASES[case]
    verdicts = {name: judged.verdicts[case.__name__, name] for name in quality.PARTS}
    assert verdicts == dict.fromkeys(quality.PARTS, HELD) | expected
    assert any(sentence in one for one in judged.sentences[case.__name__] or {""})


@pytest.mark.parametrize("case", [case for case in CASES if case is not no_segment], ids=lambda case: case.__name__)
def test_the_reader_of_directories_finds_the_same(judged: Judged, case: Callable[[Path, str], None]) -> None:
    found = {PROPERTY_OF[finding.what] for finding in read_trace(judged.directory / case.__name__).findings}
    not_seen_by_it = {CLOCKS, MEMBERS} | ({DENSITY} if case is positions_skip else set())
    assert found == set(CASES[case][0]) - not_seen_by_it
