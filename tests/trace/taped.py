"""Simulated runs whose nodes have a tape beside the recorder, for tests of tapes, films and digests."""

from collections.abc import Mapping
from typing import NamedTuple

from transis.node.node import GroupedNode, Node
from transis.sim.plan import TOTEM, Scenario
from transis.sim.run import SimulatedRun, node_of
from transis.sim.swarm import draw, draw_groups
from transis.trace.events import Event, History
from transis.trace.tape import DeliveryTape
from transis.types.config import Config
from transis.types.ids import NodeId


class Taped(NamedTuple):
    node: NodeId
    tape: DeliveryTape
    events: list[Event]


def taped_run(seed: int, groups: bool = False, scenario: Scenario = TOTEM) -> tuple[list[Taped], History]:
    """The lives of a seed's run, each with its tape, from which nothing was taken yet; and the history."""
    plan = draw_groups(seed, None, scenario) if groups else draw(seed, None, scenario)
    tapes: dict[NodeId, DeliveryTape] = {}
    make_node = node_of(plan)

    def make(config: Config, stored: Mapping[str, int], boot: int, key: bytes | None = None) -> Node | GroupedNode:
        node = make_node(config, stored, boot, key)
        assert isinstance(node, Node | GroupedNode)
        tape = tapes[node.id] = DeliveryTape()
        if isinstance(node, GroupedNode):
            node.record_on(tape)
        else:
            node.tape = tape
        return node

    run = SimulatedRun(plan, make)
    run.safety()
    run.liveness()
    history = run.judged("").history
    lives = [Taped(trace.node, tapes[trace.node], trace.events) for trace in history.nodes]
    return lives, history
