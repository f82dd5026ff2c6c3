"""The simulator sees: each deliberately broken engine is caught, by a plan that the sound engine passes.

The plans were found by seeds and shrunk, or written by hand after one; they do not depend on what a seed draws today. If an
engine's timing changes so much that a plan no longer provokes its defect, find another one:

    transis simulate --engine totem --broken NAME --seeds 0:2000 --shrink
"""

from __future__ import annotations

from pathlib import Path

import pytest

from transis.model.errors import UsageError
from transis.sim.broken import DEFECTS, broken_engine
from transis.sim.plan import Plan, parse_plan
from transis.sim.run import describe, simulate

PLANS = Path(__file__).parents[1] / "defects"


def plan_of(name: str) -> tuple[Plan, str]:
    """The plan that provokes a defect, and the sentence that says what it breaks."""
    head, _, text = (PLANS / f"{name}.txt").read_text().partition("\n")
    return parse_plan(text), head


@pytest.mark.parametrize("name", DEFECTS)
def test_a_broken_engine_is_caught_by_what_it_breaks(name: str) -> None:
    plan, head = plan_of(name)
    outcome = simulate(plan.seed, plan, broken=name)
    assert outcome.report.broken, f"{name} was not caught: {DEFECTS[name].why}"
    assert any(broken in head for broken in outcome.report.broken)


@pytest.mark.parametrize("name", DEFECTS)
def test_the_sound_engine_passes_the_same_plan(name: str) -> None:
    plan, _ = plan_of(name)
    outcome = simulate(plan.seed, plan)
    assert outcome.report.broken == (), describe(outcome)


def test_the_sound_engine_is_back_after_a_defect() -> None:
    plan, _ = plan_of("safe_one_rotation_early")
    with pytest.raises(RuntimeError, match="on purpose"), broken_engine("safe_one_rotation_early"):
        raise RuntimeError("on purpose")
    assert simulate(plan.seed, plan).report.broken == ()


def test_an_unknown_defect_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="safe_one_rotation_early"), broken_engine("nonsense"):
        pass
