"""The layer at the moments that went wrong in earlier systems (traps 2, 24, 26, 27, 40, 41), and its limits."""

from __future__ import annotations

import pytest

from tests.groups.abstract import Daemon, Order, Survivors
from tests.groups.streams import Seen, judge
from transis.groups.exchange import WAITING_BYTES_MAX, HeldBack
from transis.groups.layer import CONTROL_PROCESS
from transis.groups.messages import PART_GROUPS_MAX, Announcement, JoinRequest, encode_control
from transis.groups.quorum import QuorumList
from transis.types.errors import UsageError
from transis.types.ids import Place, ProcessId, Service, ViewKind
from transis.types.outputs import GroupLeft, GroupRefused
from transis.types.views import Address, GroupId, GroupView, GroupViewId, group_id, private_name
from transis.wire.items import CONTROL_ADDRESS

EVERYTHING = 1 << 30


def views(daemon: Daemon, process: int, group: str = "red") -> list[GroupView]:
    return [event for event in daemon.streams[process] if isinstance(event, GroupView) and event.name == group]


def kinds(daemon: Daemon, process: int) -> list[str]:
    return [type(event).__name__ if not isinstance(event, GroupView) else event.kind.name for event in daemon.streams[process]]


def together(names: str = "abc", joined: str = "") -> tuple[Order, list[ProcessId]]:
    """Nodes in one configuration, process 1 of each connected, some of them in the group red."""
    order = Order(names)
    processes = [daemon.connect(1) for daemon in order.daemons.values()]
    order.merge(names)
    order.settle()
    for name in joined:
        order.daemons[name].layer.join(1, "red")
        order.settle()
    return order, processes


def split(order: Order, *parts: str) -> None:
    """Each part goes its own way, everything sent so far delivered."""
    for part in parts:
        order.reconfigure([Survivors([order.daemons[name] for name in part], EVERYTHING, EVERYTHING)])


def test_a_join_shows_at_its_place_to_all_members_and_to_nobody_else() -> None:
    order, (a, b, _) = together(joined="ab")
    place = Place(len(order.daemons["a"].ring.log), 0)
    view = views(order.daemons["a"], 1)[-1]
    assert view.id == GroupViewId(order.daemons["a"].ring.view.id, place)
    assert (view.members, view.joined, view.left) == ((a, b), (b,), ())
    assert (view.cause.what, view.cause.process) == ("join", b)
    assert views(order.daemons["b"], 1) == [view]
    assert order.daemons["c"].streams[1] == []


def test_requests_of_one_datagram_are_one_change_of_each_group() -> None:
    """A thousand processes that join at once are not told of a thousand views of up to a thousand names each."""
    order, (a, b, _) = together(joined="ab")
    daemon = order.daemons["a"]
    crowd = [daemon.connect(number) for number in range(2, 40)]
    for process in crowd:
        daemon.layer.join(process.number, "red")
        daemon.layer.join(process.number, "blue")
    daemon.layer.leave(1, "red")
    daemon.order_control_together()
    order.settle()
    view = views(order.daemons["b"], 1)[-1]
    assert (view.joined, view.left, view.members) == (tuple(crowd), (a,), tuple(sorted([*crowd, b])))
    assert (view.cause.what, view.cause.process) == ("joins and leaves", None)
    assert len(views(order.daemons["b"], 1)) == 2
    assert [len(views(daemon, process.number, name)) for process in crowd for name in ("red", "blue")] == [1] * 2 * len(crowd)
    assert judge(order.history()) == []


def test_requests_that_reach_one_node_together_and_another_apart_make_the_same_views() -> None:
    """A run may come whole here and in two feeds there: what ends in one datagram is one change, whatever came with it."""
    order, _ = together(joined="ab")
    a, b = order.daemons["a"], order.daemons["b"]
    requests = [encode_control(JoinRequest(number, "red")) for number in (7, 8)]
    apart = [a.append(CONTROL_PROCESS, CONTROL_ADDRESS, Service.AGREED, request) for request in requests]
    whole = apart[0]._replace(payloads=requests, stretches=[run.stretches[0] for run in apart])
    a.deliver(whole, whole.phase)
    for run in apart:
        b.deliver(run, run.phase)
    assert len(views(a, 1)) == 4
    assert views(b, 1) == views(a, 1)[1:]


