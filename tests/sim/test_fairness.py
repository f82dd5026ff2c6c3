"""The experiment in which a quiet node competes with busy ones: it is made while they are busy, on both engines."""

from __future__ import annotations

import pytest

from transis.audit.guarantees.property import HELD
from transis.sim.plan import parse_plan
from transis.sim.run import simulate

FOUND = {
    "seed 1036": """
        seed 1036
        names a b c d e f
        config.datagram 512
        config.window.window 12
        config.window.visit_max 10
        config.window.gap_max 140
        config.window.outbox_bytes 65536
        config.engine lansis
        config.pulse.prompt_us 130
        conditions.climate.delay_us 386 193 193
        conditions.machine.turn_us 35
        conditions.climate.jitter_us 0
        traffic.messages 4
        safety_us 400000
        revive False
        rivalry True
        at 100ms crash a
        at 100ms crash f
    """,
    "seed 5107": """
        seed 5107
        names a b c d e f
        config.datagram 512
        config.window.window 4
        config.window.visit_max 4
        config.window.gap_max 132
        config.window.outbox_bytes 16384
        config.engine lansis
        config.pulse.prompt_us 206
        conditions.climate.delay_us 855 684 342
        conditions.climate.jitter_us 0
        traffic.messages 6
        safety_us 100000
        rivalry True
    """,
}
"""The quiet one was said to starve, but all others had nothing left to send when it spoke: on Lansis several windows pass in the
time of a rotation, by which the head start of the others was measured."""


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND.keys())
@pytest.mark.parametrize("engine", ["totem", "lansis"])
def test_the_quiet_one_speaks_while_others_are_busy(text: str, engine: str) -> None:
    plan = parse_plan(text.replace("lansis", engine))
    verdict = simulate(plan.seed, plan).report.verdicts["fairness"]
    assert (verdict.verdict, verdict.checked) == (HELD, 1)
