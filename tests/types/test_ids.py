"""Ids order as the protocol needs them, and read as a person needs them."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.types.ids import DatagramClass, MessageId, NodeId, Place, ProcessId, RingId, RingTag, Service, ViewId, ViewKind
from transis.types.views import Cause, GroupCause, Member, View

ANN = NodeId("ann", 3, 1 << 63)
BOB, DAN = NodeId("bob", 1, 1), NodeId("dan", 1, 2)
nodes = st.builds(NodeId, st.text(max_size=3), st.integers(0, 5), st.integers(0, 5))


def test_the_lowest_name_comes_first_then_the_oldest_life() -> None:
    assert NodeId("a", 9, 9) < NodeId("b", 1, 1)
    assert NodeId("a", 1, 9) < NodeId("a", 2, 1)
    assert NodeId("a", 1, 1) < NodeId("a", 1, 2)


@given(st.lists(nodes, min_size=1))
def test_everybody_finds_the_same_representative(candidates: list[NodeId]) -> None:
    assert min(candidates) == min(reversed(candidates)) == sorted(set(candidates))[0]


@pytest.mark.parametrize("other", [NodeId("ann", 4, 1 << 63), NodeId("ann", 3, 1), NodeId("bob", 3, 1 << 63)])
def test_another_life_is_another_node(other: NodeId) -> None:
    assert other != ANN
    assert len({ANN, other}) == 2


def test_rings_order_by_sequence_before_representative() -> None:
    assert RingId(4, NodeId("z", 1, 1)) < RingId(8, NodeId("a", 1, 1))


def test_a_ring_s_tag_tells_rings_of_equal_sequence_apart_by_the_boot_of_their_representative() -> None:
    assert RingId(4, ANN).tag == RingTag(4, ANN.boot)
    assert RingId(4, ANN).tag != RingId(4, ANN._replace(boot=5)).tag


def test_places_order_by_datagram_then_by_rank() -> None:
    assert sorted([Place(2, 0), Place(1, 7), Place(1, 2)]) == [Place(1, 2), Place(1, 7), Place(2, 0)]


def test_ids_read_well() -> None:
    process = ProcessId(ANN, 2)
    assert [str(ANN), str(process), str(MessageId(process, 7)), str(RingId(8, ANN))] == [
        "ann/3",
        "ann/3#2",
        "ann/3#2:7",
        "8@ann/3",
    ]
    assert str(ViewId(ViewKind.REGULAR, 8, ANN)) == "R8@ann/3"
    assert str(ViewId(ViewKind.TRANSITIONAL, 6, ANN)) == "T6@ann/3"


def test_a_view_knows_its_nodes_and_its_kind() -> None:
    view_id = ViewId(ViewKind.TRANSITIONAL, 6, ANN)
    before = ViewId(ViewKind.REGULAR, 4, ANN)
    view = View(view_id, before, (Member(ANN, "here", before),), Cause("start"), 1)
    assert (view.nodes, view.kind, view.id.is_regular, before.is_regular) == ((ANN,), ViewKind.TRANSITIONAL, False, True)


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (Cause("start"), "the node started"),
        (Cause("token lost", BOB, (), "token loss timer"), "token loss noticed by bob/1"),
        (Cause("token lost", ANN, (BOB,), "token loss timer"), "token loss noticed by ann/3, without bob/1"),
        (Cause("leave", DAN, (DAN,)), "dan/1 left on purpose"),
        (Cause("leave", ANN, (DAN,)), "dan/1 left on purpose, noticed by ann/3"),
        (Cause("failed to receive", ANN, (DAN,)), "dan/1 did not receive for too long, said ann/3"),
        (Cause("member gathers", BOB), "bob/1 began the change"),
        (Cause("members lost", BOB, (ANN, DAN)), "bob/1 no longer heard ann/3 dan/1"),
        (Cause("blamed for failed attempts", ANN, (BOB, DAN)), "rings with bob/1 dan/1 did not come about, said ann/3"),
        (Cause("foreign view", BOB), "the view of bob/1 was heard"),
        (Cause("silent", ANN, (DAN,), "watch timer"), "dan/1 was silent for too long, said ann/3"),
        (Cause("does not keep up", ANN, (DAN,)), "dan/1 acknowledged nothing for too long, said ann/3"),
        (Cause("broken data", ANN, (DAN,)), "what dan/1 sent made no sense, said ann/3"),
        (Cause("did not agree", ANN, (BOB, DAN)), "bob/1 dan/1 did not agree on the next view, said ann/3"),
        (Cause("foreign join; quorum lists differ", BOB), "bob/1 asked to join; quorum lists differ"),
        (Cause("something {new}", ANN, (), "a timer"), "something {new}, noticed by ann/3 (a timer)"),
    ],
)
def test_a_cause_is_a_sentence(cause: Cause, words: str) -> None:
    assert str(cause) == words


def test_causes_that_differ_read_differently() -> None:
    """The audit compares causes by their words. (Whoever leaves says so, or somebody does who is named.)"""
    kinds = ("start", "leave", "token lost", "foreign ring", "member gathers", "members lost", "silent", "accused", "born again")
    some = (None, ANN, BOB), ((), (ANN,), (BOB,), (ANN, BOB)), ("", "another timer")
    causes = [Cause(*parts) for parts in product(kinds, *some) if parts[:2] != ("leave", None)]
    assert len(set(map(str, causes))) == len(causes)


def test_a_group_has_the_same_words_for_what_its_configuration_had() -> None:
    lost = Cause("token lost", BOB, (), "token loss timer")
    assert str(GroupCause("configuration", None, lost)) == str(lost)
    told = {what: str(GroupCause(what, ProcessId(ANN, 2))) for what in ("join", "leave", "disconnect")}
    assert told == {"join": "ann/3#2 joined", "leave": "ann/3#2 left", "disconnect": "ann/3#2 was disconnected"}
    assert str(GroupCause("joins and leaves")) == "several joined or left"


def test_what_people_print_says_words() -> None:
    assert f"{Service.SAFE}" == str(Service.SAFE) == "SAFE"
    assert f"{ViewKind.REGULAR:>8}" == " REGULAR"
    assert (json.dumps(Service.SAFE), int(Service.SAFE), repr(Service.SAFE)) == ("3", 3, "<Service.SAFE: 3>")


def test_services_and_classes_order_from_weak_to_strong() -> None:
    assert Service.BASIC < Service.CAUSAL < Service.AGREED < Service.SAFE
    assert DatagramClass.BASIC < DatagramClass.CAUSAL < DatagramClass.ORDERED < DatagramClass.SAFE
