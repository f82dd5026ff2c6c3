"""One run: the plan's nodes under the plan's faults, then without them, then judged.

1. Safety phase: faults strike, nothing wrong may happen. Liveness phase: faults end, and within the budget of liveness.py
   everybody is in one view and everything is delivered. Then the checkers judge the recorded history.
2. A history is judged by the promises of its engine, which may depend on what happened. ToTo promises one order as long as the
   living members of a view stay together and know all votes that were counted. A plan without partitions sees to that as far as
   a plan can. Where a member was wrongly suspected and left out all the same, or died ahead of the others (its own vote may have
   been lost with it, and decided for it alone), the run is judged as any run of ToTo.
3. The judge `evs` checks all of extended virtual synchrony, promised or not, to find runs that show why ToTo does not promise it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Final

from transis.audit.guarantees import REPLICA_MEANINGS, UNPROMISED, check
from transis.audit.guarantees.property import Findings, Report, Violation
from transis.node.node import Node
from transis.sim.coverage import Coverage, counted
from transis.sim.defects import broken_engine, changed
from transis.sim.life import NodeFactory, SimulatedLife
from transis.sim.liveness import FOREIGN, budget_us, compete, end_faults, judged, judged_hosts, settle, unrest
from transis.sim.network import JourneyWatcher
from transis.sim.plan import TOTEM, Plan, Scenario, plan_text
from transis.sim.replicas.defects import REPLICA_DEFECTS
from transis.sim.replicas.finish import end_with_replicas
from transis.sim.replicas.group import ReplicationGroup
from transis.sim.replicas.swarm import draw_replicas
from transis.sim.swarm import draw, draw_groups
from transis.sim.workload import GroupWorkload, Workload, everybody
from transis.sim.world import FAULT, World
from transis.trace.events import Conf, Delivery, History, NodeTrace
from transis.trace.segment import digest
from transis.types.ids import ViewId

# --- promises ---------------------------------------------------------------------------------------------------------

ONE_ORDER: Final = "toto one component"
"""What ToTo keeps where a view does not part."""


def history_of(plan: Plan, lives: Iterable[SimulatedLife], closed: bool) -> History:
    """The traces of these lives, and what they are judged by."""
    traces = [NodeTrace(life.id, life.recorder.events) for life in lives]
    history = History(traces, closed, plan.config.guarantees, plan.config.engine)
    if plan.judge == "evs":
        return held_to_evs(history)
    if plan.one_component and history.promises == "toto" and not splits(history) and not deaths_ahead(history):
        return history._replace(promises=ONE_ORDER)
    return history


def held_to_evs(history: History) -> History:
    """The same traces, judged by all of EVS. Places that are known at sending are not part of it, and ToTo has none."""
    return history._replace(promises=ONE_ORDER if history.promises in ("toto", ONE_ORDER) else "evs")


def beyond_promise(plan: Plan, broken: Sequence[str]) -> str:
    """A sentence for runs that are judged by more than their views promise; empty if what broke was promised."""
    beyond = [name for name in broken if plan.judge == "evs" and name in UNPROMISED[plan.config.guarantees]]
    if not beyond:
        return ""
    return (
        f"Views with the guarantees {plan.config.guarantees!r} do not promise {', '.join(beyond)}; this is a run that shows why."
    )


def splits(history: History) -> int:
    """Counts views whose living members went different ways."""
    ways: dict[ViewId, set[ViewId]] = {}
    for trace in history.nodes:
        for event in trace.events:
            if isinstance(event, Conf) and not event.view.id.is_regular:
                ways.setdefault(event.view.regular, set()).add(event.view.id)
    return sum(1 for found in ways.values() if len(found) > 1)


def deaths_ahead(history: History) -> int:
    """Counts views in which a member that did not go on had delivered more of the order than one that did."""
    died: dict[ViewId, int] = {}
    went_on: dict[ViewId, int] = {}
    for trace in history.nodes:
        for view, (count, is_last) in _delivered_in_views(trace).items():
            if is_last:
                died[view] = max(count, died.get(view, 0))
            else:
                went_on[view] = min(count, went_on.get(view, count))
    return sum(1 for view, count in died.items() if count > went_on.get(view, count))


def _delivered_in_views(trace: NodeTrace) -> dict[ViewId, tuple[int, bool]]:
    """How much of the order a life delivered in each regular view, and whether that view was its last."""
    found: dict[ViewId, tuple[int, bool]] = {}
    current: ViewId | None = None
    for event in trace.events:
        if isinstance(event, Conf):
            if current is not None:
                found[current] = (found[current][0], False)
            current = event.view.id if event.view.id.is_regular else None
            if current is not None:
                found[current] = (0, True)
        elif isinstance(event, Delivery) and current is not None and event.tpos >= 0:
            found[current] = (found[current][0] + event.count, True)
    return found


# --- run --------------------------------------------------------------------------------------------------------------

AFTERMATH_PERMILLE = 100
"""Traffic goes on for a tenth of the plan's time after the faults end, with this share of its messages."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a run did and how it was judged. `faults` counts strikes by kind; `log` has them in order."""

    plan: Plan
    broken: str
    report: Report
    history: History
    coverage: Coverage
    faults: dict[str, int]
    log: tuple[tuple[int, str], ...]
    deliveries: int
    views: int
    turns: int
    virtual_us: int
    settled_us: int | None
    """How long the liveness phase took, of `budget_us`; None if it did not end in time."""
    budget_us: int

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def violations(self) -> tuple[Violation, ...]:
        return self.report.violations

    @property
    def replay(self) -> str:
        return replay_of(self.plan)

    def digest(self) -> str:
        """The canonical digest of the history: equal for equal runs, whatever the process or its hash seed."""
        return digest(self.history)


