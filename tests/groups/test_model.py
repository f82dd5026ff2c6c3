"""Random histories of joins, leaves, messages, splits and merges, against a naive twin and against the promises of groups.

The twin is one table for everybody: a process is in a group if the last thing it asked for was to join. Whatever happened on the
way, when everything is delivered all nodes of a configuration have exactly the twin's members of that configuration.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.groups.abstract import Daemon, Order, Survivors
from tests.groups.streams import judge
from transis.types.ids import ProcessId, Service, ViewId
from transis.types.views import GroupId, GroupView, group_id

NAMES = "abcd"
GROUPS = ("red", "green", "blue")

daemons = st.sampled_from(NAMES)
groups = st.sampled_from(GROUPS)
small = st.integers(0, 6)
action = st.one_of(
    st.tuples(st.just("toggle"), daemons, st.booleans(), groups),
    st.tuples(st.just("toggle"), daemons, st.booleans(), groups),
    st.tuples(st.just("replace"), daemons, st.booleans()),
    st.tuples(st.just("order"), daemons),
    st.tuples(st.just("pump")),
    st.tuples(st.just("pump")),
    st.tuples(st.just("advance"), daemons, small),
    st.tuples(st.just("advance"), daemons, st.just(100)),
    st.tuples(
        st.just("send"), daemons, st.lists(groups, min_size=1, max_size=2), st.sampled_from((Service.AGREED, Service.SAFE))
    ),
    st.tuples(st.just("basic"), daemons, groups),
    st.tuples(st.just("change"), st.lists(st.integers(0, 2), min_size=4, max_size=4), st.lists(small, min_size=8, max_size=8)),
    st.tuples(st.just("settle")),
)


class Twin:
    """Two processes a node, known by a boolean; a process that goes is followed by one with a new number."""

    def __init__(self) -> None:
        self.order = Order(NAMES)
        self.numbers = {(name, one): 1 + one for name in NAMES for one in (False, True)}
        self.members: dict[GroupId, set[ProcessId]] = {group_id(name): set() for name in GROUPS}
        self.names: dict[ProcessId, str] = {}
        for (name, one), number in sorted(self.numbers.items()):
            self.order.daemons[name].connect(number)
            self.call(name, one)

    def call(self, name: str, one: bool) -> None:
        """One of the two processes has a name, always the same: it is given again as soon as its process is gone."""
        if one:
            process = self.process(name, one)
            self.order.daemons[name].layer.name(process.number, "worker")
            self.names[process] = "worker"

    def process(self, name: str, one: bool) -> ProcessId:
        return ProcessId(self.order.daemons[name].id, self.numbers[name, one])

    def toggle(self, name: str, one: bool, group: str) -> None:
        process = self.process(name, one)
        daemon, members = self.order.daemons[name], self.members[group_id(group)]
        (daemon.layer.leave if process in members else daemon.layer.join)(process.number, group)
        members ^= {process}

    def replace(self, name: str, one: bool) -> None:
        process = self.process(name, one)
        self.order.daemons[name].disconnect(process.number)
        self.numbers[name, one] = 1 + max(number for (node, _), number in self.numbers.items() if node == name)
        self.order.daemons[name].connect(self.numbers[name, one])
        self.names.pop(process, None)
        self.call(name, one)
        for members in self.members.values():
            members.discard(process)

    def pump(self) -> None:
        """Everybody sends all its control messages, and nobody has delivered them yet."""
        for daemon in self.order.daemons.values():
            while daemon.order_control():
                pass

    def basic(self, name: str, group: str) -> None:
        """A basic message overtakes everything: it is delivered on receipt, by those who are in its configuration."""
        sender = self.order.daemons[name]
        run = sender.send(self.numbers[name, False], group, service=Service.BASIC)
        if run is None:
            return
        sender.ring.log.pop()
        for daemon in self.order.daemons.values():
            if daemon.ring is sender.ring:
                daemon.deliver(run._replace(early=True), run.phase)

    def change(self, labels: list[int], ends: list[int]) -> None:
        parts: dict[tuple[int, ViewId], list[Daemon]] = {}
        for label, daemon in zip(labels, self.order.daemons.values(), strict=True):
            parts.setdefault((label, daemon.ring.view.id), []).append(daemon)
        survivors: dict[int, list[Survivors]] = {}
        for number, ((label, _), nodes) in enumerate(sorted(parts.items())):
            position = max(daemon.position for daemon in nodes)
            regular = position + ends[2 * number]
            survivors.setdefault(label, []).append(Survivors(nodes, regular, regular + ends[2 * number + 1]))
        for _, together in sorted(survivors.items()):
            self.order.reconfigure(together)

    def act(self, what: str, *arguments: object) -> None:
        daemon = self.order.daemons.get(str(arguments[0])) if arguments else None
        match what, arguments:
            case "order", _:
                assert daemon is not None
                daemon.order_control()
            case "advance", (_, int(count)):
                assert daemon is not None
                daemon.advance(min(daemon.position + count, len(daemon.ring.log)))
            case "send", (name, list(to), Service() as service):
                assert daemon is not None
                daemon.send(self.numbers[str(name), False], *to, service=service)
            case "settle", _:
                self.order.settle()
            case _:
                getattr(self, what)(*arguments)

    def compare(self) -> None:
        """Tables are equal to the twin's, and each member's last view is of exactly those members."""
        for daemon in self.order.daemons.values():
            nodes = set(daemon.ring.view.nodes)
            assert daemon.layer.is_settled
            assert daemon.open
            expected = {
                group: {process for process in members if process.node in nodes} for group, members in self.members.items()
            }
            table = {group.id: set(group.members) for group in daemon.layer.table.in_order()}
            assert table == {group: members for group, members in expected.items() if members}
            named = {process: name for process, name in self.names.items() if process.node in nodes}
            assert {process: daemon.layer.table.names.of(process) for process in named} == named
            assert len(daemon.layer.table.names) == len(named)
            for group, members in expected.items():
                self._compare_views(daemon, group, members)

    def _compare_views(self, daemon: Daemon, group: GroupId, members: set[ProcessId]) -> None:
        for process in sorted(members):
            if process.node == daemon.id:
                views = [view for view in daemon.streams[process.number] if isinstance(view, GroupView) and view.group == group]
                assert set(views[-1].members) == members
                names = tuple(self.names.get(one, "") for one in views[-1].members)
                assert views[-1].names == (names if any(names) else ())
                assert views[-1].id.configuration.is_regular


@settings(max_examples=300)
@given(st.lists(action, max_size=60))
def test_layers_are_the_twin_and_keep_their_promises(actions: list[tuple[object, ...]]) -> None:
    twin = Twin()
    for what, *arguments in actions:
        twin.act(str(what), *arguments)
    twin.order.settle()
    twin.compare()
    twin.order.merge(NAMES)
    twin.order.settle()
    twin.compare()
    assert judge(twin.order.history(closed=True)) == []
    assert all(
        not daemon.layer.rejections - daemon.layer.rejections.__class__(_EXPECTED) for daemon in twin.order.daemons.values()
    )


_EXPECTED = {"basic of an unfinished exchange": 1 << 30}
