"""`python -m examples.airline`: the airline from the first sale to the proposals. README.md shows the result."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from examples.airline.office import GROUP
from examples.airline.story import StoryError, tell_story
from transis.spark.progress import require_spark
from transis.types.errors import TransisError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.airline", description="Two partitions sell seats. Who must be rebooked?"
    )
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep the archive and the tables in DIR")
    given = parser.parse_args(arguments)
    try:
        require_spark()
        with ExitStack() as stack:
            directory = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airline-")))
            _run(_new(directory), is_kept=given.keep is not None)
    except TransisError as error:
        print(f"airline: {error}", file=sys.stderr)
        return 2
    return 0


def _new(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_empty = not any(directory.iterdir())
    except OSError as error:
        text = f"--keep {str(directory)!r} cannot be a directory ({error.strerror})"
        raise UsageError(f"{text}: give a new one") from error
    if not is_empty:
        raise UsageError(f"--keep {str(directory)!r} is not empty: give a new directory")
    return directory.resolve()


def _run(directory: Path, is_kept: bool) -> None:
    from examples.airline.job import flights_table, oversold, proposals, sales, sold_apart, sold_together
    from transis.spark.inputs import coalesced
    from transis.spark.reconcile import write_tables
    from transis.spark.session import spark_session

    told = tell_story(directory, lambda words: print(words, flush=True))
    with spark_session("local[1]") as spark:
        sold = coalesced(sales(spark, str(directory / "archive"), GROUP, "primary"))
        _require_agreement(told, {row.request for row in sold.where("has_seat").collect()})
        tables = {
            "Sold together": sold_together(sold),
            "Sold apart": sold_apart(sold),
            "Oversold": oversold(sold),
            "Proposals": proposals(sold, flights_table(spark)),
        }
        for title, rows in tables.items():
            print(f"\n### {title}\n\n{as_markdown(rows)}")
        if is_kept:
            write_tables({title.lower().replace(" ", "_"): rows for title, rows in tables.items()}, directory / "tables")


def _require_agreement(told: dict[str, set[str]], found: set[str]) -> None:
    """What the offices sold must be what the job finds in the archive alone."""
    for office, requests in told.items():
        if requests != found:
            raise StoryError(f"{office} and the archive disagree on {', '.join(sorted(requests ^ found))}")
    print(f"All offices and the archive agree on who has a seat: {len(found)} passengers.", flush=True)


def as_markdown(rows: DataFrame) -> str:
    """A small table as text with aligned columns."""
    cells = [[name.removeprefix("free_").replace("_", " ") for name in rows.columns]]
    cells += [["" if one is None else str(one) for one in row] for row in rows.collect()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *body = (_line(one.ljust(width) for one, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join([head, _line("-" * width for width in widths), *body])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
