"""A seed draws a swarm with replicas: the cluster and its weather as for any run, and what becomes of a replication group on it.

1. Faults come further apart than without replicas: an exchange takes several rotations and a primary several syncs, and what
   never stands cannot fall. Now and then they come as close as ever.
2. Replicas have faults of their own: their processes die, also in the middle of what they do, disks hang, sessions and
   directories are lost, and the power of all fails at once and comes back in any order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from transis.sim.episodes import Draft, draw_schedule
from transis.sim.faults import (
    ActAsReplica,
    Ambush,
    CopyDirectory,
    CrashNode,
    DropSession,
    FreeDisk,
    HangDisk,
    HealNetwork,
    InjectedFault,
    KillReplica,
    LoseDisk,
    PartitionNetwork,
    RestartNode,
    Schedule,
)
from transis.sim.plan import Plan, ReplicaPlan, Scenario
from transis.sim.streams import RandomStream, Streams
from transis.sim.swarm import draw
from transis.types.config import MS, SECOND

FOUNDERS: Final = (2, 3, 3, 3, 3, 4, 5)
SPARE: Final = (0, 0, 1, 2)
"""Nodes without a founder."""
SYNCS: Final = ((100, 500), (500, 10_000), (2_000, 40_000))
TURNS_MAX: Final = 30_000
STRETCHED: Final = (1, 2, 4, 4)
"""By how much longer than a run without replicas the safety phase is, for as many faults."""
SAFETY_MAX_US: Final = 12 * SECOND


COREL: Final = Scenario(replicas="corel")


def draw_replicas(seed: int, nodes: int | None = None, scenario: Scenario = COREL) -> Plan:
    streams = Streams(seed)
    stream = streams["replication"]
    count = stream.pick(FOUNDERS)
    size = count + stream.pick(SPARE) if nodes is None else nodes
    plan = draw(seed, size, scenario)
    safety_us = min(SAFETY_MAX_US, stream.pick(STRETCHED) * plan.safety_us)
    plan = replace(
        plan,
        conditions=replace(plan.conditions, sync_us=stream.pick(SYNCS)),
        traffic=replace(plan.traffic, messages=plan.traffic.messages // 10),
        safety_us=safety_us,
        turns_max=TURNS_MAX,
        revive=True,
        rivalry=False,
        foreign=False,
    )
    schedule = draw_schedule(streams["replication faults"], plan.names, plan.config, safety_us, plan.sealed, scenario.partitions)
    replicas = _replicas(stream, min(count, size), plan, scenario.replicas)
    more = _draw_faults(streams["replica faults"], plan, replicas)
    kept = [entry for entry in schedule if not isinstance(entry[1], CopyDirectory)]
    return replace(plan, replicas=replicas, schedule=tuple(sorted((*kept, *more), key=lambda entry: entry[0])))


def _replicas(stream: RandomStream, count: int, plan: Plan, ordering: str) -> ReplicaPlan:
    posts = stream.stretched(20, 120)
    patience_us = 4 * plan.conditions.sync_us[1] + 20 * MS
    return ReplicaPlan(
        count=count,
        ordering=ordering,
        posts=posts,
        interval_us=max(100, plan.safety_us * 3 // (4 * posts)),
        batch=stream.pick((1, 2, 4)),
        size=stream.pick((4, 40, 400)),
        retries_permille=stream.pick((0, 300, 800)),
        upkeep_us=stream.pick((0, plan.safety_us // 10, plan.safety_us // 60)),
        lags_us=stream.pick(((20,), (20, 200), (20, 20, 5_000))),
        restart_us=stream.pick((10 * MS, plan.safety_us // 20, plan.safety_us // 4)),
        power_permille=stream.pick((0, 500, 1000)),
        patience_us=patience_us,
        silence_us=4 * patience_us + 20 * plan.config.detection_us,
        behind_max=stream.pick((0, 150, 400)),
        tail_max=stream.pick((0, 150, 1 << 20)),
        keep_places=stream.pick((-1, 0, 2)),
        acks_of_all=stream.chance(100),
        explicit_ack=stream.chance(200),
        keys_max=stream.pick((2, 3)),
    )


# --- faults of replicas -----------------------------------------------------------------------------------------------


def _draw_faults(stream: RandomStream, plan: Plan, replicas: ReplicaPlan) -> Schedule:
    draft = Draft(stream, plan.names, plan.config, plan.safety_us, [])
    for episode, many in ((_kill, 6), (_drop, 3), (_hang, 3), (_black_out, 2), (_far_behind, 2), (_lose, 1)):
        if stream.chance(500):
            for _ in range(stream.between(1, many)):
                episode(draft)
    if stream.chance(400):
        for _ in range(stream.between(1, 4)):
            draft.add(draft.moment(), ActAsReplica(draft.name(), stream.pick(("add", "remove", "remove"))))
    return tuple(draft.faults)


def _kill(draft: Draft) -> None:
    """In the middle of what it does as often as not: a replica hands out a few dozen outputs in a view."""
    stream = draft.stream
    fault: InjectedFault = KillReplica(draft.name(), stream.pick((0, stream.between(1, 40))))
    draft.add_perhaps_in_ambush(draft.moment(), draft.name(), fault)


def _drop(draft: Draft) -> None:
    draft.add(draft.moment(), DropSession(draft.name()))


def _hang(draft: Draft) -> None:
    name, time = draft.name(), draft.moment()
    draft.add(time, HangDisk(name))
    draft.add(time + 4 * draft.while_us(), FreeDisk(name))


def _black_out(draft: Draft) -> None:
    """The power of all fails, of each at its own moment but together, and comes back in any order."""
    stream, time = draft.stream, draft.moment()
    together_us = stream.pick((0, 0, draft.detection_us))
    for name in draft.names:
        off_us = time + stream.between(0, together_us)
        draft.add(off_us, KillReplica(name))
        draft.add(off_us, CrashNode(name))
    for name in stream.some(draft.names, len(draft.names)):
        time += draft.while_us() // 2
        draft.add(time + together_us, RestartNode(name))


def _far_behind(draft: Draft) -> None:
    """Most of them are together while one is away, with snapshots and trimming in between: it may find nothing to retransmit."""
    stream, time = draft.stream, draft.moment()
    gone = draft.name()
    rest = tuple(name for name in draft.names if name != gone)
    if not rest:
        return
    draft.add(time, PartitionNetwork((rest, (gone,))))
    end = time + 8 * draft.detection_us + draft.while_us()
    for name in rest:
        draft.add(time + (end - time) // 2, ActAsReplica(name, "post"))
        draft.add(end - draft.detection_us, ActAsReplica(name, "snapshot"))
        draft.add(end, ActAsReplica(name, "trim"))
    draft.add(end, HealNetwork())
    if stream.chance(300):
        draft.add(end, Ambush(gone, "Operational", KillReplica(stream.pick(rest)), draft.some_hops_us() * 4))


def _lose(draft: Draft) -> None:
    """A directory is gone for good; somebody asks for a replacement, at the same node or at another."""
    time = draft.moment()
    draft.add(time, LoseDisk(draft.name()))
    for _ in range(draft.stream.between(0, 2)):
        time += draft.while_us()
        draft.add(time, ActAsReplica(draft.name(), "replace"))
