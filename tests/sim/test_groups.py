"""The swarm with groups: it draws, runs, repeats itself, holds, and comes to rest with everybody where it wants to be."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest

from transis.audit.guarantees import GROUP_PROPERTIES
from transis.node.node import Node
from transis.sim.cluster import SimulatedCluster
from transis.sim.coverage import GROUPS_EXPECTED, counted
from transis.sim.faults import ActAsClients, parse
from transis.sim.liveness import unrest
from transis.sim.plan import ClientPlan, Plan, Traffic, parse_plan, plan_text
from transis.sim.run import RunOutcome, SimulatedRun, describe, node_of, simulate
from transis.sim.shrink import shrink
from transis.sim.swarm import draw, draw_groups
from transis.trace.events import ClientDelivery, ClientLife, GroupConf
from transis.types.ids import ProcessId
from transis.types.views import group_id

CROWD = ClientPlan(processes=3, groups=3, wishes=60, interval_us=20_000, gone_permille=100, private_permille=200, quorum=3)
PLAIN = Plan(5, ("a", "b", "c"), traffic=Traffic(messages=80, batch=3), clients=CROWD, safety_us=800_000)


@pytest.mark.parametrize("seed", range(40))
def test_seeds_hold(seed: int) -> None:
    outcome = simulate(seed, groups=True)
    assert outcome.report.broken == (), describe(outcome)


@pytest.fixture(scope="module")
def plain() -> RunOutcome:
    return simulate(5, PLAIN)


def test_a_run_without_faults_holds_and_judges_every_promise(plain: RunOutcome) -> None:
    assert plain.report.broken == ()
    assert plain.settled_us is not None
    held = {name for name in GROUP_PROPERTIES if plain.report.verdicts[name].verdict == "held"}
    unasked = {"replicas_agree", "group_only_primary"}
    assert held == set(GROUP_PROPERTIES) - unasked, "processes tell nothing of their state, and no node waits for a quorum"


def test_a_turn_makes_at_most_one_event_of_what_is_handed_over(plain: RunOutcome) -> None:
    """Two follow each other only in different turns; and they are fewer than the runs that they tell of."""
    events = [event for trace in plain.history.nodes for event in trace.events if isinstance(event, ClientDelivery)]
    runs = sum(len(handed.runs) for event in events for handed in event.handed)
    assert 0 < len(events) < runs
    for trace in plain.history.nodes:
        for one, two in pairwise(trace.events):
            assert not (isinstance(one, ClientDelivery) and isinstance(two, ClientDelivery)) or one.time_us < two.time_us


def test_processes_come_and_go(plain: RunOutcome) -> None:
    lives = [event for trace in plain.history.nodes for event in trace.events if isinstance(event, ClientLife)]
    assert {event.connected for event in lives} == {True, False}
    assert counted(plain.history)["process gone"] == sum(not event.connected for event in lives)


def test_what_is_reached_is_counted_by_its_name() -> None:
    reached = set(counted(simulate(5, groups=True).history)) - {"join refused"}
    assert reached <= set(GROUPS_EXPECTED)
    assert len(reached) > len(GROUPS_EXPECTED) // 2


def test_the_engine_is_drawn_as_without_groups() -> None:
    for seed in range(20):
        with_groups, without = draw_groups(seed), draw(seed)
        assert set(without.schedule) <= set(with_groups.schedule)
        assert replace(with_groups, clients=without.clients, schedule=without.schedule) == without


def test_a_plan_with_clients_reads_back() -> None:
    for seed in range(20):
        plan = draw_groups(seed)
        assert parse_plan(plan_text(plan)) == plan
        assert plan.has_groups


def test_a_plan_chooses_the_node() -> None:
    config = replace(PLAIN.config_of("a"), plaintext=True)
    for plan, has_groups in ((PLAIN, True), (replace(PLAIN, clients=ClientPlan()), False)):
        node = node_of(plan)(config, {}, 1)
        assert isinstance(node, Node)
        assert node.has_groups is has_groups
    assert config.quorum == ("a", "b", "c")


DIGEST = "from transis.sim.run import simulate; print(simulate(5, groups=True).digest())"


def test_the_same_seed_gives_the_same_digest_under_any_hash_seed() -> None:
    here = simulate(5, groups=True).digest()
    for hash_seed in ("0", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        there = subprocess.run([sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True)
        assert there.stdout.strip() == here


def test_asking_reads_back_and_makes_processes_ask() -> None:
    assert parse(str(ActAsClients("a", 7))) == ActAsClients("a", 7)
    run = SimulatedRun(replace(PLAIN, clients=replace(CROWD, wishes=0)))
    run.world.run(300_000)
    for _ in range(4):
        run.world.strike(ActAsClients("a", 12))
        run.world.run(run.world.now + 100_000)
    life = run.world.hosts["a"].life
    assert life is not None
    assert any(isinstance(event, GroupConf) for event in life.recorder.events)


def test_asking_a_node_without_groups_does_nothing() -> None:
    cluster = SimulatedCluster(replace(PLAIN, clients=ClientPlan()))
    assert cluster.settle() == ""
    cluster.strike(ActAsClients("a", 3))
    assert cluster.settle() == ""
    assert cluster.check().broken == ()


def test_a_process_that_is_not_where_it_wants_to_be_is_unrest() -> None:
    run = SimulatedRun(replace(PLAIN, clients=replace(CROWD, wishes=0), traffic=Traffic(messages=0)))
    run.safety()
    run.liveness()
    assert unrest(run.world) == ""
    life = run.world.hosts["a"].life
    assert life is not None
    assert life.clients is not None
    process = life.clients.connect()
    life.clients.wanted[process].add("nowhere")
    assert f"{ProcessId(life.id, process)}, which asked for ['nowhere'] and is in []" in unrest(run.world)


def test_a_plan_with_clients_is_shrunk_with_fewer_of_them() -> None:
    """Seed 5 has faults enough to break with this defect, and still does without most of its clients."""
    plan = replace(draw_groups(5, nodes=2), schedule=())
    small = shrink(plan, "everybody_is_told", runs_max=30)
    assert small.properties == ("group_one_view_per_change",)
    assert small.plan.clients.wishes < plan.clients.wishes
    assert simulate(5, small.plan).report.broken == ()


def test_names_of_groups_have_different_hashes() -> None:
    assert len({group_id(f"g{number}") for number in range(12)}) == 12


def test_what_waits_for_a_quorum_at_the_end_is_not_lost() -> None:
    """In this run a component without a quorum is all that is left, and has messages that it could not send."""
    outcome = simulate(124, groups=True)
    assert outcome.report.broken == ()
    assert "every_submit_accounted" in outcome.report.pending
