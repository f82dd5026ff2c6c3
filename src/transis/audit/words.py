"""The result of `transis audit` for a person.

Findings about the evidence come first, then every guarantee, then every violation in a sentence with the events that show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from transis.audit.draw.svg import clock
from transis.audit.guarantees.property import BROKEN, HELD, NOT_EXERCISED, NOT_PROMISED, PENDING
from transis.audit.report.content import Content, ViolationRow
from transis.audit.report.verdicts import (
    PropertySum,
    around_by_violation,
    headline,
    heaviest_first,
    reasons_in_order,
    starts_us,
    sums_of,
    violations_in_order,
    witness_events,
)
from transis.cli.options import plain_table, printable, say

COLOURS: Final = {HELD: "green", BROKEN: "bold red", PENDING: "yellow", NOT_EXERCISED: "dim", NOT_PROMISED: "dim"}
VIOLATIONS_LISTED: Final = 20
"""How many violations are listed; the report and the JSON have more."""
REASONS_LISTED: Final = 10
RUNS_LISTED: Final = 10


def print_audit(console: Console, content: Content) -> None:
    sums = list(sums_of(content).values())
    judged = heaviest_first(one for one in sums if one.is_judged)
    troubled = [one for one in judged if one.is_evidence and one.verdict != HELD]
    if troubled:
        console.print(_table("The evidence", troubled))
        for line in _reasons(content):
            say(console, printable(line), "dim")
        console.print()
    console.print(_table("Verdict per guarantee", [one for one in judged if one not in troubled]))
    for line in _apart(sums):
        say(console, line, "dim")
    console.print()
    for line in _violations(content):
        say(console, printable(line))
    verdict, sentence = headline(content)
    say(console, printable(f"{_counts(judged)}, {_runs(content)}."))
    say(console, sentence, COLOURS[verdict])


def _table(title: str, sums: Sequence[PropertySum]) -> Table:
    table = plain_table("guarantee", "verdict", "checks made", "violations", "pending", title=title)
    table.add_column("in words")
    for one in sums:
        counts = (f"{count:,}" if count else "" for count in (one.checked, one.violations, one.pending))
        table.add_row(one.name, Text(one.verdict, style=COLOURS[one.verdict]), *counts, Text(one.meaning, style="dim"))
    return table


def _apart(sums: Sequence[PropertySum]) -> Iterator[str]:
    """Guarantees without a verdict stand apart, so that nobody reads them as held."""
    for verdict in (NOT_EXERCISED, NOT_PROMISED):
        names = [one.name for one in sums if one.verdict == verdict]
        if names:
            yield f"{verdict.capitalize()}: {', '.join(names)}"


def _reasons(content: Content) -> Iterator[str]:
    """Why evidence is missing or still to come."""
    found = reasons_in_order(content)
    many = len(content.runs) > 1
    for one in found[:REASONS_LISTED]:
        yield f"{one.property}{f' (run {one.run})' if many else ''}: {one.explanation}"
    more = sum(one.pending for one in sums_of(content).values() if one.is_evidence) - min(len(found), REASONS_LISTED)
    if found and more > 0:
        yield f"and {more:,} more reasons of this kind"


def _violations(content: Content) -> Iterator[str]:
    found = violations_in_order(content)
    around = around_by_violation(content)
    starts = starts_us(content)
    many = len(content.runs) > 1
    for one in found[:VIOLATIONS_LISTED]:
        yield _sentence(one, many)
        for node, lseq, event in witness_events(one, around.get((one.run, one.property, one.rank), [])):
            when = "" if event is None else f" at {clock(event.time_us - starts[one.run])}: {event.label}"
            yield f"    {node}, event {lseq}{when}"
    if found:
        more = sum(row.violations for row in content.verdicts) - min(len(found), VIOLATIONS_LISTED)
        yield f"and {more:,} more violations" if more > 0 else ""


def _sentence(violation: ViolationRow, many: bool) -> str:
    where = f" (run {violation.run})" if many else ""
    which = f" [{violation.rank} of {violation.total:,}]" if violation.total > 1 else ""
    return f"{violation.property}{which}{where}: {violation.explanation}"


def _counts(judged: Sequence[PropertySum]) -> str:
    counts = ((word, sum(one.verdict == word for one in judged)) for word in (BROKEN, PENDING, HELD))
    return ", ".join(f"{count:,} {word}" for word, count in counts)


def _runs(content: Content) -> str:
    broken = sorted({row.run for row in content.verdicts if row.verdict == BROKEN})
    runs = f"in {len(content.runs):,} run{'s' if len(content.runs) != 1 else ''}"
    if len(content.runs) < 2 or not broken:
        return runs
    more = f" and {len(broken) - RUNS_LISTED:,} more" if len(broken) > RUNS_LISTED else ""
    return f"{runs}; broken in {', '.join(broken[:RUNS_LISTED])}{more}"