def replay_of(plan: Plan) -> str:
    """The one line that replays a run, if its plan is the one that its seed draws."""
    scenario = plan.scenario
    nodes = "" if len(plan.names) == len(draw_run(plan.seed, None, False, scenario).names) else f" --nodes {len(plan.names)}"
    groups = " --groups" if plan.clients.processes else ""
    return f"transis simulate {scenario.options}{groups}{nodes} --seed {plan.seed}"


def draw_run(seed: int, nodes: int | None, groups: bool, scenario: Scenario) -> Plan:
    """The plan of a seed: with replicas, with client processes, or of plain nodes."""
    if scenario.replicas:
        return draw_replicas(seed, nodes, scenario)
    return (draw_groups if groups else draw)(seed, nodes, scenario)


def simulate(
    seed: int,
    plan: Plan | None = None,
    broken: str = "",
    nodes: int | None = None,
    groups: bool = False,
    scenario: Scenario = TOTEM,
    watchers: Sequence[JourneyWatcher] = (),
) -> RunOutcome:
    """Run a seed's plan, with client processes if `groups`, or the given plan, and judge it. `broken` names a defect."""
    if plan is None:
        plan = draw_run(seed, nodes, groups, scenario)
    run = SimulatedRun(plan)
    run.world.network.watchers += watchers
    with changed(REPLICA_DEFECTS[broken].changes) if broken in REPLICA_DEFECTS else broken_engine(broken):
        run.safety()
        run.liveness()
    return run.judged(broken)


SLICE_GROUPS: Final = 2
"""Groups that a simulated node handles in one slice: so few that its groups often lag behind its ring, as a real node's do only
with thousands of groups."""


def node_of(plan: Plan) -> NodeFactory:
    """What the plan's hosts run: a node with groups if there are client processes, else one without."""
    return partial(Node, with_groups=plan.has_groups, slice_groups=SLICE_GROUPS)


def build_world(plan: Plan, make_node: NodeFactory, later: Container[str] = ()) -> World:
    """The plan's hosts, each with a moment at which it starts; the caller starts those of `later`."""
    key = sha256(f"key of {plan.seed}".encode()).digest() if plan.sealed else None
    world = World(plan.seed, plan.conditions, make_node, key)
    if plan.clients.processes:
        world.sends_to = everybody(plan.clients)
    starts = world.streams["starts"]
    for name in plan.names:
        world.add_host(plan.config_of(name))
        start_us = starts.between(0, plan.stagger_us)
        if name not in later:
            world.at(start_us, world.first_start, name)
    if plan.foreign:
        world.add_host(replace(plan.config_of(plan.names[0]), cluster=FOREIGN), FOREIGN)
        world.at(0, world.start, FOREIGN)
    return world


