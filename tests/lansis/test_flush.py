"""The flush barrier: who may install what, by the rules alone; then holders that die, hearsay and abandonment among engines."""

from __future__ import annotations

from tests.engine.hand import Journey, Verdict, both, is_data, node_id, one_way
from tests.lansis.hand import PULSE, Table, heard_by_one, is_flushed, is_statement
from tests.lansis.speech import flushed, said
from transis.lansis.membership import Barrier
from transis.lansis.packets import Alive, Faults, Joining, Statement
from transis.lansis.statements import Proposal, propose
from transis.lansis.states import State, Trap
from transis.types.ids import RingTag, Service

ME = node_id("a")
FIRST = propose((said("a", f="c"), said("b", f="c")))
SECOND = propose((said("a", f="bc", version=2, view_seq=12),))
WIDE = propose((said("a"), said("b"), said("c")))


def holding(proposal: Proposal) -> Barrier:
    barrier = Barrier()
    barrier.assented = proposal
    barrier.flush(ME)
    return barrier


# --- the rules ------------------------------------------------------------------------------------------------------


def test_nothing_is_installed_before_all_have_flushed_it() -> None:
    barrier = holding(WIDE)
    assert barrier.installable() is None
    barrier.heard(flushed("b", WIDE.digest, WIDE.id.seq))
    assert barrier.installable() is None
    assert barrier.lacking(WIDE) == [node_id("c")]
    barrier.heard(flushed("c", WIDE.digest, WIDE.id.seq))
    assert barrier.installable() is WIDE


def test_flushed_of_all_others_is_not_enough_without_mine() -> None:
    barrier = Barrier()
    barrier.assented = FIRST
    barrier.heard(flushed("b", FIRST.digest, FIRST.id.seq))
    assert barrier.installable() is None
    assert barrier.hearsay(FIRST.tag) is None


def test_flushed_may_come_before_my_own_assent() -> None:
    barrier = Barrier()
    barrier.heard(flushed("b", FIRST.digest, FIRST.id.seq))
    barrier.assented = FIRST
    barrier.flush(ME)
    assert barrier.installable() is FIRST


def test_another_proposal_with_the_same_number_is_another() -> None:
    barrier = holding(FIRST)
    barrier.heard(flushed("b", bytes(16), FIRST.id.seq))
    assert barrier.installable() is None


def test_who_promised_a_later_one_has_left_the_earlier() -> None:
    barrier = holding(FIRST)
    barrier.heard(flushed("b", bytes(16), FIRST.id.seq + 4))
    barrier.heard(flushed("b", FIRST.digest, FIRST.id.seq))
    assert barrier.installable() is None, "a late copy of the earlier promise is not a new one"


def test_hearsay_installs_what_i_promised_last_and_nothing_else() -> None:
    """The counter-example to W18 alone: after X2 is flushed, a late packet of X1 must not lead back to X1."""
    barrier = holding(FIRST)
    assert barrier.hearsay(FIRST.tag) is FIRST
    barrier.assented = SECOND
    assert barrier.hearsay(FIRST.tag) is FIRST, "a new assent alone abandons nothing"
    barrier.flush(ME)
    assert barrier.hearsay(FIRST.tag) is None
    assert barrier.hearsay(SECOND.tag) is SECOND


def test_a_view_is_known_by_its_digest_and_not_by_its_id() -> None:
    assert holding(FIRST).hearsay(FIRST.id.tag) is None
    assert holding(FIRST).hearsay(RingTag(FIRST.id.seq, 0)) is None


# --- engines --------------------------------------------------------------------------------------------------------


def formed(members: str) -> Table:
    table = Table(members)
    table.form(members)
    table.run(100_000)
    return table


def test_who_gets_no_flushed_installs_when_it_hears_of_the_view() -> None:
    table = formed("abc")
    table.drops.append(both(is_flushed, lambda journey: journey.target == "b"))
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    assert Trap.HEARSAY.value in table["b"].traps
    assert table["a"].views[-1].id == table["b"].views[-1].id


def test_the_only_holder_dies_and_nobody_waits_for_what_died_with_it() -> None:
    """d's message reached c alone, c says so in its statement and dies: a and b go on without it."""
    table = formed("abcd")
    table.drops.append(both(is_data, lambda journey: journey.source in "cd" and journey.target in "ab"))
    table.submit("d", Service.AGREED, "lost")
    table.run(5_000)
    table.crash("d")
    table.run_until(lambda: table["a"].engine.state is State.FLUSH and table["b"].engine.state is State.FLUSH)
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    assert table.texts("a") == table.texts("b") == []
    assert Trap.LOST_WITH_ITS_HOLDER.value in table["a"].traps | table["b"].traps
    assert table["a"].views[-1].id == table["b"].views[-1].id


