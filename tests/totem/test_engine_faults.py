"""Things that go wrong one at a time: a lost token, a slow disk, a deaf node, a broken path, a restart."""

from __future__ import annotations

import pytest

from tests.engine.hand import cut_off, first, node_id
from tests.totem.hand import TIMING, Table, is_token
from transis.totem.states import State
from transis.types.ids import Service
from transis.types.outputs import Originated, Output, Persist, Port, Send

SECOND = 1_000_000


def sends(outputs: list[Output], port: Port) -> list[Send]:
    return [output for output in outputs if isinstance(output, Send) and output.port is port]


# --- token loss and retransmission (W8) -----------------------------------------------------------------------------


def test_a_lost_token_is_sent_again_and_the_ring_stays() -> None:
    table = Table("ab")
    ring = table.form("ab")
    table.drops.append(first(1, is_token))
    table.run(SECOND)
    assert table["a"].notes("token retransmitted") or table["b"].notes("token retransmitted")
    assert table["a"].engine.ring_id == table["b"].engine.ring_id == ring


def test_a_broken_unicast_path_does_not_break_the_ring() -> None:
    table = Table("abc")
    ring = table.form("abc")
    table.drops.append(lambda j: j.port is Port.TOKEN and (j.source, j.target) == ("a", "b"))
    table.submit("c", Service.SAFE, "through")
    table.run_until(lambda: all(table.texts(name) == ["through"] for name in "abc"))
    table.run(SECOND)
    assert {table[name].engine.ring_id for name in "abc"} == {ring}


def test_a_ring_forms_although_one_unicast_path_never_worked() -> None:
    """T6: break only the unicast a -> b while multicast works; it must converge."""
    table = Table("abc")
    table.drops.append(lambda j: j.port is Port.TOKEN and (j.source, j.target) == ("a", "b"))
    table.form("abc")
    assert table.all_in("abc")


# --- durability (F4, W14) -------------------------------------------------------------------------------------------


def _commits_sent(table: Table, name: str) -> int:
    return sum(output.datagrams[0][0] == 4 for output in sends(table[name].log, Port.TOKEN))