def test_who_joins_and_leaves_in_one_datagram_was_never_there() -> None:
    order, _ = together(joined="a")
    daemon = order.daemons["b"]
    for name in ("red", "blue"):
        daemon.layer.join(1, name)
        daemon.layer.leave(1, name)
    daemon.order_control_together()
    order.settle()
    assert len(views(order.daemons["a"], 1)) == 1
    assert daemon.streams[1] == []
    assert all(group_id("blue") not in one.layer.table.groups for one in order.daemons.values())


def test_a_lost_node_gives_one_transitional_and_one_regular_view_and_spares_other_groups() -> None:
    order, (a, b, c) = together(joined="abc")
    order.daemons["a"].layer.join(1, "blue")
    order.settle()
    split(order, "ab", "c")
    first, second = views(order.daemons["a"], 1)[-2:]
    assert (first.kind, first.members, first.left) == (ViewKind.TRANSITIONAL, (a, b), (c,))
    assert (second.kind, second.members, second.joined, second.left) == (ViewKind.REGULAR, (a, b), (), (c,))
    assert second.merged_from[0].view == first.id
    assert len(views(order.daemons["a"], 1, "blue")) == 1
    assert judge(order.history()) == []


def test_a_merge_is_one_view_that_tells_who_came_from_where() -> None:
    order, (a, b, c) = together(joined="abc")
    split(order, "ab", "c")
    before = views(order.daemons["a"], 1)[-1].id, views(order.daemons["c"], 1)[-1].id
    seen = len(views(order.daemons["a"], 1))
    order.merge("abc")
    assert not order.daemons["a"].open, "applications wait for the announcements"
    order.settle()
    (view,) = views(order.daemons["a"], 1)[seen:]
    assert (view.members, view.joined, view.left) == ((a, b, c), (c,), ())
    assert [(origin.view, origin.members) for origin in view.merged_from] == sorted([(before[0], (a, b)), (before[1], (c,))])
    assert views(order.daemons["c"], 1)[-1].joined == (a, b)
    assert judge(order.history()) == []


def test_a_group_with_all_members_on_one_side_sees_nothing_of_a_merge() -> None:
    order, _ = together(joined="ab")
    split(order, "ab", "c")
    seen = len(views(order.daemons["a"], 1))
    order.merge("abc")
    order.settle()
    assert len(views(order.daemons["a"], 1)) == seen
    order.daemons["c"].layer.join(1, "red")
    order.settle()
    assert views(order.daemons["c"], 1) == views(order.daemons["a"], 1)[seen:]


def test_a_departure_before_a_merge_is_noticed_also_where_the_group_was_unknown() -> None:
    """All who are announced come from one view, but that view had one more: c, who never saw it, must know it too."""
    order, (a, _, c) = together(joined="ab")
    split(order, "ab", "c")
    nodes = order.daemons
    nodes["b"].layer.leave(1, "red")
    nodes["b"].order_control()
    order.reconfigure([Survivors([nodes["a"], nodes["b"]], 0, EVERYTHING), Survivors([nodes["c"]], 0, EVERYTHING)])
    order.settle()
    assert views(nodes["a"], 1)[-1].members == (a,)
    nodes["c"].layer.join(1, "red")
    order.settle()
    assert views(nodes["c"], 1)[-1].members == (a, c)
    assert judge(order.history()) == []


def test_who_left_and_returned_between_two_views_is_in_both_lists() -> None:
    order, (_, b, _) = together(joined="ab")
    for ask in (order.daemons["b"].layer.leave, order.daemons["b"].layer.join):
        ask(1, "red")
        order.daemons["b"].order_control()
    nodes = list(order.daemons.values())
    order.reconfigure([Survivors(nodes, 0, EVERYTHING)])
    view = views(order.daemons["a"], 1)[-1]
    assert (view.joined, view.left) == ((b,), (b,))
    assert judge(order.history()) == []


