"""The result of `transis audit` for a machine: one JSON object, keys documented here by their names and kept stable.

`runs`, `properties`, `not_exercised`, `not_promised` and `failing` are as `transis simulate --json` has them; `violations` are
told one by one, `violations_total` counts also those that are not. `evidence` says why evidence is missing or still to come.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from transis.model.guarantees import BROKEN, NOT_EXERCISED, NOT_PROMISED
from transis.pipeline.report.content import Content, Violation
from transis.pipeline.report.summary import (
    Sum,
    around_by_violation,
    reasons_in_order,
    sums_of,
    verdicts_by_run,
    violations_in_order,
    witness_events,
)


def written(content: Content) -> str:
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


def _property(found: Sum) -> dict[str, Any]:
    return {"verdict": found.verdict, "checked": found.checked, "violations": found.violations}


def _failing(content: Content) -> list[dict[str, Any]]:
    broken = ((run, [name for name, word in found.items() if word == BROKEN]) for run, found in verdicts_by_run(content).items())
    return [{"run": run, "properties": names} for run, names in broken if names]


def _violation(violation: Violation, around: list[Any]) -> dict[str, Any]:
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
