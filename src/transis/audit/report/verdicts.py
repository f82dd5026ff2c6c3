"""Verdicts and violations: all runs added up, and everything in the order of its weight.

Evidence comes first, then what is broken, pending, held. There is one table of all guarantees, what could not be judged and, if
there are many runs, which of them are in trouble. Every violation that was kept has its sentence, the events that show it, and
a picture of what happened around them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from transis.audit.draw.spacetime import draw_inline
from transis.audit.draw.svg import clock, escaped, folded, table, table_row, tag, words
from transis.audit.guarantees import ALL_MEANINGS, EVIDENCE
from transis.audit.guarantees.property import BROKEN, HELD, NOT_EXERCISED, NOT_PROMISED, PENDING, WEIGHT
from transis.audit.report.content import AroundRow, Content, ReasonRow, StayRow, ViolationRow
from transis.audit.report.pictures import picture_around

# --- summary ----------------------------------------------------------------------------------------------------------

_PLACES: Final = {name: place for place, name in enumerate(ALL_MEANINGS)}

Shown = tuple[str, str, int]
"""The key of a violation: run, property, rank."""


@dataclass
class PropertySum:
    """One property in all runs: the heaviest verdict, and how many runs have each."""

    name: str
    verdict: str = NOT_PROMISED
    checked: int = 0
    violations: int = 0
    pending: int = 0
    runs: Counter[str] = field(default_factory=Counter)

    @property
    def meaning(self) -> str:
        return ALL_MEANINGS.get(self.name, "")

    @property
    def is_evidence(self) -> bool:
        return self.name.startswith(EVIDENCE)

    @property
    def is_judged(self) -> bool:
        return self.verdict in (BROKEN, PENDING, HELD)


def sums_of(content: Content) -> dict[str, PropertySum]:
    """By property, in the order of the guarantees."""
    sums: dict[str, PropertySum] = {}
    for row in content.verdicts:
        known = sums.setdefault(row.property, PropertySum(row.property))
        known.verdict = max(known.verdict, row.verdict, key=WEIGHT.index)
        known.checked += row.checked
        known.violations += row.violations
        known.pending += row.pending
        known.runs[row.verdict] += 1
    return {name: sums[name] for name in sorted(sums, key=place_of)}


def place_of(name: str) -> tuple[int, str]:
    """Known properties in their order, then the others by name."""
    return _PLACES.get(name, len(_PLACES)), name


def heaviest_first(sums: Iterable[PropertySum]) -> list[PropertySum]:
    """Broken, pending, held; within each, evidence before guarantees."""
    return sorted(sums, key=lambda one: (-WEIGHT.index(one.verdict), not one.is_evidence))


def verdicts_by_run(content: Content) -> dict[str, dict[str, str]]:
    """run -> property -> verdict; broken runs first, then pending ones, then the others, each by name."""
    runs: dict[str, dict[str, str]] = {run.name: {} for run in content.runs}
    for row in content.verdicts:
        runs.setdefault(row.run, {})[row.property] = row.verdict
    return {name: runs[name] for name in sorted(runs, key=lambda name: (*_trouble(runs[name]), name))}


def _trouble(verdicts: dict[str, str]) -> tuple[int, int]:
    counts = Counter(verdicts.values())
    return -counts[BROKEN], -counts[PENDING]


def violations_in_order(content: Content) -> list[ViolationRow]:
    """Evidence first, then property by property, the shortest first."""
    return sorted(
        content.violations,
        key=lambda one: (not one.property.startswith(EVIDENCE), place_of(one.property), one.rank, one.run, one.explanation),
    )


def reasons_in_order(content: Content) -> list[ReasonRow]:
    return sorted(content.reasons, key=lambda one: (place_of(one.property), one.run, one.explanation))


def around_by_violation(content: Content) -> dict[Shown, list[AroundRow]]:
    """The events around each violation, in order of time."""
    found: dict[Shown, list[AroundRow]] = {}
    for event in sorted(content.around, key=lambda one: (one.time_us, one.node, one.lseq)):
        found.setdefault((event.run, event.property, event.rank), []).append(event)
    return found


def witness_events(violation: ViolationRow, around: Iterable[AroundRow]) -> list[tuple[str, int, AroundRow | None]]:
    """(node, lseq, the event) of each witness, in the order of the violation; None if the event is not among those around."""
    known = {(event.node, event.lseq): event for event in around}
    return [(node, lseq, known.get((node, lseq))) for node, lseq in violation.witness]


def starts_us(content: Content) -> dict[str, int]:
    """When each run began: times count from there. Views and ends say it; without them, the first known event."""
    starts: dict[str, int] = {}
    lives = [(stay.run, stay.start_us) for stay in content.stays] + [(end.run, end.time_us) for end in content.ends]
    others = [(event.run, event.time_us) for event in content.around] + [(one.run, one.time_us) for one in content.faults]
    others += [(one.run, one.start_us) for one in content.throughput]
    for run, time_us in lives:
        starts[run] = min(time_us, starts.get(run, time_us))
    fallback: dict[str, int] = {}
    for run, time_us in others:
        fallback[run] = min(time_us, fallback.get(run, time_us))
    return fallback | starts


def headline(content: Content) -> tuple[str, str]:
    """The heaviest verdict of all, and one sentence."""
    sums = list(sums_of(content).values())
    broken, pending = ([one for one in sums if one.verdict == word] for word in (BROKEN, PENDING))
    runs = f" in {_failing(content):,} of {len(content.runs):,} runs" if len(content.runs) > 1 else ""
    guarantees = [one for one in broken if not one.is_evidence]
    sentence = f"{_several(len(guarantees), 'guarantee')} {'was' if len(guarantees) == 1 else 'were'} broken{runs}."
    if len(guarantees) < len(broken):
        return BROKEN, f"The evidence is not whole: read what was found about it first. {sentence if guarantees else ''}".rstrip()
    if broken:
        return BROKEN, sentence
    if pending:
        what = f"{_several(len(pending), 'property', 'properties')} cannot be judged to the end yet"
        return PENDING, f"Nothing is broken; {what}: evidence is missing or still to come."
    if any(one.verdict == HELD for one in sums):
        return HELD, "Every guarantee that was exercised held."
    return NOT_EXERCISED, "Nothing was exercised: there is nothing to judge."


def _failing(content: Content) -> int:
    return len({row.run for row in content.verdicts if row.verdict == BROKEN})


def _several(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


# --- verdict section --------------------------------------------------------------------------------------------------

SIGNS: Final = {BROKEN: "✗", PENDING: "◌", HELD: "✓", NOT_EXERCISED: "–", NOT_PROMISED: "·"}
"""A sign beside each colour, for readers who cannot tell colours apart and for paper."""
CLASSES: Final = {BROKEN: "broken", PENDING: "pending", HELD: "held", NOT_EXERCISED: "unknown", NOT_PROMISED: "unknown"}
MATRIX_RUNS: Final = 40
"""Runs in trouble that have a row of their own; the rest are counted."""


def verdict_section(content: Content) -> str:
    sums = sums_of(content)
    judged = heaviest_first(one for one in sums.values() if one.is_judged)
    many = len(content.runs) > 1
    return tag(
        "section",
        words("h2", "Verdicts"),
        _table(judged, many) if judged else words("p", "No guarantee was judged."),
        _reasons(content),
        _apart(sums),
        _matrix(content, judged) if many and judged else "",
        id="verdicts",
    )


def banner(content: Content) -> str:
    verdict, sentence = headline(content)
    return tag("p", _sign(verdict), " ", escaped(sentence), class_=f"banner {CLASSES[verdict]}", role="status")


def chip(verdict: str) -> str:
    return tag("span", _sign(verdict), " ", escaped(verdict), class_=f"chip {CLASSES.get(verdict, 'unknown')}")


def _sign(verdict: str) -> str:
    return words("span", SIGNS.get(verdict, "?"), aria_hidden="true")


def _table(judged: Sequence[PropertySum], many: bool) -> str:
    headings = ["guarantee", "verdict", "#checks made", "#violations", "#pending", *(["runs"] if many else []), "in words"]
    return table(headings, (_row(one, many) for one in judged), class_="verdicts")


def _row(one: PropertySum, many: bool) -> str:
    evidence = words("span", "evidence", class_="mark") if one.is_evidence else ""
    cells = [
        tag("th", words("code", one.name), evidence, scope="row"),
        tag("td", chip(one.verdict)),
        *(words("td", f"{count:,}" if count else "", class_="n") for count in (one.checked, one.violations, one.pending)),
    ]
    runs = [words("td", _counted(one.runs), class_="runs")] if many else []
    return table_row([*cells, *runs, words("td", one.meaning, class_="meaning")])


def _counted(runs: Counter[str]) -> str:
    """`✗ 3  ✓ 97`."""
    return "\u2002".join(f"{sign} {runs[word]:,}" for word, sign in SIGNS.items() if runs[word])


def _apart(sums: Mapping[str, PropertySum]) -> str:
    """Guarantees without a verdict stand apart, so that nobody reads them as held."""
    lists = (
        (NOT_EXERCISED, "Not exercised: nothing happened that could have broken it"),
        (NOT_PROMISED, "Not promised by the mode of these runs"),
    )
    parts = []
    for verdict, heading in lists:
        names = [one for one in sums.values() if one.verdict == verdict]
        if names:
            items = (tag("li", words("code", one.name), " ", words("span", one.meaning, class_="meaning")) for one in names)
            parts.append(folded(escaped(f"{heading} ({len(names)})"), tag("ul", *items), class_="apart"))
    return "".join(parts)


def _reasons(content: Content) -> str:
    """Why the evidence is incomplete: folded, since a live cluster always has some."""
    found = reasons_in_order(content)
    if not found:
        return ""
    many = len(content.runs) > 1
    sentences = (f"{f' (run {one.run})' if many else ''}: {one.explanation}" for one in found)
    items = (tag("li", words("code", one.property), escaped(sentence)) for one, sentence in zip(found, sentences, strict=True))
    heading = f"Why evidence is missing or still to come ({len(found):,})"
    return folded(escaped(heading), tag("ul", *items), class_="apart")


def _matrix(content: Content, judged: Sequence[PropertySum]) -> str:
    """Runs in trouble by property; runs without trouble are one line."""
    runs = verdicts_by_run(content)
    troubled = [name for name, found in runs.items() if {BROKEN, PENDING} & set(found.values())]
    names = [one.name for one in judged if one.verdict != HELD]
    fine = len(runs) - len(troubled)
    rest = f"{fine:,} of {len(runs):,} runs have nothing broken and nothing pending."
    if not troubled:
        return words("p", rest)
    hidden = len(troubled) - MATRIX_RUNS
    more = words("p", f"{hidden:,} more runs in trouble are not shown here.") if hidden > 0 else ""
    heads = table_row(
        [words("th", "run", scope="col"), *(tag("th", words("span", name), scope="col", class_="turned") for name in names)]
    )
    body = (table_row(_cells(name, runs[name], names)) for name in troubled[:MATRIX_RUNS])
    drawn = tag("table", tag("thead", heads), tag("tbody", *body), class_="matrix")
    return words("h3", "Runs in trouble") + tag("div", drawn, class_="scroll") + more + words("p", rest)


def _cells(run: str, found: Mapping[str, str], names: Sequence[str]) -> Iterator[str]:
    yield words("th", run, scope="row")
    for name in names:
        verdict = found.get(name, NOT_EXERCISED)
        yield words("td", SIGNS.get(verdict, "?"), class_=f"cell {CLASSES.get(verdict, 'unknown')}", title=f"{name}: {verdict}")


# --- violation section ------------------------------------------------------------------------------------------------

OPEN_MAX: Final = 3
"""Violations that are unfolded when the page opens; the others unfold by a click on their summary."""
PICTURES_MAX: Final = 200
"""With more pictures the page would open slowly; sentences and events are always there."""
NAMED_MAX: Final = 12

HOW_TO_READ: Final = (
    "▲ sent, ● delivered, ▮ view installed, ✕ end, ▼ fault; a line leads from a sending to its deliveries. The events of the "
    "list are ringed and numbered. Time goes to the right; two strokes mark a silence that is cut short."
)


def violation_section(content: Content, starts_us: Mapping[str, int]) -> str:
    found = violations_in_order(content)
    total = sum(row.violations for row in content.verdicts)
    if not found:
        sentence = f"{total:,} were counted, but none of them was kept to be explained." if total else "None was found."
        return tag("section", words("h2", "Violations"), words("p", sentence), id="violations")
    around = around_by_violation(content)
    many = len(content.runs) > 1
    stays: dict[str, list[StayRow]] = {}
    for stay in content.stays:
        stays.setdefault(stay.run, []).append(stay)
    articles = []
    for place, one in enumerate(found):
        events, start_us = around.get((one.run, one.property, one.rank), []), starts_us.get(one.run, 0)
        picture = _picture(one, events, start_us, stays.get(one.run, ())) if place < PICTURES_MAX else ""
        articles.append(_article(one, events, start_us, picture, many, is_open=place < OPEN_MAX))
    counted = f"{total:,} in all; {len(found):,} are explained, the shortest of each property and run first. "
    return tag("section", words("h2", "Violations"), words("p", counted + HOW_TO_READ, class_="note"), *articles, id="violations")


def _picture(violation: ViolationRow, around: Sequence[AroundRow], start_us: int, stays: Sequence[StayRow]) -> str:
    """Empty if nothing is known of the events."""
    if not around:
        return ""
    picture = picture_around(violation, around, start_us, stays)
    label = f"Events around the violation of {violation.property}, {len(picture.lanes)} nodes"
    return tag("div", draw_inline(picture, label, "spacetime"), class_="scroll", tabindex="0")


def _article(violation: ViolationRow, around: Sequence[AroundRow], start_us: int, picture: str, many: bool, is_open: bool) -> str:
    counted = f" · {violation.rank} of {violation.total:,}" if violation.total > 1 else ""
    where = f" · run {violation.run}" if many else ""
    summary = chip(BROKEN) + " " + words("code", violation.property) + words("span", counted + where, class_="meaning")
    return folded(
        summary + words("span", violation.explanation, class_="sentence"),
        tag("ol", *_witnesses(violation, around, start_us), class_="witnesses"),
        picture,
        tag("p", *_concerned(violation), class_="note"),
        is_open=is_open,
        class_="violation",
    )


def _witnesses(violation: ViolationRow, around: Sequence[AroundRow], start_us: int) -> Iterator[str]:
    for node, lseq, event in witness_events(violation, around):
        when = "" if event is None else f" at {clock(event.time_us - start_us)}: {event.label}"
        yield tag("li", words("b", node), escaped(f", event {lseq:,}{when}"))


def _concerned(violation: ViolationRow) -> Iterator[str]:
    for what, names in (("Nodes", violation.nodes), ("Messages", violation.messages), ("Views", violation.views)):
        if names:
            more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
            yield escaped(f"{what}: {', '.join(names[:NAMED_MAX])}{more}. ")
