"""What was found and measured, as rows of a report and as JSON: plain values, and few whatever the size of the trace.

The JSON of `transis audit` is one object with stable keys. `runs`, `properties`, `not_exercised`, `not_promised` and `failing`
are as in `transis simulate --json`; `violations` are listed up to a limit, `violations_total` counts all. `evidence` says why
evidence is missing or still to come.

Around a violation, the events near its witnesses are fetched: a bounded number, whatever the size of the trace. Tables have keys,
people have names: everything that leaves this file is named.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any, Final

import pyspark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from transis import __version__
from transis.audit.guarantees.property import BROKEN, NOT_EXERCISED, NOT_PROMISED
from transis.audit.measure.measures import compare, measures, of_build
from transis.audit.plans import evidence as quality
from transis.audit.plans.lay import HistoryTables, Tables
from transis.audit.plans.store import EventStore
from transis.audit.report.content import Computed, Content, ViolationRow, content_of
from transis.audit.report.runs import measured
from transis.audit.report.verdicts import (
    PropertySum,
    around_by_violation,
    reasons_in_order,
    sums_of,
    verdicts_by_run,
    violations_in_order,
    witness_events,
)
from transis.spark.inputs import checkpointed
from transis.spark.progress import StepTimer
from transis.types.ids import Service

# --- naming -----------------------------------------------------------------------------------------------------------

RUNS_LISTED: Final = 200
"""Runs whose violations are listed; verdicts cover all runs."""


class RunNames:
    """Names of the nodes, processes and views of some runs."""

    def __init__(self, laid: HistoryTables, runs: Iterable[int]) -> None:
        wanted = list(runs)
        self.nodes = _dictionary(laid.node_names, wanted, "node", "node_name")
        self.processes = _dictionary(laid.process_names, wanted, "process", "process_name")
        self.views = _dictionary(laid.view_names, wanted, "view", "view_name")

    def message(self, process: int, counter: int) -> str:
        return f"{self.processes.get(process, 'somebody')}:{counter}"

    def node(self, node: int | None) -> str:
        return self.nodes.get(node, "somebody") if node is not None else "somebody"

    def view(self, view: int | None) -> str:
        return self.views.get(view, "no view") if view is not None else "no view"


def _dictionary(table: DataFrame, runs: list[int], key: str, name: str) -> dict[int, str]:
    rows = table.where(F.col("run").isin(runs)).select(key, name).collect() if runs else []
    return {row[key]: row[name] for row in rows}


def violation_row(row: Row, run: str, names: RunNames, total: int) -> dict[str, Any]:
    """A violation as reports show it."""
    return {
        "run": run,
        "property": row.property,
        "explanation": row.explanation,
        "nodes": [names.node(node) for node in row.nodes],
        "views": [names.view(view) for view in row.views],
        "messages": [names.message(one.process, one.counter) for one in row.messages],
        "witness": [(names.node(one.node), one.lseq) for one in row.witness],
        "rank": row["rank"],
        "total": total,
    }


# --- around -----------------------------------------------------------------------------------------------------------

NEAR: Final = 6
"""Events before and behind each witness."""

DRAWN: Final = 24
"""How many violations are drawn: the shortest of each property first."""

_EVENTS: Final = (
    *("submits", "refusals", "sends", "deliveries", "confs", "ends", "faults", "gaps", "group_views", "client_leaves"),
    *("checkpoints", "replica_steps"),
)
_COLUMNS: Final = (
    *("kind", "node", "lseq", "time_us", "process", "first", "count", "service", "view", "name", "what", "why"),
    *("position", "state", "creator", "number", "place"),
)


def around(
    spark: SparkSession, tables: Tables, violations: Sequence[Row], names: RunNames, runs: dict[int, str]
) -> list[dict[str, Any]]:
    """Rows of a report's `around`."""
    drawn = sorted(violations, key=lambda row: (row["rank"], row.property))[:DRAWN]
    ranges = [
        (row.run, row.property, row["rank"], one.node, one.lseq - NEAR, one.lseq + NEAR) for row in drawn for one in row.witness
    ]
    if not ranges:
        return []
    near = _near(spark, tables, ranges).collect()
    rows = {(row.run, row.property, row["rank"], row.node, row.lseq): _around_row(row, names, runs) for row in near}
    return [rows[key] for key in sorted(rows)]


def _near(spark: SparkSession, tables: Tables, ranges: list[tuple[Any, ...]]) -> DataFrame:
    schema = "run long, property string, rank int, node long, low long, high long"
    wanted = spark.createDataFrame(ranges, schema)
    nodes = [row[3] for row in ranges]
    events = tables.events.where(F.col("kind").isin(*_EVENTS) & F.col("node").isin(*nodes)).select(*_COLUMNS)
    both = events.join(F.broadcast(wanted), "node")
    return both.where("lseq between low and high").drop("low", "high")


