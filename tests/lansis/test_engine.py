"""The doors of the engine: start, submit, lanes, leave, stop, deadlines, and what a configuration that differs is told."""

from __future__ import annotations

import pytest

from tests.engine.hand import node_id
from tests.lansis.hand import PULSE, Table, brought_to, config
from transis.engine.base import Engine
from transis.lansis.engine import LansisEngine
from transis.lansis.states import State
from transis.totem.packets import Join, Wake
from transis.types.ids import RingId, Service, ViewId, ViewKind
from transis.types.outputs import (
    NEVER,
    Audience,
    Configure,
    Deliver,
    Lane,
    Originated,
    OutboundRun,
    Output,
    Persist,
    Port,
    Refused,
    Send,
    Stopped,
)
from transis.wire.control import Beacon

SECOND = 1_000_000
RUNNING = [state for state in State if state is not State.STOPPED]


def formed(members: str) -> Table:
    table = Table(members)
    table.form(members)
    table.run(100_000)
    return table


def run(*payloads: bytes, service: Service = Service.AGREED, first: int = 1) -> OutboundRun:
    return OutboundRun(0, b"", service, first, list(payloads))


def kinds(outputs: list[Output]) -> list[type]:
    return [type(output) for output in outputs if isinstance(output, Originated | Send | Deliver)]


def test_it_is_an_engine() -> None:
    engine: Engine = LansisEngine(config("a"), node_id("a"), 0)
    assert engine.deadline() == NEVER, "nothing happens before start"


def test_the_first_view_begins_with_what_the_disk_remembers() -> None:
    engine = LansisEngine(config("a"), node_id("a"), 40)
    engine.start(0)
    (view,) = (output.view for output in engine.take_outputs() if isinstance(output, Configure))
    assert view.id == ViewId(ViewKind.REGULAR, 40, node_id("a"))
    assert engine.ring_id == RingId(40, node_id("a"))


def test_nothing_is_ever_asked_of_the_disk() -> None:
    table = formed("abc")
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    assert table["a"].of(Persist) == []
    table["a"].engine.persisted(table.now, 1)
    assert table.carry("a") == []


def test_application_messages_wait_until_the_stack_opens_their_lane() -> None:
    engine = LansisEngine(config("a"), node_id("a"), 0)
    engine.start(0)
    engine.take_outputs()
    assert engine.submit(1, Lane.APPLICATION, run(b"held")) == 1
    assert kinds(engine.take_outputs()) == []
    assert engine.submit(1, Lane.CONTROL, run(b"control", first=2)) == 1
    assert kinds(engine.take_outputs()) == [Originated, Deliver]
    engine.open(2, Lane.APPLICATION)
    assert kinds(engine.take_outputs()) == [Originated, Deliver]
    engine.hold(Lane.APPLICATION)
    engine.submit(3, Lane.APPLICATION, run(b"again", first=3))
    assert kinds(engine.take_outputs()) == []


def test_control_messages_go_out_with_the_new_view_before_any_lane_is_opened() -> None:
    """Groups exchange their state on the control lane: it must not wait for a packet to wake it."""
    table = formed("abc")
    table.crash("c")
    table.run_until(lambda: table["a"].engine.state in (State.FAULTS, State.FLUSH))
    table.submit("a", Service.AGREED, "exchange", lane=Lane.CONTROL)
    table.run_until(lambda: table.all_in("ab", "a"))
    after = [type(output) for output in table["a"].log if isinstance(output, Configure | Originated)]
    assert after[-2:] == [Configure, Originated]


def test_what_is_originated_is_told_before_it_is_sent_and_sent_before_it_is_delivered() -> None:
    table = formed("ab")
    outputs = len(table["a"].log)
    table.submit("a", Service.BASIC, "early")
    assert kinds(table["a"].log[outputs:]) == [Originated, Send, Deliver]


def test_data_goes_to_the_view_and_statements_to_the_world() -> None:
    table = formed("abc")
    table.submit("a", Service.AGREED, "x")
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    sends = {(send.port, send.to) for send in table["a"].log if isinstance(send, Send) and isinstance(send.to, Audience)}
    assert sends == {(Port.DATA, Audience.RING), (Port.CONTROL, Audience.RING), (Port.CONTROL, Audience.WORLD)}


@pytest.mark.parametrize("state", RUNNING)
def test_a_stopped_engine_is_silent_whatever_it_was_doing(state: State) -> None:
    table = brought_to(state)
    late = [journey.packet for journey in table.journeys if journey.target == "a"][-200:]
    table.submit("a", Service.AGREED, "too late") if state in (State.FAULTS, State.FLUSH) else None
    engine = table["a"].engine
    engine.stop(table.now, "superseded")
    outputs = table.carry("a")
    assert outputs[-1] == Stopped("superseded")
    assert engine.deadline() == NEVER
    engine.stop(table.now, "again")
    engine.leave(table.now)
    engine.open(table.now, Lane.APPLICATION)
    assert engine.submit(table.now, Lane.APPLICATION, run(b"no")) == 0
    assert table.hand("a", *late) == []
    engine.wake(table.now + SECOND)
    assert table.carry("a") == []


