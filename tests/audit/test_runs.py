"""Set algebra on runs, held against sets: runs that overlap, touch, repeat, and reach over several blocks."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from transis.audit.plans.runs import BLOCK, repeated, runs_of, spelled_out, stretches

BY = ["run", "node", "process"]
COLUMNS = "run long, node long, process long, first long, count int, lseq long"

Run = tuple[int, int, int, int, int, int]


def drawn_runs(seed: int, amount: int) -> list[Run]:
    """Near the edges of blocks, where they may go wrong; one is longer than a block, one is empty."""
    rng = Random(seed)
    starts = [rng.choice((1, BLOCK - 20, BLOCK, 2 * BLOCK - 5)) + rng.randrange(30) for _ in range(amount)]
    runs = [(1, 1, rng.randrange(2), first, rng.randrange(1, 12), lseq) for lseq, first in enumerate(starts, start=1)]
    return [*runs, (1, 1, 0, BLOCK - 3, BLOCK + 9, amount + 1), (1, 1, 1, 7, 0, amount + 2)]


def counted(runs: list[Run]) -> Counter[tuple[int, int]]:
    return Counter((process, counter) for _, _, process, first, count, _ in runs for counter in range(first, first + count))


@pytest.mark.parametrize("seed", [1, 2])
def test_stretches_are_what_a_set_per_kind_would_say(spark: SparkSession, seed: int) -> None:
    left, right = drawn_runs(seed, 40), drawn_runs(seed + 100, 40)
    runs = runs_of("left", spark.createDataFrame(left, COLUMNS)).unionByName(
        runs_of("right", spark.createDataFrame(right, COLUMNS))
    )
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for row in stretches(runs, BY, ["left", "right"]).collect():
        assert row.start < row.stop
        here = {(row.process, counter): (row.left, row.right) for counter in range(row.start, row.stop)}
        assert not here.keys() & found.keys()
        found.update(here)
    lefts, rights = counted(left), counted(right)
    expected = {message: (lefts[message], rights[message]) for message in lefts.keys() | rights.keys()}
    assert {message: kinds for message, kinds in found.items() if kinds != (0, 0)} == expected


def test_messages_of_wrong_stretches_are_spelled_out_with_all_their_runs(spark: SparkSession) -> None:
    given = drawn_runs(3, 40)
    runs = runs_of("sent", spark.createDataFrame(given, COLUMNS))
    wrong = stretches(runs, BY, ["sent"]).where(F.col("sent") >= 3)
    found = {(row.process, row.counter, row.lseq) for row in spelled_out(wrong, runs, BY).collect()}
    often = {message for message, times in counted(given).items() if times >= 3}
    assert found == {(*message, run[-1]) for run in given for message in counted([run]) if message in often}


def test_each_repetition_is_told_beside_the_first(spark: SparkSession) -> None:
    given = drawn_runs(4, 40)
    lseqs: dict[tuple[int, int], list[int]] = {}
    for run in given:
        for message in counted([run]):
            lseqs.setdefault(message, []).append(run[-1])
    found = repeated(runs_of("sent", spark.createDataFrame(given, COLUMNS)), BY).collect()
    expected = sorted((*message, first, again) for message, (first, *later) in lseqs.items() for again in later)
    assert sorted((row.process, row.counter, row.first_lseq, row.lseq) for row in found) == expected
