"""Failure detection: silence and questions, lag in spite of heartbeats, and an observer that was away itself."""

from __future__ import annotations

from dataclasses import replace

from tests.engine.hand import Journey, both, is_data, one_way
from tests.lansis.hand import PULSE, Table, is_alive
from transis.lansis.detector import BROKEN, LAGS, QUESTIONS, SILENT
from transis.lansis.packets import Query
from transis.types.ids import DatagramClass, Service
from transis.types.outputs import Port
from transis.wire.burst import Burst, DataHeader, encode_data

SILENCE_US = PULSE.silence_us
CALM_US = 100_000


def formed(members: str) -> Table:
    table = Table(members)
    table.form(members)
    table.run(CALM_US)
    return table


def queries(table: Table, source: str) -> list[Journey]:
    return [journey for journey in table.journeys if isinstance(journey.packet, Query) and journey.source == source]


def is_multicast(journey: Journey) -> bool:
    return journey.port is not Port.TOKEN


def test_an_idle_view_is_quiet_and_stays() -> None:
    table = formed("abc")
    views = len(table["a"].views)
    table.run(20 * SILENCE_US)
    assert len(table["a"].views) == views
    assert queries(table, "a") == []


def test_the_dead_are_asked_before_they_are_accused() -> None:
    table = formed("ab")
    table.drops.append(one_way("b", "a"))
    table.run_until(lambda: table.all_in("a"))
    assert len([journey for journey in queries(table, "a") if journey.target == "b"]) == QUESTIONS
    assert table["a"].views[-1].cause.what == SILENT
    assert {journey.port for journey in queries(table, "a")} == {Port.TOKEN}


def test_who_answers_is_not_silent_while_there_is_nothing_to_acknowledge() -> None:
    """b's multicasts are lost, its answers are not."""
    table = formed("ab")
    table.drops.append(both(one_way("b", "a"), is_multicast))
    table.run(5 * SILENCE_US)
    assert table["a"].view == "ab"
    assert table["a"].engine.statistics()["queries"] >= 3


def test_who_answers_but_acknowledges_nothing_is_accused_of_lag() -> None:
    """L9: a node whose multicast is dead answers questions for ever, and holds up everybody's safe messages."""
    table = formed("ab")
    table.drops.append(both(one_way("b", "a"), is_multicast))
    table.submit("a", Service.SAFE, "held up")
    at = table.now
    table.run_until(lambda: table.all_in("a"))
    assert table["a"].views[-1].cause.what == LAGS
    assert PULSE.ack_lag_us < table.now - at < PULSE.ack_lag_us + SILENCE_US
    assert table.texts("a") == ["held up"]


def test_who_hears_no_data_but_talks_on_is_accused_of_lag() -> None:
    """Its data socket is deaf, as behind a path that takes no large datagrams. That it sends is no acknowledgement."""
    table = formed("abc")
    table.drops.append(both(is_data, lambda journey: journey.target == "c"))
    table.submit("a", Service.SAFE, "held up")
    at = table.now
    while table["a"].view == "abc" and table.now - at < 2 * PULSE.ack_lag_us:
        table.submit("c", Service.BASIC, "still here")
        table.run(20_000)
    assert table["a"].view == "ab"
    assert table["a"].views[-1].cause.what == LAGS
    assert "held up" in table.texts("a")


def test_who_sends_what_makes_no_sense_is_left_out() -> None:
    """Nothing more of it is taken, so nothing could be delivered in any order while it is a member."""
    table = formed("abc")
    view = table["a"].engine.inspect().view
    header = DataHeader(DatagramClass.CAUSAL, view.tag, 2, view.dag.inserted[2] + 1, 0, view.base + 5, 0, 0, True, False)
    for name in "ab":
        table.hand(name, Burst(header, [encode_data(header, b"\x09junk")]))
    table.submit("a", Service.SAFE, "held up")
    table.run_until(lambda: table.all_in("ab"))
    assert table["a"].views[-1].cause.what == BROKEN
    assert table.texts("a") == table.texts("b") == ["held up"]
    table.run(10 * SILENCE_US)
    assert table["a"].view == "ab", "it is not asked back at once"


