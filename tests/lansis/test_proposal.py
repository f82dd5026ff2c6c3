"""One view per set of statements: whoever holds the same ones proposes the same, and nothing else has a say."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.engine.hand import node_id
from tests.lansis.speech import VIEW, nodes, said
from transis.lansis.packets import Joining, Statement
from transis.lansis.statements import part, propose
from transis.types.ids import RingId, ViewId, ViewKind
from transis.types.views import Cause

OTHER = RingId(20, node_id("x"))
OURS = (said("a", recv="a3 b5 c0", delivered=30, clock=9), said("b", recv="a2 b6 c1", delivered=20, clock=7))
THEIRS = (said("x", j="abcx", view=OTHER, view_seq=24, recv="x9 y4", delivered=99, clock=40),)


def test_the_view_of_those_who_agreed() -> None:
    proposal = propose((*OURS, *THEIRS))
    assert proposal.id == RingId(28, node_id("a"))
    assert proposal.view_id == ViewId(ViewKind.REGULAR, 28, node_id("a"))
    assert proposal.members == tuple(map(node_id, "abx"))
    assert proposal.base == 41
    assert proposal.expected() == [4, 7, 10]
    assert proposal.cause == Cause("test")


def test_each_old_view_parts_by_what_its_own_members_said() -> None:
    proposal = propose((*OURS, *THEIRS))
    ours = part(proposal, VIEW, nodes("abc"))
    assert [one.sender.name for one in ours.trans] == ["a", "b"]
    assert dict(ours.pre) == {node_id("a"): 3, node_id("b"): 6, node_id("c"): 1}
    assert ours.delivered == 30
    assert ours.transitional_id(proposal) == ViewId(ViewKind.TRANSITIONAL, 26, node_id("a"))
    theirs = part(proposal, OTHER, nodes("xy"))
    assert dict(theirs.pre) == {node_id("x"): 9, node_id("y"): 4}
    assert theirs.delivered == 99


def test_a_stranger_that_claims_my_view_has_no_say_in_how_it_ends() -> None:
    liar = said("x", view=VIEW, recv="a900 b900", delivered=900)
    parting = part(propose((*OURS, liar)), VIEW, nodes("abc"))
    assert parting.pre[node_id("a")] == 3
    assert parting.delivered == 30


def test_somebody_outside_the_view_in_recv_is_passed_over() -> None:
    assert set(part(propose((said("a", recv="a1 z7"),)), VIEW, nodes("abc")).pre) == nodes("abc")


@dataclass
class Twist:
    name: str
    of: Statement


TWISTS = [
    Twist("version", OURS[0]._replace(version=2)),
    Twist("view sequence", OURS[0]._replace(view_seq=9)),
    Twist("recv", OURS[0]._replace(recv=OURS[1].recv)),
    Twist("delivered", OURS[0]._replace(delivered=31)),
    Twist("clock", OURS[0]._replace(clock=10)),
    Twist("address", OURS[0]._replace(address="elsewhere")),
    Twist("info", OURS[0]._replace(info=b"!")),
    Twist("kind", Joining(*OURS[0])),
    Twist("cause", OURS[0]._replace(cause=Cause("other"))),
]


@pytest.mark.parametrize("twist", TWISTS, ids=lambda twist: twist.name)
def test_whatever_the_view_is_made_of_is_in_its_digest(twist: Twist) -> None:
    one, other = propose(OURS), propose((twist.of, OURS[1]))
    assert one.digest != other.digest
    assert one.tag != other.tag


def test_the_same_statements_are_the_same_proposal() -> None:
    assert propose(OURS) == propose(tuple(OURS))
    assert len(propose(OURS).digest) == 16


def test_numbers_go_beyond_everything_anybody_installed_or_promised() -> None:
    assert propose((OURS[0], OURS[1]._replace(view_seq=100))).id.seq == 104
    assert propose((OURS[0]._replace(view_seq=100), OURS[1])).id.seq == 104
