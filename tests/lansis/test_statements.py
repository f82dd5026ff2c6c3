"""The sets of a change and how statements make them grow: each rule alone, then in any order."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.hand import node_id
from tests.lansis.speech import nodes, said
from transis.lansis.packets import Faults, Joining, Statement
from transis.lansis.statements import MembershipSets, Opinion
from transis.types.ids import NodeId
from transis.types.limits import MEMBERS_MAX, PROC_SET_MAX

A, B, C, X = map(node_id, "abcx")


def change(me: str = "a", ccs: str = "abc") -> MembershipSets:
    return MembershipSets(node_id(me), nodes(ccs))


def take(sets: MembershipSets, statement: Statement, *, has_flushed: bool = False) -> Opinion:
    return sets.take(statement, has_flushed=has_flushed)


def state(sets: MembershipSets, me: str = "a", version: int = 1) -> None:
    """What the engine does: my own statement says my sets."""
    kind = Joining if sets.has_strangers else Faults
    blank = said(me, version=version, kind=kind)
    sets.last[node_id(me)] = blank._replace(j=sets.j, f_before=sets.f_before, f_after=sets.f_after)


def test_a_change_begins_with_my_view_and_nobody_at_fault() -> None:
    sets = change()
    assert (sets.j, sets.f, sets.accept, sets.mine, sets.has_strangers) == (nodes("abc"), frozenset(), nodes("abc"), None, False)


@pytest.mark.parametrize(
    ("statement", "verdict", "j", "f"),
    [
        pytest.param(said("b"), Opinion.KEPT, "abc", "", id="says what I say"),
        pytest.param(said("b", f="c"), Opinion.GREW, "abc", "c", id="a member accuses a member"),
        pytest.param(said("b", j="abcx"), Opinion.GREW, "abcx", "", id="a member brings a stranger"),
        pytest.param(said("b", j="abcx", f="x"), Opinion.GREW, "abcx", "x", id="a stranger that is dead already"),
        pytest.param(said("b", f="a"), Opinion.BROKEN, "abc", "b", id="a member accuses me"),
        pytest.param(said("b", f="b", leaving=True), Opinion.BROKEN, "abc", "b", id="a member leaves"),
        pytest.param(said("x", j="abcx"), Opinion.GREW, "abcx", "", id="a stranger joins"),
        pytest.param(said("x", j="abcxy", f="y"), Opinion.GREW, "abcxy", "y", id="a stranger's own fault is believed"),
        pytest.param(said("x", j="abcx", f="c"), Opinion.GREW, "abcx", "", id="a stranger cannot fail a member"),
        pytest.param(said("x", j="abcx", f="a"), Opinion.DROPPED, "abc", "", id="a stranger that accuses me is not ready"),
        pytest.param(said("x", j="x"), Opinion.DROPPED, "abc", "", id="a stranger that does not know me"),
        pytest.param(said("x", j="abcx", f="x", leaving=True), Opinion.DROPPED, "abc", "", id="a stranger leaves"),
    ],
)
def test_what_one_statement_does(statement: Statement, verdict: Opinion, j: str, f: str) -> None:
    sets = change()
    assert take(sets, statement) is verdict
    assert (sets.j, sets.f) == (nodes(j), nodes(f))
    assert (statement.sender in sets.last) == (verdict in (Opinion.KEPT, Opinion.GREW))


def test_only_a_newer_statement_is_looked_at() -> None:
    sets = change()
    assert take(sets, said("b", f="c", version=5)) is Opinion.GREW
    assert take(sets, said("b", version=5)) is Opinion.DROPPED
    assert take(sets, said("b", j="abcx", version=4)) is Opinion.DROPPED
    assert sets.last[B].version == 5
    assert sets.j == nodes("abc")


def test_who_is_accused_is_not_heard() -> None:
    sets = change()
    assert sets.break_with(C)
    assert take(sets, said("c", j="abcx", f="b")) is Opinion.DROPPED
    assert sets.f == nodes("c")


def test_nobody_breaks_with_itself_or_twice_or_with_whom_it_does_not_know() -> None:
    sets = change()
    assert not sets.break_with(A)
    assert sets.break_with(C)
    assert not sets.break_with(C)
    assert not sets.break_with(X)


def test_after_a_flush_nobody_new_comes_in_unless_a_member_brings_it() -> None:
    sets = change()
    assert take(sets, said("x", j="abcx"), has_flushed=True) is Opinion.DROPPED
    assert take(sets, said("b", j="abcx"), has_flushed=True) is Opinion.GREW
    assert take(sets, said("x", j="abcx"), has_flushed=True) is Opinion.KEPT


def test_a_fault_is_before_the_join_until_my_join_is_out() -> None:
    sets = change()
    sets.invite(nodes("x"))
    sets.break_with(B)
    assert (sets.f_before, sets.f_after) == (nodes("b"), frozenset())
    state(sets)
    sets.break_with(C)
    assert (sets.f_before, sets.f_after) == (nodes("b"), nodes("c"))


def test_another_join_makes_all_my_faults_faults_before_it() -> None:
    sets = change()
    sets.invite(nodes("x"))
    state(sets)
    sets.break_with(C)
    assert take(sets, said("b", j="abcxy")) is Opinion.GREW
    assert (sets.j, sets.f_before, sets.f_after) == (nodes("abcxy"), nodes("c"), frozenset())


def test_a_fault_after_the_same_join_is_a_fault_after_it_here_too() -> None:
    sets = change()
    sets.invite(nodes("x"))
    state(sets)
    assert take(sets, said("b", j="abcx", f_after="c")) is Opinion.GREW
    assert (sets.f_before, sets.f_after) == (frozenset(), nodes("c"))


def test_the_earlier_life_of_somebody_who_joins_is_at_fault() -> None:
    sets = change()
    reborn = NodeId("c", 2, 7)
    assert sets.invite({reborn})
    assert sets.accept == nodes("ab") | {reborn}
    assert take(sets, said("c")) is Opinion.DROPPED


def test_an_earlier_life_cannot_join_beside_the_later() -> None:
    sets = change()
    old = NodeId("c", 0, 7)
    statement = said("x", j="abcx")._replace(sender=old, j=nodes("abc") | {old})
    assert take(sets, statement) is Opinion.DROPPED


def test_more_than_a_view_can_hold_are_not_taken() -> None:
    crowd = frozenset(NodeId(f"n{number:04}", 1, number) for number in range(MEMBERS_MAX))
    sets = change()
    assert not sets.invite(crowd)
    assert take(sets, said("b")._replace(j=nodes("abc") | crowd)) is Opinion.DROPPED
    assert sets.j == nodes("abc")


def test_a_full_view_takes_a_reborn_member() -> None:
    """The dead life and the new one are counted once: a member's statement that knows both is heard."""
    crowd = frozenset(NodeId(f"n{number:04}", 1, number) for number in range(MEMBERS_MAX - 2))
    sets = MembershipSets(A, crowd | nodes("ab"))
    reborn = NodeId("n0000", 2, 9)
    assert take(sets, said("b")._replace(j=crowd | nodes("ab") | {reborn})) is Opinion.GREW
    assert len(sets.accept) == MEMBERS_MAX


