"""Whole runs with the real node: they settle, they hold, they repeat, and they fail when the engine is broken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from transis.sim.defects import broken_engine
from transis.sim.plan import Plan, Traffic
from transis.sim.run import describe, simulate
from transis.sim.scripts import parse_script, run_script
from transis.sim.shrink import shrink
from transis.sim.swarm import draw
from transis.sim.sweep import in_workers, sweep

PLAIN = Plan(5, ("a", "b", "c"), traffic=Traffic(messages=60, batch=3), safety_us=600_000)
BROKEN = "safe_one_rotation_early"


def test_a_run_without_faults_holds_everything_and_settles() -> None:
    outcome = simulate(5, PLAIN)
    assert outcome.report.broken == ()
    assert outcome.settled_us is not None
    assert outcome.deliveries >= 180
    assert outcome.history.closed


@pytest.mark.parametrize("seed", range(100))
def test_seeds_hold(seed: int) -> None:
    outcome = simulate(seed)
    assert outcome.report.broken == (), describe(outcome)


def test_a_slow_machine_is_quick_when_faults_end() -> None:
    """Seed 12771: a host slowed to 8 ms a datagram took a full socket in one turn and stayed busy for eleven seconds after
    the faults had ended, which looked like a node that never came back."""
    outcome = simulate(12771)
    assert outcome.report.broken == (), describe(outcome)


def test_a_singleton_delivers_its_own() -> None:
    outcome = simulate(1, replace(PLAIN, names=("a",)))
    assert outcome.report.broken == ()
    assert outcome.report.verdicts["safe_7_1"].checked > 0


def test_sealed_and_foreign_runs_hold() -> None:
    outcome = simulate(2, replace(PLAIN, sealed=True, foreign=True))
    assert outcome.report.broken == ()
    assert all(trace.node.name in PLAIN.names for trace in outcome.history.nodes)


SEED = 11
DIGEST = f"from transis.sim.run import simulate; print(simulate({SEED}).digest())"


def test_the_same_seed_gives_the_same_digest_under_any_hash_seed() -> None:
    here = simulate(SEED).digest()
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        there = subprocess.run([sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True)
        assert there.stdout.strip() == here


def test_different_seeds_differ() -> None:
    assert simulate(5, PLAIN).digest() != simulate(6, replace(PLAIN, seed=6)).digest()


@pytest.mark.slow
def test_a_broken_engine_is_caught_explained_and_shrunk() -> None:
    caught = sweep(range(50), broken=BROKEN, nodes=3, stop_at_first=True)
    seed, properties, explanation = caught.failing[0]
    assert not {"safe_7_1", "failure_atomicity_4"}.isdisjoint(properties)
    assert "replay: transis simulate --engine totem" in explanation
    assert f"--seed {seed}" in explanation
    plan = draw(seed, nodes=3)
    assert simulate(seed, plan).report.broken == ()
    small = shrink(plan, BROKEN, runs_max=20)
    assert len(small.plan.schedule) < len(plan.schedule)
    assert simulate(seed, small.plan, BROKEN).report.broken != ()
    said = parse_script(small.script())[0].expected
    assert said.startswith(tuple(f"{name}: " for name in small.properties)), "it ends with what broke"
    with broken_engine(BROKEN):
        assert run_script(small.script()) == small.script()


def test_a_sound_plan_is_not_shrunk() -> None:
    assert shrink(PLAIN).plan == PLAIN


def test_a_sweep_adds_up_the_same_on_one_processor_and_on_two() -> None:
    seeds = [seed for seed in range(40) if len(draw(seed).names) <= 2][:4]
    alone, together = sweep(seeds, jobs=1, digests=True), sweep(seeds, jobs=2, digests=True)
    assert alone.digests == together.digests
    assert alone.coverage.as_dict() == together.coverage.as_dict()
    assert (alone.runs, alone.violations) == (4, 0)
    assert {name: found.verdict for name, found in alone.properties.items()}["no_creation"] == "held"


def test_workers_are_not_interrupted_and_this_process_is() -> None:
    """Ctrl-C goes to all processes of a terminal; who waits for the workers ends them."""
    assert list(in_workers(_hears_interrupts, range(2), jobs=2)) == [False, False]
    assert _hears_interrupts(0)


def _hears_interrupts(_: int) -> bool:
    return signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
