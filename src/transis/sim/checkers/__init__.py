"""Checkers of every guarantee, over a recorded history: `check(history)` gives one verdict per property.

Each property is one small file that follows a predicate of extended virtual synchrony (EVS94; protocols 2.2 and 2.3) or a
promise of our own. They share one index of the history (`index.py`) and one proof of order (`certificate.py`), run in
linear or n log n time, and explain what they find in words, with the events that show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transis.model.guarantees import NOT_PROMISED, UNPROMISED
from transis.sim.checkers import (
    agreement_on_views,
    basic,
    causal,
    configuration,
    delivered_where_sent,
    end_together,
    failure_atomicity,
    fifo,
    group_agreement,
    group_changes,
    group_differences,
    group_duplicates,
    group_ghosts,
    group_members,
    group_order,
    group_primary,
    group_synchrony,
    incarnations,
    no_creation,
    no_duplicates,
    no_holes,
    one_sequence,
    partial_order,
    places,
    replicas,
    safe_delivered,
    safe_installed,
    self_delivery,
    sent_once,
    structure,
    submits,
    total_order,
)
from transis.sim.checkers.clients import Crowd
from transis.sim.checkers.index import Index
from transis.sim.checkers.verdict import VIOLATIONS_MAX, Findings, Report, Verdict, Violation, Witness
from transis.trace.events import History
from transis.types.errors import UsageError

__all__ = ["GROUP_PROPERTIES", "PROPERTIES", "Report", "Verdict", "Violation", "Witness", "check", "check_groups"]

Checker = Callable[[Index, Findings], None]
GroupChecker = Callable[[Crowd, Findings], None]

PROPERTIES: Final[dict[str, Checker]] = {
    "no_creation": no_creation.check,
    "no_duplicates": no_duplicates.check,
    "every_submit_accounted": submits.check,
    "sent_once_1_4": sent_once.check,
    "delivered_where_sent_1_3": delivered_where_sent.check,
    "fifo": fifo.check,
    "configuration_2_2": configuration.check,
    "structure": structure.check,
    "agreement_on_views": agreement_on_views.check,
    "end_together_2_1": end_together.check,
    "self_delivery_3": self_delivery.check,
    "failure_atomicity_4": failure_atomicity.check,
    "causal_5": causal.check,
    "partial_order_1_1": partial_order.check,
    "total_order_6_1": total_order.check,
    "places": places.check,
    "no_holes_6_3": no_holes.check,
    "one_sequence": one_sequence.check,
    "safe_7_1": safe_delivered.check,
    "safe_7_2": safe_installed.check,
    "incarnations_never_overlap": incarnations.check,
    "basic": basic.check,
}
"""Every property by the name it has in reports, in the order in which they are told."""

GROUP_PROPERTIES: Final[dict[str, GroupChecker]] = {
    "group_order": group_order.check,
    "group_agreement_on_views": group_agreement.check,
    "group_virtual_synchrony": group_synchrony.check,
    "group_members_only": group_members.check,
    "group_one_view_per_change": group_changes.check,
    "group_no_ghosts": group_ghosts.check,
    "group_differences": group_differences.check,
    "group_no_duplicates": group_duplicates.check,
    "group_primary": group_primary.check,
    "replicas_agree": replicas.check,
}
"""What groups promise their members (docs/groups.md), judged where a history has client processes."""


def check(history: History, keep: int = VIOLATIONS_MAX) -> Report:
    """The verdict of every property on this history; of groups only if it tells of client processes.

    Of each property the first `keep` violations are kept, all are counted.
    """
    if history.promises not in UNPROMISED:
        raise UsageError(f"promises = {history.promises!r}: must be one of {', '.join(UNPROMISED)}")
    index = Index(history)
    unpromised = UNPROMISED[history.promises]
    verdicts = [_verdict(index, name, name not in unpromised, keep) for name in PROPERTIES]
    crowd = Crowd(index)
    return Report(verdicts + (_group_verdicts(crowd, keep) if crowd.lives else []))


def check_groups(history: History) -> Report:
    """The verdicts on what groups promise, whatever ordered their messages."""
    return Report(_group_verdicts(Crowd(Index(history)), VIOLATIONS_MAX))


def _verdict(index: Index, name: str, promised: bool, keep: int) -> Verdict:
    if not promised:
        return Verdict(name, NOT_PROMISED, 0)
    findings = Findings(name, keep)
    PROPERTIES[name](index, findings)
    return findings.verdict()


def _group_verdicts(crowd: Crowd, keep: int) -> list[Verdict]:
    verdicts = []
    for name, judge in GROUP_PROPERTIES.items():
        findings = Findings(name, keep)
        judge(crowd, findings)
        verdicts.append(findings.verdict())
    return verdicts