def test_sides_that_parted_without_a_regular_view_do_not_pass_for_unparted() -> None:
    """Both sides come from one regular view, but what they delivered in their transitional ones may differ."""
    order, (_, _, c) = together("abcd", joined="abc")[0], together("abc")[1]
    split(order, "ab", "cd")
    nodes = order.daemons
    seen = len(views(nodes["a"], 1))
    order.merge("abcd")
    order.reconfigure([Survivors([nodes["a"], nodes["b"]], 0, 0)])
    order.reconfigure([Survivors([nodes["c"], nodes["d"]], 0, 0)])
    order.merge("abcd")
    order.settle()
    view = views(nodes["a"], 1)[-1]
    assert len(view.merged_from) == 2
    assert [process.node.name for process in view.joined] == [c.node.name]
    assert len(views(nodes["a"], 1)) > seen
    assert judge(order.history()) == []


def test_two_sides_that_lose_members_before_they_have_exchanged_do_not_share_a_transitional_view() -> None:
    """a and c met b and d; before anybody announced anything, only a and b are left. Each comes from its own side's view."""
    order, (a, b, _, _) = together("abcd", joined="abcd")
    split(order, "ac", "bd")
    order.settle()
    nodes = order.daemons
    before = [views(nodes[name], 1)[-1].id for name in "ab"]
    order.merge("abcd")
    order.reconfigure([Survivors([nodes["a"], nodes["b"]], 0, 0)])
    at_a, at_b = (views(nodes[name], 1)[-1] for name in "ab")
    assert (at_a.members, at_b.members) == ((a,), (b,))
    assert at_a.id != at_b.id
    assert [origin.view for view in (at_a, at_b) for origin in view.merged_from] == before
    order.settle()
    at_a, at_b = (views(nodes[name], 1)[-1] for name in "ab")
    assert (at_a.joined, at_b.joined) == ((b,), (a,))
    assert len(at_a.merged_from) == 2
    assert judge(order.history()) == []


def test_trap_2_who_joins_and_dies_within_the_exchange_leaves_no_ghost() -> None:
    order, (a, b, _) = together(joined="ab")
    split(order, "ab", "c")
    order.merge("abc")
    nodes = order.daemons
    nodes["c"].layer.join(1, "red")
    for daemon in nodes.values():
        daemon.order_control()
    nodes["c"].order_control()
    order.reconfigure([Survivors([nodes["a"], nodes["b"]], 1, EVERYTHING)])
    order.settle()
    assert views(nodes["a"], 1)[-1].members == (a, b)
    order.merge("ab")
    order.settle()
    assert [set(group.members) for group in nodes["a"].layer.table.in_order()] == [{a, b}]
    assert judge(order.history()) == []


def test_an_exchange_that_ends_in_the_transitional_view_shows_what_the_others_saw() -> None:
    """c completes the round and sends; a and b learn of both only when c is gone."""
    order, (a, b, c) = together(joined="ab")
    split(order, "ab", "c")
    order.daemons["c"].layer.join(1, "red")
    order.settle()
    order.merge("abc")
    nodes = order.daemons
    for daemon in nodes.values():
        daemon.order_control()
    nodes["c"].advance(3)
    assert nodes["c"].send(1, "red") is not None
    order.reconfigure([Survivors([nodes["a"], nodes["b"]], 1, EVERYTHING)])
    tail = nodes["a"].streams[1][-4:]
    assert [type(event).__name__ for event in tail] == ["GroupView", "GroupView", "Seen", "GroupView"]
    regular, transitional, _, last = tail
    assert isinstance(regular, GroupView)
    assert isinstance(transitional, GroupView)
    assert isinstance(last, GroupView)
    assert (regular, regular.members) == (views(nodes["b"], 1)[-3], (a, b, c))
    assert regular.id == views(nodes["c"], 1)[-1].id
    assert (transitional.members, transitional.kind) == ((a, b), ViewKind.TRANSITIONAL)
    assert last.members == (a, b)
    assert nodes["a"].open, "all come from one settled configuration"
    assert judge(order.history()) == []