def test_no_commit_token_leaves_before_its_ring_sequence_is_durable() -> None:
    table = Table("ab", ring_seq={"a": 100, "b": 100}, disk_us=None)
    table.start()
    table.run_until(lambda: bool(table["a"].notes("commit waits for disk")))
    table.run(TIMING.gather_min_us // 10)
    assert _commits_sent(table, "a") == 0
    for name, persist in table.unwritten:
        assert (persist.key, persist.value > 104) == ("ring_seq", True)
        table.persisted(name, persist.ticket)
    assert _commits_sent(table, "a") == 1
    table.disk_us = 0
    table.run_until(lambda: table.all_in("ab"))


def test_an_ordinary_member_also_waits_for_its_own_disk() -> None:
    table = Table("ab", ring_seq={"a": 100, "b": 100}, disk_us=None)
    table.start()
    for name, persist in list(table.unwritten):
        if name == "a":
            table.persisted(name, persist.ticket)
    table.run_until(lambda: bool(table["b"].notes("commit waits for disk")))
    assert (_commits_sent(table, "a"), _commits_sent(table, "b")) == (1, 0)
    for name, persist in list(table.unwritten):
        if name == "b":
            table.persisted(name, persist.ticket)
    assert _commits_sent(table, "b") == 1


def test_a_reserved_ring_sequence_costs_no_write_on_the_way_of_a_view_change() -> None:
    table = Table("abc", disk_us=50)
    table.form("abc")
    writes = len(table["a"].of(Persist))
    table.drops.append(cut_off("c"))
    table.run_until(lambda: table.all_in("ab"))
    assert len(table["a"].of(Persist)) == writes
    assert not table["a"].notes("commit waits for disk")


def test_a_join_of_a_far_higher_ring_reserves_beyond_it_during_gather() -> None:
    table = Table("ab", ring_seq={"b": 50_000}, disk_us=50)
    ring = table.form("ab")
    assert ring.seq > 50_000
    values = [persist.value for persist in table["a"].log if isinstance(persist, Persist)]
    assert values == sorted(values)
    assert values[-1] > ring.seq
    assert not table["a"].notes("commit waits for disk")


# --- lateness and Lamport time --------------------------------------------------------------------------------------


def test_a_node_that_was_away_blames_itself_first() -> None:
    table = Table("ab")
    ring = table.form("ab")
    engine = table["b"].engine
    table.run_until(lambda: bool(sends(table["b"].log[-1:], Port.TOKEN)))
    engine.wake(table.now + 10 * SECOND)
    table.now += 10 * SECOND
    table.carry("b")
    assert table["b"].notes("fired late")
    assert (engine.state, engine.ring_id) == (State.OPERATIONAL, ring)


def test_timestamps_grow_along_the_ring_and_above_what_was_observed() -> None:
    table = Table("ab")
    table.form("ab")
    table.submit("a", Service.AGREED, "before")
    table.run_until(lambda: table.texts("b") == ["before"])
    table["b"].engine.observe(1_000_000)
    table.submit("b", Service.AGREED, "middle")
    table.run_until(lambda: "middle" in table.texts("a"))
    table.submit("a", Service.AGREED, "after")
    table.run_until(lambda: "after" in table.texts("b"))
    of_a = [output.timestamp for output in table["a"].log if isinstance(output, Originated)]
    of_b = [output.timestamp for output in table["b"].log if isinstance(output, Originated)]
    assert (len(of_a), len(of_b)) == (2, 1)
    assert of_a[0] < 1_000_000 < of_b[0] < of_a[1]


# --- deaf nodes (L4, traps 8, 12, 16) -------------------------------------------------------------------------------


def test_the_last_datagram_of_a_burst_is_asked_for_and_sent_again_without_delay() -> None:
    """Traps 8 and 16: nothing follows the lost one, and an idle ring must not hold the token meanwhile."""
    table = Table("abc")
    table.form("abc")
    table.run(SECOND // 2)
    table.drops.append(first(1, lambda journey: journey.port is Port.DATA and journey.target == "c"))
    before = table.now
    table.submit("b", Service.SAFE, "tail")
    table.run_until(lambda: all(table.texts(name) == ["tail"] for name in "abc"))
    assert table.now - before < 2 * TIMING.token_hold_us


@pytest.mark.parametrize("deaf", "abc")
def test_a_node_that_receives_no_data_is_accused_by_the_others_and_not_before_its_time(deaf: str) -> None:
    table = Table("abc")
    table.form("abc")
    table.drops.append(lambda journey: journey.port is Port.DATA and journey.target == deaf)
    before = table.now
    others = "abc".replace(deaf, "")
    table.submit(others[0], Service.SAFE, "heard by two")
    table.run_until(lambda: any(table[name].notes("failed to receive") for name in "abc"))
    accusers = [name for name in "abc" if table[name].notes("failed to receive")]
    assert accusers != [deaf], "a node never declares itself failed"
    assert table.now - before >= TIMING.fail_to_receive_us
    table.run_until(lambda: table.all_in(others))
    cause = table[others[0]].views[-1].cause
    assert (cause.what, cause.accused) == ("failed to receive", (node_id(deaf),))
    assert table.texts(others[0]) == table.texts(others[1]) == ["heard by two"]


def test_delayed_data_with_a_fast_token_expels_nobody() -> None:
    """T8, L4: thousands of fast rotations are no reason to accuse; only time and rotations together are."""
    table = Table("abc")
    ring = table.form("abc")
    late = 3 * TIMING.token_hold_us
    table.drops.append(lambda journey: journey.port is Port.DATA and journey.target == "c" and table.now < ready)
    ready = table.now + late
    table.submit("a", Service.SAFE, "slow path")
    table.run_until(lambda: all(table.texts(name) == ["slow path"] for name in "abc"))
    assert {table[name].engine.ring_id for name in "abc"} == {ring}


# --- broken paths (W7, L3) ------------------------------------------------------------------------------------------


def test_a_non_transitive_triangle_settles_into_cliques() -> None:
    """a and c do not hear each other, b hears both: {a, b} and {c}, and they do not flap."""
    table = Table("abc")
    table.drops.append(lambda journey: {journey.source, journey.target} == {"a", "c"})
    table.start()
    table.run_until(lambda: table.all_in("ab") and table.all_in("c"))
    before = len(table["b"].views)
    table.run(30 * SECOND)
    assert table.all_in("ab") and table.all_in("c")
    # Back-offs of 1, 2, 4, 8 and 16 s: at most so many attempts, each with a transitional and a regular view.
    assert len(table["b"].views) - before <= 2 * 5
    table.submit("b", Service.SAFE, "works")
    table.run_until(lambda: table.texts("a") == ["works"])
    table.drops.clear()
    table.run_until(lambda: table.all_in("abc"))


def test_a_node_that_was_cut_off_comes_back() -> None:
    table = Table("abc")
    table.form("abc")
    table.drops.append(cut_off("c"))
    table.run_until(lambda: table.all_in("ab") and table.all_in("c"))
    table.drops.clear()
    table.run_until(lambda: table.all_in("abc"))
    assert table["c"].history[-4:] == ["transitional c", "regular c", "transitional c", "regular abc"]
    assert table["a"].history[-4:] == ["transitional ab", "regular ab", "transitional ab", "regular abc"]


# --- restarts (traps 3, 4) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", "abc")
def test_a_restart_faster_than_any_timeout_is_still_seen_as_a_departure(name: str) -> None:
    table = Table("abc")
    old = table.form("abc")
    table.submit("b", Service.SAFE, "before")
    table.run_until(lambda: all(table.texts(each) == ["before"] for each in "abc"))
    seen = {each: len(table[each].history) for each in "abc"}
    table.restart(name)
    survivors = "abc".replace(name, "")
    table.run_until(lambda: all(node_id(name, 2) in table[each].views[-1].nodes for each in survivors))
    table.run_until(lambda: table.all_in("abc"))
    for each in survivors:
        assert table[each].history[seen[each]] == f"transitional {survivors}", "the new life is nobody's companion"
        assert node_id(name) not in table[each].views[-1].nodes
    assert table.texts(name) == [], "a new life delivers nothing of the old ring"
    assert table[name].views[0].id.seq > old.seq, "its first ring is above every ring of the life before"
