"""The end of a run with replicas: faults have ended, and whoever is together must order all that they know.

First a bare majority, chosen at random, is up alone, whatever happened before; then all who have a directory come back, and
nothing that was accepted may be missing. If so many directories are gone for good that what counts has no majority any more,
arithmetic forbids to go on: that is counted and is no violation. The ordering engine may also have to wait for some that are
absent, because they alone know what became of an attempt; when all are back it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transis.prsl.machine import Status
from transis.sim.liveness import budget_us, judged_hosts, paces_us, unrest
from transis.sim.plan import Plan
from transis.sim.replicas.group import BRING_UP_US, ReplicationGroup
from transis.sim.replicas.ledger import Violation, unfinished
from transis.sim.world import World
from transis.types.config import MS

ROUNDS_MAX: Final = 60
"""Rounds in which everything must be ordered: an exchange, ATTEMPT and ACK, and two for each chunk of one who is far behind."""


def end_with_replicas(world: World, plan: Plan, group: ReplicationGroup) -> None:
    for home in sorted(group.hung):
        group.free(home)
    for process in group.processes.values():
        process.crash_after = -1
    group.close()
    try:
        _end_with_a_majority(world, plan, group)
        _end_with_all(world, plan, group)
    except Violation as violation:
        group.broken(str(violation))


def _end_with_a_majority(world: World, plan: Plan, group: ReplicationGroup) -> None:
    records = [process.machine.status().record for process in group.processes.values() if process.machine.number]
    record = max(records, key=lambda one: one.version, default=None)
    if record is None or not record.is_founded or group.drawn.chance(300):
        return
    there = [name for name in map(group.name_of, record.members) if name]
    need = len(record.members) // 2 + 1
    if len(there) >= need:
        group.count("ended with a bare majority")
        _settle(world, plan, group, group.drawn.some(there, need), "a bare majority")


def _end_with_all(world: World, plan: Plan, group: ReplicationGroup) -> None:
    if not _settle(world, plan, group, sorted(set(group.directories) - group.away), "all") or group.is_over:
        return
    members = [process for process in group.processes.values() if process.machine.number in process.machine.record.members]
    for process in members:
        process.rest()
    record = max((process.machine.status().record for process in group.processes.values()), key=lambda one: one.version)
    removed = {number for number in group.numbers if not group.name_of(number)}
    gone = {entry.number for entry in record.entries if entry.number not in record.members}
    group.ledger.all_is_ordered(removed | gone | group.lost, with_changes=not group.away)


def _settle(world: World, plan: Plan, group: ReplicationGroup, names: Sequence[str], who: str) -> bool:
    """Only these are up, undisturbed. False if they hold no majority of what counts."""
    group.keep_only(names)
    group.ledger.checked["replicas_live"] += 1
    still_us = max(plan.replicas.silence_us, 4 * BRING_UP_US)
    latest = world.now + _budget_us(world, plan) + still_us
    before, still_since = group.progress(), world.now
    while world.now <= latest and not group.is_over:
        _revive(world)
        world.run(world.now + max(1 * MS, plan.config.detection_us // 4))
        if group.is_idle and not unrest(world) and not _unrest(group, names):
            return True
        now = group.progress()
        if now != before:
            before, still_since = now, world.now
        elif world.now - still_since > still_us and not unrest(world):
            return _is_done(group, names, who)
    if group.is_over:
        return False
    why = unrest(world) or f"not done is {_unrest(group, names)}"
    raise Violation(f"replicas_live: {who} ({', '.join(names)}) are still busy when their time is over: {why}")


def _revive(world: World) -> None:
    """A node that was told to leave when the faults ended stops some time later: it is started again, as the others were."""
    for host in judged_hosts(world):
        if host.life is None:
            world.start(host.address)


def _budget_us(world: World, plan: Plan) -> int:
    _, round_us = paces_us(plan)
    replicas = plan.replicas
    once = 4 * round_us + 2 * plan.conditions.sync_us[1] + max(replicas.lags_us)
    return budget_us(world, plan) + ROUNDS_MAX * once + 2 * (replicas.patience_us + replicas.silence_us)


def _unrest(group: ReplicationGroup, names: Sequence[str]) -> tuple[str, Status] | None:
    """The first that has not ordered all that it knows."""
    for name in names:
        process = group.processes.get(name)
        status = None if process is None else unfinished(process.machine)
        if status is not None:
            return name, status
    return None


def _is_done(group: ReplicationGroup, names: Sequence[str], who: str) -> bool:
    """Nothing changes any more. Returns False if that must be so, True if everybody is done."""
    found = _unrest(group, names)
    if found is None:
        return True
    name, status = found
    here = {process.machine.number for process in group.processes.values()}
    if group.plan.ordering == "engine" and (who != "all" or group.lost):
        group.count("waits for the absent")
        return False
    if all(record.has_majority(here) for record in status.counting) or status.is_behind:
        raise Violation(f"replicas_live: {who} ({', '.join(names)}) do not order all they know: {name} has {status}")
    group.count("blocked by arithmetic")
    return False
