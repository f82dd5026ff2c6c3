"""Simulated runs whose nodes have a tape beside the recorder, for tests of tapes, ring files and digests."""

from collections.abc import Sequence
from typing import NamedTuple

from transis.sim.life import SimulatedLife
from transis.sim.plan import TOTEM, Scenario
from transis.sim.run import SimulatedRun
from transis.sim.swarm import draw, draw_groups
from transis.trace.events import Event, History
from transis.trace.tape import DeliveryLog
from transis.types.ids import NodeId
from transis.types.outputs import Configure, Delivered, NodeOutput, Observer


class Taped(NamedTuple):
    node: NodeId
    tape: DeliveryLog
    events: list[Event]


class Watcher(Observer):
    """Puts on a tape what a flight recorder does."""

    kinds = frozenset({Delivered, Configure})

    def __init__(self) -> None:
        self.tape = DeliveryLog()

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            if isinstance(output, Delivered):
                self.tape.add(output)
            elif isinstance(output, Configure):
                self.tape.configured(output.view)


def taped_run(seed: int, groups: bool = False, scenario: Scenario = TOTEM) -> tuple[list[Taped], History]:
    """The lives of a seed's run, each with its tape, from which nothing was taken yet; and the history."""
    plan = draw_groups(seed, None, scenario) if groups else draw(seed, None, scenario)
    watchers: dict[NodeId, Watcher] = {}

    def watch(life: SimulatedLife) -> list[Watcher]:
        watchers[life.id] = Watcher()
        return [watchers[life.id]]

    run = SimulatedRun(plan)
    run.world.observers_of = watch
    run.safety()
    run.liveness()
    history = run.judged("").history
    lives = [Taped(trace.node, watchers[trace.node].tape, trace.events) for trace in history.nodes]
    return lives, history
