"""The columns of every table that leaves the package, as text: archives, audits, measures, reports, ledgers, sweeps, traces."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from transis.archive.rows import STREAM as ARCHIVED
from transis.audit.follow.ledger import UNREADABLE
from transis.audit.follow.ledger import VERDICTS as FOLLOWED_VERDICTS
from transis.audit.follow.ledger import VIOLATIONS as FOLLOWED_VIOLATIONS
from transis.audit.measure.schemas import (
    CELLS,
    COMPARED,
    DENSITIES,
    FIGURES,
    GROUP_LATENCY,
    INCIDENTS,
    LATENCY,
    LATENCY_SUMMARY,
    LINES,
    OFFSETS,
    RING,
    THROUGHPUT,
)
from transis.audit.plans.incremental import JUDGED, PAST_CUTS, PAST_RINGS
from transis.audit.plans.tables import CHECKED, EVENTS, KINDS, VIOLATIONS, schema_of
from transis.audit.report.content import Content
from transis.sim.run import simulate
from transis.sim.spark_sweep import OUTCOMES
from transis.spark.archive import MESSAGES, VIEWS
from transis.spark.archive import STREAM as ARCHIVE_READ
from transis.trace.events import (
    CheckpointEvent,
    ClientDelivery,
    End,
    Gap,
    History,
    NodeTrace,
    Prefix,
    Refuse,
    Sent,
    Waited,
)
from transis.trace.segment import Header, SegmentWriter
from transis.trace.tables import convert
from transis.types.ids import NodeId, Place, ProcessId, Service, ViewId, ViewKind
from transis.types.views import GroupId, GroupViewId

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
    **{f"audit, events: {kind}": schema_of(kind) for kind in KINDS},
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
}
NAMES_ONLY: dict[str, Iterable[str]] = {"reconcile, messages": MESSAGES, "reconcile, views": VIEWS}

SEED = 0
"""A run with groups."""


def schemas() -> str:
    told = {name: list(_columns(schema)) for name, schema in READ_AND_KEPT.items()}
    told |= {name: list(columns) for name, columns in NAMES_ONLY.items()}
    told |= _of_traces()
    told |= _of_reports()
    return "\n".join(f"# {name}\n\n" + "".join(f"{column}\n" for column in told[name]) for name in sorted(told))


def _columns(schema: Schema) -> Iterator[str]:
    if isinstance(schema, StructType):
        yield from (f"{field.name}: {field.dataType.simpleString()}" for field in schema)
    else:
        yield from (f"{field.name}: {field.type}" for field in schema)


# --- traces as Parquet ------------------------------------------------------------------------------------------------


def _of_traces() -> dict[str, list[str]]:
    """Columns have the types of their values: one that is null in every row of a table has the type that it has in another."""
    found: dict[str, dict[str, str]] = {}
    with TemporaryDirectory() as place:
        for number, history in enumerate((simulate(SEED, groups=True).history, History([_what_no_run_has()], closed=False))):
            for name, schema in _converted(history, Path(place) / str(number)):
                kinds = found.setdefault(f"trace, {name}", {})
                kinds |= {field.name: str(field.type) for field in schema if "null" in kinds.get(field.name, "null")}
    return {name: [f"{column}: {kind}" for column, kind in kinds.items()] for name, kinds in found.items()}


def _what_no_run_has() -> NodeTrace:
    """Kinds of events, and values, that simulated runs have seldom or never."""
    node = NodeId("ann", 1, 0xA)
    view, process, place = ViewId(ViewKind.REGULAR, 8, node), ProcessId(node, 1), Place(5, 0)
    to_one = b"\1\0\1" + node.boot.to_bytes(8, "big") + process.number.to_bytes(4, "big")
    waited = Waited((GroupId(7),), (1,), process, 1, 1)
    shown = GroupViewId(view, place)
    return NodeTrace(
        node,
        [
            Refuse(1, 0, process=1, first=1, count=1, why="view changed"),
            Sent(2, 0, view, process=1, first=1, count=1, service=Service.SAFE, address=to_one, place=place, timestamp=1),
            ClientDelivery(3, 0, handed=(), waited=(waited,)),
            Prefix(4, 0, view, view, count=1, a=1, b=1, last=False),
            CheckpointEvent(
                5, 0, 1, GroupId(7), "orders", shown, count=1, sender=process, counter=1, place=place, digest=b"state"
            ),
            Gap(7, 0, first_lseq=6, last_lseq=6),
            End(8, 0, how="stopped"),
        ],
    )


def _converted(history: History, directory: Path) -> Iterator[tuple[str, pa.Schema]]:
    write_segments(history, directory)
    for segment in sorted(directory.glob("*.trace")):
        for name, table in convert(segment, directory / "tables").items():
            yield name, pq.read_schema(table)


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
