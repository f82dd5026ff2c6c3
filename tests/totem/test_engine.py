"""The doors of the engine, driven by hand: start, merge, order, hold and wake, leave, lanes."""

from __future__ import annotations

import pytest

from tests.engine.hand import HOP_US, Heard, cut_off, first, node_id
from tests.totem.hand import TIMING, Table, is_token, is_wake
from transis.totem.packets import Wake
from transis.totem.states import State
from transis.types.config import Window
from transis.types.ids import Service, ViewId, ViewKind
from transis.types.outputs import NEVER, Configure, Deliver, Lane, Originated, OutboundRun, Output, Port, Refused, Send, Stopped
from transis.wire.burst import read_bursts

SECOND = 1_000_000


def sends(outputs: list[Output], port: Port) -> list[Send]:
    return [output for output in outputs if isinstance(output, Send) and output.port is port]


# --- a singleton (T5, F6) -------------------------------------------------------------------------------------------


def test_a_singleton_ring_delivers_its_own_agreed_and_safe_messages() -> None:
    table = Table("a")
    table.start()
    assert table.submit("a", Service.AGREED, "one") == 1
    assert table.submit("a", Service.SAFE, "two") == 1
    table.run_until(lambda: len(table["a"].heard) == 2)
    assert table["a"].heard == [Heard("one", "a", "regular"), Heard("two", "a", "regular")]


def test_an_idle_singleton_does_not_spin() -> None:
    table = Table("a")
    table.start()
    table.run(SECOND)
    visits = table["a"].engine.coverage["Operational", "token hold timer"]
    assert 2 <= visits <= SECOND // TIMING.token_hold_us + 5