def test_old_idleness_is_no_lag() -> None:
    """A member whose acknowledgements stood still because there was nothing is not accused for the first new message."""
    table = formed("abc")
    table.run(3 * PULSE.ack_lag_us)
    table.submit("a", Service.SAFE, "first")
    table.run(3 * PULSE.ack_lag_us)
    assert {seat.view for seat in table.seats.values()} == {"abc"}
    assert table.texts("c") == ["first"]


def test_slow_but_progressing_is_kept() -> None:
    """c loses most of what is sent, for much longer than ack_lag_us: it sets the pace and is not accused."""
    table = formed("abc")
    count = 0

    def most(journey: Journey) -> bool:
        nonlocal count
        count += 1
        return count % 4 != 0

    table.drops.append(both(is_data, both(most, lambda journey: journey.target == "c")))
    for number in range(60):
        table.submit("a", Service.AGREED, str(number))
        table.run(PULSE.ack_lag_us // 20)
    table.drops.clear()
    table.run(CALM_US)
    assert {seat.view for seat in table.seats.values()} == {"abc"}
    assert len(table.texts("c")) == 60


def test_data_is_a_sign_of_life() -> None:
    table = formed("ab")
    table.drops.append(both(is_alive, one_way("b", "a")))
    for number in range(30):
        table.submit("b", Service.AGREED, str(number))
        table.run(SILENCE_US // 4)
    assert table["a"].view == "ab"
    assert table["a"].engine.statistics()["queries"] == 0


def test_a_question_of_another_view_is_not_answered() -> None:
    table = formed("ab")
    stale = Query(table["b"].me, "b:1", table["a"].engine.ring_id.tag, False)
    assert table.hand("a", stale) == []
    fresh = stale._replace(tag=table["a"].engine.inspect().view.tag)
    assert len(table.hand("a", fresh)) == 1


def test_an_answer_to_nothing_changes_nothing() -> None:
    table = formed("ab")
    answer = Query(table["b"].me, "b:1", table["a"].engine.inspect().view.tag, True)
    stranger = answer._replace(sender=table["b"].me._replace(boot=1))
    assert table.hand("a", answer, stranger) == []


def test_who_was_away_itself_accuses_nobody_at_first() -> None:
    """D29: a wakes late, finds silence, and gives everybody one more chance; its patience grows."""
    table = formed("ab")
    table.now += 10 * SILENCE_US
    table.lose_all()
    engine = table["a"].engine
    engine.wake(table.now)
    table.carry("a")
    assert table["a"].view == "ab"
    assert engine.statistics()["health"] == 1
    assert table["a"].notes("fired late")
    table.run(5 * SILENCE_US)
    assert table["a"].view == table["b"].view == "ab"


def test_who_was_away_believes_its_second_look() -> None:
    table = formed("ab")
    table.crash("b")
    table.now += 10 * SILENCE_US
    table["a"].engine.wake(table.now)
    table.carry("a")
    assert table["a"].view == "ab"
    table.run_until(lambda: table.all_in("a"))


def test_many_members_are_silent_later_than_few() -> None:
    """IAA slows down with the number of members, so must suspicion (4 ALIVEs at least)."""
    slow = Table("ab", pulse=replace(PULSE, alive_us=PULSE.silence_us // 4))
    slow.form("ab")
    assert slow["a"].engine.inspect().view.silence_us == PULSE.silence_us


def test_halves_that_fall_silent_at_once_are_accused_together() -> None:
    """W10: one statement, or two if the silence of one shows a tick later; never one for each."""
    table = formed("abcdef")
    for name in "def":
        table.crash(name)
    table.run_until(lambda: table.all_in("abc"))
    assert len(table["a"].views) == 5