def test_a_large_rest_is_flushed_whatever_the_window() -> None:
    table = formed("abc")
    table.drops.append(both(is_data, one_way("a", "c")))
    table.drops.append(both(is_data, one_way("b", "c")))
    for number in range(40):
        table.submit("a", Service.AGREED, f"{number} " + "x" * 20_000)
    table.run(20_000)
    table.crash("b")
    table.run_until(lambda: table["c"].engine.state is State.FLUSH)
    table.drops.clear()
    table.run_until(lambda: table.all_in("ac"))
    table.run(200_000)
    assert len(table.texts("a")) == 40
    assert table["a"].heard == table["c"].heard


def abandoned_view() -> tuple[Table, list[Alive]]:
    """The story of hearsay and abandonment: all but z flush X1, only y hears that they have, the others lose y too."""
    table = formed("pqyz")
    table.crash("z")
    return table, heard_by_one(table, "y", "pqy")


def test_a_late_packet_of_an_abandoned_view_leads_nobody_back() -> None:
    table, held_back = abandoned_view()
    assert table["p"].view == "pqyz"
    table.run_until(lambda: table.all_in("pq"))
    table.hand("p", held_back[0])
    assert table["p"].view == table["q"].view == "pq"
    assert Trap.ABANDONED.value in table["p"].traps
    table.drops.clear()
    table.run_until(lambda: table.all_in("pqy"))


def test_until_it_is_abandoned_a_packet_of_it_installs_it() -> None:
    """W6: p has restated, because y seems silent, but flushed nothing else: it follows y."""
    table, held_back = abandoned_view()
    table.run_until(lambda: table["p"].engine.state is State.FAULTS)
    table.hand("p", held_back[0])
    assert table["p"].view == "pqy"
    assert Trap.HEARSAY.value in table["p"].traps


def test_while_data_still_comes_nobody_is_late() -> None:
    """A slow rest: each datagram pushes FLUSH_LATE back, so that nobody is accused."""
    table = formed("abc")
    table.drops.append(both(is_data, lambda journey: journey.target == "c"))
    for number in range(6):
        table.submit("a", Service.AGREED, str(number))
        table.run(1_000)
    table.crash("b")
    table.run_until(lambda: table["c"].engine.state is State.FLUSH)
    table.drops = [both(is_data, _all_but_one_in(9))]
    table.run_until(lambda: table.all_in("ac"))
    assert table.texts("c") == list("012345")


def _all_but_one_in(count: int) -> Verdict:
    seen: list[Journey] = []

    def judge(journey: Journey) -> bool:
        seen.append(journey)
        return len(seen) % count != 0

    return judge


def statements_of(table: Table, name: str) -> list[Statement]:
    """Each once, in the order in which they were made."""
    said = [
        journey.packet for journey in table.journeys if journey.source == name and isinstance(journey.packet, Joining | Faults)
    ]
    return sorted(set(said), key=lambda statement: statement.version)


def test_statements_of_a_flushed_machine_cover_what_it_flushed() -> None:
    """Whatever is stated after FLUSHED holds at least that: what 7.1 rests on."""
    table, _ = abandoned_view()
    table.run_until(lambda: table.all_in("pq"))
    for name in "pq":
        first, second = (said for said in statements_of(table, name) if len(said.recv) == 4)
        assert second.f > first.f
        assert all(before <= after for (_, before), (_, after) in zip(first.recv, second.recv, strict=True))


def test_what_is_acknowledged_stands_still_from_the_first_statement_on() -> None:
    """b gets a's message after its statement, which a does not hear: b must not say that it has it."""
    table = formed("abc")
    table.drops.append(both(is_data, one_way("a", "b")))
    table.submit("a", Service.SAFE, "late")
    table.run(1_000)
    table.crash("c")
    table.run_until(lambda: table["b"].engine.state is State.FAULTS)
    table.drops = [is_statement]
    known = len(table.journeys)
    table.run_until(lambda: Trap.LATE_DATA_WHILE_FROZEN.value in table["b"].traps)
    table.run(3 * PULSE.alive_us)
    said = [journey.packet for journey in table.journeys[known:] if journey.source == "b"]
    alives = [packet for packet in said if isinstance(packet, Alive)]
    assert len(alives) >= 2
    assert {(alive.frozen, alive.recv[0], alive.clock) for alive in alives} == {(True, 0, alives[0].clock)}
    assert table.texts("a") == [], "so it is not safe"
