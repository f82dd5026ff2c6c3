"""Groups on whole nodes and the simulated network: crashes, partitions, pauses and restarts, under joins, leaves and messages.

Every run ends with three verdicts: the ring's own guarantees held, the promises of groups held over the recorded streams, and at
rest every member's last view is the same and has exactly the processes that want to be in the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from tests.groups.simulated import NOTHING, Groups
from tests.groups.streams import Seen, StreamEvent
from transis.sim.faults import Ambush, PartitionNetwork
from transis.sim.plan import CONFIG, Plan
from transis.trace.events import ClientLife, End
from transis.types.config import Window
from transis.types.errors import UsageError
from transis.types.ids import ProcessId, Service
from transis.types.outputs import GroupLeft
from transis.types.views import Address, GroupView, group_id, private_name

GROUPS = ("red", "green", "blue")


def cluster(names: str, seed: int = 0) -> Groups:
    made = Groups(replace(Plan(seed, tuple(names)), stagger_us=0))
    assert made.settle() == ""
    return made


def verdict(made: Groups) -> None:
    assert made.world.mishaps == []
    assert made.check().broken == ()


def members_at_rest(made: Groups, group: str, members: list[ProcessId]) -> None:
    for process in members:
        assert list(made.views_of(process, group)[-1].members) == sorted(members), f"{process} in {group}"


def test_the_group_survives_a_partition_a_merge_and_a_crash() -> None:
    made = cluster("abc")
    a, b, c = (made.connect(name) for name in "abc")
    for name in "abc":
        made.join(name, "orders")
    assert made.settle() == ""
    made.partition(("a", "b"), ("c",))
    made.run(500_000)
    made.send("a", "orders")
    made.send("c", "orders", service=Service.SAFE)
    made.run(300_000)
    assert [len(made.messages(process)) for process in (a, b, c)] == [1, 1, 1]
    made.heal()
    assert made.settle() == ""
    members_at_rest(made, "orders", [a, b, c])
    assert len(made.views_of(a, "orders")[-1].merged_from) == 2
    made.crash("c")
    assert made.settle() == ""
    members_at_rest(made, "orders", [a, b])
    verdict(made)


def test_open_groups_private_names_and_several_groups_at_once() -> None:
    made = cluster("ab")
    a, b = (made.connect(name) for name in "ab")
    outsider = made.connect("a")
    for group in GROUPS:
        made.join("b", group)
    made.settle()
    made.send("a", *GROUPS, process=2)
    made.send("b", to=Address((), (private_name(outsider),)))
    made.settle()
    assert [set(seen.groups) for seen in made.messages(b)] == [set(map(group_id, GROUPS))]
    assert len(made.messages(outsider)) == 1
    assert made.messages(a) == []
    verdict(made)


def test_a_graceful_leave_of_the_node_and_a_restart_of_the_same_name() -> None:
    """Scenarios 22 and 29: the restarted node is somebody else, and its processes are in no group."""
    made = cluster("abc")
    a, b, _ = (made.connect(name) for name in "abc")
    for name in "abc":
        made.join(name, "orders")
    made.settle()
    made.leave("c")
    made.settle()
    members_at_rest(made, "orders", [a, b])
    made.restart("c")
    made.settle()
    members_at_rest(made, "orders", [a, b])
    again = made.connect("c")
    made.join("c", "orders")
    made.settle()
    members_at_rest(made, "orders", [a, b, again])
    verdict(made)


def test_trap_24_a_paused_node_with_queued_sends() -> None:
    """It was excluded while it slept. What it had queued reaches the members of the view in which it leaves, itself at least, and
    nobody gets it in a view without its sender; what it sends afterwards reaches all."""
    made = cluster("abc")
    a, b, c = (made.connect(name) for name in "abc")
    for name in "abc":
        made.join(name, "orders")
    made.settle()
    made.pause("c")
    made.send("c", "orders")
    made.run(1_000_000)
    made.resume("c")
    assert made.settle() == ""
    members_at_rest(made, "orders", [a, b, c])
    made.send("c", "orders")
    made.settle()
    assert [seen.message.counter for seen in made.messages(c)] == [1, 2]
    for process in (a, b, c):
        assert made.messages(process)[-1].message.counter == 2
        assert all(c in shown.members for shown in views_at_messages(made.stream(process)))
    verdict(made)


def views_at_messages(stream: Sequence[StreamEvent]) -> Iterator[GroupView]:
    """The view in force at each message of a process that is in one group."""
    view = None
    for event in stream:
        if isinstance(event, GroupView):
            view = event
        elif isinstance(event, Seen):
            assert view is not None
            yield view


def test_all_leave_at_once() -> None:
    made = cluster("abcd")
    processes = [made.connect(name) for name in "abcd"]
    for name in "abcd":
        made.join(name, "orders")
    made.settle()
    for name in "abcd":
        made.quit(name, "orders")
    made.settle()
    assert all(isinstance(made.stream(process)[-1], GroupLeft) for process in processes)
    assert made.node("a").groups(1) == []
    verdict(made)


def test_requests_made_before_the_first_view_are_not_lost() -> None:
    made = Groups(replace(Plan(0, ("a", "b")), stagger_us=0))
    made.run(1_000)
    processes = [made.connect(name) for name in "ab"]
    for name in "ab":
        made.join(name, "orders")
    assert made.settle() == ""
    members_at_rest(made, "orders", processes)
    verdict(made)


def test_a_control_lane_without_room_is_filled_again_later() -> None:
    """An announcement larger than the whole Outbox leaves in several goes."""
    config = replace(CONFIG, window=Window(outbox_bytes=2_048))
    made = Groups(replace(Plan(0, ("a", "b")), stagger_us=0, config=config))
    made.settle()
    made.partition(("a",), ("b",))
    made.run(500_000)
    processes = [made.connect(name) for name in "ab"]
    for name in "ab":
        for number in range(600):
            made.join(name, f"group {number}")
    made.run(1_000_000)
    made.heal()
    assert made.settle() == ""
    members_at_rest(made, "group 0", processes)
    members_at_rest(made, "group 599", processes)
    verdict(made)


def test_wrong_addresses_and_processes_are_told_so() -> None:
    made = cluster("a")
    node = made.node("a")
    with pytest.raises(UsageError, match="not an address"):
        node.submit(0, Service.AGREED, [b"x"], b"forged")
    with pytest.raises(UsageError, match="the node's own"):
        node.submit(0, Service.AGREED, [b"x"], process=(1 << 32) - 1)


class Chaos:
    """A random life of four nodes with two processes each, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"{seed}:groups")
        self.made = cluster("abcd", seed)
        self.wanted: dict[ProcessId, set[str]] = {}
        for name in "abcd":
            self.newcomer(name)
            self.newcomer(name)

    def alive(self) -> list[str]:
        return [name for name in "abcd" if self.made.world.hosts[name].life is not None]

    def newcomer(self, name: str) -> None:
        self.wanted[self.made.connect(name)] = set()

    def processes(self, name: str) -> list[ProcessId]:
        return [process for process in self.wanted if process.node == self.made.node(name).id]

    def step(self) -> None:
        self.made.run(self.random.randrange(100, 40_000))
        choice = self.random.randrange(100)
        alive = self.alive()
        if choice < 80 and alive:
            self.talk(self.random.choice(alive))
        elif choice < 90:
            self.cut_or_heal()
        else:
            self.kill_or_start(self.random.choice("abcd"))

    def talk(self, name: str) -> None:
        process = self.random.choice(self.processes(name))
        group = self.random.choice(GROUPS)
        choice = self.random.randrange(10)
        if choice < 4:
            wanted = self.wanted[process]
            (self.made.quit if group in wanted else self.made.join)(name, group, process.number)
            wanted ^= {group}
        elif choice < 9:
            service = self.random.choice(list(Service))
            self.made.send(name, *self.random.sample(GROUPS, 2), process=process.number, service=service)
        else:
            self.made.disconnect(name, process.number)
            del self.wanted[process]
            self.newcomer(name)

    def cut_or_heal(self) -> None:
        names = list("abcd")
        self.random.shuffle(names)
        cut = self.random.randrange(4)
        partition = PartitionNetwork((tuple(names[:cut]), tuple(names[cut:])))
        if not cut:
            self.made.heal()
        elif self.random.randrange(2):
            self.made.strike(partition)
        else:
            # When a view was just installed, so that it strikes the exchange.
            self.made.heal()
            self.made.strike(Ambush(self.random.choice(names), "Operational", partition, self.random.randrange(2_000)))

    def kill_or_start(self, name: str) -> None:
        if self.made.world.hosts[name].life is None:
            self.made.restart(name)
            self.newcomer(name)
        elif len(self.alive()) > 2:
            gone = self.made.node(name).id
            self.made.crash(name)
            self.wanted = {process: groups for process, groups in self.wanted.items() if process.node != gone}

    def end(self) -> None:
        for host in self.made.world.hosts.values():
            host.ambushes.clear()
        self.made.run(2_000)
        self.made.heal()
        assert self.made.settle() == ""
        verdict(self.made)
        for group in GROUPS:
            members_at_rest(self.made, group, sorted(process for process, groups in self.wanted.items() if group in groups))


@pytest.mark.parametrize("seed", range(12))
def test_chaos(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(150):
        chaos.step()
    chaos.end()
    messages = [event for stream in chaos.made.streams().values() for event in stream if isinstance(event, Seen)]
    assert messages, "a run without messages tells nothing"


def test_no_node_dies_between_what_its_processes_do() -> None:
    """A crash after so many outputs counts what the node does: the same schedule crashes it at the same place."""
    made = cluster("a")
    made.settle()
    life, host = made.life("a"), made.world.hosts["a"]
    host.crash_after = 0
    made.connect("a")
    host.submit(NOTHING)
    made.run(1_000_000)
    assert life.ended == "failed"
    assert [type(event) for event in life.recorder.events[-2:]] == [ClientLife, End]
