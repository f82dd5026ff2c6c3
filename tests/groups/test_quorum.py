"""Quorum lists that differ, and lists that are being changed: at most one component is primary."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.groups.abstract import Order, Survivors
from tests.groups.streams import Seen
from tests.groups.streams import judge as judge_history
from transis.groups.messages import QuorumLists, WaitingQuorumLists, decode_control, encode_control
from transis.groups.quorum import NO_LIST, QuorumList, fit, judge, lacking
from transis.types.errors import Rejection
from transis.types.ids import NodeId, Service
from transis.types.views import Address, GroupView, group_id
from transis.wire.items import encode_address

EVERYTHING = 1 << 30


def order_of(**lists: QuorumList) -> Order:
    """Each node with a list of its own and a process in the group `red`."""
    order = Order("".join(lists), quorum=lists)
    for daemon in order.daemons.values():
        daemon.connect(1)
        daemon.layer.join(1, "red")
    order.settle()
    return order


def meet(order: Order, names: str) -> None:
    order.merge(names)
    order.settle()


def cut(order: Order, *parts: str) -> None:
    for part in parts:
        order.reconfigure([Survivors([order.daemons[name] for name in part], EVERYTHING, EVERYTHING)])
    order.settle()


def last(order: Order, name: str) -> GroupView:
    return [event for event in order.daemons[name].streams[1] if isinstance(event, GroupView)][-1]


def primary(order: Order) -> str:
    """Who is in a view that calls itself primary."""
    return "".join(name for name in sorted(order.daemons) if last(order, name).primary)


ABC = QuorumList.of("abc")


def test_lists_that_differ_make_no_primary_view_and_neither_side_of_a_cut_is_primary() -> None:
    order = order_of(a=ABC, b=ABC, c=QuorumList.of("c"))
    assert primary(order) == "c"
    meet(order, "abc")
    assert primary(order) == ""
    doubt = "quorum lists differ: a b c at a b; c at c"
    assert {order.daemons[name].layer.verdict().doubt for name in "abc"} == {doubt}
    assert str(last(order, "a").cause) == f"change; {doubt}"
    cut(order, "ab", "c")
    assert primary(order) == ""
    assert order.daemons["a"].layer.verdict().doubt == doubt


def test_who_was_told_by_others_does_not_forget_either() -> None:
    order = order_of(a=ABC, b=ABC, c=QuorumList.of("c"))
    meet(order, "ac")
    cut(order, "a", "c")
    meet(order, "ab")
    assert primary(order) == ""
    assert order.daemons["b"].layer.verdict().doubt == "quorum lists differ: a b c at a b; c at c"


def test_a_node_without_a_list_among_others_is_a_difference_and_no_list_anywhere_is_none() -> None:
    order = order_of(a=ABC, b=ABC, c=NO_LIST)
    meet(order, "abc")
    assert [last(order, name).primary for name in "abc"] == [False, False, False]
    assert order.daemons["c"].layer.verdict().doubt == "quorum lists differ: none at c; a b c at a b"
    plain = order_of(a=NO_LIST, b=NO_LIST)
    meet(plain, "ab")
    assert [last(plain, name).primary for name in "ab"] == [None, None]


def test_the_two_lists_of_one_change_need_both_majorities() -> None:
    """From abc to cde, node by node: the old list agrees until nobody has it alone any more."""
    changing = QuorumList.of("cde", "abc")
    order = order_of(a=ABC, b=ABC, c=changing, d=changing, e=changing)
    meet(order, "abcde")
    assert primary(order) == "abcde"
    cut(order, "ab", "cde")
    assert primary(order) == "ab"
    meet(order, "abcde")
    cut(order, "abc", "de")
    assert primary(order) == ""
    meet(order, "abcde")
    cut(order, "bcd", "ae")
    assert primary(order) == "bcd"


def test_a_third_list_does_not_fit_a_change() -> None:
    order = order_of(a=ABC, b=QuorumList.of("bcd", "abc"), c=QuorumList.of("bcde"), d=ABC, e=ABC)
    meet(order, "abcde")
    assert primary(order) == ""
    assert "b c d (before: a b c) at b" in order.daemons["e"].layer.verdict().doubt


def test_a_corrected_list_is_forgotten_when_its_node_comes_back() -> None:
    order = order_of(a=ABC, b=ABC, c=QuorumList.of("c"))
    meet(order, "abc")
    cut(order, "ab", "c")
    again = order_of(c=ABC).daemons["c"]
    order.daemons["c"] = again
    meet(order, "abc")
    assert primary(order) == "abc"
    cut(order, "ab", "c")
    assert primary(order) == "ab"


# --- only a primary component goes on ---------------------------------------------------------------------------------

WAITING = QuorumList.of("abc", holds=True)


def held(order: Order) -> str:
    """Whose applications wait for a quorum."""
    return "".join(name for name in sorted(order.daemons) if not order.daemons[name].open)


def messages(order: Order, name: str) -> int:
    return sum(isinstance(event, Seen) for event in order.daemons[name].streams[1])


def test_without_a_quorum_nothing_is_sent() -> None:
    order = order_of(a=WAITING, b=WAITING, c=WAITING)
    assert held(order) == "abc"
    assert order.daemons["a"].send(1, "red") is None
    meet(order, "abc")
    assert held(order) == ""
    cut(order, "ab", "c")
    assert held(order) == "c"
    assert order.daemons["a"].send(1, "red") is not None
    assert order.daemons["c"].send(1, "red") is None
    verdict = order.daemons["c"].layer.verdict()
    assert (verdict.held, verdict.lacks) == (True, "no quorum: 2 of 3 nodes are needed, c here, a b missing")
    assert judge_history(order.history()) == []


def test_what_was_sent_with_a_quorum_still_comes_in_the_transitional_view_and_nothing_after_it() -> None:
    order = order_of(a=WAITING, b=WAITING, c=WAITING)
    meet(order, "abc")
    order.daemons["c"].send(1, "red")
    order.reconfigure([Survivors([order.daemons["c"]], 0, EVERYTHING)])
    order.settle()
    kinds = [event.kind.name if isinstance(event, GroupView) else "message" for event in order.daemons["c"].streams[1][-3:]]
    assert kinds == ["TRANSITIONAL", "message", "REGULAR"]
    assert last(order, "c").primary is False
    assert held(order) == "c"
    assert judge_history(order.history()) == []


@pytest.mark.parametrize("service", [Service.BASIC, Service.CAUSAL, Service.AGREED, Service.SAFE])
def test_a_message_that_a_member_sends_all_the_same_reaches_nobody(service: Service) -> None:
    order = order_of(a=WAITING, b=WAITING, c=WAITING)
    daemon = order.daemons["c"]
    daemon.append(1, encode_address(Address((group_id("red"),))), service, b"forged")
    order.settle()
    assert messages(order, "c") == 0
    assert daemon.layer.rejections["no quorum"] == 1


def test_if_one_member_stops_without_a_quorum_all_do_and_say_who_would_go_on() -> None:
    """Otherwise a message of who goes on would reach some members of a view and not others."""
    order = order_of(a=WAITING, b=ABC, c=ABC, d=ABC)
    meet(order, "abcd")
    mixed = "wait or raise at a; continue at b c d"
    assert {order.daemons[name].layer.verdict().mixed for name in "abcd"} == {mixed}
    assert primary(order) == "abcd"
    cut(order, "cd", "ab")
    assert primary(order) == "ab"
    assert held(order) == "cd"
    cut(order, "c", "d")
    assert held(order) == "cd"
    meet(order, "cd")
    assert [last(order, name).primary for name in "cd"] == [False, False]
    assert held(order) == ""


def test_a_sentence_does_not_name_hundreds_of_nodes() -> None:
    names = [f"n{number:03}" for number in range(200)]
    lists = [QuorumList.of(names)]
    sentence = lacking(lists, (NodeId("n000", 1, 1),))
    assert sentence.startswith("no quorum: 101 of 200 nodes are needed, n000 here, n001 n002")
    assert sentence.endswith("n016 and 183 more missing")


def test_while_a_list_is_changed_the_sentence_has_both() -> None:
    nodes = (NodeId("c", 1, 1),)
    sentence = "no quorum: 2 of 3 nodes are needed, c here, a b missing; no quorum: 2 of 3 nodes are needed, c here, d e missing"
    assert lacking([QuorumList.of("cde", "abc")], nodes) == sentence


NODES = [NodeId(name, 1, number) for number, name in enumerate("abcdef")]
old, new = (st.sets(st.sampled_from("abcdef"), min_size=1) for _ in range(2))


@given(st.data())
def test_two_components_in_a_change_that_are_primary_share_a_node(data: st.DataObject) -> None:
    """In each of the two steps, whoever took it already: the list before with the change, and the change with the new list."""
    before, after = data.draw(old), data.draw(new)
    steps = [QuorumList.of(before), QuorumList.of(after, before), QuorumList.of(after)]
    step = data.draw(st.sampled_from((0, 1)))
    lists = {node: data.draw(st.sampled_from(steps[step : step + 2])) for node in NODES}
    parts = [nodes for size in range(1, 7) for nodes in combinations(NODES, size)]
    found = [set(nodes) for nodes in parts if judge([lists[node] for node in nodes], nodes)]
    assert all(fit([lists[node] for node in nodes]) for nodes in parts)
    assert all(not one.isdisjoint(other) for one, other in combinations(found, 2))


@pytest.mark.parametrize("lists", [(), ("abc",), ("abc", "ab"), ("abc", "abc", "c")])
def test_lists_fit_only_if_there_is_one(lists: tuple[str, ...]) -> None:
    assert fit(map(QuorumList.of, lists)) is (len(set(lists)) == 1)


def test_lists_of_a_peer_are_checked() -> None:
    waiting = WaitingQuorumLists(4, NODES[0], ("a",), (), ())
    assert type(decode_control(encode_control(waiting))) is WaitingQuorumLists
    assert isinstance(decode_control(encode_control(WaitingQuorumLists(4, NodeId("", 0, 0), ("a",), (), ()))), Rejection)
    good = QuorumLists(4, NODES[0], ("a",), (), ())
    assert decode_control(encode_control(good)) == good
    unfit = QuorumLists(4, NodeId("", 0, 0), ("a",), (), ())
    assert isinstance(decode_control(encode_control(unfit)), Rejection)
    assert isinstance(decode_control(encode_control(QuorumLists(4, NODES[0], ("a",) * 513, (), ()))), Rejection)
