"""A node whose trace also tells when client processes came and went, and what they say of their state: it hands out nothing then,
so nobody else could say it."""

from __future__ import annotations

from transis.net.clock import boottime_us
from transis.node.node import GroupedNode
from transis.sessions.frames import Checkpoint as CheckpointFrame
from transis.trace.flight import Flight
from transis.trace.recorder import Checkpoint, Recorder
from transis.types.views import group_id


class WitnessedNode(GroupedNode):
    """`recorder` and `flight` are given when the node has its id; None records nothing."""

    recorder: Recorder | None = None
    flight: Flight | None = None

    def connect(self, process: int) -> None:
        super().connect(process)
        if self.recorder is not None:
            self.recorder.client(boottime_us(), process, True)

    def disconnect(self, now: int, process: int) -> None:
        if self.recorder is not None:
            self.recorder.client(boottime_us(), process, False)
        super().disconnect(now, process)

    def checkpoint(self, now: int, process: int, frame: CheckpointFrame) -> None:
        name, view, place = frame.name, frame.view, frame.place
        told = Checkpoint(group_id(name), name, view, frame.count, frame.sender, frame.counter, place, frame.digest)
        for witness in (self.recorder, self.flight):
            if witness is not None:
                witness.checkpoint(boottime_us(), process, told)
