"""The figures an operator sees: each counts what it says, and nothing else."""

from __future__ import annotations

from tests.engine.hand import cut_off, first
from tests.totem.hand import Table, is_token
from transis.types.ids import Service
from transis.types.outputs import Port

SECOND = 1_000_000


def lost(table: Table, name: str) -> dict[str, int]:
    figures = table[name].engine.statistics()
    return {key.removeprefix("tokens_lost_"): value for key, value in figures.items() if key.startswith("tokens_lost_")}


def test_a_healthy_ring_turns_and_has_no_trouble() -> None:
    table = Table("ab")
    table.form("ab")
    before = table["a"].engine.statistics()["rotations"]
    table.submit("a", Service.SAFE, "x")
    table.run(SECOND)
    figures = table["a"].engine.statistics()
    assert figures["rotations"] > before
    assert 0 < figures["last_rotation_us"] < SECOND
    troubles = ("tokens_sent_again", "retransmitted", "requested", "outbox_bytes", "unsafe_datagrams", "health")
    assert {name: figures[name] for name in troubles} == dict.fromkeys(troubles, 0)
    assert sum(lost(table, "a").values()) == 0


def test_a_token_that_is_sent_again_is_counted_and_is_not_lost() -> None:
    table = Table("ab")
    table.form("ab")
    table.drops.append(first(1, is_token))
    table.run(SECOND)
    for name in "ab":
        assert table[name].engine.statistics()["tokens_sent_again"] == len(table[name].notes("token retransmitted"))
    assert any(table[name].notes("token retransmitted") for name in "ab")
    assert sum(lost(table, "a").values()) + sum(lost(table, "b").values()) == 0


def test_a_lost_token_is_counted_in_the_state_that_noticed_it() -> None:
    table = Table("abc")
    table.form("abc")
    table.drops.append(cut_off("c"))
    table.run_until(lambda: table.all_in("ab"))
    assert lost(table, "a")["operational"] + lost(table, "b")["operational"] >= 1


def test_a_missed_datagram_is_asked_for_and_sent_again() -> None:
    table = Table("ab")
    table.form("ab")
    table.drops.append(first(1, lambda journey: journey.port is Port.DATA))
    table.submit("a", Service.AGREED, "missed")
    table.run_until(lambda: table.texts("b") == ["missed"])
    assert table["b"].engine.statistics()["requested"] == 1
    assert table["a"].engine.statistics()["retransmitted"] == 1
    assert table["a"].engine.statistics()["requested"] == 0


def test_what_waits_is_counted() -> None:
    table = Table("ab")
    table.form("ab")
    table.drops.append(is_token)
    table.submit("a", Service.AGREED, "x" * 500)
    assert table["a"].engine.statistics()["outbox_bytes"] >= 500
