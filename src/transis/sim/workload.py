"""Applications of the simulation: they submit under the plan's traffic until the plan's messages are used up.

Sizes, services and pauses are drawn; a call may carry several messages of one service, as real applications hand over
batches. What a node does not take is not tried again: the next call brings new messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transis.sim.host import Host
from transis.sim.life import Submission
from transis.sim.plan import Traffic
from transis.sim.streams import Stream
from transis.sim.world import World
from transis.types.ids import Service

NOT_YET: Final = ("down", "Starting", "Stopped")
"""States of a host in which its application has nobody to call: messages are saved for better times."""


class Workload:
    """One application per sending host, each calling at its own pace."""

    def __init__(self, world: World, traffic: Traffic, senders: Sequence[str]) -> None:
        self.left = traffic.messages
        self._world = world
        self._traffic = traffic
        self._stream: Stream = world.streams["workload"]
        self._open = True
        for address in senders:
            world.at(world.now + self._pause(), self._call, address)

    def close(self) -> None:
        """Applications send nothing more."""
        self._open = False

    def more(self, messages: int) -> None:
        """So many messages more, for the applications that still call."""
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
