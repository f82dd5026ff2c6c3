"""The result of `simulate` for a machine: one JSON object, keys documented here by their names and kept stable."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from transis.console.expected import expected_of
from transis.console.runs import Failure, Tally, Wish
from transis.model.guarantees import NOT_EXERCISED, NOT_PROMISED
from transis.sim.run import Outcome
from transis.sim.sweep import Property
from transis.sim.tried import TOTEM
from transis.trace.events import Conf, End
from transis.types.views import View


def written(wish: Wish, tally: Tally, more: dict[str, Any]) -> str:
    return json.dumps(as_dict(wish, tally) | more, indent=2, ensure_ascii=False)


def as_dict(wish: Wish, tally: Tally) -> dict[str, Any]:
    summary = tally.summary
    return {
        "engine": wish.engine,
        **({} if wish.engine == "totem" else {"order": wish.tried.order, "mode": wish.tried.mode}),
        **({} if wish.tried.partitions else {"partitions": False}),
        **({} if wish.tried.judge == TOTEM.judge else {"judge": wish.tried.judge}),
        "groups": wish.groups,
        "seeds": {"first": wish.seeds[0], "last": wish.seeds[-1], "count": len(wish.seeds)},
        "broken_engine": wish.broken or None,
        "runs": summary.runs,
        "violations": summary.violations,
        "deliveries": summary.deliveries,
        "views": summary.views,
        "turns": summary.turns,
        "nodes": {str(nodes): runs for nodes, runs in sorted(summary.nodes.items())},
        "faults": dict(sorted(summary.faults.items())),
        "virtual_s": round(summary.virtual_us / 1e6, 6),
        "wall_s": round(tally.wall_s, 3),
        "runs_per_minute": round(tally.runs_per_minute, 1),
        "liveness_budget_used_max": summary.liveness_permille_max / 1000,
        "properties": {name: _property(found) for name, found in summary.properties.items() if _is_judged(found)},
        "not_exercised": [name for name, found in summary.properties.items() if found.verdict == NOT_EXERCISED],
        "not_promised": [name for name, found in summary.properties.items() if found.verdict == NOT_PROMISED],
        "coverage": {"never_reached": expected_of(wish.engine).never_reached(summary.coverage), **summary.coverage.as_dict()},
        "failing": [_failure(failure) for failure in tally.failures],
        **({} if tally.outcome is None else {"final_views": final_views(tally.outcome)}),
    }


def final_views(outcome: Outcome) -> list[dict[str, Any]]:
    """In which views the nodes of a single run were at its end, and how many nodes in each; one view if all is well."""
    last: Counter[View] = Counter()
    for trace in outcome.history.nodes:
        views = [event.view for event in trace.events if isinstance(event, Conf)]
        if views and not any(isinstance(event, End) for event in trace.events):
            last[views[-1]] += 1
    return [
        {"id": str(view.id), "members": [str(node) for node in view.nodes], "installed_by": count}
        for view, count in sorted(last.items(), key=lambda item: item[0].id)
    ]


def _is_judged(found: Property) -> bool:
    return found.verdict not in (NOT_EXERCISED, NOT_PROMISED)


def _property(found: Property) -> dict[str, Any]:
    return {"verdict": found.verdict, "checked": found.checked, "violations": found.violations}


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "seed": failure.seed,
        "properties": list(failure.properties),
        "replay": failure.replay,
        "explanation": failure.explanation,
    }