def test_who_is_lost_before_an_exchange_ends_is_missed_behind_its_view() -> None:
    """Seen on Lansis (seed 87): a and b were told first that c is lost, and then a view in which they came from one with c."""
    order, (a, b, c, d) = together("abcd", joined="abc")
    split(order, "abc", "d")
    nodes = order.daemons
    nodes["d"].layer.join(1, "red")
    order.settle()
    order.merge("abcd")
    before = views(nodes["a"], 1)[-1]
    assert before.members == (a, b, c)
    for daemon in nodes.values():
        daemon.order_control()
    order.reconfigure([Survivors([nodes["a"], nodes["b"]], 1, EVERYTHING)])
    *_, regular, transitional, last = views(nodes["a"], 1)
    assert (regular.kind, regular.members) == (ViewKind.REGULAR, (a, b, c, d))
    assert before.id in [origin.view for origin in regular.merged_from]
    assert (transitional.kind, transitional.members, transitional.left) == (ViewKind.TRANSITIONAL, (a, b), (c, d))
    assert last.members == (a, b)
    assert judge(order.history()) == []


def test_trap_24_messages_queued_before_the_view_do_not_overtake_the_exchange() -> None:
    order, _ = together(joined="ab")
    split(order, "ab", "c")
    order.merge("abc")
    assert order.daemons["a"].send(1, "red") is None
    order.settle()
    assert order.daemons["a"].send(1, "red") is not None


def test_trap_26_late_and_foreign_announcements_are_counted_and_change_nothing() -> None:
    order, _ = together(joined="ab")
    daemon = order.daemons["a"]
    view = daemon.ring.view.id
    stale = encode_control(Announcement(view.seq, view.rep, 0, 1, (), ()))
    order.daemons["b"].append(CONTROL_PROCESS, CONTROL_ADDRESS, Service.AGREED, stale)
    order.settle()
    assert daemon.layer.rejections == {"stale": 1}
    order.merge("abc")
    order.daemons["b"].disconnect(1)
    split(order, "abc")
    order.daemons["b"].append(CONTROL_PROCESS, CONTROL_ADDRESS, Service.AGREED, stale)
    order.settle()
    assert daemon.layer.rejections == {"stale": 2}
    assert daemon.layer.is_settled


def test_parts_that_repeat_or_contradict_are_counted() -> None:
    order, _ = together(joined="ab")
    split(order, "ab", "c")
    order.merge("abc")
    nodes = order.daemons
    view = nodes["a"].ring.view.id
    for part, parts in ((0, 2), (0, 2), (1, 3)):
        payload = encode_control(Announcement(view.seq, view.rep, part, parts, (), ()))
        nodes["c"].append(CONTROL_PROCESS, CONTROL_ADDRESS, Service.AGREED, payload)
    nodes["a"].advance(3)
    assert nodes["a"].layer.rejections == {"part": 2}


def test_trap_27_leave_and_then_disconnect_is_one_departure() -> None:
    order, (a, b, _) = together(joined="ab")
    order.daemons["b"].layer.leave(1, "red")
    order.daemons["b"].disconnect(1)
    order.settle()
    assert [view.members for view in views(order.daemons["a"], 1)] == [(a,), (a, b), (a,)]
    assert views(order.daemons["a"], 1)[-1].cause.what == "leave"


def test_trap_27_a_rejoin_before_the_leave_is_delivered_gives_each_its_view() -> None:
    order, (a, b, _) = together(joined="ab")
    order.daemons["b"].layer.leave(1, "red")
    order.daemons["b"].layer.join(1, "red")
    order.settle()
    assert [view.members for view in views(order.daemons["a"], 1)[-2:]] == [(a,), (a, b)]
    assert kinds(order.daemons["b"], 1) == ["REGULAR", "GroupLeft", "REGULAR"]