def test_what_was_not_sent_is_refused_when_the_engine_stops() -> None:
    table = brought_to(State.FAULTS)
    table.submit("a", Service.AGREED, "too late")
    table["a"].engine.stop(table.now, "superseded")
    table.carry("a")
    assert [output.why for output in table["a"].log if isinstance(output, Refused)] == ["superseded"]


def test_a_machine_alone_leaves_at_once() -> None:
    table = Table("a")
    table.start()
    table.leave("a")
    assert table["a"].engine.state is State.STOPPED


def test_nothing_is_taken_while_leaving_and_what_was_taken_goes_out_first() -> None:
    table = formed("ab")
    table.submit("a", Service.SAFE, "last")
    table.leave("a")
    assert table["a"].engine.state is State.OPERATIONAL, "not before everybody has it"
    assert table.submit("a", Service.SAFE, "no more") == 0
    table.run_until(lambda: table["a"].engine.state is State.STOPPED)
    assert table.texts("a") == table.texts("b") == ["last"]


def test_a_leave_waits_for_what_a_young_view_still_holds_back() -> None:
    """Seen on the ring: who left before the groups' exchange of a new view was over took its last words with it."""
    table = formed("ab")
    engine = table["a"].engine
    engine.hold(Lane.APPLICATION)
    table.submit("a", Service.SAFE, "farewell")
    table.leave("a")
    assert table.submit("a", Service.AGREED, "the exchange", lane=Lane.CONTROL) == 1
    table.run_until(lambda: table.texts("a") == ["the exchange"])
    assert engine.state is State.OPERATIONAL
    engine.open(table.now, Lane.APPLICATION)
    table.carry("a")
    table.run_until(lambda: engine.state is State.STOPPED)
    assert table.texts("b") == ["the exchange", "farewell"]


def test_a_leave_does_not_wait_for_ever() -> None:
    table = formed("ab")
    table.submit("a", Service.SAFE, "nobody takes it")
    table.drops.append(lambda journey: True)
    at = table.now
    table.leave("a")
    table.run_until(lambda: table["a"].engine.state is State.STOPPED)
    assert table.now - at <= config("a").timing.leave_us


@pytest.mark.parametrize("state", [State.STAGE_2, State.FAULTS, State.FLUSH])
def test_a_leave_in_the_middle_of_a_change_is_heard(state: State) -> None:
    table = brought_to(state)
    table.leave("a")
    table.drops.clear()
    others = "".join(name for name in table.seats if name != "a")
    table.run_until(lambda: table.all_in(others))
    assert table["a"].engine.state is State.STOPPED


def test_an_idle_machine_alone_only_beacons() -> None:
    table = Table("a")
    table.start()
    table.run(SECOND)
    counted = {event for (_, event), count in table["a"].engine.coverage.items() if count}
    assert counted == {"beacon timer"}


def test_who_cannot_read_our_datagrams_is_refused_loudly_and_met_by_nobody() -> None:
    table = formed("ab")
    beacon = Beacon(node_id("x"), "x:1", RingId(0, node_id("x")), frozenset({node_id("x")}), frozenset(), 0, b"otherwis", (1, 1))
    table.hand("a", beacon)
    assert dict(table["a"].notes("refused")[0].detail)["node"] == "x/1"
    assert table["a"].engine.address_of(node_id("x")) == ""
    assert table["a"].engine.state is State.OPERATIONAL


def test_packets_of_the_ring_are_passed_over() -> None:
    table = formed("ab")
    me = node_id("x")
    join = Join(me, "", b"", 0, frozenset({me}), frozenset(), frozenset({me}), (), 0, 0, False, 0, bytes(8), (1, 1))
    assert table.hand("a", join, Wake(table["a"].engine.ring_id.tag, 1)) == []


def test_members_are_known_by_their_addresses() -> None:
    table = formed("abc")
    assert [table["a"].engine.address_of(node_id(name)) for name in "abcx"] == ["a:1", "b:1", "c:1", ""]


def test_statistics_are_numbers_with_names() -> None:
    table = formed("abc")
    for _ in range(20):
        table.submit("a", Service.SAFE, "x")
        table.run(1_000)
    figures = table["a"].engine.statistics()
    assert figures["view_members"] == 3
    assert figures["bursts_sent"] == 20
    assert figures["statements_sent"] >= 1
    assert figures["flushed_sent"] >= 1
    assert figures["alives_sent"] > 100_000 // PULSE.alive_us
    assert all(type(value) is int for value in figures.values())
