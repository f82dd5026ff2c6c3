"""The mode `transis`: what is sent while views change goes out at once, and is delivered in the next view by all, once.

Evs is the control of these experiments: there nothing of the kind goes out.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.hand import Journey, Verdict, both, first, is_data, node_id, one_way
from tests.lansis.hand import PULSE, Table, config, is_flushed
from transis.lansis.engine import LansisEngine
from transis.lansis.packets import BurstMark, Joining, Statement, encode_acks, mark_of, round_of
from transis.lansis.states import AGREEING, State
from transis.types.config import Window
from transis.types.ids import DatagramClass, Service
from transis.types.outputs import Lane, Originated, OutboundRun, Phase, Port, Refused
from transis.wire.burst import Burst, DataHeader, body_max, encode_data
from transis.wire.control import config_digest

TEXTS = [f"message {number}" for number in range(6)]
CALM_US = 200_000
SMALL = Window(window=6, visit_max=6)


def marked(mark: BurstMark) -> Verdict:
    return lambda journey: isinstance(journey.packet, Burst) and mark_of(journey.packet.header) is mark


def changing(members: str, lost: str, *, mode: str = "transis", window: Window | None = None) -> Table:
    """Those who are left of `members` agree to go on without `lost`; they cannot finish, because FLUSHED comes to nobody."""
    table = Table(members, mode=mode, window=window)
    table.form(members)
    table.run(CALM_US)
    table.drops.append(is_flushed)
    table.crash(lost)
    table.run_until(lambda: all(seat.engine.inspect().flushed is not None for seat in table.seats.values()))
    return table


def finish(table: Table, members: str) -> None:
    table.drops.clear()
    table.run_until(lambda: table.all_in(members))
    table.run(CALM_US)


def carrying(table: Table, text: str) -> list[Journey]:
    """Everything on the wire that has this text in it."""
    return [
        journey
        for journey in table.journeys
        if isinstance(journey.packet, Burst) and any(text.encode() in bytes(body) for body in journey.packet.bodies())
    ]


# --- flowing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", Service)
def test_what_is_sent_during_the_change_goes_out_then_and_is_delivered_in_the_next_view(service: Service) -> None:
    table = changing("abc", "c")
    for number, text in enumerate(TEXTS):
        table.submit("ab"[number % 2], service, text)
    table.run(5_000)
    assert all(seat.engine.state in AGREEING for seat in table.seats.values())
    assert table["a"].engine.statistics()["flowed"] == 3
    assert {journey.target for text in TEXTS for journey in carrying(table, text)} == {"a", "b"}
    assert table.texts("a") == table.texts("b") == []
    finish(table, "ab")
    for name in "ab":
        assert sorted(table.texts(name)) == TEXTS
        assert {(heard.view, heard.phase) for heard in table[name].heard} == {("ab", "regular")}
    if service in (Service.AGREED, Service.SAFE):
        assert table.texts("a") == table.texts("b")


def test_the_bytes_of_what_flowed_travel_once() -> None:
    table = changing("abc", "c")
    table.submit("a", Service.AGREED, "once")
    finish(table, "ab")
    assert [journey.target for journey in carrying(table, "once")] == ["b"]
    assert table["b"].engine.statistics()["flows_completed"] == 1
    assert table["a"].engine.statistics()["retransmitted"] == 0


def held_us(table: Table) -> list[int]:
    return [int(dict(note.detail)["us"]) for seat in table.seats.values() for note in seat.notes("held")[-1:]]


def test_sends_are_held_for_no_time_at_all_where_evs_holds_them_for_the_whole_change() -> None:
    flows, holds = (changing("abc", "c", mode=mode) for mode in ("transis", "evs"))
    for table in (flows, holds):
        for text in TEXTS:
            table.submit("a", Service.AGREED, text)
        table.run(5_000)
    assert len([journey for text in TEXTS for journey in carrying(flows, text)]) == len(TEXTS)
    assert [journey for text in TEXTS for journey in carrying(holds, text)] == []
    for table in (flows, holds):
        finish(table, "ab")
        assert table.texts("a") == table.texts("b") == TEXTS
    assert held_us(flows) == [0, 0]
    assert min(held_us(holds)) > 5_000


def test_what_waits_in_the_outbox_when_the_change_begins_flows_too() -> None:
    """A full window holds it up in the view that ends; the change does not."""
    table = Table("abc", mode="transis", window=SMALL)
    table.form("abc")
    table.run(CALM_US)
    table.crash("c")
    texts = [f"{number:03}" + 1_000 * "x" for number in range(12)]
    table.submit("a", Service.AGREED, *texts)
    assert table["a"].engine.statistics()["outbox_bytes"] > 0
    finish(table, "ab")
    assert table["a"].engine.statistics()["flowed"] > 0
    assert table.texts("a") == table.texts("b") == texts


def test_more_than_a_share_of_the_window_waits_and_that_is_told_as_held() -> None:
    table = changing("abc", "c", window=SMALL)
    texts = [f"{number:03}" + 1_000 * "x" for number in range(12)]
    table.submit("a", Service.AGREED, *texts)
    assert table["a"].engine.statistics()["flowed"] == 2
    finish(table, "ab")
    assert table.texts("b") == texts
    held = dict(zip("ab", held_us(table), strict=True))
    assert held["a"] > 0
    assert held["b"] == 0


def test_strangers_keep_what_flows_and_need_not_ask_for_it() -> None:
    table = Table("abc", mode="transis")
    table.form("ab")
    table.run(CALM_US)
    table.drops.append(is_flushed)
    table.start("c")
    table.run_until(lambda: all(seat.engine.state is State.FLUSH for seat in table.seats.values()))
    for name in "abc":
        table.submit(name, Service.AGREED, f"of {name}")
    finish(table, "abc")
    for name in "abc":
        assert sorted(table.texts(name)) == ["of a", "of b", "of c"]
        assert {heard.view for heard in table[name].heard} == {"abc"}
        assert table[name].engine.statistics()["flows_completed"] == 2
        assert table[name].engine.statistics()["retransmitted"] == 0


# --- losses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [BurstMark.FLOW, BurstMark.CLAIM])
def test_who_lost_a_flow_or_its_claim_asks_for_the_burst_and_delivers_it_once(mark: BurstMark) -> None:
    table = changing("abc", "c")
    lost = first(1, both(marked(mark), one_way("a", "b")))
    table.drops.append(lost)
    for text in TEXTS:
        table.submit("a", Service.AGREED, text)
    table.run(5_000)
    table.drops.remove(is_flushed)
    table.run_until(lambda: table.all_in("ab"))
    table.run(CALM_US)
    assert table.texts("a") == table.texts("b") == TEXTS
    assert table["a"].engine.statistics()["retransmitted"] > 0


def test_a_claim_that_overtakes_its_flow_does_no_harm() -> None:
    table = changing("abc", "c")
    table.delays.append((marked(BurstMark.FLOW), 300_000))
    for text in TEXTS:
        table.submit("a", Service.AGREED, text)
    finish(table, "ab")
    table.run(500_000)
    assert table.texts("a") == table.texts("b") == TEXTS


# --- one change after the other ---------------------------------------------------------------------------------------


def test_what_flowed_through_two_changes_is_delivered_once_in_the_last_view() -> None:
    table = changing("abcd", "d")
    table.submit("a", Service.AGREED, "early")
    table.run(1_000)
    table.crash("c")
    table.drops.clear()
    table.run_until(lambda: len(table["a"].engine.inspect().sets.f) == 2)
    table.submit("a", Service.SAFE, "late")
    finish(table, "ab")
    for name in "ab":
        assert [(heard.text, heard.view) for heard in table[name].heard] == [("early", "ab"), ("late", "ab")]


def test_a_message_half_flowed_is_completed_in_the_next_view() -> None:
    """It is larger than the share that may flow: its end follows in the view, behind the claims."""
    table = changing("abc", "c", window=SMALL)
    large = "".join(f"{number:08}" for number in range(body_max(config("a").datagram)))
    table.submit("a", Service.AGREED, large)
    table.submit("a", Service.AGREED, "behind")
    assert table["a"].engine.statistics()["flowed"] == 2
    finish(table, "ab")
    assert table.texts("a") == table.texts("b") == [large, "behind"]
    assert len(carrying(table, large[:1_000])) == 1


def test_a_message_half_sent_before_the_change_flows_from_its_beginning() -> None:
    table = Table("abc", mode="transis", window=SMALL)
    table.form("abc")
    table.run(CALM_US)
    table.crash("c")
    large = "".join(f"{number:08}" for number in range(3 * body_max(config("a").datagram)))
    table.submit("a", Service.AGREED, large)
    assert 0 < table["a"].engine.statistics()["outbox_bytes"] < len(large)
    finish(table, "ab")
    assert table.texts("a") == table.texts("b") == [large]


# --- limbo, and the end ---------------------------------------------------------------------------------------------


def test_what_a_machine_let_flow_that_died_in_the_change_stays_in_limbo() -> None:
    table = changing("abcd", "d")
    table.submit("c", Service.AGREED, "in limbo")
    table.run(1_000)
    table.crash("c")
    table.submit("a", Service.AGREED, "goes on")
    finish(table, "ab")
    for name in "ab":
        assert table.texts(name) == ["goes on"]
        assert [dict(note.detail)["datagrams"] for note in table[name].notes("limbo")] == [1]


@pytest.mark.parametrize(("mode", "delivered"), [("transis", []), ("evs", ["last word"])])
def test_late_data_of_an_accused_member_enters_the_dag_only_if_somebody_else_needs_it(mode: str, delivered: list[str]) -> None:
    """Nobody heard the last word of c before all accused it. In evs it is in what a later statement says is held."""
    table = Table("abcd", mode=mode)
    table.form("abcd")
    table.run(CALM_US)
    table.drops += [both(is_data, lambda journey: journey.source == "c"), is_flushed]
    table.submit("c", Service.AGREED, "last word")
    last_word = carrying(table, "last word")[-1].packet
    table.crash("c")
    table.run_until(lambda: all(seat.engine.state is State.FLUSH for seat in table.seats.values()))
    for name in "abd":
        table.hand(name, last_word)
    table.crash("d")
    finish(table, "ab")
    assert table.texts("a") == table.texts("b") == delivered


def test_who_stops_in_the_change_refuses_what_has_no_place_yet() -> None:
    table = changing("abc", "c")
    table.submit("a", Service.AGREED, *TEXTS)
    assert table["a"].engine.statistics()["flowed"] > 0
    table["a"].engine.stop(table.now, "told to")
    table.carry("a")
    refused = [output for output in table["a"].of(Refused) if isinstance(output, Refused)]
    assert sum(output.ids.count for output in refused) == len(TEXTS)
    assert not table["a"].of(Originated)


def test_who_leaves_waits_until_what_flowed_has_its_place() -> None:
    table = changing("abc", "c")
    table.submit("a", Service.AGREED, *TEXTS)
    table.leave("a")
    table.drops.clear()
    table.run_until(lambda: table["a"].engine.state is State.STOPPED)
    table.run_until(lambda: table.all_in("b"))
    assert table.texts("b") == TEXTS
    assert {heard.phase for heard in table["b"].heard} == {Phase.REGULAR.name.lower()}


# --- statements in the DAG ------------------------------------------------------------------------------------------


def test_faults_are_told_in_the_dag_and_nowhere_else() -> None:
    table = Table("abc", mode="transis")
    table.form("abc")
    table.run(CALM_US)
    table.journeys.clear()
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    assert [journey for journey in table.journeys if isinstance(journey.packet, Statement)] == []
    spoken = [journey for journey in table.journeys if marked(BurstMark.STATEMENT)(journey)]
    assert {(journey.source, journey.port) for journey in spoken} == {("a", Port.DATA), ("b", Port.DATA)}


def test_a_join_goes_to_members_in_the_dag_and_to_strangers_beside_it() -> None:
    table = Table("abc", mode="transis")
    table.form("ab")
    table.run(CALM_US)
    table.drops.append(both(lambda journey: isinstance(journey.packet, Joining), one_way("a", "b")))
    table.drops.append(both(lambda journey: isinstance(journey.packet, Joining), one_way("b", "a")))
    table.journeys.clear()
    table.start("c")
    table.run_until(lambda: table.all_in("abc"))
    assert any(marked(BurstMark.STATEMENT)(journey) for journey in table.journeys)


def test_a_statement_is_taken_with_all_that_it_follows_and_not_before() -> None:
    table = Table("abc", mode="transis")
    table.form("abc")
    table.run(CALM_US)
    table.drops.append(both(marked(BurstMark.DATA), one_way("a", "b")))
    table.submit("a", Service.AGREED, "lost at first")
    table.crash("c")
    table.run_until(lambda: table["a"].engine.state is State.FAULTS)
    table.run(3 * PULSE.coalesce_us)
    a = table["a"].me
    assert a not in table["b"].engine.inspect().sets.last
    assert a in table["b"].engine.inspect().heard_at
    table.drops.clear()
    table.run_until(lambda: table.all_in("ab"))
    assert table.texts("a") == table.texts("b") == ["lost at first"]


def test_the_copy_of_a_join_beside_the_dag_says_nothing_to_a_member() -> None:
    """Else a member would take a statement without what it follows."""
    table = Table("abc", mode="transis")
    table.form("ab")
    table.run(CALM_US)
    table.drops += [both(marked(BurstMark.STATEMENT), one_way("a", "b")), is_flushed]
    table.journeys.clear()
    table.start("c")
    table.run_until(
        lambda: any(isinstance(one.packet, Joining) and (one.source, one.target) == ("a", "b") for one in table.journeys)
    )
    table.run(3 * PULSE.repeat_us)
    assert table["a"].me not in table["b"].engine.inspect().sets.last
    table.drops.clear()
    table.run_until(lambda: table.all_in("abc"))


def test_the_row_of_a_member_that_made_a_statement_is_closed_even_if_nobody_can_read_it() -> None:
    """What follows the statement may acknowledge what its sender does not hold when it goes on (M12)."""
    table = Table("ab", mode="transis")
    table.form("ab")
    view = table["a"].engine.inspect().view
    b, graph = 1 - view.rank, view.dag
    header = DataHeader(
        DatagramClass.CAUSAL,
        view.tag,
        b,
        graph.inserted[b] + 1,
        round_of(BurstMark.STATEMENT),
        graph.latest + 1,
        0,
        0,
        True,
        False,
    )
    assert not view.stability.is_closed(b)
    table.hand("a", Burst(header, [encode_data(header, encode_acks(0, (), ()) + b"no statement")]))
    assert graph.inserted[b] == header.seq
    assert view.stability.is_closed(b)
    assert table["a"].engine.state is State.OPERATIONAL


@pytest.mark.parametrize(("mode", "waits_in"), [("transis", State.FAULTS), ("evs", State.FLUSH)])
def test_when_all_have_stated_the_same_all_of_pre_is_held_already(mode: str, waits_in: State) -> None:
    """In evs a statement overtakes what it speaks of, which is then fetched in Flush; here it waits for that itself."""
    table = Table("abc", mode=mode)
    table.form("abc")
    table.run(CALM_US)
    table.drops.append(both(marked(BurstMark.DATA), one_way("a", "b")))
    table.submit("a", Service.AGREED, "lost at first")
    table.crash("c")
    table.run_until(lambda: table["a"].engine.state in AGREEING)
    table.run(100_000)
    assert table["b"].engine.state is waits_in


# --- settings -------------------------------------------------------------------------------------------------------


def test_modes_do_not_mix() -> None:
    """The digest of the configuration tells them apart, so neither reads the other's statements."""
    given = config("a")
    assert config_digest(given.digest_fields()) != config_digest(replace(given, mode="transis").digest_fields())
    table = Table("ab", mode="transis")
    table["b"].engine = LansisEngine(config("b"), node_id("b"), 0)
    table.start()
    table.run(2_000_000)
    assert (table["a"].view, table["b"].view) == ("a", "b")
    assert table["a"].notes("refused")


def test_views_say_what_they_guarantee() -> None:
    table = Table("ab", mode="transis")
    table.form("ab")
    assert {view.guarantees for view in table["a"].views} == {"transis"}


def test_the_control_lane_does_not_flow() -> None:
    """What the groups exchange belongs to one view."""
    table = changing("abc", "c")
    run = OutboundRun(0, b"", Service.AGREED, 1, [b"of the groups"])
    assert table["a"].engine.submit(table.now, Lane.CONTROL, run) == 1
    table.submit("a", Service.AGREED, "of the application")
    assert carrying(table, "of the groups") == []
    assert len(carrying(table, "of the application")) == 1
    finish(table, "ab")
    assert table.texts("b") == ["of the groups", "of the application"]
