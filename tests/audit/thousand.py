"""A thousand runs in one Spark job: does the audit say of each property what the checkers say?

    python -m tests.audit.thousand --runs 1000

Good and wounded ones in equal parts: drawn histories, simulated runs, simulated runs with groups, and mutants of every kind of
all of them. Prints every disagreement; exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from random import Random

from tests.audit.agreement import disagreements
from tests.audit.frames import tables_of_histories
from tests.guarantees.mutants import GROUP_MUTANTS, MUTANTS, Mutant
from tests.guarantees.oracle import good_history
from transis.audit.guarantees import PROPERTIES
from transis.audit.plans.judge import audited
from transis.audit.plans.lay import lay_out
from transis.sim.run import simulate
from transis.spark.inputs import checkpointed
from transis.spark.progress import StepTimer
from transis.spark.session import spark_session
from transis.trace.events import History

MUTANTS_OF_A_RUN = 4


def family(seed: int) -> list[tuple[str, History]]:
    """A run and some mutants of it: one in three of each kind of run."""
    if seed % 3 == 0:
        whole, mutants = good_history(seed, steps=300), MUTANTS
    elif seed % 3 == 1:
        whole, mutants = simulate(seed, nodes=4).history, MUTANTS
    else:
        whole, mutants = simulate(seed, nodes=4, groups=True).history, (*GROUP_MUTANTS, *MUTANTS)
    name = f"seed {seed}"
    return [(name, whole), *_wounded(name, whole, Random(seed).sample(mutants, len(mutants)))]


def _wounded(name: str, whole: History, mutants: list[Mutant]) -> Iterator[tuple[str, History]]:
    """The first few mutants that find a place to strike."""
    tries = ((mutant.name, mutant(whole, Random(f"{name}:{mutant.name}"))) for mutant in mutants)
    struck = ((f"{name}, {kind}", history) for kind, history in tries if history is not None)
    return islice(struck, MUTANTS_OF_A_RUN)


def drawn(runs: int) -> dict[str, History]:
    found: dict[str, History] = {}
    with get_context("spawn").Pool(2) as pool:
        for histories in pool.imap(family, range(runs)):
            found |= histories
            if len(found) >= runs:
                break
    return dict(list(found.items())[:runs])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    started = time.monotonic()
    histories = drawn(runs)
    kinds = Counter(name.partition(", ")[2] or "good" for name in histories)
    print(f"{len(histories)} runs, {len(kinds) - 1} kinds of mutants, {kinds['good']} good: {time.monotonic() - started:.0f} s")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, spark_session(size=32 << 20) as spark:
        tables = tables_of_histories(spark, histories, Path(directory))
        found = audited(lay_out(tables, checkpointed), checkpointed, StepTimer())
        print(f"audited: {time.monotonic() - started:.0f} s")
        lines = disagreements(histories, found, PROPERTIES)
    print(*lines, sep="\n")
    print(f"{len(lines)} disagreements in {len(histories) * len(PROPERTIES)} verdicts, {time.monotonic() - started:.0f} s")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
