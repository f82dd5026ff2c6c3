"""The jobs: traces in, verdicts and measures out. One program for a laptop, a standalone cluster and `spark-submit`.

The result is the `Content` of a report: plain rows, small whatever the size of the trace. Kept tables stay in the store.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

import pyspark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from transis import __version__
from transis.model.errors import TransisError
from transis.model.guarantees import BROKEN, EVIDENCE, PENDING
from transis.pipeline.around import around
from transis.pipeline.audit import quality
from transis.pipeline.audit.judging import judge
from transis.pipeline.audit.lay import Laid, Settle, lay
from transis.pipeline.audit.quality import DENSITY, MEMBERS
from transis.pipeline.audit.settling import kept_together, settled
from transis.pipeline.ingest import find_local, is_local
from transis.pipeline.judged import TABLE, Before
from transis.pipeline.measure.compare import compare, of_build
from transis.pipeline.measure.measures import measures
from transis.pipeline.naming import RUNS_TOLD, Names, violation_row
from transis.pipeline.report.content import Computed, Content, Verdict, content_of
from transis.pipeline.report.measured import measured
from transis.pipeline.session import spark_session, ui_address
from transis.pipeline.sizing import TINY
from transis.pipeline.steps import Steps
from transis.pipeline.store import Store
from transis.pipeline.tables import Tables

FINE: Final = 0
BAD: Final = 1
UNKNOWN: Final = 2

ROWS_DRAWN: Final = 200_000
"""Rows of one measure that a report shows at most; the tables in the store have all."""

RESULTS: Final = ("verdicts", "violations")
"""Tables of the audit, by run."""

REASONS_TOLD: Final = 100
"""Sentences about evidence that is missing or still to come; how many there are is in the verdicts."""

RUNS_DRAWN: Final = 100
"""Runs of which timelines and measures are drawn, those that failed first."""


@dataclass(frozen=True)
class Wish:
    """What somebody asks for."""

    inputs: tuple[str, ...]
    store: str | None = None
    master: str | None = None
    ui: bool = False
    measure: bool = False
    """Measures and timelines too, as a report shows them."""


def audit(wish: Wish, steps: Steps) -> Content:
    """Everything that the traces prove, and what a report tells of it."""
    size = _size(wish.inputs)
    with ExitStack() as stack:
        with steps("starting Spark"):
            spark = stack.enter_context(spark_session(wish.master, size=size, ui=wish.ui))
        if wish.ui:
            steps.say(f"Spark's own page: {ui_address(spark)}")
        return _audit(spark, wish, kept_together if size < TINY else None, steps)


def _audit(spark: SparkSession, wish: Wish, keep: Settle | None, steps: Steps) -> Content:
    with Store(spark, wish.store) as store:
        with steps("reading traces"):
            store.add(wish.inputs)
            store.require_readable()
            tables = Tables(store.events(), keep)
            before = Before(store, tables, RESULTS)
        with steps("laying out lives and configurations"):
            laid = lay(tables, settled)
            changed = lay(Tables(before.of_changed(tables.events), keep), settled) if before.unchanged else laid
        results = _results(store, before, changed, steps)
        if wish.store is not None:
            store.replace_all({**results, TABLE: before.table(spark)})
            results = {name: store.table(name) for name in RESULTS}
        verdicts, violations = (results[name].collect() for name in RESULTS)
        return _told(spark, wish, store, laid, verdicts, violations, steps)


def _results(store: Store, before: Before, changed: Laid, steps: Steps) -> dict[str, DataFrame]:
    """Verdicts and violations of all runs; only those that changed are judged."""
    if not before.changed and before.unchanged:
        return {name: store.table(name) for name in RESULTS}
    judged = judge(changed, settled, steps)
    return before.completed({"verdicts": judged.verdicts, "violations": judged.violations})


def _told(
    spark: SparkSession, wish: Wish, store: Store, laid: Laid, verdicts: list[Row], violations: list[Row], steps: Steps
) -> Content:
    segments = _segments(laid)
    runs = _run_rows(segments, laid)
    rows: dict[str, Any] = {
        "runs": list(runs.values()),
        "verdicts": _verdict_rows(verdicts, runs, segments),
    }
    worst = _worst_runs(verdicts)
    told = worst[:RUNS_TOLD]
    names = Names(laid, told)
    by_run = {key: row["name"] for key, row in runs.items()}
    totals = {(row.run, row.property): row.violations for row in verdicts}
    few = set(told)
    shown = [row for row in violations if row.run in few]
    rows["violations"] = [violation_row(row, by_run[row.run], names, totals[row.run, row.property]) for row in shown]
    rows["reasons"] = _reasons(laid, verdicts, told, by_run)
    with steps("looking around what is broken"):
        rows["around"] = around(spark, laid.tables, shown, names, by_run)
    if wish.measure:
        with steps("measuring"):
            rows |= _drawn(store, wish, laid, worst[:RUNS_DRAWN], by_run)
    return replace(content_of(rows), computed=_computed(spark, wish, segments, steps))


# -- rows ------------------------------------------------------------------------------------------------------------


def _segments(laid: Laid) -> list[Row]:
    """One row a run: its files."""
    segments = laid.tables["segments"].where("run is not null")
    return segments.groupBy("run", "cluster", "run_name").agg(
        F.count("*").alias("files"), F.sum("bytes").alias("bytes"), F.coalesce(F.sum("events"), F.lit(0)).alias("events"),
        F.countDistinct("node").alias("nodes"), F.sort_array(F.collect_set("build")).alias("builds"),
        F.max("mode").alias("mode"), F.max("engine").alias("engine"),
        F.sha2(F.concat_ws(",", F.sort_array(F.collect_set("content_digest"))), 256).alias("inputs"),
    ).collect()  # fmt: skip


def _run_rows(segments: Sequence[Row], laid: Laid) -> dict[int, dict[str, Any]]:
    closed = {row.run: row.closed for row in laid.runs.collect()}
    several = len({row.cluster for row in segments}) > 1
    return {
        row.run: {
            "name": f"{row.cluster}: {row.run_name}" if several else row.run_name,
            "cluster": row.cluster,
            "closed": closed.get(row.run, False),
            "mode": row.mode,
            "engine": row.engine,
            "builds": row.builds,
            "seed": row.run_name.removeprefix("seed ") if row.run_name.startswith("seed ") else "",
            "nodes": row.nodes,
            "files": row.files,
            "bytes": row.bytes,
            "events": row.events,
        }
        for row in sorted(segments, key=lambda row: (row.cluster, row.run_name))
    }


def _verdict_rows(verdicts: Sequence[Row], runs: dict[int, dict[str, Any]], segments: Sequence[Row]) -> list[dict[str, Any]]:
    inputs = {one.run: one.inputs[:16] for one in segments}
    return [row.asDict() | {"run": runs[row.run]["name"], "inputs": inputs[row.run]} for row in verdicts]


def _reasons(laid: Laid, verdicts: Sequence[Row], runs: list[int], by_run: dict[int, str]) -> list[dict[str, Any]]:
    """Why evidence is missing or still to come; a trace that is whole costs nothing."""
    names = {row.property for row in verdicts if row.property in quality.PARTS and row.pending}
    if not names:
        return []
    found = quality.reasons(laid, names).where(F.col("run").isin(runs)).select("run", "property", "explanation")
    return [row.asDict() | {"run": by_run[row.run]} for row in found.orderBy(*found.columns).limit(REASONS_TOLD).collect()]


def _worst_runs(verdicts: Sequence[Row]) -> list[int]:
    """Runs, those with most broken first."""
    bad: dict[int, int] = {}
    for row in verdicts:
        bad[row.run] = bad.get(row.run, 0) + (row.verdict == BROKEN)
    return sorted(bad, key=lambda run: -bad[run])


def _drawn(store: Store, wish: Wish, laid: Laid, runs: list[int], by_run: dict[int, str]) -> dict[str, Any]:
    """Measures and timelines of some runs; of all runs they are kept in the store."""
    made = measures(laid, lambda _, table: settled(table))
    if wish.store is not None:
        store.replace_all(made)
        made = {name: store.table(name) for name in made}
    few = {name: _few(table, runs) for name, table in made.items() if name not in ("densities", "latency_summary")}
    builds = sorted({row["build"] for row in few["figures"] if row["build"]})
    if len(builds) > 1:
        before, after = of_build(made, builds[0]), of_build(made, builds[-1])
        few["compared"] = _few(compare(before, after), runs)
    return measured(few, by_run) | _timeline(laid, runs, by_run)


def _few(table: DataFrame, runs: list[int]) -> list[dict[str, Any]]:
    wanted = table.where(F.col("run").isin(runs)) if "run" in table.columns else table
    return [row.asDict(recursive=True) for row in wanted.limit(ROWS_DRAWN).collect()]


def _timeline(laid: Laid, runs: list[int], by_run: dict[int, str]) -> dict[str, Any]:
    """Stays in views, faults and ends."""
    names = Names(laid, runs)
    confs = laid.confs.where(F.col("run").isin(runs)).select(
        "run", "node", "lseq", "time_us", "view", "view_kind", "members", "cause"
    )
    installed = sorted(confs.limit(ROWS_DRAWN).collect(), key=lambda row: (row.node, row.lseq))
    ends = {row.node: row for row in laid.lives.where(F.col("run").isin(runs)).collect()}
    last_us = {row.run: row.last_us for row in _last_times(laid, runs)}
    stays = []
    for row, after in zip(installed, [*installed[1:], None], strict=True):
        life = ends[row.node]
        end_us = after.time_us if after is not None and after.node == row.node else life.end_us or last_us[row.run]
        stays.append(
            {
                "run": by_run[row.run],
                "node": names.node(row.node),
                "start_us": row.time_us,
                "end_us": max(end_us, row.time_us),
                "view": names.view(row.view),
                "kind": "transitional" if row.view_kind else "regular",
                "members": [names.node(member) for member in row.members],
                "cause": row.cause,
            }
        )
    over = [row for row in ends.values() if row.ended]
    faults = laid.tables["faults"].where(F.col("run").isin(runs)).limit(ROWS_DRAWN).collect()
    return {
        "stays": stays,
        "ends": [{"run": by_run[row.run], "node": row.node_name, "time_us": row.end_us, "how": row.ended} for row in over],
        "faults": [
            {"run": by_run[row.run], "node": names.node(row.node), "time_us": row.time_us, "what": row.what} for row in faults
        ],
    }


def _last_times(laid: Laid, runs: list[int]) -> list[Row]:
    events = laid.tables.events.where(F.col("run").isin(runs) & F.col("time_us").isNotNull())
    return events.groupBy("run").agg(F.max("time_us").alias("last_us")).collect()


def _computed(spark: SparkSession, wish: Wish, segments: Sequence[Row], steps: Steps) -> Computed:
    digest = sha256(",".join(sorted(row.inputs for row in segments)).encode()).hexdigest()
    return Computed(
        transis=__version__,
        python=platform.python_version(),
        pyspark=pyspark.__version__,
        java=_java_version(spark),
        master=spark.conf.get("spark.master") or "",
        files=sum(row.files for row in segments),
        bytes=sum(row.bytes for row in segments),
        digest=digest,
        steps=tuple((step.words, round(step.seconds, 1)) for step in steps.taken),
    )


def _java_version(spark: SparkSession) -> str:
    """Asked of Spark itself, for it may run elsewhere."""
    return str(spark.sql("select java_method('java.lang.System', 'getProperty', 'java.version')").collect()[0][0])


def _size(inputs: Sequence[str]) -> int:
    """Bytes of local inputs: Spark is sized before it can look anywhere else."""
    return sum(file.length for one in inputs if is_local(one) for file in find_local(one))


# -- exit codes, and the entry for spark-submit ----------------------------------------------------------------------


def exit_code(content: Content, strict: bool = False) -> int:
    """0 held (an open tail of a live system is fine), 1 broken, 2 evidence missing; with `strict` pending is 1 (traces 5)."""
    words = [row.verdict for row in content.verdicts if not row.property.startswith(EVIDENCE)]
    if BROKEN in words or (strict and PENDING in (row.verdict for row in content.verdicts)):
        return BAD
    missing = (_is_missing(row) for row in content.verdicts if row.property.startswith(EVIDENCE))
    return UNKNOWN if not words or any(missing) else FINE


def _is_missing(row: Verdict) -> bool:
    """Evidence that is bad, or that somebody has and we have not. That a trace is still open, or its tail torn, is neither."""
    return row.verdict == BROKEN or (row.verdict == PENDING and row.property in (MEMBERS, DENSITY))


def main(argv: list[str]) -> int:
    """`audit_job.py DIR ... [--store DIR]` under spark-submit: JSON on stdout, an exit code as `transis audit`."""
    import argparse
    import sys

    from transis.pipeline.report.as_json import written

    parser = argparse.ArgumentParser(prog="audit_job.py", description="Audit traces of a Transis cluster on Spark.")
    parser.add_argument("inputs", nargs="+", metavar="DIR", help="directories of traces, local or any Hadoop path")
    parser.add_argument("--store", metavar="DIR", help="keep tables here, so that nothing is read twice")
    parser.add_argument("--strict", action="store_true", help="pending counts as broken")
    given = parser.parse_args(argv)
    try:
        content = audit(Wish(tuple(given.inputs), given.store), Steps())
    except TransisError as error:
        print(f"audit_job.py: {error}", file=sys.stderr)  # noqa: T201  # it is a program
        return UNKNOWN
    print(written(content))  # noqa: T201
    return exit_code(content, given.strict)
