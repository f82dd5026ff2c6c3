"""What `transis audit --json` and `transis reconcile --json` say about traces and an archive that never change, as text.

1. The traces are simulated, each run in a directory of its own: six as they were recorded, six wounded.
2. All are audited at once, because planning an audit takes longer than judging a dozen small runs. The text has one object per
   run, without what depends on the machine: the seconds of each step.
3. The archive is simulated, too: real nodes get new ids every time.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import reduce
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.guarantees.mutants import CAUSAL_MUTANTS, GROUP_MUTANTS, MUTANTS
from tests.house.tables import write_segments
from tests.spark.archived import archive_simulated
from transis.audit.job import AuditRequest, audit, exit_code
from transis.audit.report.collect import as_dict
from transis.audit.report.content import Computed, Content, RunRow
from transis.sim.plan import Scenario
from transis.sim.run import simulate
from transis.spark.progress import StepTimer
from transis.spark.reconcile import ReconcileRequest, reconcile
from transis.spark.reconcile import as_dict as reconciled_as_dict
from transis.trace.events import History

NODES: Final = 4

GOOD: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "totem": (1, {}),
    "totem groups": (2, {"groups": True}),
    "lansis": (3, {"scenario": Scenario(engine="lansis")}),
    "lansis groups": (4, {"groups": True, "scenario": Scenario(engine="lansis")}),
    "toto": (5, {"scenario": Scenario(engine="lansis", order="toto")}),
    "mode transis": (6, {"scenario": Scenario(engine="lansis", mode="transis")}),
}
"""Runs by name: the seed and what is simulated."""

WOUNDED: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "order": ("totem", ("swapped_deliveries", "dropped_safe", "lost_submit")),
    "messages": ("totem groups", ("delivery_from_nowhere", "own_message_not_delivered", "sent_twice", "delivered_before_sent")),
    "views": ("toto", ("forged_view", "wrong_previous", "incarnation_overlap", "left_behind")),
    "causal": ("mode transis", ("causal_lost", "causal_fifo_swap", "causal_with_a_false_tag")),
    "groups": ("lansis groups", ("missed_message", "forged_joined", "two_primaries", "ghost_in_a_group_view", "replicas_part")),
}
"""The good run that each is made of, and its wounds. The sixth lacks a node, and a file of it its end."""

INCOMPLETE: Final = "incomplete"
TORN_BYTES: Final = 3


def audits() -> str:
    with TemporaryDirectory() as place:
        write_runs(Path(place))
        content = audit(AuditRequest((place,), master="local[1]"), StepTimer())
    names = sorted(run.name for run in content.runs)
    assert len(names) == len(GOOD) + len(WOUNDED) + 1
    alone = {name: of_run(content, name) for name in names}
    return as_text({name: {"exit_code": exit_code(one)} | as_dict(one) for name, one in alone.items()})


def reconciled() -> str:
    with TemporaryDirectory() as place:
        archive_simulated(Path(place), "totem", 1)
        found = reconciled_as_dict(reconcile(ReconcileRequest(place, keys={"seat": "$.seat"}, master="local[1]"), StepTimer()))
    return as_text(found | {"archive": "archive"})


def write_runs(root: Path) -> None:
    runs = {name: simulate(seed, nodes=NODES, **options).history for name, (seed, options) in GOOD.items()}
    incomplete = runs["totem groups"]
    runs |= {name: reduce(wounded, wounds, runs[whole]) for name, (whole, wounds) in WOUNDED.items()}
    for name, history in runs.items():
        write_segments(history, root / name, name)
    write_segments(incomplete._replace(nodes=incomplete.nodes[1:]), root / INCOMPLETE, INCOMPLETE)
    last = max((root / INCOMPLETE).iterdir())
    last.write_bytes(last.read_bytes()[:-TORN_BYTES])


def wounded(history: History, wound: str) -> History:
    mutant = next(one for one in (*MUTANTS, *CAUSAL_MUTANTS, *GROUP_MUTANTS) if one.name == wound)
    found = mutant(history, Random(wound))
    assert found is not None, f"{wound} finds no place in this history"
    return found


def of_run(content: Content, run: str) -> Content:
    """The rows of one run."""
    tables = {field.name: getattr(content, field.name) for field in fields(content)}
    rows = {name: tuple(row for row in table if _run_of(row) == run) for name, table in tables.items() if type(table) is tuple}
    return replace(content, **rows, computed=Computed())


def _run_of(row: Any) -> str:
    return str(row.name if isinstance(row, RunRow) else row.run)


def as_text(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"