def test_no_packet_makes_more_than_a_statement_can_name() -> None:
    crowd = frozenset(NodeId(f"n{number:04}", 1, number) for number in range(PROC_SET_MAX))
    sets = change()
    assert take(sets, said("b")._replace(j=nodes("abc") | crowd, f_before=crowd)) is Opinion.DROPPED


def test_what_was_replaced_in_the_change_before_is_over_but_a_standing_statement_is_not() -> None:
    before = change()
    take(before, said("c", version=7))
    after = MembershipSets(A, nodes("ab"), before.last)
    assert take(after, said("c", j="abc", version=6)) is Opinion.DROPPED
    assert take(after, said("c", j="abc", version=7)) is Opinion.GREW


def test_assent_needs_the_same_word_of_everybody_accepted() -> None:
    sets = change()
    sets.break_with(C)
    state(sets)
    assert sets.assent() is None
    take(sets, said("b"))
    assert sets.assent() is None
    take(sets, said("b", f="c", version=2))
    statements = sets.assent()
    assert statements is not None
    assert [one.sender for one in statements] == [A, B]


def test_whether_a_fault_was_before_or_after_need_not_be_agreed() -> None:
    sets = change()
    sets.break_with(C)
    state(sets)
    take(sets, said("b", f_after="c"))
    assert sets.assent() is not None


statements = st.builds(
    lambda sender, j, f, version: said(sender, j=j | {sender}, f=f, version=version),
    st.sampled_from("bcxy"),
    st.frozensets(st.sampled_from("abcxy")),
    st.frozensets(st.sampled_from("bcxy"), max_size=2),
    st.integers(1, 4),
)


@given(st.lists(statements, max_size=12))
def test_sets_only_grow_and_i_am_always_accepted(heard: list[Statement]) -> None:
    """The paper's Property 1, on which every change ends."""
    sets = change()
    for statement in heard:
        j, f = sets.j, sets.f
        verdict = take(sets, statement)
        assert j <= sets.j
        assert f <= sets.f
        assert A in sets.accept
        assert ((j, f) != (sets.j, sets.f)) == (verdict in (Opinion.GREW, Opinion.BROKEN))


def test_members_that_hear_the_same_in_any_order_come_to_the_same_sets() -> None:
    heard = (said("b", f="c"), said("x", j="abcxy"), said("y", j="abcxy", f="z"))
    outcomes = set()
    for order in permutations(heard):
        sets = change()
        for statement in order:
            take(sets, statement)
        outcomes.add((sets.j, sets.f))
    assert outcomes == {(nodes("abcxy"), nodes("cz"))}
