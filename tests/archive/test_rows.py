"""Rows of an archive against rows made one by one, however frames are cut and portions are taken."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.archive.events import NODES, PROCESSES, START, Event, batch, configuration, group_view, streams
from tests.archive.naive import rows_of
from transis.archive.rows import STREAM, RowBuilder, RowPosition
from transis.client.events import Batch, Configuration, Raw
from transis.sessions.frames import Stream
from transis.trace.reader import process_name
from transis.types.ids import Place, ProcessId, Service, ViewId, ViewKind
from transis.types.views import Origin

LAST = RowPosition(2, "ann/1/0000000000000007", 9, 1)


def add(rows: RowBuilder, event: Event, now_us: int) -> None:
    if isinstance(event, Batch):
        rows.messages(event, now_us)
    elif isinstance(event, Configuration):
        rows.configuration(event, now_us)
    else:
        rows.view(event, now_us)


def written(events: list[Event], cuts: set[int], engine: str, guarantees: str, last: RowPosition | None) -> list[dict[str, Any]]:
    """The rows, taken after each event that `cuts` names."""
    rows = RowBuilder("g", "ann", 3, engine, guarantees, last)
    rows.begin("test", 0)
    tables: list[pa.Table] = []
    for number, event in enumerate(events):
        add(rows, event, 10 * number)
        if number in cuts:
            tables.append(rows.take().table())
            assert rows.bytes == 0
    tables.append(rows.take().table())
    assert all(table.schema == STREAM for table in tables)
    found: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    assert rows.rows == len(found)
    return found


@given(streams(), st.sets(st.integers(0, 25)), st.sampled_from(["totem", "lansis"]), st.sampled_from(["evs", "toto", "transis"]))
def test_rows_are_those_that_are_made_one_by_one(events: list[Event], cuts: set[int], engine: str, guarantees: str) -> None:
    expected = rows_of(events, engine, guarantees, LAST, [10 * number for number in range(len(events))])
    assert written(events, cuts, engine, guarantees, LAST) == expected


@given(streams(), st.sampled_from(["totem", "lansis"]))
def test_ordered_rows_stand_in_growing_places_and_the_others_where_the_last_of_them_stands(
    events: list[Event], engine: str
) -> None:
    """A regular view or configuration may stand at the place of what caused it; two messages never share one."""
    last: tuple[Any, ...] | None = None
    for row in written(events, set(), engine, "evs", None):
        position = (row["ring_seq"], row["ring_rep"], row["place_seq"], row["place_index"])
        if row["ordered"]:
            higher = last is None or (position > last if row["kind"] == "message" else position >= last)
            assert higher or position[0] > last[0]  # type: ignore[index]
            last = position
        elif last is not None:
            assert position == last


def one_batch(service: Service, engine: str, guarantees: str = "evs") -> dict[str, Any]:
    stretches = [(9, 2, 2)]
    events: list[Event] = [configuration(START, START, None), group_view(START, Place(3, 0))]
    return written([*events, batch(START, PROCESSES[0], service, 1, stretches)], set(), engine, guarantees, None)[-1]


def test_what_has_a_place_depends_on_service_and_engine_and_what_views_promise() -> None:
    has_place = {
        (service.name, engine): one_batch(service, engine)["ordered"] for service in Service for engine in ("totem", "lansis")
    }
    assert has_place == {
        ("BASIC", "totem"): False,
        ("BASIC", "lansis"): False,
        ("CAUSAL", "totem"): True,
        ("CAUSAL", "lansis"): False,
        ("AGREED", "totem"): True,
        ("AGREED", "lansis"): True,
        ("SAFE", "totem"): True,
        ("SAFE", "lansis"): True,
    }
    row = one_batch(Service.SAFE, "lansis", "toto")
    assert (row["ordered"], row["place_seq"], row["place_index"]) == (False, 3, 0)


def test_a_message_in_a_transitional_configuration_has_its_place_in_the_regular_one() -> None:
    transitional = ViewId(ViewKind.TRANSITIONAL, 6, NODES[1])
    events: list[Event] = [
        configuration(START, START, None),
        group_view(START, Place(3, 0)),
        configuration(transitional, START, START),
        group_view(transitional, Place(0, 0)),
        batch(transitional, PROCESSES[0], Service.SAFE, 1, [(9, 2, 1)]),
    ]
    *_, conf, view, message = written(events, set(), "totem", "evs", None)
    assert [(row["ring_seq"], row["place_seq"], row["ordered"]) for row in (conf, view, message)] == [
        (4, 3, False),
        (4, 3, False),
        (4, 9, True),
    ]
    assert (message["conf"], message["transitional"]) == ("T6@bob/2/8000000000000000", True)


def test_the_first_life_of_an_archiver_was_nowhere_before() -> None:
    events: list[Event] = [configuration(START, START, None), group_view(START, Place(3, 0))]
    begin, conf, view = written(events, set(), "totem", "evs", None)
    assert [row["kind"] for row in (begin, conf, view)] == ["begin", "configuration", "view"]
    assert {begin[f"since_{name}"] for name in RowPosition._fields} == {None}
    assert [row["ordered"] for row in (begin, conf, view)] == [False, False, True]
    assert {(row["ring_seq"], row["place_seq"]) for row in (begin, conf, view)} == {(4, 3)}


@pytest.mark.parametrize(("ring", "is_told"), [(3, False), (4, False), (5, True)])
def test_a_life_that_begins_below_the_one_before_it_says_so(ring: int, is_told: bool) -> None:
    events: list[Event] = [configuration(START, START, None), group_view(START, Place(3, 0))]
    begin, *_ = written(events, set(), "totem", "evs", LAST._replace(ring_seq=ring))
    more = "; this is below R5@ann/1 9.1: it is another component, or a cluster that was begun anew"
    assert begin["why"] == f"test{more if is_told else ''}"


def test_nothing_is_told_before_the_first_view() -> None:
    rows = RowBuilder("g", "ann", 1, "totem", "evs")
    rows.begin("test", 0)
    rows.configuration(configuration(START, START, None), 0)
    assert (rows.rows, rows.position, rows.take().rows) == (0, None, 0)


def test_a_view_of_many_members_counts_for_what_it_holds() -> None:
    """Or views alone could fill the memory while few rows wait."""
    rows = RowBuilder("g", "ann", 1, "totem", "evs")
    members = tuple(ProcessId(NODES[0], number) for number in range(1000))
    view = group_view(START, Place(3, 0))
    rows.view(view._replace(members=members, merged_from=(Origin(view.id, members),)), 0)
    assert rows.bytes > 2 * sum(sys.getsizeof(process_name(member)) for member in members)


def test_a_position_in_words() -> None:
    assert str(LAST) == "R2@ann/1 9.1"


def test_only_a_portion_with_keys_or_headers_pays_for_them() -> None:
    """What has none is one null column; what comes before and after messages with a key has a null in its place."""
    rows = RowBuilder("g", "ann", 1, "totem", "evs")
    rows.begin("test", 0)
    add(rows, configuration(START, START, None), 0)
    add(rows, group_view(START, Place(1, 0)), 0)
    add(rows, batch(START, PROCESSES[0], Service.AGREED, 1, [(2, 0, 2)]), 0)
    plain = rows.take()
    assert (plain.keys, plain.headers) == ([], [])
    assert plain.table()["key"].null_count == plain.table()["headers"].null_count == 5
    for first, attributed in ((3, False), (5, True), (8, False)):
        stretches = [(first, 0, 3 if attributed else 2)]
        add(rows, batch(START, PROCESSES[0], Service.AGREED, first, stretches, attributed=attributed), 0)
    assert rows.take().table()["key"].to_pylist() == [None, None, None, b"k6", None, None, None]


def test_a_message_of_which_nobody_said_when_it_was_sent_has_no_time() -> None:
    rows = RowBuilder("g", "ann", 1, "totem", "evs")
    add(rows, configuration(START, START, None), 0)
    add(rows, group_view(START, Place(1, 0)), 0)
    times = [(0, 1), (7, 1)]
    frame = Stream(PROCESSES[0], b"", Service.AGREED, START, 5, 1, [(2, 0, 2)], [b"1", b"2"], times, 34)
    add(rows, Batch(frame, ("g",), Raw()), 0)
    assert rows.take().table()["event_time"].to_pylist()[-2:] == [None, datetime(1970, 1, 1, 0, 0, 0, 7, UTC)]
