"""What is delivered in the transitional configuration: the counter-example of F1 and its neighbours (protocols 1.8).

The ring is {p, q, r} in this token order. In each test p is cut off at a chosen moment, and q and r must make the best
of what they hold: everything up to the first gap whoever sent it, behind it only what q and r sent themselves.
"""

from __future__ import annotations

import pytest

from tests.totem.hand import Heard, Journey, Table, cut_off
from transis.model.contract import Port
from transis.model.service import Service
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


def test_more_than_a_window_is_recovered() -> None:
    """Trap 10: r missed everything of a long stretch, q has it all, and p is gone."""
    table = _ring()
    table.drops.append(lambda journey: journey.port is Port.DATA and journey.target == "r")
    texts = [f"{number:04}" + "x" * 1000 for number in range(400)]
    table.submit("p", Service.AGREED, *texts)
    table.run_until(lambda: len(table["q"].heard) == len(texts))
    table.drops[:] = [cut_off("p")]
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
