"""The comparison of clients' notes can see: each rule has a case that breaks it, and a case like it that does not."""

from __future__ import annotations

from tests.real.agreement import disagreements
from tests.real.notes import Heard, Notes
from transis.client import View
from transis.types.ids import MessageId, NodeId, Place, ProcessId, Service, ViewId, ViewKind
from transis.types.views import GroupCause, GroupViewId, group_id

ANN = ProcessId(NodeId("ann", 1, 1), 1)
BOB = ProcessId(NodeId("bob", 1, 2), 1)
RING = ViewId(ViewKind.REGULAR, 4, ANN.node)
GROUP = "orders"


def message(sender: ProcessId, counter: int, service: Service = Service.AGREED) -> Heard:
    return Heard(MessageId(sender, counter), service, (GROUP,), RING, Place(counter, 0), 10)


def view(seq: int, *members: ProcessId) -> View:
    return View(group_id(GROUP), GROUP, GroupViewId(RING, Place(seq, 0)), members, (), (), (), GroupCause("join", members[0]))


def notes(label: str, *heard: Heard | View) -> Notes:
    return Notes(label, (GROUP,), list(heard))


FIRST, SECOND = view(1, ANN, BOB), view(9, ANN)
A1, A2, B1 = message(ANN, 1), message(ANN, 2), message(BOB, 1)


def test_equal_streams_and_a_part_of_one_agree() -> None:
    whole = notes("ann", FIRST, A1, B1, A2, SECOND)
    assert disagreements([whole, notes("bob", FIRST, A1, B1, A2, SECOND), notes("late", B1, A2)]) == []


def test_two_orders_are_seen_also_through_a_third() -> None:
    assert disagreements([notes("ann", A1, B1), notes("bob", B1, A1)]) != []
    assert disagreements([notes("ann", A1, B1), notes("bob", B1, A2), notes("cid", A2, message(BOB, 2), A1)]) != []


def test_basic_messages_have_no_order() -> None:
    loose = message(BOB, 1, Service.BASIC)
    assert disagreements([notes("ann", A1, loose), notes("bob", loose, A1)]) == []


def test_causal_messages_are_ordered_on_the_ring_and_fifo_everywhere() -> None:
    first, second = message(BOB, 1, Service.CAUSAL), message(BOB, 2, Service.CAUSAL)
    apart = [notes("ann", A1, first), notes("bob", first, A1)]
    assert disagreements(apart, "totem") != []
    assert disagreements(apart, "lansis") == []
    assert disagreements([notes("ann", second, first)], "lansis") != []


def test_one_view_with_two_contents_is_seen() -> None:
    assert disagreements([notes("ann", view(1, ANN)), notes("bob", view(1, ANN, BOB))]) != []


def test_a_message_that_one_of_two_who_stayed_together_lacks_is_seen() -> None:
    together = [notes("ann", FIRST, A1, SECOND), notes("bob", FIRST, SECOND)]
    assert disagreements(together) != []
    assert disagreements([notes("ann", FIRST, A1, SECOND), notes("bob", FIRST)]) == []


def test_twice_backwards_spoilt_and_broken_promises_are_seen() -> None:
    assert disagreements([notes("ann", A1, A1)]) != []
    assert disagreements([notes("ann", A2, A1)]) != []
    assert disagreements([Notes("ann", (GROUP,), [A1], spoilt=[A1.id])]) != []
    assert disagreements([Notes("ann", (GROUP,), [A1], promised={A1.id, A2.id})]) != []
    assert disagreements([Notes("ann", (GROUP,), [A1], promised={A1.id})]) == []
