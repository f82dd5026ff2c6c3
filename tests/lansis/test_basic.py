"""Basic: what is new goes up on receipt, and only the datagram that has the messages."""

from __future__ import annotations

from tests.lansis.bursts import BASE, burst_of, said
from transis.lansis.dag import Dag
from transis.lansis.delivery import basic_messages
from transis.types.ids import DatagramClass


def test_a_basic_burst_goes_up_once_whatever_is_missing_before_it() -> None:
    graph = Dag(0, [1, 1], BASE)
    burst = burst_of(said(1, 5, 1, klass=DatagramClass.BASIC))
    assert basic_messages(graph.receive(burst)) == [burst]
    assert basic_messages(graph.receive(burst)) == []
    assert graph.insert_ready() == []


def test_datagrams_that_hold_only_acknowledgements_do_not_go_up() -> None:
    burst = burst_of(said(1, 1, 1, last=3, klass=DatagramClass.BASIC))
    assert [(part.first_seq, part.last_seq) for part in basic_messages([burst])] == [(3, 3)]
    assert basic_messages([burst.slice(1, 2)]) == []


def test_others_wait_for_their_place() -> None:
    for klass in (DatagramClass.CAUSAL, DatagramClass.ORDERED, DatagramClass.SAFE):
        assert basic_messages([burst_of(said(1, 1, 1, klass=klass))]) == []
