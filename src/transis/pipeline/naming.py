"""Names for people: what tables know by key, told by name. What is fetched is bounded, whatever the size of the trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from transis.pipeline.audit.lay import Laid

RUNS_TOLD: Final = 200
"""Runs of which violations are told one by one; the verdicts are those of all."""


class Names:
    """Names of the nodes, processes and views of some runs."""

    def __init__(self, laid: Laid, runs: Iterable[int]) -> None:
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
    """A violation as reports tell it."""
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
