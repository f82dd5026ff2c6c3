"""Verdicts for a person: tables and sentences.

A sweep in tables for a person: verdicts, what was done to the nodes, and how much of the protocol was reached.

The result of `transis audit` for a person: findings about the evidence first, then every guarantee, then every violation in a
sentence with the events that show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from transis.audit.draw.svg import clock
from transis.audit.guarantees.property import ALL_MEANINGS, BROKEN, HELD, NOT_EXERCISED, NOT_PROMISED, PENDING
from transis.audit.report.content import Content, Violation
from transis.audit.report.verdicts import (
    Sum,
    around_by_violation,
    headline,
    heaviest_first,
    reasons_in_order,
    starts_us,
    sums_of,
    violations_in_order,
    witness_events,
)
from transis.cli.options import plain_table, printable, say, stdout
from transis.sim.coverage import Coverage, Expected, Pair, expected_of
from transis.sim.sweep import Property

# --- tables -----------------------------------------------------------------------------------------------------------

__all__ = ["coverage_tables", "fault_line", "plain_table", "say", "stdout", "verdict_table"]

COLOURS: Final = {HELD: "green", BROKEN: "bold red", PENDING: "yellow", NOT_EXERCISED: "dim", NOT_PROMISED: "dim"}
TRAP: Final = re.compile(r"((?:\d+ )*)(.*)", re.DOTALL)


def verdict_table(properties: Mapping[str, Property]) -> Table:
    table = plain_table("guarantee", "verdict", "checks made", "violations", title="Verdict per guarantee")
    table.add_column("in words")
    for name, found in properties.items():
        verdict = Text(found.verdict, style=COLOURS.get(found.verdict, ""))
        violations = f"{found.violations:,}" if found.violations else ""
        table.add_row(name, verdict, f"{found.checked:,}", violations, Text(ALL_MEANINGS.get(name, ""), style="dim"))
    return table


def fault_line(faults: Mapping[str, int]) -> str:
    drawn = ", ".join(f"{kind} {count:,}" for kind, count in sorted(faults.items(), key=lambda item: (-item[1], item[0])))
    return f"Faults drawn: {drawn or 'none'}"


def coverage_tables(coverage: Coverage, runs: int, engine: str = "totem") -> RenderableType:
    """One run cannot reach much, and the tables show what it did not; after many runs, what is missing is named."""
    wanted = expected_of(engine)
    missing = wanted.never_reached(coverage)
    events = _turned_pairs(wanted.events)
    parts: list[RenderableType] = [
        _pair_table("States × events reached", wanted.event_names, _turned(coverage.events), events, wanted.states),
        Text(),
        _pair_table("Faults × states they met", _fault_names(coverage, wanted), coverage.faults, wanted.faults, wanted.states),
        Text(),
        Text(_traps(coverage)),
        Text(),
        *([Text(_groups(coverage)), Text()] if coverage.groups else []),
        *(_missing_counts(missing, wanted) if runs == 1 else _missing_names(missing)),
    ]
    return Group(*parts)


def _turned(counts: Mapping[Pair, int]) -> dict[Pair, int]:
    """(state, event) as (event, state): events make the rows, for there are more of them."""
    return {(event, state): count for (state, event), count in counts.items()}


def _turned_pairs(pairs: Iterable[Pair]) -> frozenset[Pair]:
    return frozenset((event, state) for state, event in pairs)


def _fault_names(coverage: Coverage, wanted: Expected) -> list[str]:
    return sorted({kind for kind, _ in coverage.faults} | {kind for kind, _ in wanted.faults})


def _pair_table(
    title: str, rows: Iterable[str], counts: Mapping[Pair, int], expected: frozenset[Pair], states: tuple[str, ...]
) -> Table:
    """Counts; `never` where something was expected, nothing where nothing was."""
    columns = [*states, *sorted({column for _, column in counts} - set(states))]
    table = plain_table("", *columns, title=title)
    for row in rows:
        table.add_row(row, *(_cell(counts.get((row, column), 0), (row, column) in expected) for column in columns))
    return table


def _cell(count: int, expected: bool) -> Text:
    if count:
        return Text(f"{count:,}", style="" if expected else "dim")
    return Text("never", style="yellow") if expected else Text("·", style="dim")


def _traps(coverage: Coverage) -> str:
    fired = sorted(coverage.traps.items(), key=lambda item: _natural(item[0]))
    return "Traps whose trigger fired: " + ("; ".join(f"{_trap(name)}: {count:,}" for name, count in fired) or "none")


def _trap(name: str) -> str:
    """`10 more to flush than a window` as `trap 10, more to flush than a window`: its number is no count."""
    numbers, words = TRAP.fullmatch(name).groups()  # type: ignore[union-attr]  # It takes any text.
    return f"trap {'/'.join(numbers.split())}, {words}" if numbers else words


def _groups(coverage: Coverage) -> str:
    return "Groups: " + ", ".join(f"{what} {count:,}" for what, count in sorted(coverage.groups.items()))


def _natural(name: str) -> tuple[int, str]:
    first = name.partition(" ")[0]
    return (int(first) if first.isdigit() else 0, name)


def _missing_counts(missing: Mapping[str, list[str]], wanted: Expected) -> Iterator[Text]:
    expected = {"events": len(wanted.events), "faults": len(wanted.faults)}
    told = (f"{len(missing[table])} of {count} expected pairs of states and {table}" for table, count in expected.items())
    yield Text(f"Never reached in this run: {', '.join(told)}.")


def _missing_names(missing: Mapping[str, list[str]]) -> Iterator[Text]:
    if not any(missing.values()):
        yield Text("Never reached: nothing that was expected is missing.")
    for table, names in missing.items():
        if names:
            named = _grouped(names) if table in ("events", "faults") else "; ".join(map(_trap, sorted(names, key=_natural)))
            yield Text(f"Never reached, of {table}: ", style="bold").append(named, style="not bold")


def _grouped(names: Iterable[str]) -> str:
    """`crash x Commit` and `crash x Gather` as `crash x Commit/Gather`."""
    together: dict[str, list[str]] = {}
    for name in names:
        first, _, second = name.partition(" x ")
        together.setdefault(first, []).append(second)
    return ", ".join(f"{first} × {'/'.join(seconds)}" for first, seconds in together.items())


# --- audit words ------------------------------------------------------------------------------------------------------

VIOLATIONS_TOLD: Final = 20
"""Violations told one by one; the report and the JSON have more."""
REASONS_TOLD: Final = 10
RUNS_TOLD: Final = 10


def tell_audit(console: Console, content: Content) -> None:
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


def _table(title: str, sums: Sequence[Sum]) -> Table:
    table = plain_table("guarantee", "verdict", "checks made", "violations", "pending", title=title)
    table.add_column("in words")
    for one in sums:
        counts = (f"{count:,}" if count else "" for count in (one.checked, one.violations, one.pending))
        table.add_row(one.name, Text(one.verdict, style=COLOURS[one.verdict]), *counts, Text(one.meaning, style="dim"))
    return table


def _apart(sums: Sequence[Sum]) -> Iterator[str]:
    """What nobody may read as held."""
    for verdict in (NOT_EXERCISED, NOT_PROMISED):
        names = [one.name for one in sums if one.verdict == verdict]
        if names:
            yield f"{verdict.capitalize()}: {', '.join(names)}"


def _reasons(content: Content) -> Iterator[str]:
    """Why evidence is missing or still to come."""
    found = reasons_in_order(content)
    many = len(content.runs) > 1
    for one in found[:REASONS_TOLD]:
        yield f"{one.property}{f' (run {one.run})' if many else ''}: {one.explanation}"
    more = sum(one.pending for one in sums_of(content).values() if one.is_evidence) - min(len(found), REASONS_TOLD)
    if found and more > 0:
        yield f"and {more:,} more reasons of this kind"


def _violations(content: Content) -> Iterator[str]:
    found = violations_in_order(content)
    around = around_by_violation(content)
    starts = starts_us(content)
    many = len(content.runs) > 1
    for one in found[:VIOLATIONS_TOLD]:
        yield _sentence(one, many)
        for node, lseq, event in witness_events(one, around.get((one.run, one.property, one.rank), [])):
            told = "" if event is None else f" at {clock(event.time_us - starts[one.run])}: {event.label}"
            yield f"    {node}, event {lseq}{told}"
    if found:
        more = sum(row.violations for row in content.verdicts) - min(len(found), VIOLATIONS_TOLD)
        yield f"and {more:,} more violations" if more > 0 else ""


def _sentence(violation: Violation, many: bool) -> str:
    where = f" (run {violation.run})" if many else ""
    which = f" [{violation.rank} of {violation.total:,}]" if violation.total > 1 else ""
    return f"{violation.property}{which}{where}: {violation.explanation}"


def _counts(judged: Sequence[Sum]) -> str:
    counts = ((word, sum(one.verdict == word for one in judged)) for word in (BROKEN, PENDING, HELD))
    return ", ".join(f"{count:,} {word}" for word, count in counts)


def _runs(content: Content) -> str:
    broken = sorted({row.run for row in content.verdicts if row.verdict == BROKEN})
    runs = f"in {len(content.runs):,} run{'s' if len(content.runs) != 1 else ''}"
    if len(content.runs) < 2 or not broken:
        return runs
    more = f" and {len(broken) - RUNS_TOLD:,} more" if len(broken) > RUNS_TOLD else ""
    return f"{runs}; broken in {', '.join(broken[:RUNS_TOLD])}{more}"
