"""What happened around a violation: the events near its witnesses.

1. What is fetched is bounded, whatever the size of the trace.
2. Tables have keys, people have names: everything that leaves this file is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from transis.audit.plans.lay import HistoryTables, Tables
from transis.types.ids import Service

# --- naming -----------------------------------------------------------------------------------------------------------

RUNS_LISTED: Final = 200
"""Runs of which violations are listed; the verdicts are those of all."""


class Names:
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


def violation_row(row: Row, run: str, names: Names, total: int) -> dict[str, Any]:
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
"""Violations that are drawn: the shortest of each property first."""

_EVENTS: Final = (
    *("submits", "refusals", "sends", "deliveries", "confs", "ends", "faults", "gaps", "group_views", "client_leaves"),
    "checkpoints",
)
_COLUMNS: Final = (
    *("kind", "node", "lseq", "time_us", "process", "first", "count", "service", "view", "name", "what", "why"),
    *("position", "state"),
)


def around(
    spark: SparkSession, tables: Tables, violations: Sequence[Row], names: Names, runs: dict[int, str]
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


def _around_row(row: Row, names: Names, runs: dict[int, str]) -> dict[str, Any]:
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


def _messages(row: Row, names: Names) -> str:
    first = names.message(row.process, row.first)
    return first if row["count"] == 1 else f"{first} to {row.first + row['count'] - 1}"


def _message(verb: str) -> Callable[[Row, Names], tuple[str, str]]:
    def words(row: Row, names: Names) -> tuple[str, str]:
        service = "" if row.service is None else f" ({Service(row.service).name.lower()})"
        return names.message(row.process, row.first), f"{verb} {_messages(row, names)}{service}"

    return words


def _view(row: Row, names: Names) -> tuple[str, str]:
    return names.view(row.view), f"installed {names.view(row.view)}"


def _group_view(row: Row, names: Names) -> tuple[str, str]:
    return "", f"installed a view of group {row.name} in {names.view(row.view)}"


def _checkpoint(row: Row, names: Names) -> tuple[str, str]:
    return "", f"a process of group {row.name} is in state {row.state} behind {row.position} messages of its view"


def _what(before: str) -> Callable[[Row, Names], tuple[str, str]]:
    return lambda row, names: ("", f"{before} {row.what or row.why or ''}".strip())


_WORDS: Final[dict[str, tuple[str, Callable[[Row, Names], tuple[str, str]]]]] = {
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
}
