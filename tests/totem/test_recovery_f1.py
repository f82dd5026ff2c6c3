"""What is delivered in the transitional configuration: the counter-example of F1 and its neighbours.

The ring is {p, q, r} in this token order. In each test p is cut off at a chosen moment, and q and r must make the best
of what they hold: everything up to the first gap whoever sent it, behind it only what q and r sent themselves.
"""

from __future__ import annotations

import pytest

from tests.engine.hand import Heard, Journey, cut_off, first
from tests.totem.hand import Table, in_commit, is_token
from transis.totem.states import State
from transis.types.ids import RingId, Service
from transis.types.outputs import Port
from transis.wire.burst import Burst


def _ring() -> Table:
    table = Table("pqr")
    table.form("pqr")
    return table


def _settle(table: Table) -> None:
    table.run_until(lambda: table.all_in("p") and table.all_in("qr"))


def _carries(seq: int, table: Table) -> bool:
    return any(isinstance(journey.packet, Burst) and journey.packet.first_seq == seq for journey in table.journeys)


def test_a_safe_message_delivered_by_one_that_left_is_delivered_in_the_transitional_of_the_rest() -> None:
    """p saw aru >= m on two rotations and delivered m; q and r saw it once. TOCS95 to the letter would discard m."""
    table = _ring()
    table.submit("p", Service.SAFE, "m")
    table.run_until(lambda: table.texts("p") == ["m"])
    # Whatever p sent in the visit that delivered m is lost with it: the second rotation ends here.
    table.lose_all()
    table.drops.append(cut_off("p"))
    assert (table.texts("q"), table.texts("r")) == ([], [])
    _settle(table)
    assert table["p"].heard == [Heard("m", "pqr", "regular")]
    for name in "qr":
        assert table[name].heard == [Heard("m", "pqr", "transitional")]
        assert table[name].history[-3:] == ["transitional qr", table[name].history[-2], "regular qr"]
        assert table[name].history[-2].startswith("deliver")


def test_a_safe_message_that_somebody_of_us_delivered_is_delivered_in_the_regular_configuration() -> None:
    """q delivered m as safe before p went: high_ring_delivered tells r that m was safe in {p, q, r}."""
    table = _ring()
    table.submit("p", Service.SAFE, "m")
    table.run_until(lambda: table.texts("q") == ["m"])
    table.lose_all()
    table.drops.append(cut_off("p"))
    assert table.texts("r") == []
    _settle(table)
    assert table["q"].heard == table["r"].heard == [Heard("m", "pqr", "regular")]


def test_an_agreed_message_is_delivered_in_the_regular_configuration_by_everybody() -> None:
    table = _ring()
    table.drops.append(lambda journey: journey.port is Port.DATA and journey.target == "r")
    table.submit("p", Service.AGREED, "m")
    table.run_until(lambda: table.texts("q") == ["m"])
    table.drops[:] = [cut_off("p")]
    _settle(table)
    assert table["q"].heard == table["r"].heard == [Heard("m", "pqr", "regular")]


@pytest.mark.parametrize("service", [Service.AGREED, Service.SAFE])
def test_behind_a_gap_only_messages_of_those_who_stay_are_delivered(service: Service) -> None:
    """p's first datagram reached nobody; q's came next, then another of p. Nobody can ever fill the gap."""
    table = _ring()

    def first_of_p(journey: Journey) -> bool:
        return isinstance(journey.packet, Burst) and journey.source == "p" and journey.packet.first_seq == 1

    table.drops.append(first_of_p)
    table.submit("p", service, "lost")
    table.submit("q", service, "kept")
    table.run_until(lambda: _carries(2, table))
    table.submit("p", service, "orphan")
    table.run_until(lambda: _carries(3, table))
    table.run(150)
    table.drops.append(cut_off("p"))
    table.run_until(lambda: table.all_in("qr"))
    table.run_until(lambda: table.all_in("p"))
    for name in "qr":
        assert table[name].heard == [Heard("kept", "pqr", "transitional")]
    assert table.texts("p") == ["lost", "kept", "orphan"]


def test_nobody_asks_for_an_unfillable_gap_after_the_installation() -> None:
    """Trap 11: the new ring starts with clean requests, and its messages flow."""
    table = _ring()
    table.drops.append(lambda journey: isinstance(journey.packet, Burst) and journey.source == "p")
    table.submit("p", Service.AGREED, "lost")
    table.run_until(lambda: _carries(1, table))
    table.submit("q", Service.AGREED, "kept")
    table.run_until(lambda: _carries(2, table))
    table.drops.append(cut_off("p"))
    table.run_until(lambda: table.all_in("qr"))
    answered = len(table["q"].notes("retransmitted") + table["r"].notes("retransmitted"))
    table.submit("r", Service.SAFE, "new")
    table.run_until(lambda: table.texts("q") == table.texts("r") == ["kept", "new"])
    table.run(100_000)
    assert len(table["q"].notes("retransmitted") + table["r"].notes("retransmitted")) == answered
    assert table["q"].heard[-1] == Heard("new", "qr", "regular")


def _missed_by_r(count: int) -> tuple[Table, list[str]]:
    """p sent so many messages that q has and r has not, and p is gone."""
    table = _ring()
    table.drops.append(lambda journey: journey.port is Port.DATA and journey.target == "r")
    texts = [f"{number:04}" + "x" * 1000 for number in range(count)]
    table.submit("p", Service.AGREED, *texts)
    table.run_until(lambda: len(table["q"].heard) == len(texts))
    table.drops[:] = [cut_off("p")]
    return table, texts