def test_trap_27_a_disconnected_process_takes_all_its_groups_with_it_and_hears_nothing_more() -> None:
    order, (a, _, _) = together(joined="ab")
    order.daemons["b"].layer.join(1, "blue")
    order.settle()
    heard = len(order.daemons["b"].streams[1])
    order.daemons["b"].disconnect(1)
    order.settle()
    assert views(order.daemons["a"], 1)[-1].members == (a,)
    assert [group.name for group in order.daemons["c"].layer.table.in_order()] == ["red"]
    assert len(order.daemons["b"].streams[1]) == heard


def test_trap_40_basic_messages_wait_for_their_group_view() -> None:
    order, _ = together(joined="ab")
    split(order, "ab", "c")
    order.daemons["c"].layer.join(1, "red")
    order.settle()
    order.merge("abc")
    nodes = order.daemons
    for daemon in nodes.values():
        daemon.order_control()
    nodes["c"].advance(3)
    run = nodes["c"].send(1, "red", service=Service.BASIC)
    assert run is not None
    nodes["c"].ring.log.pop()
    nodes["a"].deliver(run._replace(early=True), run.phase)
    assert not [event for event in nodes["a"].streams[1] if isinstance(event, Seen)]
    nodes["a"].advance(3)
    view, message = nodes["a"].streams[1][-2:]
    assert isinstance(view, GroupView)
    assert isinstance(message, Seen)
    assert judge(order.history()) == []


