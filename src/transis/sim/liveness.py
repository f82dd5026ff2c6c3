"""The liveness phase: faults end, and within a stated time all live nodes share one view and owe nothing.

1. The budget is the number of attempts (at most n + 2) times what one takes, plus the backlog divided by the window, plus what a
   quarantine, a beacon and a sync may add. On the ring an attempt takes a token loss, a consensus and four rotations; on Lansis
   silence and its probes, the gathering of strangers, agreement twice (for the statements and for the flush) and some hops.
2. Nobody starves: a node with little to send gets its turn while the others saturate the ring. At rest, all nodes but one fill
   their queues; some rounds later the last one sends a single message, which must be delivered before the queues of the others
   are empty. If they were empty already when it was sent, nothing was tested.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from transis.audit.guarantees.property import Findings
from transis.sim.faults import COPY_SUFFIX, SendMessages
from transis.sim.host import Host
from transis.sim.life import SimulatedLife
from transis.sim.plan import Plan, agreement_us, gathering_us
from transis.sim.world import World
from transis.trace.events import Delivery, Sent
from transis.types.config import MS, SECOND
from transis.types.ids import NodeId, ProcessId, Service

# --- liveness ---------------------------------------------------------------------------------------------------------

FOREIGN: Final = "foreign"
"""The address of the node of another cluster; it is not judged."""

ROOMY_BYTES: Final = 8 << 20
"""Socket buffers when faults end: nothing overflows any more."""

QUARANTINE_ALLOWANCE_US: Final = 3 * SECOND
"""A quarantine ends early when a peer's beacons show that it hears all members again, which takes a few beacons from each.
Otherwise it lasts its whole time, at most quarantine_max_us."""


ALIVE_SHARE: Final = 10
"""Up to this many members of a Lansis view send Alive at full rate; in a larger view each member sends it less often."""

AGREE_SHARE: Final = 32
"""For every so many members, Lansis is allowed the time of one more agreement."""


def end_faults(world: World, plan: Plan) -> None:
    """The network is whole, paused nodes resume, slow ones are quick, and dead ones may be started again."""
    world.at_peace = True
    world.network.calm()
    for host in list(world.hosts.values()):
        host.ambushes.clear()
        host.crash_after = -1
        host.quicken()
        host.machine = replace(host.machine, buffer_bytes=ROOMY_BYTES)
        if host.paused:
            host.resume()
        if plan.revive and host.life is None and not host.address.endswith(COPY_SUFFIX):
            world.start(host.address)


def budget_us(world: World, plan: Plan) -> int:
    """How long it may take from the end of the faults to rest."""
    timing = plan.config.timing
    nodes = len(plan.names)
    attempt, round_us = paces_us(plan)
    backlog = sum(life.owed for life in judged(world)) * _datagrams_per_message(plan) // plan.config.window.window
    once = (
        QUARANTINE_ALLOWANCE_US
        + timing.quarantine_max_us
        + 4 * timing.beacon_us
        + 4 * plan.conditions.sync_us[1]
        + timing.leave_us
    )
    drift = 1 + plan.conditions.drift_ppm // 100_000
    return drift * ((nodes + 2) * attempt + 4 * (backlog + 1) * round_us + once)


def paces_us(plan: Plan) -> tuple[int, int]:
    """The longest that one attempt to form a view takes, and one round, after which everybody has a window of messages."""
    config, nodes = plan.config, len(plan.names)
    forming = config.detection_us + gathering_us(config)
    if config.engine == "totem":
        rotation = rotation_us(plan) + config.timing.retransmission_pace_us
        return forming + agreement_us(config) + 4 * rotation, rotation
    agreements = 2 * agreement_us(config) * (1 + nodes // AGREE_SHARE)
    return forming + agreements + 8 * hop_us(plan), hop_us(plan) + config.pulse.alive_us * max(1, nodes // ALIVE_SHARE)


def rotation_us(plan: Plan) -> int:
    """The longest that a rotation takes without faults: every node in turn is heard by the next, as when a token goes round."""
    return len(plan.names) * hop_us(plan)


def hop_us(plan: Plan) -> int:
    climate = plan.conditions.climate
    return max(climate.delay_us) + climate.jitter_us + 2 * plan.conditions.machine.turn_us


def _datagrams_per_message(plan: Plan) -> int:
    return 1 + max(plan.traffic.size, plan.traffic.large) // (plan.config.datagram // 2)


def judged(world: World) -> list[SimulatedLife]:
    """The lives that still run and belong to the cluster under test."""
    return [host.life for host in judged_hosts(world) if host.life is not None]


def judged_hosts(world: World) -> list[Host]:
    return [host for host in world.hosts.values() if host.address != FOREIGN]


def settle(world: World, plan: Plan, budget: int) -> int | None:
    """Run until the cluster is at rest and stays so for a while; returns how long that took, or None if it did not happen."""
    started = world.now
    slice_us = max(1 * MS, plan.config.detection_us // 2)
    while world.now - started <= budget:
        world.run(world.now + slice_us)
        if not unrest(world):
            reached = world.now - started
            world.run(world.now + 2 * plan.config.timing.beacon_us)
            if not unrest(world):
                return reached
    return None


def unrest(world: World) -> str:
    """Why the cluster is not at rest, in words; empty when it is."""
    lives = judged(world)
    members = tuple(sorted(life.id for life in lives))
    for life in lives:
        reason = _unrest_of(life, members)
        if reason:
            return f"{life.id} ({life.node.state}) {reason}"
    if len({(life.regular, life.position) for life in lives}) > 1:
        return "positions differ: " + ", ".join(f"{life.id} at {life.position} of {life.regular}" for life in lives)
    return _unrest_of_groups(lives)


def _unrest_of_groups(lives: list[SimulatedLife]) -> str:
    """Every member of a group last saw a group view with exactly those processes that asked to be in it."""
    wanted: dict[str, list[ProcessId]] = {}
    for life in lives:
        for process, names in sorted(life.clients.wanted.items()) if life.clients is not None else ():
            for name in sorted(names):
                wanted.setdefault(name, []).append(ProcessId(life.id, process))
    for life in lives:
        for process, inside in sorted(life.clients.inside.items()) if life.clients is not None else ():
            for view in inside.values():
                if list(view.members) != sorted(wanted.get(view.name, [])):
                    return f"{life.id}#{process} is in {view.id} of {view.name}, whose members are not those who want to be in it"
    return ""


def _unrest_of(life: SimulatedLife, members: tuple[NodeId, ...]) -> str:
    if life.view is None:
        return "has no view"
    if life.regular is None:
        return f"is in the transitional view {life.view.id}"
    if life.view.nodes != members:
        together = ", ".join(map(str, life.view.nodes))
        return f"is in a view of {together} while {', '.join(map(str, members))} are alive"
    if life.node.state != "Operational":
        return "is not operational"
    if life.owed and not life.held:
        return f"still owes {life.owed} of {life.taken} messages"
    return "" if life.clients is None else life.clients.unrest()


# --- fairness ---------------------------------------------------------------------------------------------------------

HEAD_START: Final = 3
"""Rounds that the others get before the single message is sent."""

LEAST_ROUNDS: Final = 12
"""Rounds for which the queues of the others must last, or nothing was tested."""

MESSAGES_MAX: Final = 400
"""Messages of one rival."""


def compete(world: World, plan: Plan) -> Findings:
    findings = Findings("fairness")
    lives = judged(world)
    if any(life.held for life in lives):
        return findings
    size = plan.config.datagram // 2
    count = min(MESSAGES_MAX, plan.config.window.outbox_bytes // (2 * size))
    if len(lives) < 2 or count * (len(lives) - 1) < 2 * LEAST_ROUNDS * plan.config.window.window:
        return findings
    *rivals, quiet = lives
    for rival in rivals:
        world.strike(SendMessages(rival.host, Service.AGREED, count, size))
    world.run(world.now + HEAD_START * _round_us(plan))
    if not any(map(_has_work, rivals)):
        return findings
    world.strike(SendMessages(quiet.host, Service.AGREED, 1, size))
    if settle(world, plan, budget_us(world, plan)) is None:
        return findings
    findings.checked = 1
    behind = _delivered_behind(quiet)
    if not behind:
        findings.broken(f"{quiet.id} got no turn before everything else was sent: it starved beside busy senders")
    return findings


def _round_us(plan: Plan) -> int:
    """The time in which a window of messages reaches everybody: a rotation, or two hops with a prompt acknowledgement between."""
    return rotation_us(plan) if plan.config.engine == "totem" else 2 * hop_us(plan) + plan.config.pulse.prompt_us


def _has_work(life: SimulatedLife) -> bool:
    """Whether it has accepted messages that it has not sent yet."""
    sent = sum(event.count for event in life.recorder.events if isinstance(event, Sent))
    return life.taken - life.refused > sent


def _delivered_behind(quiet: SimulatedLife) -> int:
    """Messages of others that the quiet node delivered behind its own last one."""
    behind = 0
    for event in reversed(quiet.recorder.events):
        if isinstance(event, Delivery):
            if event.process.node == quiet.id:
                return behind
            behind += event.count
    return behind