def _around_row(row: Row, names: RunNames, runs: dict[int, str]) -> dict[str, Any]:
    kind, words = _WORDS[row.kind]
    about, label = words(row, names)
    return {
        "run": runs[row.run],
        "property": row.property,
        "rank": row["rank"],
        "node": names.node(row.node),
        "lseq": row.lseq,
        "time_us": row.time_us,
        "kind": kind,
        "label": label,
        "about": about,
    }


def _messages(row: Row, names: RunNames) -> str:
    first = names.message(row.process, row.first)
    return first if row["count"] == 1 else f"{first} to {row.first + row['count'] - 1}"


def _message(verb: str) -> Callable[[Row, RunNames], tuple[str, str]]:
    def words(row: Row, names: RunNames) -> tuple[str, str]:
        service = "" if row.service is None else f" ({Service(row.service).name.lower()})"
        return names.message(row.process, row.first), f"{verb} {_messages(row, names)}{service}"

    return words


def _view(row: Row, names: RunNames) -> tuple[str, str]:
    return names.view(row.view), f"installed {names.view(row.view)}"


def _group_view(row: Row, names: RunNames) -> tuple[str, str]:
    return "", f"installed a view of group {row.name} in {names.view(row.view)}"


def _checkpoint(row: Row, names: RunNames) -> tuple[str, str]:
    return "", f"a process of group {row.name} is in state {row.state} behind {row.position} messages of its view"


def _replica_step(row: Row, names: RunNames) -> tuple[str, str]:
    action = f" {row.creator}:{row.number}" if row.creator else ""
    return "", f"a replica of {row.name}: {row.what}{action}" + ("" if row.place is None else f" at place {row.place}")


def _what(before: str) -> Callable[[Row, RunNames], tuple[str, str]]:
    return lambda row, names: ("", f"{before} {row.what or row.why or ''}".strip())


_WORDS: Final[dict[str, tuple[str, Callable[[Row, RunNames], tuple[str, str]]]]] = {
    "submits": ("submit", _message("accepted")),
    "refusals": ("refuse", _message("refused")),
    "sends": ("send", _message("sent")),
    "deliveries": ("deliver", _message("delivered")),
    "confs": ("view", _view),
    "ends": ("end", _what("ended:")),
    "faults": ("fault", _what("fault:")),
    "gaps": ("gap", _what("events are missing here")),
    "group_views": ("group view", _group_view),
    "client_leaves": ("leave", _what("a process left:")),
    "checkpoints": ("checkpoint", _checkpoint),
    "replica_steps": ("replica", _replica_step),
}


# --- content ------------------------------------------------------------------------------------------------------------

ROWS_DRAWN: Final = 200_000
"""Rows of one measure that a report shows at most; the tables in the store have all."""

REASONS_LISTED: Final = 100
"""How many sentences about missing or late evidence are listed; the verdicts have the true number."""

RUNS_DRAWN: Final = 100
"""Runs whose timelines and measures are drawn, failed runs first."""


def collect_content(
    laid: HistoryTables,
    verdicts: list[Row],
    violations: list[Row],
    steps: StepTimer,
    kept: EventStore | None = None,
    measure: bool = False,
) -> Content:
    """The content of a report, from all raw rows. With `measure` it has measures and timelines, which `kept` keeps whole."""
    spark = laid.tables.events.sparkSession
    segments = _segments(laid)
    runs = _run_rows(segments, laid)
    rows: dict[str, Any] = {
        "runs": list(runs.values()),
        "verdicts": _verdict_rows(verdicts, runs, segments),
    }
    worst = _worst_runs(verdicts)
    listed = worst[:RUNS_LISTED]
    names = RunNames(laid, listed)
    by_run = {key: row["name"] for key, row in runs.items()}
    totals = {(row.run, row.property): row.violations for row in verdicts}
    few = set(listed)
    shown = [row for row in violations if row.run in few]
    rows["violations"] = [violation_row(row, by_run[row.run], names, totals[row.run, row.property]) for row in shown]
    rows["reasons"] = _reasons(laid, verdicts, listed, by_run)
    with steps("looking around what is broken"):
        rows["around"] = around(spark, laid.tables, shown, names, by_run)
    if measure:
        with steps("measuring"):
            rows |= _drawn(laid, worst[:RUNS_DRAWN], by_run, kept)
    return replace(content_of(rows), computed=_computed(spark, segments, steps))


def _segments(laid: HistoryTables) -> list[Row]:
    """One row a run: its files."""
    segments = laid.tables["segments"].where("run is not null")
    return segments.groupBy("run", "cluster", "run_name").agg(
        F.count("*").alias("files"), F.sum("bytes").alias("bytes"), F.coalesce(F.sum("events"), F.lit(0)).alias("events"),
        F.countDistinct("node").alias("nodes"), F.sort_array(F.collect_set("build")).alias("builds"),
        F.max("mode").alias("mode"), F.max("engine").alias("engine"),
        F.sha2(F.concat_ws(",", F.sort_array(F.collect_set("content_digest"))), 256).alias("inputs"),
    ).collect()  # fmt: skip


