"""The simulator sees: each deliberately broken engine is caught, by a plan or a script that the sound engine passes.

The plans were found by seeds and shrunk, or written by hand after one; they do not depend on what a seed draws today. If an
engine's timing changes so much that a plan no longer provokes its defect, find another one:

    transis simulate --engine totem --broken NAME --seeds 0:2000 --shrink

Where a defect needs packets of certain kinds to be lost or late, a script says which; the sound engine plays it as it is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from transis.audit.guarantees import PROPERTIES
from transis.sim.defects import DEFECTS, broken_engine, defects_of
from transis.sim.plan import Plan, parse_plan, with_setting
from transis.sim.run import describe, simulate
from transis.sim.scripts import Player, notes, parse_script, run_script
from transis.types.errors import UsageError

PLANS = Path(__file__).parents[1] / "defects"

DIFFERENT = "come out differently"
"""Said of what breaks no guarantee of a message: needless views, needless packets."""


TAKES_EFFECT = {"gc_in_join": "collected while views change"}
"""What a harmless change notes when it does what it says; the sound engine never notes it."""


class Case(NamedTuple):
    """`engine` is set where a plan of one engine serves another."""

    defect: str
    file: str
    engine: str = ""

    @property
    def text(self) -> str:
        return (PLANS / self.file).read_text()

    @property
    def head(self) -> str:
        """The sentence that says what it breaks."""
        return self.text.partition("\n")[0]

    @property
    def is_script(self) -> bool:
        return "\ncluster " in self.text

    @property
    def plan(self) -> Plan:
        plan = parse_plan(self.text.partition("\n")[2])
        return with_setting(plan, "config.engine", self.engine) if self.engine else plan


OF_OTHERS = ("incarnation_not_durable", "everybody_is_told", "origins_stay_regular")
"""Defects that both engines share and whose plans, found with the ring, provoke them on Lansis too."""

HARMLESS = [Case(name, f"{name}.txt") for name, defect in DEFECTS.items() if defect.harmless]

CASES = [
    *(Case(name, f"{name}.txt") for name, defect in DEFECTS.items() if not defect.harmless),
    *(Case(name, f"{name}.txt", "lansis") for name in OF_OTHERS),
    Case("fragments_kept_across_views", "fragments_kept_across_views.lansis.txt"),
    Case("requests_of_the_lost", "requests_of_the_lost.lansis.txt"),
]
PLANNED = [case for case in CASES if not case.is_script]
WRITTEN = [case for case in CASES if case.is_script]


def shown(case: Case) -> str:
    return case.file.removesuffix(".txt") + (f" on {case.engine}" if case.engine else "")


@pytest.mark.parametrize("case", PLANNED, ids=shown)
def test_a_broken_engine_is_caught_by_what_it_breaks(case: Case) -> None:
    plan = case.plan
    outcome = simulate(plan.seed, plan, broken=case.defect)
    assert outcome.report.broken, f"{case.defect} was not caught: {DEFECTS[case.defect].why}"
    assert any(broken in case.head for broken in outcome.report.broken)


@pytest.mark.parametrize("case", PLANNED, ids=shown)
def test_the_sound_engine_passes_the_same_plan(case: Case) -> None:
    plan = case.plan
    outcome = simulate(plan.seed, plan)
    assert outcome.report.broken == (), describe(outcome)


@pytest.mark.parametrize("case", WRITTEN, ids=shown)
def test_a_broken_engine_plays_a_script_otherwise(case: Case) -> None:
    with broken_engine(case.defect):
        outcome = run_script(case.text)
    broken = [name for name in PROPERTIES if f"\n{name}: " in outcome]
    restless = ["liveness"] if "not at rest" in outcome else []
    assert outcome != case.text, f"{case.defect} was not caught: {DEFECTS[case.defect].why}"
    assert DIFFERENT in case.head or any(name in case.head for name in broken + restless), outcome


@pytest.mark.parametrize("case", HARMLESS, ids=shown)
def test_what_is_called_harmless_takes_effect_and_nobody_could_tell(case: Case) -> None:
    player = Player()
    with broken_engine(case.defect):
        outcome = "\n\n".join(block._replace(expected=player.play(block)).text() for block in parse_script(case.text))
    assert player.cluster is not None
    assert TAKES_EFFECT[case.defect] in notes(player.cluster, "")
    assert outcome + "\n" == case.text


@pytest.mark.parametrize("case", [*WRITTEN, *HARMLESS], ids=shown)
def test_the_sound_engine_plays_it_as_it_is_written(case: Case, rewrite: bool) -> None:
    outcome = run_script(case.text)
    if rewrite:
        (PLANS / case.file).write_text(outcome)
        return
    assert outcome == case.text


def test_every_file_is_somebody_s() -> None:
    assert {path.name for path in PLANS.glob("*.txt")} == {case.file for case in (*CASES, *HARMLESS)}


def test_defects_belong_to_engines() -> None:
    assert "safe_one_rotation_early" in defects_of("totem")
    assert "safe_one_rotation_early" not in defects_of("lansis")
    assert "acks_after_fa" not in defects_of("totem")
    assert {"incarnation_not_durable", "requests_of_the_lost"} <= set(defects_of("lansis"))
    assert set(defects_of("totem")) | set(defects_of("lansis")) == set(DEFECTS)


def test_the_sound_engine_is_back_after_a_defect() -> None:
    plan = Case("", "safe_one_rotation_early.txt").plan
    with pytest.raises(RuntimeError, match="on purpose"), broken_engine("safe_one_rotation_early"):
        raise RuntimeError("on purpose")
    assert simulate(plan.seed, plan).report.broken == ()


def test_an_unknown_defect_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="safe_one_rotation_early"), broken_engine("nonsense"):
        pass