def test_a_singleton_hurries_its_held_token_when_there_is_work() -> None:
    table = Table("a")
    table.start()
    table.run(SECOND // 10)
    before = table.now
    table.submit("a", Service.AGREED, "now")
    table.run_until(lambda: table.texts("a") == ["now"])
    assert table.now == before, "a held token is let go in the same turn"


def test_the_first_view_is_the_singleton_itself() -> None:
    table = Table("a", ring_seq={"a": 40})
    table.start()
    (view,) = table["a"].views
    assert view.id == ViewId(ViewKind.REGULAR, 40, node_id("a"))
    assert view.nodes == (node_id("a"),)
    assert view.members[0].previous is None


# --- merging (L1, T7) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", ["ab", "abc"])
def test_idle_rings_find_each_other(members: str) -> None:
    table = Table(members)
    table.form(members)
    for name in members:
        assert table[name].history[-2:] == [f"transitional {name}", f"regular {members}"]


def test_two_idle_rings_of_two_find_each_other() -> None:
    table = Table("abcd")
    table.drops.append(cut_off("a", "b"))
    table.start()
    table.run_until(lambda: table.all_in("ab") and table.all_in("cd"))
    table.run(3 * SECOND)
    assert table.all_in("ab") and table.all_in("cd")
    table.drops.clear()
    table.run_until(lambda: table.all_in("abcd"))
    assert table["a"].history[-2:] == ["transitional ab", "regular abcd"]
    assert table["d"].history[-2:] == ["transitional cd", "regular abcd"]


def test_a_transitional_view_is_two_below_its_ring_and_names_the_view_before() -> None:
    table = Table("ab", ring_seq={"a": 8, "b": 12})
    ring = table.form("ab")
    first, transitional, regular = table["b"].views
    assert transitional.id == ViewId(ViewKind.TRANSITIONAL, ring.seq - 2, node_id("b"))
    assert transitional.regular == first.id
    assert {member.previous for member in transitional.members} == {first.id}
    assert [member.previous for member in regular.members] == [table[name].views[0].id for name in "ab"]


def test_all_members_deliver_all_services_in_one_order() -> None:
    table = Table("abc")
    table.form("abc")
    for turn, name in enumerate("cab" * 4):
        table.submit(name, (Service.AGREED, Service.SAFE, Service.CAUSAL)[turn % 3], f"{name}{turn}")
        table.run(70)
    table.run_until(lambda: all(len(table[name].heard) == 12 for name in "abc"))
    assert table["a"].heard == table["b"].heard == table["c"].heard
    for name in "abc":
        own = [text for text in table.texts("a") if text[0] == name]
        assert own == sorted(own, key=lambda text: int(text[1:]))


# --- the contract of outputs ----------------------------------------------------------------------------------------


def _places(log: list[Output]) -> list[tuple[str, int]]:
    """Places given and datagrams sent, as they came out."""
    steps: list[tuple[str, int]] = []
    for output in log:
        if isinstance(output, Originated):
            steps += [("originated", seq) for seq, _, _ in output.stretches]
        elif isinstance(output, Send) and output.port is Port.DATA:
            bursts, _ = read_bursts(output.datagrams)
            steps += [("sent", seq) for burst in bursts for seq in range(burst.first_seq, burst.last_seq + 1)]
    return steps


@pytest.mark.parametrize("accelerated", [0, 2])
def test_originated_comes_before_its_send(accelerated: int) -> None:
    table = Table("ab", window=Window(accelerated=accelerated))
    table.form("ab")
    for turn in range(5):
        table.submit("a", Service.SAFE, *(f"{turn}-{number}" + "x" * 700 for number in range(6)))
        table.run(2_000)
    steps = _places(table["a"].log)
    sent = [seq for kind, seq in steps if kind == "sent"]
    assert len(sent) >= 10
    for seq in sent:
        assert steps.index(("originated", seq)) < steps.index(("sent", seq))


def test_every_deliver_follows_the_configure_of_its_view() -> None:
    table = Table("abc")
    table.start()
    for turn in range(40):
        table.submit("abc"[turn % 3], Service(turn % 4), str(turn))
        table.run(5_000)
    table.run_until(lambda: table.all_in("abc"))
    for seat in table.seats.values():
        configured: list[ViewId] = []
        for output in seat.log:
            if isinstance(output, Configure):
                configured.append(output.view.regular)
            elif isinstance(output, Deliver):
                assert output.view == configured[-1], "delivered in the regular or the transitional of its ring"
        assert seat.of(Deliver), "the rule was exercised"


def test_the_accelerated_ring_passes_the_token_before_its_last_datagrams() -> None:
    table = Table("ab", window=Window(accelerated=1))
    table.form("ab")
    table.run(SECOND // 10)
    start = len(table["b"].log)
    table.submit("b", Service.AGREED, *("y" * 900 for _ in range(4)))
    table.run_until(lambda: len(table["a"].heard) == 4)
    visit = [output.port for output in table["b"].log[start:] if isinstance(output, Send) and output.port is not Port.CONTROL]
    first_token = visit.index(Port.TOKEN)
    assert Port.DATA in visit[:first_token]
    assert visit[first_token + 1] is Port.DATA


# --- hold and wake (W15) --------------------------------------------------------------------------------------------


def _idle(members: str) -> Table:
    """A ring that was idle long enough for its representative to hold the token."""
    table = Table(members)
    table.form(members)
    table.run(SECOND // 2)
    return table


def test_an_idle_ring_is_quiet() -> None:
    table = _idle("abc")
    before = sum(len(sends(table[name].log, Port.TOKEN)) for name in "abc")
    table.run(SECOND)
    hops = sum(len(sends(table[name].log, Port.TOKEN)) for name in "abc") - before
    assert 3 <= hops <= 3 * (SECOND // TIMING.token_hold_us + 1)


def test_work_at_an_ordinary_member_wakes_the_held_token_at_once() -> None:
    table = _idle("abc")
    table.run_until(lambda: table.is_still)
    before = table.now
    table.submit("c", Service.AGREED, "now")
    assert is_wake(table.journeys[-1])
    table.run_until(lambda: all(table.texts(name) == ["now"] for name in "abc"))
    # The wake, two hops of the token to c, and the datagram: no timer is on this way.
    assert table.now - before == 4 * HOP_US


def test_work_at_the_representative_needs_no_wake() -> None:
    table = _idle("abc")
    table.run_until(lambda: table.is_still)
    before = table.now
    table.submit("a", Service.AGREED, "now")
    table.run_until(lambda: all(table.texts(name) == ["now"] for name in "abc"))
    assert table.now - before == HOP_US


def test_a_wake_that_arrives_just_before_the_token_is_not_forgotten() -> None:
    """Trap 43: the representative has no token yet when it is woken; it must not begin to hold it a moment later."""
    table = _idle("abc")
    table.run_until(lambda: is_token(table.journeys[-1]) and table.journeys[-1].target == "a" and not table.is_still)
    table.hand("a", Wake(table["a"].engine.ring_id.tag, 0))
    hops = len(table.journeys)
    table.step()
    passed_on = table.journeys[hops:]
    assert [(is_token(journey), journey.target) for journey in passed_on] == [(True, "b")]


def test_a_lost_wake_is_repeated() -> None:
    table = _idle("ab")
    table.drops.append(first(1, is_wake))
    # A token that stays away shows that only the wake can bring it: hold it as long as the profile allows.
    table.run_until(lambda: table.is_still)
    table.drops.append(first(1, lambda journey: is_token(journey) and journey.source == "a"))
    table.submit("b", Service.AGREED, "later")
    table.run_until(lambda: table.texts("b") == ["later"])
    assert sum(map(is_wake, table.journeys)) >= 2


# --- leaving (W16) --------------------------------------------------------------------------------------------------


def test_a_graceful_leave_drains_tells_the_others_and_stops() -> None:
    table = Table("abc")
    table.form("abc")
    table.submit("b", Service.SAFE, "last", "words")
    table.leave("b")
    assert table.submit("b", Service.AGREED, "too late") == 0
    table.run_until(lambda: table["b"].engine.state is State.STOPPED)
    assert table["b"].log[-1] == Stopped("left")
    assert table.texts("b") == ["last", "words"]
    before = table.now
    table.run_until(lambda: table.all_in("ac"))
    assert table.now - before < TIMING.token_loss_us, "a goodbye is faster than suspicion"
    for name in "ac":
        assert table[name].heard == [Heard("last", "abc", "regular"), Heard("words", "abc", "regular")]
        assert table[name].views[-1].cause.what == "leave"
        assert table[name].history[-2:] == ["transitional ac", "regular ac"]


def test_a_leave_waits_for_what_a_young_view_still_holds_back() -> None:
    """Seen in CI: who left before the groups' exchange of a new view was over took its last words with it."""
    table = Table("abc")
    table.form("abc")
    engine = table["b"].engine
    engine.hold(Lane.APPLICATION)
    table.submit("b", Service.SAFE, "farewell")
    table.leave("b")
    assert table.submit("b", Service.AGREED, "the exchange", lane=Lane.CONTROL) == 1
    table.run_until(lambda: table.texts("b") == ["the exchange"])
    assert engine.state is State.OPERATIONAL
    engine.open(table.now, Lane.APPLICATION)
    table.carry("b")
    table.run_until(lambda: table.all_in("ac"))
    for name in "ac":
        assert table.texts(name) == ["the exchange", "farewell"]


def test_the_representative_may_leave_too() -> None:
    table = Table("abc")
    table.form("abc")
    table.leave("a")
    table.run_until(lambda: table.all_in("bc"))
    assert table["a"].log[-1] == Stopped("left")


def test_a_singleton_leaves_after_its_last_message_is_safe() -> None:
    table = Table("a")
    table.start()
    table.submit("a", Service.SAFE, "alone")
    table.leave("a")
    table.run_until(lambda: table["a"].engine.state is State.STOPPED)
    assert table.texts("a") == ["alone"]


def test_a_leave_does_not_wait_for_ever() -> None:
    table = Table("ab")
    table.form("ab")
    table.drops.append(lambda _: True)
    table.submit("b", Service.SAFE, "stuck")
    table.leave("b")
    before = table.now
    table.run_until(lambda: table["b"].engine.state is State.STOPPED)
    assert table.now - before <= TIMING.leave_us


def test_stop_is_at_once_and_refuses_what_was_taken() -> None:
    table = Table("ab")
    table.form("ab")
    table.submit("b", Service.SAFE, "never")
    engine = table["b"].engine
    engine.stop(table.now, "superseded")
    outputs = table.carry("b")
    (refused,) = [output for output in outputs if isinstance(output, Refused)]
    assert (refused.ids.first_counter, refused.ids.count, refused.why) == (1, 1, "superseded")
    assert outputs[-1] == Stopped("superseded")
    assert engine.deadline() == NEVER
    engine.stop(table.now, "again")
    engine.leave(table.now)
    assert table.submit("b", Service.AGREED, "too late") == 0
    assert table.carry("b") == []


# --- lanes and bound messages ---------------------------------------------------------------------------------------


def test_a_message_bound_to_a_view_is_refused_when_the_view_changed_first() -> None:
    table = Table("ab")
    table.start()
    engine = table["a"].engine
    first_view = table["a"].views[0].id
    table.run_until(lambda: engine.state is State.GATHER)
    run = OutboundRun(0, b"", Service.AGREED, 1, [b"state of the first view"])
    assert engine.submit(table.now, Lane.CONTROL, run, bound_to=first_view) == 1
    table.run_until(lambda: table.all_in("ab"))
    (refused,) = [output for output in table["a"].log if isinstance(output, Refused)]
    assert refused.ids.first_counter == 1
    table.run(SECOND // 10)
    assert table.texts("a") == table.texts("b") == []


def test_a_held_lane_sends_nothing_until_it_is_opened() -> None:
    table = Table("ab")
    table.form("ab")
    engine = table["a"].engine
    engine.hold(Lane.APPLICATION)
    table.submit("a", Service.AGREED, "application")
    table.submit("a", Service.AGREED, "control", lane=Lane.CONTROL)
    table.run(SECOND // 10)
    assert table.texts("b") == ["control"]
    engine.open(table.now, Lane.APPLICATION)
    table.carry("a")
    table.run(SECOND // 10)
    assert table.texts("b") == ["control", "application"]
