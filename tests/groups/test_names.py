"""Names of processes: all who go together know the same ones, they end with their process, and lies about them change nothing."""

from __future__ import annotations

import pytest

from tests.groups.abstract import Daemon, Order, Survivors
from transis.groups.exchange import announce_names
from transis.groups.layer import CONTROL_PROCESS
from transis.groups.messages import PART_NAMES_MAX, NameRequest, ProcessNames, decode_control, encode_control
from transis.groups.table import CHANGED_MEMBERS_MAX, CHANGES_MAX, MERGED, MISSED, ChangeLog, Names
from transis.types.errors import Rejection, UsageError
from transis.types.ids import NodeId, Place, ProcessId, Service, ViewId, ViewKind
from transis.types.views import (
    NAMED_PROCESSES_MAX,
    GroupCause,
    GroupChange,
    GroupId,
    GroupView,
    GroupViewId,
    NameChange,
)
from transis.wire.items import CONTROL_ADDRESS

ANN, BOB = NodeId("ann", 1, 1), NodeId("bob", 1, 2)
RING = ViewId(ViewKind.REGULAR, 4, ANN)


def last_view(daemon: Daemon, process: int) -> GroupView:
    return [event for event in daemon.streams[process] if isinstance(event, GroupView)][-1]


def named(daemon: Daemon, process: int, name: str) -> ProcessId:
    found = daemon.connect(process)
    daemon.layer.name(process, name)
    return found


def together() -> tuple[Order, Daemon, Daemon]:
    """Process 1 of each of two daemons is in the group g; that of a has a name."""
    order = Order("ab")
    a, b = order.daemons.values()
    order.merge("ab")
    named(a, 1, "billing")
    b.connect(1)
    for daemon in (a, b):
        daemon.layer.join(1, "g")
    order.settle()
    return order, a, b


def test_members_are_shown_with_their_names() -> None:
    _, a, b = together()
    for daemon in (a, b):
        view = last_view(daemon, 1)
        assert view.names == ("billing", "")
        assert [view.label(member) for member in view.members] == ["billing@a", "b/1#1"]


def test_a_view_of_processes_without_names_says_nothing_of_names() -> None:
    order = Order("ab")
    a, b = order.daemons.values()
    order.merge("ab")
    named(a, 1, "billing")
    b.connect(1)
    b.layer.join(1, "g")
    order.settle()
    assert last_view(b, 1).names == ()


def test_names_are_exchanged_after_a_merge_and_forgotten_after_a_split() -> None:
    order = Order("ab")
    a, b = order.daemons.values()
    first, second = named(a, 1, "billing"), named(b, 7, "billing")
    order.settle()
    assert b.layer.table.names.find("billing@a") is None
    order.merge("ab")
    order.settle()
    for daemon in (a, b):
        assert daemon.layer.table.names.find("billing@a") == first
        assert daemon.layer.table.names.find("billing@b") == second
    order.reconfigure([Survivors([a], len(a.ring.log), 1 << 30)])
    order.settle()
    assert a.layer.table.names.find("billing@a") == first
    assert a.layer.table.names.find("billing@b") is None


def test_a_transitional_view_keeps_the_names_of_those_who_remain() -> None:
    order, a, _ = together()
    order.reconfigure([Survivors([a], len(a.ring.log), 1 << 30)])
    views = [event for event in a.streams[1] if isinstance(event, GroupView)]
    transitional = [view for view in views if view.kind is ViewKind.TRANSITIONAL]
    assert [view.names for view in transitional] == [("billing",)]


def test_a_name_is_free_again_at_once() -> None:
    order = Order("ab")
    a, b = order.daemons.values()
    order.merge("ab")
    named(a, 1, "billing")
    with pytest.raises(UsageError, match="process 1 of this node is called 'billing' already"):
        a.layer.require_free_name("billing")
    a.disconnect(1)
    second = named(a, 2, "billing")
    order.settle()
    for daemon in (a, b):
        assert daemon.layer.table.names.find("billing@a") == second
        assert len(daemon.layer.table.names) == 1
        assert not daemon.layer.rejections


def test_a_name_asked_for_during_an_exchange_waits_for_its_end() -> None:
    order = Order("ab")
    a, b = order.daemons.values()
    order.merge("ab")
    process = named(a, 1, "billing")
    a.layer.join(1, "g")
    order.settle()
    assert b.layer.table.names.find("billing@a") == process
    assert last_view(a, 1).names == ("billing",)


@pytest.mark.parametrize("name", ["", "a@b", "x" * 129, "two\nlines"])
def test_what_cannot_be_a_name_is_refused_here_and_rejected_from_others(name: str) -> None:
    daemon = Order("a").daemons["a"]
    daemon.connect(1)
    with pytest.raises(UsageError, match="cannot name a process"):
        daemon.layer.name(1, name)
    for message in (NameRequest(1, name), ProcessNames(4, ANN, ((1, name),))):
        assert decode_control(encode_control(message)) == Rejection(
            "name", "a name of a process that is too long, not printable or has an @"
        )


def test_a_process_gets_one_name_and_before_anything_else() -> None:
    daemon = Order("a").daemons["a"]
    named(daemon, 1, "billing")
    with pytest.raises(UsageError, match="one only"):
        daemon.layer.name(1, "other")
    daemon.connect(2)
    daemon.layer.join(2, "g")
    with pytest.raises(UsageError, match="first of all"):
        daemon.layer.name(2, "other")


def test_a_node_has_so_many_names_and_no_more() -> None:
    daemon = Order("a").daemons["a"]
    for process in range(NAMED_PROCESSES_MAX):
        named(daemon, process, f"n{process}")
    with pytest.raises(UsageError, match=f"{NAMED_PROCESSES_MAX} processes of this node have names"):
        daemon.layer.require_free_name("one more")


