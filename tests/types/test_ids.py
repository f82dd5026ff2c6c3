"""Ids order as the protocol needs them, and read as a person needs them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.types.ids import DatagramClass, MessageId, NodeId, Place, ProcessId, RingId, RingTag, Service, ViewId, ViewKind
from transis.types.views import Cause, Member, View

ANN = NodeId("ann", 3, 1 << 63)
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


def test_a_cause_is_a_sentence() -> None:
    bob = NodeId("bob", 1, 1)
    assert str(Cause("start")) == "start"
    assert (
        str(Cause("token lost", ANN, (bob,), "token loss timer"))
        == "token lost, without bob/1, noticed by ann/3 (token loss timer)"
    )


def test_services_and_classes_order_from_weak_to_strong() -> None:
    assert Service.BASIC < Service.CAUSAL < Service.AGREED < Service.SAFE
    assert DatagramClass.BASIC < DatagramClass.CAUSAL < DatagramClass.ORDERED < DatagramClass.SAFE
