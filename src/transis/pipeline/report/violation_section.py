"""Every violation that was kept: the sentence, the events that show it, and the picture of what happened around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from transis.drawing.html import folded, tag, words
from transis.drawing.svg import escaped
from transis.drawing.times import clock
from transis.model.guarantees import BROKEN
from transis.pipeline.report.content import Around, Content, Violation
from transis.pipeline.report.spacetime import draw_around
from transis.pipeline.report.summary import around_by_violation, violations_in_order, witness_events
from transis.pipeline.report.verdict_section import chip

OPEN_MAX: Final = 3
"""Violations that are open when the page is; the others open by their summary."""
PICTURES_MAX: Final = 200
"""Beyond so many the page would be slow to open; sentence and events are always there."""
NAMED_MAX: Final = 12

HOW_TO_READ: Final = (
    "▲ sent, ● delivered, ▮ view installed, ✕ end, ▼ fault; a line leads from a sending to its deliveries. Ringed and numbered "
    "are the events of the list. Time goes to the right, in order and not to scale."
)


def violation_section(content: Content, starts_us: Mapping[str, int]) -> str:
    found = violations_in_order(content)
    total = sum(row.violations for row in content.verdicts)
    if not found:
        told = f"{total:,} were counted, but none of them was kept to be explained." if total else "None was found."
        return tag("section", words("h2", "Violations"), words("p", told), id="violations")
    around = around_by_violation(content)
    many = len(content.runs) > 1
    articles = (
        _article(one, around.get((one.run, one.property, one.rank), []), starts_us.get(one.run, 0), place, many)
        for place, one in enumerate(found)
    )
    told = f"{total:,} in all; {len(found):,} are explained, the shortest of each property and run first. "
    return tag("section", words("h2", "Violations"), words("p", told + HOW_TO_READ, class_="note"), *articles, id="violations")


def _article(violation: Violation, around: Sequence[Around], start_us: int, place: int, many: bool) -> str:
    counted = f" · {violation.rank} of {violation.total:,}" if violation.total > 1 else ""
    where = f" · run {violation.run}" if many else ""
    summary = chip(BROKEN) + " " + words("code", violation.property) + words("span", counted + where, class_="meaning")
    picture = draw_around(violation, around, start_us) if place < PICTURES_MAX else ""
    return folded(
        summary + words("span", violation.explanation, class_="sentence"),
        tag("ol", *_witnesses(violation, around, start_us), class_="witnesses"),
        tag("div", picture, class_="scroll", tabindex="0") if picture else "",
        tag("p", *_concerned(violation), class_="note"),
        is_open=place < OPEN_MAX,
        class_="violation",
    )


def _witnesses(violation: Violation, around: Sequence[Around], start_us: int) -> Iterator[str]:
    for node, lseq, event in witness_events(violation, around):
        when = "" if event is None else f" at {clock(event.time_us - start_us)}: {event.label}"
        yield tag("li", words("b", node), escaped(f", event {lseq:,}{when}"))


def _concerned(violation: Violation) -> Iterator[str]:
    for what, names in (("Nodes", violation.nodes), ("Messages", violation.messages), ("Views", violation.views)):
        if names:
            more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
            yield escaped(f"{what}: {', '.join(names[:NAMED_MAX])}{more}. ")
