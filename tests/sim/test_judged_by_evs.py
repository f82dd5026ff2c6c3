"""ToTo under partition is caught by the checker of the total order (T9, F9b), if it is asked; within one component it passes."""

from __future__ import annotations

import pytest

from transis.audit.guarantees import check
from transis.audit.guarantees.property import BROKEN, HELD, NOT_PROMISED
from transis.sim.plan import Scenario
from transis.sim.play import EXAMPLES
from transis.sim.run import describe, held_to_evs, replay_of, simulate
from transis.sim.scripts import Player, parse_script
from transis.sim.swarm import draw
from transis.trace.events import History

TWO_ORDERS = EXAMPLES / "lansis_toto_two_orders.txt"

BY_EVS = Scenario("lansis", "toto", judge="evs")

FOUND_BY = 74
"""A seed whose run has two orders."""


@pytest.fixture(scope="module")
def parted() -> History:
    """a and b in one component, c alone in the other, from the script's first three blocks."""
    player = Player()
    for block in parse_script(TWO_ORDERS.read_text())[:3]:
        player.play(block)
    assert player.cluster is not None
    return player.cluster.history()


def test_two_components_have_two_orders_and_the_checker_says_who_delivered_what(parted: History) -> None:
    verdict = check(held_to_evs(parted)).verdicts["total_order_6_1"]
    assert verdict.verdict == BROKEN
    assert verdict.violations[0].explanation == (
        "these cannot be put into one total order: a/1 delivered a/1#0:1 before it delivered b/1#0:1; "
        "c/1 delivered b/1#0:1 before it delivered a/1#0:1"
    )
    assert {str(node) for node, _ in verdict.violations[0].witness} == {"a/1", "c/1"}


@pytest.mark.parametrize("component", [("a", "b"), ("c",)])
def test_each_component_of_the_same_history_has_one_order(parted: History, component: tuple[str, ...]) -> None:
    traces = [trace for trace in parted.nodes if trace.node.name in component]
    verdict = check(held_to_evs(parted._replace(nodes=traces))).verdicts["total_order_6_1"]
    assert verdict.verdict == HELD
    assert verdict.checked > 0


def test_by_what_toto_promises_the_history_is_good(parted: History) -> None:
    report = check(parted)
    assert report.broken == ()
    assert report.verdicts["total_order_6_1"].verdict == NOT_PROMISED


def test_a_seed_shows_it_and_says_that_it_was_not_promised() -> None:
    outcome = simulate(FOUND_BY, scenario=BY_EVS)
    assert "total_order_6_1" in outcome.report.broken
    told = describe(outcome)
    assert "cannot be put into one total order" in told
    assert "Views with the guarantees 'toto' do not promise total_order_6_1" in told
    assert f"transis simulate --engine lansis --order toto --judge evs --seed {FOUND_BY}" in told


def test_who_asks_for_evs_gets_the_same_plan_and_another_judge() -> None:
    plan = draw(FOUND_BY, scenario=BY_EVS)
    assert plan.scenario == BY_EVS
    assert replay_of(plan).endswith(f"--order toto --judge evs --seed {FOUND_BY}")
    promised = draw(FOUND_BY, scenario=BY_EVS._replace(judge="promised"))
    assert (plan.schedule, plan.config, plan.traffic) == (promised.schedule, promised.config, promised.traffic)
