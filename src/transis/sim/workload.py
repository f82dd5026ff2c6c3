"""Applications and client processes of a run: they submit messages under the plan's traffic, connect, join, leave and disconnect.

1. Sizes, services and pauses are drawn; a call may carry several messages of one service, as real applications hand over
   batches. What a node does not accept is not sent again: the next call brings new messages.
2. Requests of client processes and their messages have their own pace and their own streams of the seed. Senders need not be
   members; a message may be for several groups, for processes by their private names, or for both; an addressee may be gone when
   it arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transis.sim.host import Host
from transis.sim.life import ActionKind, ClientAction, Clients, Submission
from transis.sim.plan import ClientPlan, Traffic
from transis.sim.streams import RandomStream
from transis.sim.world import World
from transis.types.ids import Service
from transis.types.views import Address, GroupId, PrivateName, group_id, private_name
from transis.wire.items import encode_address

# --- workload ---------------------------------------------------------------------------------------------------------

NOT_YET: Final = ("down", "Starting", "Stopped")
"""States of a host in which its application cannot submit: its messages are kept for later."""


class Workload:
    """One application per sending host, each calling at its own pace."""

    def __init__(self, world: World, traffic: Traffic, senders: Sequence[str]) -> None:
        self.left = traffic.messages
        self._world = world
        self._traffic = traffic
        self._stream: RandomStream = world.streams["workload"]
        self._open = True
        for address in senders:
            world.at(world.now + self._pause(), self._call, address)

    def close(self) -> None:
        """Applications send nothing more."""
        self._open = False

    def more(self, messages: int) -> None:
        """Let the applications that still submit send this many more."""
        self.left += messages

    def _pause(self) -> int:
        """Mostly around the interval, sometimes a burst of calls, sometimes a silence."""
        interval = max(1, self._traffic.interval_us)
        return self._stream.stretched(max(1, interval // 8), 4 * interval)

    def _call(self, address: str) -> None:
        if not self._open:
            return
        host = self._world.hosts[address]
        if self.left > 0 and host.state not in NOT_YET:
            submission = self._submission(host)
            self.left -= len(submission.sizes)
            host.submit(submission)
        self._world.at(self._world.now + self._pause(), self._call, address)

    def _submission(self, host: Host) -> Submission:
        traffic, stream = self._traffic, self._stream
        count = min(self.left, stream.between(1, traffic.batch))
        sizes = tuple(self._size() for _ in range(count))
        return Submission(self._service(), sizes, stream.below(traffic.processes))

    def _service(self) -> Service:
        draw = self._stream.below(sum(self._traffic.services))
        for service, weight in zip(Service, self._traffic.services, strict=True):
            if draw < weight:
                return service
            draw -= weight
        raise AssertionError("weights add up")

    def _size(self) -> int:
        if self._stream.chance(self._traffic.large_permille):
            return self._stream.between(self._traffic.size, self._traffic.large)
        return self._stream.between(0, self._traffic.size)


NAMES: Final = ("", "billing", "", "stock")
"""What newcomers want to be called, by turns: half of them nothing, the others what may be taken, or was a moment ago."""

# --- group workload ---------------------------------------------------------------------------------------------------


def group_names(plan: ClientPlan) -> tuple[str, ...]:
    return tuple(f"g{number}" for number in range(plan.groups))


def everybody(plan: ClientPlan) -> bytes:
    """The address of all groups together."""
    return encode_address(Address(tuple(map(group_id, group_names(plan)))))


class GroupWorkload(Workload):
    """The processes of each host. Messages come from a process that is connected, or from the node itself if none is."""

    def __init__(self, world: World, traffic: Traffic, senders: Sequence[str], plan: ClientPlan, hosts: Sequence[str]) -> None:
        super().__init__(world, traffic, senders)
        self._plan = plan
        self._names = group_names(plan)
        self._drawn = world.streams["clients"]
        self.wishes_left = plan.wishes
        world.ask = self._ask
        for address in hosts:
            world.at(world.now + self._moment(), self._wish, address)

    def more(self, messages: int) -> None:
        super().more(messages)
        self.wishes_left += self._plan.wishes * messages // max(1, self._traffic.messages)

    def _moment(self) -> int:
        interval = max(1, self._plan.interval_us)
        return self._drawn.stretched(max(1, interval // 8), 4 * interval)

    # -- wishes --------------------------------------------------------------------------------------------------

    def _wish(self, address: str) -> None:
        if not self._open:
            return
        if self.wishes_left > 0:
            self._ask(self._world.hosts[address])
        self._world.at(self._world.now + self._moment(), self._wish, address)

    def _ask(self, host: Host) -> None:
        clients = _clients_of(host)
        if clients is not None and host.state != "Stopped":
            self.wishes_left -= 1
            host.submit(self._drawn_wish(clients.connected()))

    def _drawn_wish(self, connected: list[int]) -> ClientAction:
        drawn = self._drawn
        if not connected or (len(connected) < self._plan.processes and drawn.chance(300)):
            return ClientAction(ActionKind.CONNECT, name=NAMES[self.wishes_left % len(NAMES)])
        process = drawn.pick(connected)
        if drawn.chance(self._plan.gone_permille):
            return ClientAction(ActionKind.DISCONNECT, process)
        return ClientAction(ActionKind.TOGGLE, process, drawn.pick(self._names))

    # -- messages ------------------------------------------------------------------------------------------------

    def _submission(self, host: Host) -> Submission:
        plain = super()._submission(host)
        clients = _clients_of(host)
        connected = [] if clients is None else clients.connected()
        process = self._drawn.pick(connected) if connected else 0
        wanted = clients.wanted[process] if clients is not None and process else set()
        return plain._replace(process=process, address=encode_address(self._address(sorted(wanted))))

    def _address(self, wanted: list[str]) -> Address:
        drawn = self._drawn
        processes: tuple[PrivateName, ...] = ()
        if drawn.chance(self._plan.private_permille):
            processes = self._somebody()
            if processes and drawn.chance(500):
                return Address((), processes)
        names = self._names if not wanted or drawn.chance(self._plan.open_permille) else wanted
        count = drawn.between(1, len(names)) if drawn.chance(self._plan.several_permille) else 1
        groups: tuple[GroupId, ...] = tuple(map(group_id, drawn.some(names, count)))
        return Address(groups, processes)

    def _somebody(self) -> tuple[PrivateName, ...]:
        """One or two processes of living nodes, if there are any; they may be gone when the message arrives."""
        crowds = [clients for host in self._world.hosts.values() if (clients := _clients_of(host)) is not None]
        names = [private_name(clients.id(process)) for clients in crowds for process in clients.connected()]
        return self._drawn.some(names, min(len(names), self._drawn.between(1, 2)))


def _clients_of(host: Host) -> Clients | None:
    return None if host.life is None else host.life.clients
