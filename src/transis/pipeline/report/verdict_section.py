"""The verdicts: one table of all guarantees, what could not be judged, and, of many runs, which of them are in trouble."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from transis.drawing.html import folded, row, table, tag, words
from transis.drawing.svg import escaped
from transis.model.guarantees import BROKEN, HELD, NOT_EXERCISED, NOT_PROMISED, PENDING
from transis.pipeline.report.content import Content
from transis.pipeline.report.summary import Sum, headline, heaviest_first, reasons_in_order, sums_of, verdicts_by_run

SIGNS: Final = {BROKEN: "✗", PENDING: "◌", HELD: "✓", NOT_EXERCISED: "–", NOT_PROMISED: "·"}
"""A sign beside each colour, for those who do not see colours and for paper."""
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


def _table(judged: Sequence[Sum], many: bool) -> str:
    headings = ["guarantee", "verdict", "#checks made", "#violations", "#pending", *(["runs"] if many else []), "in words"]
    return table(headings, (_row(one, many) for one in judged), class_="verdicts")


def _row(one: Sum, many: bool) -> str:
    evidence = words("span", "evidence", class_="mark") if one.is_evidence else ""
    cells = [
        tag("th", words("code", one.name), evidence, scope="row"),
        tag("td", chip(one.verdict)),
        *(words("td", f"{count:,}" if count else "", class_="n") for count in (one.checked, one.violations, one.pending)),
    ]
    runs = [words("td", _counted(one.runs), class_="runs")] if many else []
    return row([*cells, *runs, words("td", one.meaning, class_="meaning")])


def _counted(runs: Counter[str]) -> str:
    """`✗ 3  ✓ 97`."""
    return "\u2002".join(f"{sign} {runs[word]:,}" for word, sign in SIGNS.items() if runs[word])


def _apart(sums: Mapping[str, Sum]) -> str:
    """What nobody may read as held."""
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
    """Why the evidence is not whole: a list to open, for a live cluster always has some."""
    found = reasons_in_order(content)
    if not found:
        return ""
    many = len(content.runs) > 1
    told = (f"{f' (run {one.run})' if many else ''}: {one.explanation}" for one in found)
    items = (tag("li", words("code", one.property), escaped(sentence)) for one, sentence in zip(found, told, strict=True))
    heading = f"Why evidence is missing or still to come ({len(found):,})"
    return folded(escaped(heading), tag("ul", *items), class_="apart")


def _matrix(content: Content, judged: Sequence[Sum]) -> str:
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
    heads = row(
        [words("th", "run", scope="col"), *(tag("th", words("span", name), scope="col", class_="turned") for name in names)]
    )
    body = (row(_cells(name, runs[name], names)) for name in troubled[:MATRIX_RUNS])
    drawn = tag("table", tag("thead", heads), tag("tbody", *body), class_="matrix")
    return words("h3", "Runs in trouble") + tag("div", drawn, class_="scroll") + more + words("p", rest)


def _cells(run: str, found: Mapping[str, str], names: Sequence[str]) -> Iterator[str]:
    yield words("th", run, scope="row")
    for name in names:
        verdict = found.get(name, NOT_EXERCISED)
        yield words("td", SIGNS.get(verdict, "?"), class_=f"cell {CLASSES.get(verdict, 'unknown')}", title=f"{name}: {verdict}")
