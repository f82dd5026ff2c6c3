"""docs/pipeline.md is complete: every kind, column, table and property is in it, and nothing that there is not.

Tables of the page are read by their headings; names are what stands in backticks.
"""

from __future__ import annotations

import re
from dataclasses import fields

from pyspark.sql.types import StructType

from tests.audit import schemas
from tests.audit.contents import content_of_seed
from tests.house.sources import ROOT
from transis.audit.guarantees import EVIDENCE_MEANINGS, PROPERTIES
from transis.audit.guarantees.property import Reads
from transis.audit.plans.finding import VIOLATIONS
from transis.audit.plans.incremental import CUTS, JUDGED, PAST, PAST_CUTS, PAST_RINGS, RINGS, TABLE
from transis.audit.report.collect import as_dict
from transis.audit.report.content import VerdictRow
from transis.spark.inputs import EVENTS
from transis.trace.tables import KINDS

PAGE = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")

OF_EVERY_EVENT = re.findall(r"`(\w+)`", PAGE.split("\nOf every event: ", 1)[1].split("\n", 1)[0])

MEASURES: dict[str, StructType] = {
    "throughput": schemas.THROUGHPUT,
    "latency": schemas.LATENCY,
    "latency_summary": schemas.LATENCY_SUMMARY,
    "group_latency": schemas.GROUP_LATENCY,
    "densities": schemas.DENSITIES,
    "figures": schemas.FIGURES,
    "offsets": schemas.OFFSETS,
    "ring": schemas.RING,
    "incidents": schemas.INCIDENTS,
    "compared": schemas.COMPARED,
}
NOT_TABLES = {"LINES", "CELLS", "BLACKOUT", "GROUP_BLACKOUT"}
"""Schemas of measures that are steps on the way, or columns of others."""


def rows(page: str, *headings: str) -> list[list[str]]:
    """The cells of all tables with these headings."""
    head = re.escape(f"| {' | '.join(headings)} |")
    bodies = re.findall(rf"^{head}\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for body in bodies for line in body.splitlines()]


def named(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def columns_of(*headings: str) -> dict[str, list[str]]:
    """The first and the last column of a table: whose they are, and which."""
    told = {}
    for first, *_, last in rows(PAGE, *headings):
        shared = OF_EVERY_EVENT if last.startswith("of every event") else []
        told[named(first)[0]] = [*shared, *named(last)]
    return told


def test_every_kind_has_its_columns() -> None:
    assert columns_of("kind", "a row is", "columns") == KINDS


def test_every_column_has_its_type_and_a_meaning() -> None:
    told = [(named(name)[0], kind) for name, kind, meaning in rows(PAGE, "column", "type", "meaning") if meaning]
    assert told == [(field.name, field.dataType.simpleString()) for field in EVENTS.fields]


def test_every_table_has_its_columns() -> None:
    told = columns_of("table", "a row is", "columns")
    verdicts = [field.name for field in fields(VerdictRow) if field.name != "inputs"]
    kept = {"verdicts": verdicts, "violations": [*VIOLATIONS.names, "rank"], TABLE: JUDGED.names}
    past = {PAST: [], CUTS: PAST_CUTS.names, RINGS: PAST_RINGS.names}  # The first has the columns of events, told above.
    assert told == {name: schema.names for name, schema in MEASURES.items()} | kept | past


def test_every_schema_of_measures_is_a_table() -> None:
    declared = {name for name, value in vars(schemas).items() if isinstance(value, StructType) and name[0] != "_"}
    assert declared == {name.upper() for name in MEASURES} | NOT_TABLES


def test_every_property_is_where_it_is_read() -> None:
    told = [name for _, cell in rows(PAGE, "read", "properties") for name in named(cell)]
    assert told == [*EVIDENCE_MEANINGS, *(one.name for reads in Reads for one in PROPERTIES.values() if one.reads is reads)]
    assert [named(row[0])[0] for row in rows(PAGE, "property", "broken", "pending")] == list(EVIDENCE_MEANINGS)


def test_every_key_for_machines_is_told() -> None:
    told = [name for keys, _ in rows(PAGE, "key", "what") for name in named(keys)]
    assert sorted(told) == sorted(as_dict(content_of_seed(5)))
