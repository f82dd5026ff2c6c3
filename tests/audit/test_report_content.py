"""What a report is made of: rows from any tables, kept as JSON, and told to machines in the words of `transis simulate`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyspark.sql.types import ArrayType, BooleanType, DataType, DoubleType, StringType, StructType

from tests.audit import schemas
from tests.audit.contents import content_of_history, content_of_seed, many_runs, wounded
from transis.audit.report.charts import ring_charts
from transis.audit.report.collect import as_dict, json_text
from transis.audit.report.content import Computed, Content, ReasonRow, RingRow, VerdictRow, content_of, from_json, to_json
from transis.audit.report.runs import RING_MEASURES, measured
from transis.audit.report.verdicts import headline, starts_us, sums_of
from transis.sim.plan import TOTEM
from transis.sim.run import simulate
from transis.sim.runs import SimulateRequest, run
from transis.sim.words import as_dict as simulated_as_dict
from transis.types.errors import PipelineError

NAMES = {7: "a run"}
RING_NOTES = (("backlog", 3), ("tokens lost", 0))


def verdict(run: str, name: str, word: str, checked: int = 1, violations: int = 0) -> VerdictRow:
    return VerdictRow(run=run, property=name, verdict=word, checked=checked, violations=violations)


def test_json_tells_properties_exactly_as_simulate_does() -> None:
    request = SimulateRequest(TOTEM, range(5, 6), None, 1, "", None)
    tally = run(request)
    assert tally.outcome is not None
    expected = simulated_as_dict(request, tally)
    rows = [verdict("r", one.property, one.verdict, one.checked, one.count) for one in tally.outcome.report.verdicts.values()]
    found = as_dict(Content(runs=content_of_seed(5).runs, verdicts=tuple(reversed(rows))))
    for key in ("runs", "properties", "not_exercised", "not_promised"):
        assert found[key] == expected[key], key
    assert list(found["properties"]["fifo"]) == ["verdict", "checked", "violations"]
    assert json.loads(json_text(content_of_seed(5)))["violations"] == []


def test_json_explains_each_violation_with_its_witness() -> None:
    history = wounded(simulate(5).history, "duplicate_delivery")
    content = content_of_history("seed 5", history)
    found = as_dict(content)
    (violation,) = found["violations"]
    assert (violation["property"], violation["run"], violation["rank"], violation["total"]) == ("no_duplicates", "seed 5", 1, 1)
    assert violation["explanation"] == content.violations[0].explanation
    assert [(one["node"], one["lseq"]) for one in violation["witness"]] == list(content.violations[0].witness)
    assert all(one["event"].startswith("delivered ") and one["time_us"] > 0 for one in violation["witness"])
    assert found["violations_total"] == 1
    assert found["failing"] == [{"run": "seed 5", "properties": ["no_duplicates"]}]


def test_of_many_runs_the_heaviest_verdict_counts() -> None:
    rows = [
        verdict("a", "fifo", "held", 5), verdict("b", "fifo", "broken", 7, 2), verdict("c", "fifo", "pending", 1),
        verdict("a", "places", "not promised", 0), verdict("b", "places", "not exercised", 0),
        verdict("a", "basic", "not promised", 0),
    ]  # fmt: skip
    sums = sums_of(Content(verdicts=tuple(rows)))
    assert [(one.name, one.verdict, one.checked, one.violations) for one in sums.values()] == [
        ("fifo", "broken", 13, 2),
        ("places", "not exercised", 0, 0),
        ("basic", "not promised", 0, 0),
    ]
    assert sums["fifo"].runs == {"held": 1, "broken": 1, "pending": 1}


def test_the_headline_weighs_evidence_before_guarantees() -> None:
    guarantee, evidence = verdict("a", "fifo", "broken", 3, 1), verdict("a", "quality_chain", "broken", 1, 1)
    assert headline(Content(verdicts=(guarantee,))) == ("broken", "1 guarantee was broken.")
    assert headline(Content(verdicts=(guarantee, evidence)))[1].endswith("first. 1 guarantee was broken.")
    assert headline(Content(verdicts=(verdict("a", "fifo", "pending"), verdict("a", "places", "held"))))[0] == "pending"
    assert headline(Content(verdicts=(verdict("a", "fifo", "not exercised", 0),)))[0] == "not exercised"
    assert headline(many_runs(100))[1] == "1 guarantee was broken in 2 of 100 runs."


def test_times_begin_with_the_first_view_of_each_run() -> None:
    content = content_of_seed(5)
    later = tuple(replace(stay, run="later", start_us=stay.start_us + 10**15) for stay in content.stays)
    starts = starts_us(replace(content, stays=(*content.stays, *later)))
    assert starts["later"] - starts["seed 5"] == 10**15
    assert starts["seed 5"] == min(stay.start_us for stay in content.stays)


def test_content_comes_from_plain_rows_and_reads_back() -> None:
    rows = [{"run": "r", "property": "fifo", "verdict": "held", "checked": 3, "violations": 0, "pending": 0, "more": "unknown"}]
    content = content_of({"verdicts": rows, "runs": [{"name": "r", "builds": ["1", "2"]}]}, Computed(transis="1"), "A title")
    assert content.verdicts == (verdict("r", "fifo", "held", 3),)
    assert content.runs[0].builds == ("1", "2")
    assert (content.title, content.computed.transis) == ("A title", "1")
    assert from_json(to_json(content)) == content


def test_tables_that_do_not_fit_are_refused_in_a_sentence() -> None:
    with pytest.raises(PipelineError, match=r"the tables are not those of this version's report: .*property"):
        content_of({"verdicts": [{"run": "r"}]})
    with pytest.raises(PipelineError, match="not the content of a report"):
        from_json(b"<html>")


SAMPLES = {StringType(): "x", BooleanType(): True, DoubleType(): 1.5}


def sample(kind: DataType) -> object:
    if isinstance(kind, StructType):
        return {field.name: sample(field.dataType) for field in kind.fields}
    return [sample(kind.elementType)] if isinstance(kind, ArrayType) else SAMPLES.get(kind, 2)


def sampled(schema: StructType) -> dict[str, object]:
    """A row with a value in every column, so that a column which is not there any more is missed."""
    row = {field.name: sample(field.dataType) for field in schema.fields}
    return row | ({"run": 7} if "run" in row else {})


def test_every_measure_becomes_rows_of_the_report() -> None:
    tables = {
        "throughput": [sampled(schemas.THROUGHPUT), sampled(schemas.THROUGHPUT)],
        "latency": [sampled(schemas.LATENCY)],
        "group_latency": [sampled(schemas.GROUP_LATENCY) | {"group_name": None}],
        "offsets": [sampled(schemas.OFFSETS)],
        "ring": [sampled(schemas.RING) | {"rotation_us": None}],
        "incidents": [sampled(schemas.INCIDENTS) | {"detection_us": None}],
        "figures": [sampled(schemas.FIGURES), sampled(schemas.FIGURES) | {"mean_us": None}],
        "compared": [sampled(schemas.COMPARED) | {"measure": "mean_us", "b": None}],
    }
    content = Content(**measured(tables, NAMES))
    assert [(row.run, row.node, row.messages) for row in content.throughput] == [("a run", "x", 4)]
    assert [(row.service, row.low_us, row.count) for row in content.latency] == [("agreed", 1.5, 2)]
    assert [row.group for row in content.group_latency] == ["no group"]
    assert [row.reference for row in content.clocks] == ["x"]
    assert {row.what for row in content.ring} == set(RING_MEASURES.values()) - {RING_MEASURES["rotation_us"]}
    assert [(row.new, row.groups, row.detection_us) for row in content.incidents] == [(("x",), (("x", 2),), None)]
    assert [row.mean_us for row in content.figures] == [1.5]
    assert [(row.what, row.unit, row.before, row.after) for row in content.changes] == [("mean_us, agreed", "µs", 1.5, None)]
    assert measured({}, {}) == dict.fromkeys(measured(tables, NAMES), ())


def test_what_the_ring_never_did_is_no_chart() -> None:
    notes = [RingRow(run="r", node="a/1", start_us=at, what=what, value=at * size) for at in (1, 2) for what, size in RING_NOTES]
    assert [chart.title for chart in ring_charts(notes, (), 0)] == ["The ring over time: backlog"]


def test_machines_are_told_why_evidence_is_pending() -> None:
    why = ReasonRow(run="r", property="quality_chain", explanation="x.trace: not sealed")
    told = as_dict(Content(verdicts=(verdict("r", "quality_chain", "pending"),), reasons=(why,)))
    assert told["evidence"] == [{"run": "r", "property": "quality_chain", "explanation": "x.trace: not sealed"}]
