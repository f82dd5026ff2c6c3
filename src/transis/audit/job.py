"""The audit as a job: traces in, verdicts and measures out. One program for a laptop, a standalone cluster and `spark-submit`.

The result is the `Content` of a report: plain rows, small whatever the size of the trace. Kept tables stay in the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from transis.audit.guarantees import EVIDENCE
from transis.audit.guarantees.property import BROKEN, PENDING
from transis.audit.plans.evidence import DENSITY, MEMBERS
from transis.audit.plans.incremental import CUTS, TABLE, ProvenPast, VerdictCache, over_raw_rows
from transis.audit.plans.judge import Verdicts, judge, require_known
from transis.audit.plans.lay import HistoryTables, Settle, Tables, lay_out
from transis.audit.plans.store import EventStore
from transis.audit.report.collect import collect_content
from transis.audit.report.content import Content, VerdictRow
from transis.spark.cluster import TINY
from transis.spark.inputs import checkpointed, coalesced, find_local, is_local
from transis.spark.progress import StepTimer
from transis.spark.session import spark_session, ui_address
from transis.types.errors import TransisError

FINE: Final = 0
BAD: Final = 1
UNKNOWN: Final = 2

RESULTS: Final = ("verdicts", "violations")
"""Tables of the audit, by run."""


@dataclass(frozen=True)
class AuditRequest:
    """What the command line asked for."""

    inputs: tuple[str, ...]
    store: str | None = None
    master: str | None = None
    ui: bool = False
    measure: bool = False
    """Whether measures and timelines are computed too, as a report shows them."""
    only: tuple[str, ...] = ()
    """Names of the properties that are wanted, if not all; verdicts in the store then stay as they are."""


def audit(request: AuditRequest, steps: StepTimer) -> Content:
    """Everything that the traces prove, as the content of a report."""
    require_known(request.only)
    size = _size(request.inputs)
    with ExitStack() as stack:
        with steps("starting Spark"):
            spark = stack.enter_context(spark_session(request.master, size=size, ui=request.ui))
        if request.ui:
            steps.say(f"Spark's own page: {ui_address(spark)}")
        return _audit(spark, request, coalesced if size < TINY else None, steps)


def _audit(spark: SparkSession, request: AuditRequest, keep: Settle | None, steps: StepTimer) -> Content:
    with EventStore(spark, request.store) as store:
        with steps("reading traces"):
            store.add(request.inputs)
            store.require_readable()
            raw = Tables(store.events(), keep)
        laid, results = _judged(store, raw, request, keep, steps)
        verdicts, violations = (results[name].collect() for name in RESULTS)
        shown = over_raw_rows(laid, raw) if request.measure else replace(laid, tables=raw)
        return collect_content(shown, verdicts, violations, steps, store if request.store is not None else None, request.measure)


def _judged(
    store: EventStore, raw: Tables, request: AuditRequest, keep: Settle | None, steps: StepTimer
) -> tuple[HistoryTables, dict[str, DataFrame]]:
    """Verdicts and violations; what was judged before, and the past of growing runs, is not looked at again. A store always holds
    the results of all properties: judging only some reads it and leaves it as it is."""
    with steps("laying out lives and configurations"):
        past, before = ProvenPast(store), VerdictCache(store, raw, RESULTS, forgotten=bool(request.only))
        tables = Tables(past.events(), keep) if past.runs else raw
        laid = lay_out(tables, checkpointed)
        changed = lay_out(Tables(before.of(before.changed, tables.events), keep), checkpointed) if before.unchanged else laid
    if before.is_all:
        return laid, {name: store.table(name) for name in RESULTS}
    judged = judge(changed, checkpointed, steps, request.only)
    relapsed = past.relapsed(judged)
    whole = (
        judge(lay_out(Tables(before.of(relapsed, raw.events), keep), checkpointed), checkpointed, steps, request.only)
        if relapsed
        else None
    )
    results = before.completed(_whole_where_broken(judged, whole, relapsed))
    if request.store is not None and not request.only:
        keep_all(store, {**results, TABLE: before.table(raw.events.sparkSession)}, past, changed, judged, before.unchanged, steps)
        results = {name: store.table(name) for name in RESULTS}
    return laid, results


def _whole_where_broken(judged: Verdicts, whole: Verdicts | None, relapsed: list[int]) -> dict[str, DataFrame]:
    """Verdicts and violations; broken runs that were judged with a shortened past are replaced by verdicts on all their raw
    rows."""
    fresh = {"verdicts": judged.verdicts, "violations": judged.violations}
    if whole is None:
        return fresh
    others = ~F.col("run").isin(relapsed)
    return {
        "verdicts": fresh["verdicts"].where(others).unionByName(whole.verdicts),
        "violations": fresh["violations"].where(others).unionByName(whole.violations),
    }


def keep_all(
    store: EventStore,
    tables: dict[str, DataFrame],
    past: ProvenPast,
    laid: HistoryTables,
    judged: Verdicts,
    unchanged: list[int],
    steps: StepTimer,
) -> None:
    """Publish what was found, and the past of growing runs, as one change."""
    with steps("putting the past in short"):
        shortened = past.next(laid, judged, unchanged)
        batches = store.batches_below(shortened[CUTS].select("node", "upto")) if shortened else None
        store.replace_all({**tables, **shortened}, batches)


def _size(inputs: Sequence[str]) -> int:
    """Bytes of local inputs: Spark is sized before it can look anywhere else."""
    return sum(file.length for one in inputs if is_local(one) for file in find_local(one))


# -- exit codes, and the entry for spark-submit ----------------------------------------------------------------------


def exit_code(content: Content, strict: bool = False) -> int:
    """0 held (an open tail of a live system is fine), 1 broken, 2 evidence missing; with `strict` pending is 1
    (docs/pipeline.md)."""
    words = [row.verdict for row in content.verdicts if not row.property.startswith(EVIDENCE)]
    if BROKEN in words or (strict and PENDING in (row.verdict for row in content.verdicts)):
        return BAD
    missing = (_is_missing(row) for row in content.verdicts if row.property.startswith(EVIDENCE))
    return UNKNOWN if not words or any(missing) else FINE


def _is_missing(row: VerdictRow) -> bool:
    """Evidence is missing if it is bad, or if it exists and was not given; not if a trace is still open or has a torn tail."""
    return row.verdict == BROKEN or (row.verdict == PENDING and row.property in (MEMBERS, DENSITY))


def main(argv: list[str]) -> int:
    """`audit_job.py DIR ... [--store DIR]` under spark-submit: JSON on stdout, an exit code as `transis audit`."""
    import argparse
    import sys

    from transis.audit.report.collect import json_text

    parser = argparse.ArgumentParser(prog="audit_job.py", description="Audit traces of a Transis cluster on Spark.")
    parser.add_argument("inputs", nargs="+", metavar="DIR", help="directories of traces, local or any Hadoop path")
    parser.add_argument("--store", metavar="DIR", help="keep tables here, so that nothing is read twice")
    parser.add_argument("--strict", action="store_true", help="pending counts as broken")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="judge this property; may be repeated")
    given = parser.parse_args(argv)
    try:
        content = audit(AuditRequest(tuple(given.inputs), given.store, only=tuple(given.only)), StepTimer())
    except TransisError as error:
        print(f"audit_job.py: {error}", file=sys.stderr)  # noqa: T201  # it is a program
        return UNKNOWN
    print(json_text(content))  # noqa: T201
    return exit_code(content, given.strict)
