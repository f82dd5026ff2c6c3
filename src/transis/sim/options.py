"""Options of simulated runs as a person typed them, turned into what the simulator needs or into one sentence of error."""

from __future__ import annotations

import os
import re
from typing import Final

from transis.cli.options import one_of, wrong
from transis.sim.defects import DEFECTS, defects_of
from transis.sim.plan import JUDGES, TOTEM, Scenario
from transis.types.config import ENGINES, MODES, ORDERS

SEED_MAX: Final = (1 << 63) - 1
SEEDS_AT_ONCE: Final = 10_000_000
"""Of one call: each is remembered while it runs."""
_SEEDS: Final = re.compile(r"(\d{1,19}):(\d{1,19})")


def scenario_of(engine: str, order: str, mode: str, partitions: bool, judge: str) -> Scenario:
    """The engine and what it is asked to do; only Lansis has a choice there."""
    scenario = Scenario(
        one_of("--engine", engine, ENGINES),
        one_of("--order", order, ORDERS),
        one_of("--mode", mode, MODES),
        partitions,
        one_of("--judge", judge, JUDGES),
    )
    if engine != "lansis" and (order, mode) != (TOTEM.order, TOTEM.mode):
        option, given = ("--order", order) if order != TOTEM.order else ("--mode", mode)
        raise wrong(option, repr(given), "only the engine lansis has a choice, so give --engine lansis too")
    if order == "toto" and mode == "transis":
        raise wrong("--order", repr(order), "toto needs the mode evs")
    return scenario


def seeds_of(seed: int | None, seeds: str | None) -> range:
    """The seeds to run: one, or A to B-1."""
    if seed is not None and seeds is not None:
        raise wrong("--seeds", repr(seeds), "give --seed or --seeds, not both")
    if seeds is not None:
        return _range_of(seeds)
    first = 0 if seed is None else seed
    if not 0 <= first <= SEED_MAX:
        raise wrong("--seed", first, f"must be 0 to {SEED_MAX}")
    return range(first, first + 1)


def _range_of(text: str) -> range:
    match = _SEEDS.fullmatch(text)
    if match is None:
        raise wrong("--seeds", repr(text), "must be A:B, such as 0:2000 for the seeds 0 to 1999")
    first, end = map(int, match.groups())
    if not first < end <= SEED_MAX:
        raise wrong("--seeds", repr(text), "A must be less than B, and the seeds run from A to B-1")
    if end - first > SEEDS_AT_ONCE:
        raise wrong("--seeds", repr(text), f"these are {end - first} seeds, and one call takes at most {SEEDS_AT_ONCE}")
    return range(first, end)


def jobs_of(jobs: int | None) -> int:
    if jobs is None:
        return max(1, os.cpu_count() or 1)
    if jobs < 1:
        raise wrong("--jobs", jobs, "must be at least 1")
    return jobs


def broken_of(name: str, scenario: Scenario) -> str:
    known = defects_of(scenario.engine)
    if name in DEFECTS and name not in known:
        others = " and ".join(DEFECTS[name].engines)
        raise wrong("--broken", repr(name), f"this is a defect of {others}; {scenario.engine} has {', '.join(known)}")
    if name.startswith("toto") and name in DEFECTS and scenario.order != "toto":
        raise wrong("--broken", repr(name), "this defect is one of toto, so give --order toto too")
    return one_of("--broken", name, tuple(known)) if name else name


def complete_order(incomplete: str) -> list[str]:
    return [name for name in ORDERS if name.startswith(incomplete)]


def complete_mode(incomplete: str) -> list[str]:
    return [name for name in MODES if name.startswith(incomplete)]


def complete_judge(incomplete: str) -> list[str]:
    return [name for name in JUDGES if name.startswith(incomplete)]


def complete_broken(incomplete: str) -> list[tuple[str, str]]:
    return [(name, defect.why) for name, defect in DEFECTS.items() if name.startswith(incomplete)]
