"""`transis audit` and `transis report` as people use them: whatever they are given, there is a verdict with its reason, or one
sentence; never a traceback.

An audit takes a minute, so all kinds of damage are in one, each a run of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from typer.testing import CliRunner, Result

from tests.audit import damage
from transis.audit.guarantees import check
from transis.audit.guarantees.property import BROKEN, HELD, PENDING
from transis.audit.job import AuditRequest, audit, exit_code
from transis.audit.plans.evidence import CHAIN, MEMBERS, MIXED, READABLE
from transis.audit.plans.store import EventStore
from transis.audit.report.collect import as_dict
from transis.audit.report.content import Content
from transis.audit.report.verdicts import verdicts_by_run
from transis.audit.words import print_audit
from transis.cli.main import app
from transis.spark.progress import StepTimer
from transis.trace.segment import SCHEMA

CREATION = "no_creation"


def run(*arguments: str | Path) -> Result:
    outcome = CliRunner().invoke(app, [str(one) for one in arguments])
    assert outcome.exception is None or isinstance(outcome.exception, SystemExit), outcome.exception
    assert "Traceback" not in outcome.output
    return outcome


# -- what cannot be audited at all ---------------------------------------------------------------------------------------


def refused(*arguments: str | Path) -> str:
    outcome = run("audit", *arguments)
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    [sentence] = outcome.stderr.splitlines()
    return sentence


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "nowhere") == f"transis audit: {tmp_path}/nowhere: there is no such file or directory"


def test_an_empty_directory_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"transis audit: {tmp_path}: holds no trace segment (*.trace)"


def test_dots_lead_where_they_lead_and_the_path_is_told_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    given = f"{tmp_path}/a/../b"
    assert refused(given) == f"transis audit: {given}: there is no such file or directory"


def test_the_report_refuses_in_the_same_words(tmp_path: Path) -> None:
    outcome = run("report", tmp_path, "-o", tmp_path / "page.html")
    assert (outcome.exit_code, outcome.stderr) == (2, f"transis report: {tmp_path}: holds no trace segment (*.trace)\n")
    assert list(tmp_path.iterdir()) == []


def test_a_guarantee_that_nobody_knows_is_named_with_the_one_that_may_be_meant(tmp_path: Path) -> None:
    (tmp_path / "a.trace").touch()
    sentence = refused(tmp_path, "--only", "total_order")
    assert sentence.startswith("transis audit: there is no property 'total_order', but total_order_6_1; all of them: quality_")


@pytest.mark.slow
def test_files_of_which_none_is_a_trace_are_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "letter.trace").write_text("dear reader")
    assert "none of the 1 files of traces can be read; the first one is letter.trace: byte 0: not" in refused(tmp_path)


# -- what is damaged -------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What was said the first time, and, by the command, when the late file had come."""

    first: Content
    again: Result
    machine: dict[str, Any]
    page: str
    store: Path

    def of_run(self, name: str) -> Content:
        return replace(self.first, verdicts=tuple(row for row in self.first.verdicts if row.run == name))

    def verdicts(self, name: str) -> dict[str, str]:
        return verdicts_by_run(self.first)[name]

    def sentences(self, name: str, word: str) -> list[str]:
        """Of what is broken, or of what is pending, in the evidence of a run."""
        rows = self.first.violations if word == BROKEN else self.first.reasons
        return [row.explanation for row in rows if row.run == name]


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    place = tmp_path_factory.mktemp("audited")
    root, store, page = place / "traces", place / "store", place / "page.html"
    damage.write_all(root)
    first = audit(AuditRequest((str(root),), str(store)), StepTimer())
    damage.add_what_comes_late(root)
    again = run("audit", root / "good" / "..", "--json", "--strict", "--store", store, "--report", page)
    yield Told(first, again, json.loads(again.stdout), page.read_text(), store)


DAMAGED: dict[str, tuple[int, dict[str, str], str]] = {
    "good": (0, {}, ""),
    "cut_off": (0, {READABLE: PENDING, CHAIN: PENDING}, "are no whole batch: its node was cut off, or writes"),
    "damaged": (2, {READABLE: BROKEN, MEMBERS: PENDING}, ": a damaged frame in the middle of the file"),
    "foreign": (2, {READABLE: BROKEN}, f": schema {SCHEMA + 1}, this reader knows {SCHEMA - 1} and {SCHEMA}"),
    "with_a_letter": (2, {READABLE: BROKEN}, "letter.trace: byte 0: not a trace segment"),
    "mixed": (2, {MIXED: BROKEN}, "the run mixed is in one directory with traces of other runs, 2 in all"),
    "without_a_node": (2, {MEMBERS: PENDING}, "is a member of"),
    "killed": (0, {CHAIN: PENDING}, "not sealed: "),
    "begun": (0, {READABLE: PENDING}, ": the file is empty: its node was killed when it began to write, or begins"),
    "evil": (0, {CHAIN: PENDING}, f"not sealed: {damage.EVIL_NODE}/1 still writes, or was cut off"),
}
"""Of each run: the exit code that it asks for, the verdicts on its evidence that are not `held`, and a piece of the reason."""


