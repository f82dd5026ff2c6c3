"""The columns of every table that leaves the package, as text: archives, audits, measures, reports, ledgers, sweeps, traces."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import StructType

from transis.archive.rows import STREAM as ARCHIVED
from transis.audit.follow.ledger import UNREADABLE
from transis.audit.follow.ledger import VERDICTS as FOLLOWED_VERDICTS
from transis.audit.follow.ledger import VIOLATIONS as FOLLOWED_VIOLATIONS
from transis.audit.measure.clocks import LINES, OFFSETS
from transis.audit.measure.incidents import INCIDENTS
from transis.audit.measure.measures import COMPARED
from transis.audit.measure.traffic import CELLS, DENSITIES, FIGURES, GROUP_LATENCY, LATENCY, LATENCY_SUMMARY, RING, THROUGHPUT
from transis.audit.plans.finding import CHECKED, VIOLATIONS
from transis.audit.plans.incremental import JUDGED, PAST_CUTS, PAST_RINGS
from transis.audit.report.content import Content
from transis.sim.spark_sweep import OUTCOMES
from transis.spark.archive import MESSAGES, VIEWS
from transis.spark.archive import STREAM as ARCHIVE_READ
from transis.spark.inputs import EVENTS
from transis.trace.events import (
    History,
)
from transis.trace.segment import Header, SegmentWriter
from transis.trace.tables import KINDS, SCHEMAS

Schema = pa.Schema | StructType

READ_AND_KEPT: dict[str, Schema] = {
    "archive, written": ARCHIVED,
    "archive, read": ARCHIVE_READ,
    "audit, checked": CHECKED,
    "audit, violations": VIOLATIONS,
    "audit, judged": JUDGED,
    "audit, past_cuts": PAST_CUTS,
    "audit, past_rings": PAST_RINGS,
    "audit, events of all kinds": EVENTS,
    **{f"audit, events: {kind}": StructType([EVENTS[name] for name in names]) for kind, names in KINDS.items()},
    "follow, verdicts": FOLLOWED_VERDICTS,
    "follow, violations": FOLLOWED_VIOLATIONS,
    "follow, unreadable": UNREADABLE,
    "measures, lines": LINES,
    "measures, cells": CELLS,
    "measures, throughput": THROUGHPUT,
    "measures, latency": LATENCY,
    "measures, latency_summary": LATENCY_SUMMARY,
    "measures, group_latency": GROUP_LATENCY,
    "measures, densities": DENSITIES,
    "measures, figures": FIGURES,
    "measures, offsets": OFFSETS,
    "measures, ring": RING,
    "measures, incidents": INCIDENTS,
    "measures, compared": COMPARED,
    "sweep, outcomes": OUTCOMES,
    **{f"trace, {kind}": schema for kind, schema in SCHEMAS.items()},
}
NAMES_ONLY: dict[str, Iterable[str]] = {"reconcile, messages": MESSAGES, "reconcile, views": VIEWS}


def schemas() -> str:
    told = {name: list(_columns(schema)) for name, schema in READ_AND_KEPT.items()}
    told |= {name: list(columns) for name, columns in NAMES_ONLY.items()}
    told |= _of_reports()
    return "\n".join(f"# {name}\n\n" + "".join(f"{column}\n" for column in told[name]) for name in sorted(told))


def _columns(schema: Schema) -> Iterator[str]:
    if isinstance(schema, StructType):
        yield from (f"{field.name}: {field.dataType.simpleString()}" for field in schema)
    else:
        yield from (f"{field.name}: {field.type}" for field in schema)


# --- traces ----------------------------------------------------------------------------------------------------------


def write_segments(history: History, directory: Path, run: str = "locked") -> None:
    """As `transis simulate --trace` writes them, but by no version of the package: what is locked outlives a release."""
    directory.mkdir(parents=True)
    for trace in history.nodes:
        header = Header("simulated", run, trace.node, engine=history.engine, mode=history.promises, build="any")
        writer = SegmentWriter(directory, header)
        assert writer.write(trace.events), "a temporary directory takes what is written"
        writer.close(history.closed)


# --- reports ----------------------------------------------------------------------------------------------------------


def _of_reports() -> dict[str, list[str]]:
    """The rows that a report is made of; they are kept and read again as JSON."""
    rows = {name: typing.get_args(kind)[0] for name, kind in typing.get_type_hints(Content).items() if typing.get_args(kind)}
    rows["computed"] = typing.get_type_hints(Content)["computed"]
    return {f"report, {name}": [f"{one.name}: {one.type}" for one in fields(kind)] for name, kind in rows.items()}
