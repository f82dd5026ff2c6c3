"""A failing plan made small: fewer faults, fewer nodes, less traffic, plainer conditions, failing in the same way.

Delta debugging: drop ever smaller parts of the schedule as long as one of the same properties still breaks. The result is
a plan whose text drops into the worked examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from transis.sim.faults import Ambush, InjectedFault, PartitionNetwork, Schedule, names_in
from transis.sim.plan import Plan, Traffic, plan_text
from transis.sim.run import RunOutcome, simulate
from transis.sim.scripts import verdict_text
from transis.sim.world import Conditions

RUNS_MAX: Final = 300
"""Runs that shrinking may cost: a small plan soon is worth more than the smallest one late."""


class Shrunk(NamedTuple):
    plan: Plan
    properties: tuple[str, ...]
    runs: int
    outcome: str
    """What the plan broke, in the words of a script."""

    def script(self) -> str:
        """A script that plays the plan, and what it gave. Among the examples it ends with `held`, once the defect is mended."""
        prose = f"# shrunk from seed {self.plan.seed}, which broke {', '.join(self.properties)}"
        return f"{prose}\nsimulate\n{plan_text(self.plan)}\n----\n{self.outcome}\n"


class Shrinker:
    """Tries smaller plans within a budget; keeps the smallest that fails."""

    def __init__(self, plan: Plan, run: Callable[[Plan], RunOutcome], runs_max: int) -> None:
        self.plan = plan
        self.runs = 1
        self._run = run
        self._runs_max = runs_max
        self.report = run(plan).report
        """Of the smallest plan so far."""
        self.properties = self.report.broken

    def keep_if_failing(self, plan: Plan) -> bool:
        """Keep a plan that breaks one of the same properties. Out of budget counts as no."""
        if plan == self.plan or self.runs >= self._runs_max:
            return False
        self.runs += 1
        report = self._run(plan).report
        if set(report.broken).isdisjoint(self.properties):
            return False
        self.plan, self.report = plan, report
        return True

    def shrink(self) -> None:
        self._schedule()
        self._nodes()
        self._plainer()
        self._traffic()
        self._clients()
        self._schedule()

    def _schedule(self) -> None:
        """Drop chunks of the schedule, halving the chunk when nothing can be dropped any more."""
        chunk = len(self.plan.schedule)
        while chunk >= 1:
            if not any(self.keep_if_failing(replace(self.plan, schedule=rest)) for rest in _without(self.plan.schedule, chunk)):
                chunk //= 2
            chunk = min(chunk, len(self.plan.schedule))

    def _nodes(self) -> None:
        for name in reversed(self.plan.names):
            if len(self.plan.names) > 1:
                self.keep_if_failing(_without_node(self.plan, name))

    def _plainer(self) -> None:
        """Try plainer conditions, traffic and settings, one at a time."""
        plain_traffic = replace(self.plan.traffic, large_permille=0, processes=1, batch=1)
        for settings in (
            {"conditions": Conditions()}, {"traffic": Traffic(messages=self.plan.traffic.messages)}, {"traffic": plain_traffic},
            {"sealed": False}, {"foreign": False}, {"stagger_us": 0}, {"revive": True},
        ):  # fmt: skip
            self.keep_if_failing(replace(self.plan, **settings))

    def _traffic(self) -> None:
        while self.plan.traffic.messages > 1:
            fewer = replace(self.plan.traffic, messages=self.plan.traffic.messages // 2)
            if not self.keep_if_failing(replace(self.plan, traffic=fewer)):
                return

    def _clients(self) -> None:
        """Fewer requests, processes and groups, as long as there are any."""
        for setting in ("wishes", "processes", "groups"):
            while getattr(self.plan.clients, setting) > 1:
                fewer = replace(self.plan.clients, **{setting: getattr(self.plan.clients, setting) // 2})
                if not self.keep_if_failing(replace(self.plan, clients=fewer)):
                    break


def shrink(plan: Plan, broken: str = "", runs_max: int = RUNS_MAX) -> Shrunk:
    """The smallest failing plan found; a plan that does not fail comes back as it is."""
    shrinker = Shrinker(plan, lambda smaller: simulate(smaller.seed, smaller, broken), runs_max)
    if shrinker.properties:
        shrinker.shrink()
    return Shrunk(shrinker.plan, shrinker.properties, shrinker.runs, verdict_text(shrinker.report))


def _without(schedule: Schedule, chunk: int) -> Iterator[Schedule]:
    for start in range(0, len(schedule), chunk):
        yield schedule[:start] + schedule[start + chunk :]


def _without_node(plan: Plan, name: str) -> Plan:
    kept = ((time_us, _fault_without(fault, name)) for time_us, fault in plan.schedule)
    schedule = tuple((time_us, fault) for time_us, fault in kept if fault is not None)
    return replace(plan, names=tuple(other for other in plan.names if other != name), schedule=schedule)


def _fault_without(fault: InjectedFault, name: str) -> InjectedFault | None:
    """The fault in a world without that node, or None if nothing of it is left."""
    if isinstance(fault, PartitionNetwork):
        rest = (tuple(other for other in component if other != name) for component in fault.components)
        return PartitionNetwork(tuple(component for component in rest if component))
    if isinstance(fault, Ambush) and fault.node != name:
        inner = _fault_without(fault.fault, name)
        return None if inner is None else replace(fault, fault=inner)
    return None if name in names_in(fault) else fault