def test_basic_messages_that_wait_are_limited_and_go_with_a_failed_exchange() -> None:
    order, _ = together(joined="ab")
    split(order, "ab", "c")
    order.merge("abc")
    daemon = order.daemons["a"]
    run = order.daemons["b"].append(1, b"\x01\x01\x00" + group_id("red").to_bytes(8, "big"), Service.BASIC, b"")
    daemon.ring.log.pop()
    half = run._replace(payloads=[bytes(WAITING_BYTES_MAX // 2)])
    for _ in range(3):
        daemon.deliver(half, run.phase)
    assert daemon.layer.rejections == {"basic beyond the limit": 1}
    order.reconfigure([Survivors([daemon], 0, 0)])
    order.settle()
    assert daemon.layer.rejections["basic of an unfinished exchange"] == 2
    assert not [event for event in daemon.streams[1] if isinstance(event, Seen)]


def test_as_many_basic_messages_wait_as_the_layer_is_told() -> None:
    """The node says how many its window lets others send before it is there itself."""
    order, _ = together(joined="ab")
    run = order.daemons["b"].append(1, b"\x01\x01\x00" + group_id("red").to_bytes(8, "big"), Service.BASIC, b"")
    large = run._replace(payloads=[bytes(WAITING_BYTES_MAX)])
    waiting = HeldBack(3 * WAITING_BYTES_MAX)
    assert [waiting.keep_basic(large) for _ in range(4)] == [True, True, True, False]
    assert len(waiting.take_basics()) == 3


def test_several_groups_and_a_private_name_give_one_copy_at_one_place() -> None:
    order, (_, b, c) = together(joined="ab")
    order.daemons["b"].layer.join(1, "blue")
    order.settle()
    to = Address((group_id("red"), group_id("blue"), group_id("nobody's")), (private_name(b), private_name(c)))
    assert order.daemons["c"].send(1, to=to) is not None
    order.settle()
    seen = {name: [event for event in order.daemons[name].streams[1] if isinstance(event, Seen)] for name in "abc"}
    assert [len(messages) for messages in seen.values()] == [1, 1, 1]
    assert seen["a"][0].groups == (group_id("red"),)
    assert set(seen["b"][0].groups) == {group_id("red"), group_id("blue")}
    assert seen["c"][0].groups == ()


def test_names_of_one_hash_cannot_both_be_groups() -> None:
    order = Order("ab", identify=lambda name: GroupId(len(name)))
    for daemon in order.daemons.values():
        daemon.connect(1)
    order.merge("ab")
    order.settle()
    order.daemons["a"].layer.join(1, "red")
    order.settle()
    order.daemons["b"].layer.join(1, "tan")
    order.settle()
    (refused,) = order.daemons["b"].streams[1]
    assert isinstance(refused, GroupRefused)
    assert "same hash" in refused.why
    order.daemons["b"].layer.join(1, "red")
    order.settle()
    assert len(views(order.daemons["b"], 1)) == 1


def test_a_collision_that_a_merge_brings_is_decided_alike_everywhere() -> None:
    order = Order("abc", identify=lambda name: GroupId(len(name)))
    a, b, c = (daemon.connect(1) for daemon in order.daemons.values())
    for name, group in zip("abc", ("tan", "red", "red"), strict=True):
        order.daemons[name].layer.join(1, group)
        order.settle()
    order.daemons["a"].connect(2)
    order.daemons["a"].layer.join(2, "tan")
    order.daemons["a"].order_control()
    order.reconfigure([Survivors([daemon], 0, EVERYTHING) for daemon in order.daemons.values()])
    order.settle()
    assert [set(group.members) for group in order.daemons["a"].layer.table.in_order()] == [{b, c}]
    assert isinstance(order.daemons["a"].streams[1][-1], GroupLeft)
    assert isinstance(order.daemons["a"].streams[2][-1], GroupRefused)
    assert views(order.daemons["b"], 1)[-1].members == (b, c)
    order.daemons["a"].layer.join(1, "red")
    order.settle()
    assert views(order.daemons["c"], 1)[-1].members == (a, b, c)


def test_wrong_calls_are_told_so() -> None:
    layer = Daemon("a").layer
    layer.connect(1)
    for wrong, complaint in (
        (lambda: layer.connect(1), "numbers grow"),
        (lambda: layer.join(2, "red"), "not connected"),
        (lambda: layer.join(1, ""), "not a group name"),
        (lambda: layer.join(1, "../../x"), "reads like a path"),
        (lambda: layer.join(1, "/x"), "reads like a path"),
        (lambda: layer.leave(1, "red"), "is not in"),
    ):
        with pytest.raises(UsageError, match=complaint):
            wrong()
    layer.join(1, "red")
    with pytest.raises(UsageError, match="already"):
        layer.join(1, "red")


def test_junk_from_a_peer_is_counted() -> None:
    order, _ = together(joined="ab")
    peer = order.daemons["b"]
    peer.append(CONTROL_PROCESS, CONTROL_ADDRESS, Service.AGREED, b"junk")
    peer.append(CONTROL_PROCESS, CONTROL_ADDRESS, Service.BASIC, encode_control(JoinRequest(1, "red")))
    peer.append(CONTROL_PROCESS, b"elsewhere", Service.AGREED, encode_control(JoinRequest(1, "red")))
    peer.append(1, b"junk", Service.AGREED, b"")
    order.settle()
    assert order.daemons["a"].layer.rejections == {"layout": 1, "control": 2, "address": 1}


def test_the_primary_flag_is_a_majority_of_the_configured_nodes() -> None:
    order = Order("abc", quorum=dict.fromkeys("abc", QuorumList.of("abc")))
    for daemon in order.daemons.values():
        daemon.connect(1)
        daemon.layer.join(1, "red")
    order.settle()
    order.merge("abc")
    order.settle()
    split(order, "ab", "c")
    assert [view.primary for view in views(order.daemons["a"], 1)] == [False, True, True, True]
    assert [view.primary for view in views(order.daemons["c"], 1)] == [False, True, False, False]


def test_ten_thousand_groups_are_exchanged_in_parts() -> None:
    order = Order("abc")
    nodes = order.daemons
    count = 10_000
    for number, daemon in enumerate(nodes.values()):
        daemon.connect(1)
        for group in range(count):
            if group % 3 != number:
                daemon.layer.join(1, f"group {group}")
    order.settle()
    order.merge("abc")
    parts = len(nodes["a"].outbox)
    assert parts == -(-(count - len(range(0, count, 3))) // PART_GROUPS_MAX)
    order.settle()
    for daemon in nodes.values():
        daemon.layer.check()
    tables = [{group.id: tuple(sorted(group.members)) for group in daemon.layer.table.in_order()} for daemon in nodes.values()]
    assert len(tables[0]) == count
    assert tables[0] == tables[1] == tables[2]
    assert all(len(members) == 2 for members in tables[0].values())