def _run_rows(segments: Sequence[Row], laid: HistoryTables) -> dict[int, dict[str, Any]]:
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


def _reasons(laid: HistoryTables, verdicts: Sequence[Row], runs: list[int], by_run: dict[int, str]) -> list[dict[str, Any]]:
    """Why evidence is missing or still to come; for whole traces nothing is computed."""
    names = {row.property for row in verdicts if row.property in quality.PARTS and row.pending}
    if not names:
        return []
    found = quality.reasons(laid, names).where(F.col("run").isin(runs)).select("run", "property", "explanation")
    return [row.asDict() | {"run": by_run[row.run]} for row in found.orderBy(*found.columns).limit(REASONS_LISTED).collect()]


def _worst_runs(verdicts: Sequence[Row]) -> list[int]:
    """The runs, those with the most violations first."""
    bad: dict[int, int] = {}
    for row in verdicts:
        bad[row.run] = bad.get(row.run, 0) + (row.verdict == BROKEN)
    return sorted(bad, key=lambda run: -bad[run])


def _drawn(laid: HistoryTables, runs: list[int], by_run: dict[int, str], kept: EventStore | None) -> dict[str, Any]:
    """Measures and timelines of some runs; the store keeps those of all runs."""
    made = measures(laid, lambda _, table: checkpointed(table))
    if kept is not None:
        kept.replace_all(made)
        made = {name: kept.table(name) for name in made}
    few = {name: _few(table, runs) for name, table in made.items() if name not in ("densities", "latency_summary")}
    builds = sorted({row["build"] for row in few["figures"] if row["build"]})
    if len(builds) > 1:
        before, after = of_build(made, builds[0]), of_build(made, builds[-1])
        few["compared"] = _few(compare(before, after), runs)
    return measured(few, by_run) | _timeline(laid, runs, by_run)


def _few(table: DataFrame, runs: list[int]) -> list[dict[str, Any]]:
    wanted = table.where(F.col("run").isin(runs)) if "run" in table.columns else table
    return [row.asDict(recursive=True) for row in wanted.limit(ROWS_DRAWN).collect()]


def _timeline(laid: HistoryTables, runs: list[int], by_run: dict[int, str]) -> dict[str, Any]:
    """Stays in views, faults and ends."""
    names = RunNames(laid, runs)
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


def _last_times(laid: HistoryTables, runs: list[int]) -> list[Row]:
    events = laid.tables.events.where(F.col("run").isin(runs) & F.col("time_us").isNotNull())
    return events.groupBy("run").agg(F.max("time_us").alias("last_us")).collect()


def _computed(spark: SparkSession, segments: Sequence[Row], steps: StepTimer) -> Computed:
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
    """Spark itself is asked, because it may run elsewhere."""
    return str(spark.sql("select java_method('java.lang.System', 'getProperty', 'java.version')").collect()[0][0])


# --- as json ----------------------------------------------------------------------------------------------------------


def json_text(content: Content) -> str:
    return json.dumps(as_dict(content), indent=2, ensure_ascii=False)


def as_dict(content: Content) -> dict[str, Any]:
    sums = sums_of(content)
    around = around_by_violation(content)
    return {
        "runs": len(content.runs),
        "inputs": {"files": content.computed.files, "bytes": content.computed.bytes, "digest": content.computed.digest},
        "properties": {name: _property(one) for name, one in sums.items() if one.is_judged},
        "not_exercised": [name for name, one in sums.items() if one.verdict == NOT_EXERCISED],
        "not_promised": [name for name, one in sums.items() if one.verdict == NOT_PROMISED],
        "pending": {name: one.pending for name, one in sums.items() if one.pending},
        "evidence": [asdict(one) for one in reasons_in_order(content)],
        "failing": _failing(content),
        "steps": [{"step": what, "seconds": round(seconds, 1)} for what, seconds in content.computed.steps],
        "violations_total": sum(one.violations for one in sums.values()),
        "violations": [
            _violation(one, around.get((one.run, one.property, one.rank), [])) for one in violations_in_order(content)
        ],
    }


def _property(found: PropertySum) -> dict[str, Any]:
    return {"verdict": found.verdict, "checked": found.checked, "violations": found.violations}


def _failing(content: Content) -> list[dict[str, Any]]:
    broken = ((run, [name for name, word in found.items() if word == BROKEN]) for run, found in verdicts_by_run(content).items())
    return [{"run": run, "properties": names} for run, names in broken if names]


def _violation(violation: ViolationRow, around: list[Any]) -> dict[str, Any]:
    return {
        "run": violation.run,
        "property": violation.property,
        "explanation": violation.explanation,
        "rank": violation.rank,
        "total": violation.total,
        "nodes": list(violation.nodes),
        "messages": list(violation.messages),
        "views": list(violation.views),
        "witness": [
            {"node": node, "lseq": lseq, **({} if event is None else {"time_us": event.time_us, "event": event.label})}
            for node, lseq, event in witness_events(violation, around)
        ],
    }
