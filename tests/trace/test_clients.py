"""What client processes were told: recorded a number a run, written, converted and read back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.trace.columns import convert
from transis.trace.events import (
    ClientDelivery,
    ClientLeft,
    ClientLife,
    Conf,
    Delivery,
    End,
    Event,
    GroupConf,
    HandedRuns,
    History,
    LateRuns,
    NodeTrace,
)
from transis.trace.reader import NOBODY, read_address, read_trace
from transis.trace.recorder import Recorder
from transis.trace.segment import KINDS, SCHEMA, Header, SegmentWriter, decode_rows, encode_rows
from transis.trace.tables import KIND_OF, RunKeys
from transis.types.errors import Rejection
from transis.types.ids import NodeId, Place, ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import (
    Configure,
    Delivered,
    GroupDelivered,
    GroupLeft,
    GroupRefused,
    GroupViewInstalled,
    Phase,
    ProcessConnected,
    ProcessGone,
    Recipient,
)
from transis.types.views import Address, Cause, GroupCause, GroupId, GroupView, GroupViewId, Member, Origin, PrivateName, View
from transis.wire.items import decode_address, encode_address

A = NodeId("a", 1, 7)
CONF = ViewId(ViewKind.REGULAR, 4, A)
RED, BLUE = GroupId(1), GroupId((1 << 64) - 1)
TO_RED = encode_address(Address((RED,)))
TO_BOTH = encode_address(Address((RED, BLUE)))
ONE, TWO = Recipient(1, (RED,)), Recipient(2, (RED,))
IN_BOTH = (ONE, Recipient(2, (RED, BLUE)))


def delivered(first: int, address: bytes = TO_RED, service: Service = Service.AGREED) -> Delivered:
    ordered, places = service is not Service.BASIC, [(first, 0, 1)]
    return Delivered(ProcessId(A, 1), address, service, first, [b"x"], CONF, Phase.REGULAR, places, False, 0, 0, ordered)


def view(place: int = 1) -> GroupView:
    members = (ProcessId(A, 1), ProcessId(A, 2))
    origin = Origin(GroupViewId(CONF, Place(0, 0)), members[:1])
    cause = GroupCause("configuration", None, Cause("join", A))
    return GroupView(RED, "red", GroupViewId(CONF, Place(place, 0)), members, members[1:], (), (origin,), cause, True)


def recorded(*outputs: object) -> list[Event]:
    recorder = Recorder(A)
    for now, output in enumerate(outputs):
        recorder.observe(now, [output])  # type: ignore[arg-type]
    return recorder.events


def handing(first: int, *recipients: Recipient, address: bytes = TO_RED) -> list[object]:
    run = delivered(first, address)
    return [run, GroupDelivered(run, recipients)]


def test_a_turn_is_one_event_with_a_number_a_run() -> None:
    recipients = (ONE, TWO)
    events = recorded(*[output for first in range(1, 6) for output in handing(first, *recipients)])
    assert [type(event) for event in events] == [Delivery] * 5 + [ClientDelivery]
    assert events[-1] == ClientDelivery(6, 9, (HandedRuns((RED,), (1, 2), (1, 2, 3, 4, 5)),))


def test_a_run_of_several_datagrams_has_the_numbers_of_all_its_events() -> None:
    run = delivered(1)._replace(payloads=[b"x"] * 3, stretches=[(1, 0, 2), (2, 0, 1)])
    assert recorded(run, GroupDelivered(run, (ONE,)))[-1] == ClientDelivery(3, 1, (HandedRuns((RED,), (1,), (1, 2)),))
    (late,) = [event for event in recorded(GroupDelivered(run, (ONE,))) if isinstance(event, ClientDelivery)]
    assert late.waited == (LateRuns((RED,), (1,), run.process, 1, 2), LateRuns((RED,), (1,), run.process, 3, 1))


def test_addresses_and_groups_are_told_apart_and_their_runs_keep_their_numbers() -> None:
    events = recorded(*handing(1, ONE), *handing(2, *IN_BOTH, address=TO_BOTH), *handing(3, ONE))
    handed = (HandedRuns((RED,), (1,), (1, 3)), HandedRuns((RED,), (1,), (2,)), HandedRuns((RED, BLUE), (2,), (2,)))
    assert events[-1] == ClientDelivery(4, 5, handed)


def test_what_was_handed_is_told_before_anything_changes_who_gets_what() -> None:
    recorder = Recorder(A)
    for output in [*handing(1, ONE), GroupViewInstalled(view(), (1, 2)), *handing(2, ONE, TWO)]:
        recorder.observe(0, [output])  # type: ignore[arg-type]
    recorder.observe(0, [ProcessGone(2)])
    for output in [*handing(3, ONE), GroupLeft(1, RED, "red", "left")]:
        recorder.observe(0, [output])  # type: ignore[arg-type]
    told = (Delivery, ClientDelivery, GroupConf, Delivery, ClientDelivery, ClientLife, Delivery, ClientDelivery, ClientLeft)
    assert tuple(type(event) for event in recorder.events) == told
    assert [event.lseq for event in recorder.events] == list(range(1, 10))


def test_other_recipients_of_the_same_address_begin_anew() -> None:
    """A driver that does not say who connects: the recipients change with nothing in between."""
    events = recorded(*handing(1, ONE), *handing(2, ONE, TWO))
    assert [event.handed for event in events if isinstance(event, ClientDelivery)] == [
        (HandedRuns((RED,), (1,), (1,)),),
        (HandedRuns((RED,), (1, 2), (2,)),),
    ]


def test_equal_recipients_of_another_tuple_go_on() -> None:
    (event,) = [event for event in recorded(*handing(1, ONE, TWO), *handing(2, ONE, TWO)) if isinstance(event, ClientDelivery)]
    assert event.handed == (HandedRuns((RED,), (1, 2), (1, 2)),)


def test_a_run_that_waited_is_known_by_its_messages() -> None:
    early, late = delivered(1, service=Service.BASIC), delivered(1, service=Service.BASIC)
    events = recorded(early, GroupViewInstalled(view(), (1, 2)), GroupDelivered(late, (ONE,)))
    assert events[-1] == ClientDelivery(3, 2, (), (LateRuns((RED,), (1,), ProcessId(A, 1), 1, 1),))


def test_the_end_of_a_life_tells_what_was_handed_first() -> None:
    recorder = Recorder(A)
    for output in handing(1, ONE):
        recorder.observe(0, [output])  # type: ignore[arg-type]
    recorder.end(5, "failed")
    assert [type(event) for event in recorder.events] == [Delivery, ClientDelivery, End]


def test_refusals_and_last_words_are_told_apart() -> None:
    events = recorded(GroupLeft(1, RED, "red", "left"), GroupRefused(2, BLUE, "blue", "full"))
    assert events == [ClientLeft(1, 0, 1, RED, "red", "left", False), ClientLeft(2, 1, 2, BLUE, "blue", "full", True)]


@pytest.fixture
def events() -> list[Event]:
    configure = Configure(View(CONF, CONF, (Member(A, "", None),), Cause("start"), 0))
    recorder = Recorder(A)
    recorder.observe(0, [configure])
    recorder.observe(0, [ProcessConnected(1)])
    outputs = [*handing(1, *IN_BOTH, address=TO_BOTH), GroupViewInstalled(view(), (1, 2)), GroupRefused(2, BLUE, "blue", "full")]
    for output in [*outputs, GroupDelivered(delivered(9, service=Service.BASIC), (ONE,))]:
        recorder.observe(1, [output])  # type: ignore[arg-type]
    return recorder.events


def test_events_of_clients_go_through_bytes(events: list[Event]) -> None:
    assert {type(event) for event in events} == {Conf, ClientLife, Delivery, ClientDelivery, GroupConf, ClientLeft}
    assert decode_rows(encode_rows(events)) == events


def test_kinds_keep_their_numbers() -> None:
    """A file of the version before holds the numbers of its kinds."""
    assert [kind.__name__ for kind in KINDS] == [
        *("Submit", "Refuse", "Sent", "Delivery", "Conf", "End", "Fault", "NoteEvent", "Gap"),
        *("GroupConf", "ClientDelivery", "ClientLeft", "ClientLife"),
        *("Prefix", "CheckpointEvent", "ReplicaStep"),
    ]


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA])
def test_a_segment_of_either_version_is_read_back(tmp_path: Path, events: list[Event], schema: int) -> None:
    writer = SegmentWriter(tmp_path, Header("test", "run", A, schema))
    assert writer.write(events)
    writer.close(True)
    assert read_trace(tmp_path) == (History([NodeTrace(A, events)], True), [])


def test_a_segment_becomes_tables(tmp_path: Path, events: list[Event]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    writer = SegmentWriter(tmp_path, Header("test", "run", A))
    writer.write(events)
    writer.close(True)
    (path,) = tmp_path.iterdir()
    found = {kind: parquet.read_table(table).to_pylist() for kind, table in convert(path, tmp_path).items()}
    keys = RunKeys("test", "run")
    assert {KIND_OF[type(event)] for event in events} | {"segments", "addresses", "group_view_names"} <= found.keys()
    (row,) = found["group_views"]
    assert row["members"] == [keys.process(ProcessId(A, 1)), keys.process(ProcessId(A, 2))]
    (address,) = found["addresses"]
    assert (address["address"], address["groups"]) == (keys.address(TO_BOTH), [keys.group(RED), keys.group(BLUE)])
    assert found["client_deliveries"][0]["handed"][1]["runs"] == [3]


groups = st.integers(0, (1 << 64) - 1).map(GroupId)
names = st.builds(PrivateName, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1))


@given(st.lists(groups, max_size=64), st.lists(names, max_size=32))
def test_addresses_are_read_as_they_were_written(to: list[GroupId], processes: list[PrivateName]) -> None:
    address = Address(tuple(sorted(set(to))), tuple(sorted(set(processes))))
    if address != NOBODY:
        assert read_address(encode_address(address)) == address


@given(st.one_of(st.binary(max_size=80), st.binary(max_size=80).map(lambda junk: b"\x01\x01\x01" + junk)))
def test_any_bytes_are_read_as_the_groups_read_them(junk: bytes) -> None:
    decoded = decode_address(junk)
    assert read_address(junk) == (NOBODY if isinstance(decoded, Rejection) else decoded)