# --- lies -------------------------------------------------------------------------------------------------------------


def lie(daemon: Daemon, *messages: NameRequest | ProcessNames) -> None:
    """The daemon says what its layer would never say."""
    payloads = tuple(map(encode_control, messages))
    daemon.append(CONTROL_PROCESS, CONTROL_ADDRESS, Service.AGREED, *payloads)


def test_of_two_claims_the_first_stays_everywhere() -> None:
    order = Order("ab")
    a, b = order.daemons.values()
    order.merge("ab")
    order.settle()
    lie(a, NameRequest(1, "billing"), NameRequest(2, "billing"), NameRequest(1, "other"))
    order.settle()
    for daemon in (a, b):
        assert daemon.layer.table.names.find("billing@a") == ProcessId(a.id, 1)
        assert len(daemon.layer.table.names) == 1
        assert daemon.layer.rejections["name"] == 2


def test_a_node_speaks_for_its_own_processes_only() -> None:
    order = Order("ab")
    a, b = order.daemons.values()
    order.merge("ab")
    process = named(b, 1, "billing")
    order.settle()
    lie(a, NameRequest(1, "billing"))
    order.settle()
    for daemon in (a, b):
        assert daemon.layer.table.names.find("billing@b") == process
        assert daemon.layer.table.names.find("billing@a") == ProcessId(a.id, 1)


def test_lies_in_an_exchange_and_names_that_nobody_waits_for() -> None:
    order = Order("ab")
    a, b = order.daemons.values()
    named(b, 1, "billing")
    order.settle()
    order.merge("ab")
    view = a.ring.view.id
    lie(a, ProcessNames(view.seq, view.rep, ((1, "x"), (2, "x"), (1, "y"))))
    lie(a, ProcessNames(view.seq + 4, view.rep, ((9, "stale"),)))
    order.settle()
    lie(a, ProcessNames(view.seq, view.rep, ((5, "late"),)))
    order.settle()
    for daemon in (a, b):
        assert sorted(daemon.layer.table.names.after("", 9)) == [
            ("billing@b", ProcessId(b.id, 1)),
            ("x@a", ProcessId(a.id, 1)),
        ]
        assert (daemon.layer.rejections["name"], daemon.layer.rejections["stale"]) == (1, 2)


def test_a_liar_has_no_more_names_than_anybody() -> None:
    names = Names()
    for number in range(NAMED_PROCESSES_MAX + 10):
        names.give(ProcessId(ANN, number), f"n{number}")
    assert len(names) == NAMED_PROCESSES_MAX
    assert names.give(ProcessId(BOB, 1), "n0")


# --- many -------------------------------------------------------------------------------------------------------------


def test_many_names_are_announced_in_several_messages() -> None:
    names = Names()
    for number in range(PART_NAMES_MAX + 1):
        names.give(ProcessId(ANN, number), f"n{number}")
    names.give(ProcessId(BOB, 1), "not mine")
    said = [decode_control(payload) for payload in announce_names(names, ANN, RING)]
    assert all(isinstance(one, ProcessNames) and one.configuration == RING for one in said)
    assert {number for one in said if isinstance(one, ProcessNames) for number, _ in one.names} == set(range(PART_NAMES_MAX + 1))
    assert len(said) == 2


def test_without_names_nothing_is_announced() -> None:
    assert announce_names(Names(), ANN, RING) == []


def test_names_are_listed_in_pages() -> None:
    names = Names()
    for node in (BOB, ANN):
        for number in range(3):
            names.give(ProcessId(node, number), f"n{number}")
    assert [name for name, _ in names.after("", 9)] == ["n0@ann", "n1@ann", "n2@ann", "n0@bob", "n1@bob", "n2@bob"]
    assert [name for name, _ in names.after("n1@ann", 2)] == ["n2@ann", "n0@bob"]
    assert names.drop_lost({ANN}) == [(ProcessId(BOB, number), f"n{number}") for number in range(3)]
    assert [name for name, _ in names.after("", 9)] == ["n0@ann", "n1@ann", "n2@ann"]


# --- the log of changes -----------------------------------------------------------------------------------------------


def shown(members: int) -> GroupView:
    processes = tuple(ProcessId(ANN, number) for number in range(members))
    place = GroupViewId(RING, Place(1, 0))
    return GroupView(GroupId(1), "g", place, processes, processes, (), (), GroupCause("join"))


def test_the_log_tells_what_came_behind_a_place() -> None:
    log = ChangeLog()
    log.installed(shown(1))
    place = log.at
    log.named(ProcessId(ANN, 1), "billing")
    log.nameless(ProcessId(ANN, 1), "billing")
    assert log.since(place) == [NameChange("billing@ann", ProcessId(ANN, 1)), NameChange("billing@ann", None)]
    assert log.since(log.at) == []
    assert log.since(0)[0] == GroupChange("g", 1, (ProcessId(ANN, 0),), ())


def test_the_log_has_an_end_for_many_changes_and_for_large_ones() -> None:
    log = ChangeLog()
    for _ in range(CHANGES_MAX + 1):
        log.nameless(ProcessId(ANN, 1), "billing")
    assert log.since(0) == MISSED
    assert len(log.since(1)) == CHANGES_MAX
    log.installed(shown(CHANGED_MEMBERS_MAX + 1))
    assert log.since(log.at - 1) == MISSED
    assert log.since(log.at) == []


def test_after_a_merge_everybody_lists_anew() -> None:
    log = ChangeLog()
    log.nameless(ProcessId(ANN, 1), "billing")
    place = log.at
    log.merged()
    assert log.since(place) == MERGED
    assert log.since(log.at) == []
    assert log.since(log.at + 1) == MISSED
