"""What `transis audit` tells a person: evidence first, violations in sentences with their events, nothing a terminal obeys."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from tests.audit.contents import content_of_seed, many_runs
from transis.audit.report.content import Content, ReasonRow, VerdictRow, ViolationRow
from transis.audit.words import REASONS_LISTED, VIOLATIONS_LISTED, print_audit


def told(content: Content) -> str:
    paper = StringIO()
    print_audit(Console(file=paper, width=200, highlight=False, markup=False), content)
    return paper.getvalue()


def test_a_good_run_is_a_table_and_a_sentence() -> None:
    text = told(content_of_seed(5))
    assert text.splitlines()[-1] == "Every guarantee that was exercised held."
    assert "0 broken, 0 pending, 21 held, in 1 run." in text
    assert "Not exercised: basic" in text
    assert "The evidence" not in text


def test_each_violation_is_a_sentence_with_its_events() -> None:
    content = content_of_seed(5, ("duplicate_delivery",))
    lines = told(content).splitlines()
    (violation,) = content.violations
    place = lines.index(f"no_duplicates: {violation.explanation}")
    node, lseq = violation.witness[0]
    assert lines[place + 1].startswith(f"    {node}, event {lseq} at ")
    assert "delivered" in lines[place + 1]
    assert lines[-1] == "1 guarantee was broken."


def test_what_is_wrong_with_the_evidence_is_told_first() -> None:
    content = content_of_seed(5, ("duplicate_delivery",))
    lost = VerdictRow(run="seed 5", property="quality_chain", verdict="broken", checked=4, violations=1)
    missing = ViolationRow(run="seed 5", property="quality_chain", explanation="segment 2 of b/1 is missing")
    text = told(replace(content, verdicts=(*content.verdicts, lost), violations=(*content.violations, missing)))
    assert text.index("The evidence") < text.index("Verdict per guarantee")
    assert text.index("segment 2 of b/1 is missing") < text.index(content.violations[0].explanation)


def test_broken_runs_are_named_and_the_rest_is_counted() -> None:
    many = many_runs(100)
    first = ViolationRow(run="run 003", property="total_order_6_1", explanation="", total=60)
    rows = tuple(replace(first, explanation=f"number {rank}", rank=rank) for rank in range(1, 61))
    verdicts = tuple(replace(row, violations=60) if row.run == "run 003" and row.violations else row for row in many.verdicts)
    text = told(replace(many, violations=rows, verdicts=verdicts))
    assert "in 100 runs; broken in run 003, run 041." in text
    assert f"total_order_6_1 [{VIOLATIONS_LISTED} of 60] (run run 003): number {VIOLATIONS_LISTED}\n" in text
    assert f"number {VIOLATIONS_LISTED + 1}" not in text
    assert f"and {62 - VIOLATIONS_LISTED} more violations" in text


def test_a_terminal_is_told_nothing_that_it_obeys() -> None:
    row = VerdictRow(run="r", property="fifo", verdict="broken", checked=1, violations=1)
    nasty = ViolationRow(run="r", property="fifo", explanation="\x1b]0;owned\x07 [bold]b[/bold]", witness=(("\x1b[2Ja", 1),))
    text = told(Content(verdicts=(row,), violations=(nasty,)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]b[/bold]" in text


def test_why_evidence_is_pending_is_told_for_some_and_counted_for_the_rest() -> None:
    row = VerdictRow(run="r", property="quality_chain", verdict="pending", checked=40, pending=30)
    reasons = tuple(
        ReasonRow(run="r", property="quality_chain", explanation=f"{file:02}.trace: not sealed") for file in range(30)
    )
    lines = told(Content(verdicts=(row,), reasons=reasons)).splitlines()
    shown = [line for line in lines if line.startswith("quality_chain: ")]
    assert shown == [f"quality_chain: {file:02}.trace: not sealed" for file in range(REASONS_LISTED)]
    assert f"and {30 - REASONS_LISTED} more reasons of this kind" in lines