@pytest.mark.slow
@pytest.mark.parametrize("case", damage.CASES, ids=lambda case: case.__name__)
def test_damage_is_a_verdict_with_its_reason(told: Told, case: Any) -> None:
    name = case.__name__
    code, expected, reason = DAMAGED[name]
    verdicts = told.verdicts(name)
    of_evidence = {key: word for key, word in verdicts.items() if key.startswith("quality_") and word != HELD}
    assert of_evidence == expected
    assert exit_code(told.of_run(name)) == code
    assert {word for key, word in verdicts.items() if not key.startswith("quality_")} & {BROKEN} == set()
    sentences = told.sentences(name, BROKEN) + told.sentences(name, PENDING)
    assert any(reason in one for one in sentences or [""]), sentences


@pytest.mark.slow
def test_kill_9_in_the_middle_of_recording_is_no_message_from_nowhere(told: Told) -> None:
    verdicts = told.verdicts("killed")
    assert verdicts[CREATION] in (HELD, PENDING)
    assert set(verdicts.values()) & {BROKEN} == set()
    assert PENDING in verdicts.values()
    assert exit_code(told.of_run("killed")) == 0
    assert exit_code(told.of_run("killed"), strict=True) == 1


@pytest.mark.slow
def test_the_whole_of_it_is_told_to_people_and_to_machines(told: Told) -> None:
    out = StringIO()
    print_audit(Console(file=out, width=200, highlight=False, markup=False), told.first)
    words = out.getvalue()
    assert exit_code(told.first) == 1
    assert "The evidence is not whole: read what was found about it first." in words
    assert "quality_readable (run with_a_letter): letter.trace: byte 0: not a trace segment" in words
    assert "quality_chain (run cut_off): " in words
    machine = as_dict(told.first)
    assert {one["run"] for one in machine["failing"]} == {
        *("damaged", "foreign", "mixed", "mixed, too", "with_a_letter", damage.WOUNDED_RUN)
    }
    assert {"run": "without_a_node", "property": MEMBERS} in [
        {key: one[key] for key in ("run", "property")} for one in machine["evidence"]
    ]


@pytest.mark.slow
def test_late_files_revise_the_verdicts_of_their_runs_and_of_no_other(told: Told, spark: SparkSession) -> None:
    with EventStore(spark, told.store) as store:
        now = _verdicts_in(store)
    assert told.verdicts("without_a_node")[CREATION] == PENDING
    assert now["without_a_node"][CREATION] == HELD
    assert set(now["without_a_node"].values()) & {BROKEN, PENDING} == set()
    assert now["good"] == told.verdicts("good") | {READABLE: BROKEN}
    for name in now.keys() - {"good", "without_a_node"}:
        assert now[name] == told.verdicts(name), name


@pytest.mark.slow
def test_what_was_read_once_is_not_read_again(told: Told, spark: SparkSession) -> None:
    with EventStore(spark, told.store) as store:
        batches = {row.file: row.batch for row in store.inputs().where("batch is not null").collect()}
    late = [Path(file).name for file, batch in batches.items() if batch != min(batches.values())]
    assert [name.partition("-")[0] for name in late] == [damage.LIFE.node.name]


def _verdicts_in(store: EventStore) -> dict[str, dict[str, str]]:
    """As anybody reads them from the tables that are kept."""
    names = {row.run: row.run_name for row in store.events().where("kind = 'segments' and run is not null").collect()}
    found: dict[str, dict[str, str]] = {name: {} for name in names.values()}
    for row in store.table("verdicts").collect():
        found[names[row.run]][row.property] = row.verdict
    return found


@pytest.mark.slow
def test_the_command_has_json_a_report_and_a_strict_exit_code(told: Told) -> None:
    assert (told.again.exit_code, told.again.stderr) == (1, "")
    assert list(told.machine) == [
        *("runs", "inputs", "properties", "not_exercised", "not_promised", "pending", "evidence", "failing", "steps"),
        *("violations_total", "violations"),
    ]
    assert told.machine["runs"] == len(damage.CASES) + 2
    assert told.machine["properties"][CREATION].keys() == {"verdict", "checked", "violations"}
    assert told.page.startswith("<!DOCTYPE html>")
    assert told.page.rstrip().endswith("</html>")


@pytest.mark.slow
def test_names_full_of_html_are_words_on_the_page(told: Told) -> None:
    assert "<img" not in told.page
    assert "alert(2)</script>" not in told.page
    assert "&lt;img src=x onerror=alert(1)&gt;/1 still writes" in told.page


# -- what is broken ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_page_shows_each_violation_and_what_happened_around_it(told: Told) -> None:
    verdicts = check(damage.WOUNDED).verdicts
    assert {name: told.verdicts(damage.WOUNDED_RUN)[name] for name in verdicts} == {
        name: one.verdict for name, one in verdicts.items()
    }
    for name, one in verdicts.items():
        assert (f'<code>{name}</code><span class="meaning">' in told.page) == bool(one.count), name
    articles = told.page.split('class="violation"')[1:]
    of_messages = [one for one in articles if any(f"<code>{name}</code>" in one for name in verdicts)]
    assert of_messages
    assert all("<svg" in one and "<li>" in one for one in of_messages[:3])