class SimulatedRun:
    """The phases of one run, in order."""

    def __init__(self, plan: Plan, make_node: NodeFactory | None = None) -> None:
        self._plan = plan
        self.world = build_world(plan, make_node or node_of(plan))
        self._replicas = ReplicationGroup(self.world, plan) if plan.has_replicas else None
        self._settled_us: int | None = None
        self._budget_us = 0
        self._liveness = Findings("liveness")
        self._fairness = Findings("fairness")
        stream = self.world.streams["senders"]
        senders = [name for name in plan.names if stream.chance(plan.traffic.senders_permille)]
        self._workload = _workload(self.world, plan, senders or plan.names[:1])

    def safety(self) -> None:
        for time_us, fault in self._plan.schedule:
            self.world.at(time_us, self.world.strike_unless_at_peace, fault, FAULT)
        self.world.run(self._plan.safety_us, self._plan.turns_max)

    def liveness(self) -> None:
        world, plan = self.world, self._plan
        end_faults(world, plan)
        self._workload.more(plan.traffic.messages * AFTERMATH_PERMILLE // 1000)
        world.run(world.now + world.now // 10)
        self._workload.close()
        if self._replicas is not None:
            end_with_replicas(world, plan, self._replicas)
        self._budget_us = budget_us(world, plan)
        self._settled_us = settle(world, plan, self._budget_us)
        self._liveness.checked = len(judged(world))
        if self._settled_us is None:
            self._liveness.broken(f"not at rest {self._budget_us} us after the last fault: {unrest(world)}")
        elif plan.rivalry:
            self._fairness = compete(world, plan)

    def judged(self, broken: str) -> RunOutcome:
        world = self.world
        for life in world.lives.values():
            world.coverage.node(life.node.coverage)
        history = self._history()
        if self._plan.one_component:
            world.coverage.notes["parted without a partition"] += splits(history)
            world.coverage.notes["died ahead of the others"] += deaths_ahead(history)
        world.coverage.groups.update(counted(history) if self._plan.has_groups else {})
        report = check(history)
        of_replicas = self._of_replicas(report.broken)
        of_harness = (self._liveness, self._fairness, self._incarnations(), *self._mishaps(), *of_replicas)
        for findings in of_harness:
            report.verdicts[findings.name] = findings.verdict()
        return RunOutcome(
            plan=self._plan,
            broken=broken,
            report=report,
            history=history,
            coverage=world.coverage,
            faults=dict(sorted(world.struck.items())),
            log=tuple(world.log),
            deliveries=sum(life.delivered for life in world.lives.values()),
            views=sum(life.views for life in world.lives.values()),
            turns=world.turns,
            virtual_us=world.now,
            settled_us=self._settled_us,
            budget_us=self._budget_us,
        )

    def _incarnations(self) -> Findings:
        """No two lives that took part share name and incarnation, unless somebody copied or lost the directory (C4)."""
        findings = Findings("incarnations_are_new")
        lives = list(self.world.lives.values())
        tampered = {life.id.name for life in lives if life.memory}
        seen: dict[tuple[str, int], SimulatedLife] = {}
        for life in lives:
            if life.views and life.host in self._plan.names and life.id.name not in tampered:
                findings.checked += 1
                earlier = seen.setdefault((life.id.name, life.id.incarnation), life)
                if earlier is not life:
                    findings.broken(f"{life.id} lived twice: from {earlier.started_us} us and from {life.started_us} us on")
        return findings

    def _mishaps(self) -> list[Findings]:
        no_crash, integrity = Findings("no_crash"), Findings("integrity")
        no_crash.checked = self.world.turns
        integrity.checked = self.world.verified
        for mishap in self.world.mishaps:
            (no_crash if mishap.property == "no_crash" else integrity).broken(f"at {mishap.time_us} us {mishap.explanation}")
        return [integrity, no_crash]

    def _of_replicas(self, broken: Sequence[str]) -> list[Findings]:
        """What the ledger saw at once. It ended the run of the replicas there, so that their trace may not show it."""
        group = self._replicas
        if group is None:
            return []
        found = {name: Findings(name) for name in REPLICA_MEANINGS}
        for name, findings in found.items():
            findings.checked = group.ledger.checked[name]
        for violation in group.violations:
            name, _, explanation = violation.partition(": ")
            if name not in broken:
                found.setdefault(name, Findings(name)).broken(explanation)
        return list(found.values())

    def _history(self) -> History:
        """One trace per life, in order of ids; the foreign cluster's lives are not part of it."""
        hosts = {host.address for host in judged_hosts(self.world)}
        lives = sorted((life for life in self.world.lives.values() if life.host in hosts), key=lambda life: life.id)
        waits = any(life.waits_for_quorum for life in lives)
        history = history_of(self._plan, lives, closed=not unrest(self.world) and not waits)
        if self._replicas is None:
            return history
        of_replicas = [record.trace() for record in self._replicas.records]
        return history._replace(nodes=sorted(history.nodes + of_replicas, key=lambda trace: trace.node))


def _workload(world: World, plan: Plan, senders: Sequence[str]) -> Workload:
    if plan.clients.processes:
        return GroupWorkload(world, plan.traffic, senders, plan.clients, plan.names)
    return Workload(world, plan.traffic, senders)


def describe(outcome: RunOutcome) -> str:
    """A violated run in words: what broke, how to replay it, and under which plan it ran."""
    lines = [f"seed {outcome.seed}: " + (", ".join(outcome.report.broken) or "every guarantee held")]
    lines += [f"  {violation.property}: {violation.explanation}" for violation in outcome.violations]
    beyond = beyond_promise(outcome.plan, outcome.report.broken)
    lines += [f"  {beyond}"] if beyond else []
    lines += [f"replay: {outcome.replay}", plan_text(outcome.plan)]
    return "\n".join(lines)
