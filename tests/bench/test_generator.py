"""The generator of large traces (bench/traces.py): what it writes breaks no guarantee and exercises all of them, by the word of
the simulator's checkers, who know nothing of how it was made; and what shall be broken is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.trace_plan import Shape
from bench.traces import BROKEN, write_trace
from transis.audit.guarantees import GROUP_PROPERTIES, NODE_PROPERTIES, check
from transis.audit.guarantees.history import LaidHistory
from transis.audit.guarantees.property import HELD, NOT_EXERCISED
from transis.trace.events import Conf, Delivery, History
from transis.trace.reader import read_history, read_trace
from transis.types.ids import Service

SHAPE = Shape(20_000, run_length=2)
UNASKED = {"group_only_primary"}
"""No node of a generated trace waits for a quorum."""

SHOULD_BREAK: dict[str, tuple[set[str], set[str]]] = {
    "swap": ({"causal_5", "total_order_6_1", "places", "no_holes_6_3", "one_sequence"}, {"fifo"}),
    "duplicate": ({"no_duplicates", "one_sequence"}, {"fifo", "places"}),
    "missing-safe": ({"failure_atomicity_4", "no_holes_6_3", "one_sequence", "safe_7_1"}, {"causal_5", "self_delivery_3"}),
    "creation": (
        {"no_creation", "delivered_where_sent_1_3", "failure_atomicity_4", "no_holes_6_3", "one_sequence"},
        {"causal_5", "fifo"},
    ),
    "misplaced": ({"places"}, set()),
}
"""What each kind must break, and what may break with it, by who sent the run that was chosen and how long it is."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("generated")
    write_trace(directory, SHAPE)
    return directory


@pytest.fixture(scope="module")
def history(directory: Path) -> History:
    return read_history(directory)


def verdicts(history: History) -> dict[str, str]:
    found = {verdict.property: verdict.verdict for verdict in check(history).verdicts.values()}
    assert {name for name, verdict in found.items() if verdict == NOT_EXERCISED} == UNASKED
    return {name: verdict for name, verdict in found.items() if name not in UNASKED}


def test_every_property_is_held_and_exercised(history: History) -> None:
    assert verdicts(history) == dict.fromkeys({*NODE_PROPERTIES, *GROUP_PROPERTIES} - UNASKED, HELD)


def test_the_files_are_whole(directory: Path) -> None:
    reading = read_trace(directory)
    assert reading.findings == []
    assert reading.history.closed


def test_it_is_as_large_as_asked_and_says_how_large(tmp_path: Path) -> None:
    written = write_trace(tmp_path, SHAPE)
    events = [event for trace in read_history(tmp_path).nodes for event in trace.events]
    assert written.events == len(events)
    assert written.deliveries == sum(event.count for event in events if isinstance(event, Delivery))
    assert SHAPE.deliveries <= written.deliveries < 1.2 * SHAPE.deliveries


def test_views_are_as_many_as_asked_and_of_every_kind(history: History) -> None:
    views = {event.view.id: event.view for trace in history.nodes for event in trace.events if isinstance(event, Conf)}
    regular = [view for id_, view in views.items() if id_.is_regular]
    assert len(regular) == SHAPE.views
    assert {len(view.nodes) for view in regular} >= {SHAPE.nodes, SHAPE.nodes - 1}
    together = Counter(view.id.seq for view in regular)
    assert set(together.values()) == {1, 2}
    assert {trace.node.incarnation for trace in history.nodes} == {1, 2}


def test_components_part_with_different_messages(history: History) -> None:
    forked = [stay for ring in LaidHistory(history).rings.values() for stay in ring.forks]
    assert forked
    assert all(stay.trans is not None and stay.agreed >= stay.cut for stay in forked)


def test_all_services_and_several_processes_send(history: History) -> None:
    runs = [event for trace in history.nodes for event in trace.events if isinstance(event, Delivery)]
    assert {run.service for run in runs} == set(Service)
    assert len({run.process.number for run in runs}) >= 4
    assert {bool(run.address) for run in runs} == {True, False}


def test_runs_of_one_message_are_correct_too(tmp_path: Path) -> None:
    write_trace(tmp_path, Shape(6_000, nodes=3, views=7, run_length=1, seed=2))
    assert set(verdicts(read_history(tmp_path)).values()) == {HELD}


def test_the_same_shape_gives_the_same_bytes_by_any_number_of_processes(directory: Path, tmp_path: Path) -> None:
    write_trace(tmp_path, SHAPE, jobs=2)
    names = sorted(path.name for path in directory.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert all((tmp_path / name).read_bytes() == (directory / name).read_bytes() for name in names)


@pytest.mark.parametrize("kind", BROKEN)
def test_what_shall_be_broken_is(kind: str, tmp_path: Path) -> None:
    write_trace(tmp_path, SHAPE._replace(broken=kind))
    broken = {name for name, verdict in verdicts(read_history(tmp_path)).items() if verdict != HELD}
    must, may = SHOULD_BREAK[kind]
    assert must <= broken <= must | may


def test_a_trace_that_is_there_is_not_written_over(directory: Path) -> None:
    with pytest.raises(SystemExit, match="cannot be written"):
        write_trace(directory, SHAPE)