def test_more_than_a_window_is_recovered() -> None:
    """Traps 10, W11: the exchange takes many visits, and nobody who has nothing to send may declare it over."""
    table, texts = _missed_by_r(1200)
    table.run_until(lambda: table.all_in("qr"))
    assert table.texts("r") == table.texts("q") == texts


def test_nobody_installs_before_the_exchange_reached_everybody() -> None:
    """The last recovered datagram is lost on its way to r."""
    table, texts = _missed_by_r(3)
    table.drops.append(first(1, lambda j: isinstance(j.packet, Burst) and j.packet.encapsulated and j.target == "r"))
    table.run_until(lambda: table.all_in("qr"))
    assert table.texts("r") == table.texts("q") == texts


def test_a_message_cut_in_the_middle_by_a_view_change_starts_again_in_the_next() -> None:
    """Trap 1: fragments of the old view and of the new are never put together."""
    table = _ring()
    large = "".join(chr(97 + number % 26) for number in range(600_000))
    table.submit("q", Service.AGREED, large)
    table.run_until(lambda: _carries(1, table))
    table.drops.append(cut_off("p"))
    table.run_until(lambda: table.all_in("qr") and bool(table["r"].heard) and bool(table["q"].heard))
    assert table["q"].heard == table["r"].heard == [Heard(large, "qr", "regular")]
    table.run_until(lambda: table.all_in("p"))
    assert table["p"].heard == []


def test_p_alone_delivers_its_own_messages_in_its_own_transitional() -> None:
    table = _ring()
    table.submit("p", Service.SAFE, "mine")
    table.run_until(lambda: _carries(1, table))
    table.lose_all()
    table.drops.append(cut_off("p"))
    _settle(table)
    assert table["p"].heard == [Heard("mine", "pqr", "transitional")]
    assert table["p"].history[-3:] == ["transitional p", "deliver 1..1 transitional", "regular p"]
    assert table.texts("q") == table.texts("r") == []


# --- obligations (F3, W3) -------------------------------------------------------------------------------------------


def _owing(members: str) -> Table:
    """The last member's datagram 1 reached nobody; p's safe message follows as datagram 2; then the last one is gone."""
    table = Table(members)
    table.form(members)
    gone = members[-1]
    table.drops.append(lambda journey: isinstance(journey.packet, Burst) and journey.source == gone)
    table.submit(gone, Service.SAFE, "lost")
    table.run_until(lambda: _carries(1, table))
    table.submit("p", Service.SAFE, "m")
    table.run_until(lambda: _carries(2, table))
    table.run(150)
    table.drops.append(cut_off(gone))
    return table


def _acknowledged(table: Table, name: str) -> bool:
    """Has this node promised that it has everything of the exchange?"""
    return table[name].engine.inspect().received_flg


def test_who_acknowledged_an_exchange_keeps_the_promise_alone() -> None:
    """p installed {p, q} and delivered m behind the gap; q had acknowledged, never installed, and ends up alone."""
    table = _owing("pqr")
    table.run_until(lambda: table.all_in("pq", of="p"))
    assert _acknowledged(table, "q")
    table.lose_all()
    table.drops.append(cut_off("p"))
    table.run_until(lambda: table.all_in("q"))
    assert table["p"].heard == table["q"].heard == [Heard("m", "pqr", "transitional")]
    assert table["q"].history[-3:] == ["transitional q", "deliver 2..2 transitional", "regular q"]


def test_who_acknowledged_nothing_owes_nothing() -> None:
    """The same, but the exchange ended before q acknowledged: nobody can have delivered m, so q discards it."""
    table = _owing("pqr")
    table.run_until(lambda: table["q"].engine.state is State.RECOVERY)
    assert not _acknowledged(table, "q")
    table.lose_all()
    table.drops.append(cut_off("p"))
    table.run_until(lambda: table.all_in("p") and table.all_in("q"))
    assert table.texts("q") == []
    assert table.texts("p") == ["m"]


def test_a_promise_is_inherited_through_a_second_failed_exchange() -> None:
    """W3: q owes p's messages after the first exchange; in the second, with r, they become r's debt as well.

    s is gone with datagram 1. In {p, q, r} only q acknowledged. Then p is gone; in {q, r} r acknowledges and q installs.
    With `obligation |= my_trans_memb`, r alone would forget that p's message is owed.
    """
    table = _owing("pqrs")
    table.run_until(lambda: _acknowledged(table, "q"))
    table.lose_all()
    table.drops += [cut_off("p"), is_token]
    table.run_until(lambda: all(table[name].engine.state is State.GATHER for name in "qr"))
    assert not _acknowledged(table, "r"), "a token that is sent again does not count"
    table.drops.remove(is_token)
    table.run_until(lambda: table.all_in("qr", of="q"))
    assert _acknowledged(table, "r")
    table.lose_all()
    table.drops.append(cut_off("q"))
    table.run_until(lambda: table.all_in("r"))
    assert table["q"].heard == table["r"].heard == [Heard("m", "pqrs", "transitional")]
    assert table["r"].history[-3:] == ["transitional r", "deliver 2..2 transitional", "regular r"]


def test_only_those_who_come_from_the_same_ring_are_companions() -> None:
    """Trap 4: q was in p's old ring, but has been elsewhere since; what counts is the ring that its entry names."""
    table, commit = in_commit("pqr")
    elsewhere = commit.entries[0]._replace(old_ring=RingId(1, commit.entries[0].node))
    table.hand("q", commit._replace(entries=(elsewhere, commit.entries[1])))
    table.run_until(lambda: table.all_in("pq", of="q"))
    assert table["q"].history[-2:] == ["transitional q", "regular pq"]
