"""Checkers of every guarantee, over a recorded history: `check(history)` gives one verdict per property.

Each property is one small file that follows a predicate of extended virtual synchrony (EVS94; protocols 2.2 and 2.3) or a
promise of our own. They share one laid-out history (`history.py`) and one proof of order (`certificates.py`), run in
linear or n log n time, and explain what they find in words, with the events that show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transis.audit.guarantees.basic import check_basic
from transis.audit.guarantees.causal import check_causal
from transis.audit.guarantees.clients import ClientHistory
from transis.audit.guarantees.configurations import check_agreement_on_views, check_configuration, check_structure
from transis.audit.guarantees.creation import check_delivered_where_sent, check_no_creation
from transis.audit.guarantees.end_together import check_end_together
from transis.audit.guarantees.failure_atomicity import check_failure_atomicity
from transis.audit.guarantees.fifo import check_fifo, check_no_duplicates
from transis.audit.guarantees.group_changes import check_group_changes, check_group_differences
from transis.audit.guarantees.group_messages import check_group_members
from transis.audit.guarantees.group_order import check_group_duplicates, check_group_order, check_group_synchrony
from transis.audit.guarantees.group_views import check_group_agreement, check_group_ghosts, check_group_primary
from transis.audit.guarantees.history import LaidHistory
from transis.audit.guarantees.incarnations import check_incarnations
from transis.audit.guarantees.one_sequence import check_no_holes, check_one_sequence, check_places
from transis.audit.guarantees.property import (
    NOT_PROMISED,
    UNPROMISED,
    VIOLATIONS_MAX,
    Findings,
    Report,
    Verdict,
    Violation,
    Witness,
)
from transis.audit.guarantees.replicas import check_replicas
from transis.audit.guarantees.safe import check_safe_delivered, check_safe_installed
from transis.audit.guarantees.self_delivery import check_self_delivery
from transis.audit.guarantees.sent_once import check_sent_once, check_submits
from transis.audit.guarantees.total_order import check_partial_order, check_total_order
from transis.trace.events import History
from transis.types.errors import UsageError

__all__ = ["GROUP_PROPERTIES", "PROPERTIES", "Report", "Verdict", "Violation", "Witness", "check", "check_groups"]

Checker = Callable[[LaidHistory, Findings], None]
GroupChecker = Callable[[ClientHistory, Findings], None]

PROPERTIES: Final[dict[str, Checker]] = {
    "no_creation": check_no_creation,
    "no_duplicates": check_no_duplicates,
    "every_submit_accounted": check_submits,
    "sent_once_1_4": check_sent_once,
    "delivered_where_sent_1_3": check_delivered_where_sent,
    "fifo": check_fifo,
    "configuration_2_2": check_configuration,
    "structure": check_structure,
    "agreement_on_views": check_agreement_on_views,
    "end_together_2_1": check_end_together,
    "self_delivery_3": check_self_delivery,
    "failure_atomicity_4": check_failure_atomicity,
    "causal_5": check_causal,
    "partial_order_1_1": check_partial_order,
    "total_order_6_1": check_total_order,
    "places": check_places,
    "no_holes_6_3": check_no_holes,
    "one_sequence": check_one_sequence,
    "safe_7_1": check_safe_delivered,
    "safe_7_2": check_safe_installed,
    "incarnations_never_overlap": check_incarnations,
    "basic": check_basic,
}
"""Every property by the name it has in reports, in the order in which they are told."""

GROUP_PROPERTIES: Final[dict[str, GroupChecker]] = {
    "group_order": check_group_order,
    "group_agreement_on_views": check_group_agreement,
    "group_virtual_synchrony": check_group_synchrony,
    "group_members_only": check_group_members,
    "group_one_view_per_change": check_group_changes,
    "group_no_ghosts": check_group_ghosts,
    "group_differences": check_group_differences,
    "group_no_duplicates": check_group_duplicates,
    "group_primary": check_group_primary,
    "replicas_agree": check_replicas,
}
"""What groups promise their members (docs/groups.md), judged where a history has client processes."""


def check(history: History, keep: int = VIOLATIONS_MAX) -> Report:
    """The verdict of every property on this history; of groups only if it tells of client processes.

    Of each property the first `keep` violations are kept, all are counted.
    """
    if history.promises not in UNPROMISED:
        raise UsageError(f"promises = {history.promises!r}: must be one of {', '.join(UNPROMISED)}")
    laid = LaidHistory(history)
    unpromised = UNPROMISED[history.promises]
    verdicts = [_verdict(laid, name, name not in unpromised, keep) for name in PROPERTIES]
    clients = ClientHistory(laid)
    return Report(verdicts + (_group_verdicts(clients, keep) if clients.lives else []))


def check_groups(history: History) -> Report:
    """The verdicts on what groups promise, whatever ordered their messages."""
    return Report(_group_verdicts(ClientHistory(LaidHistory(history)), VIOLATIONS_MAX))


def _verdict(laid: LaidHistory, name: str, promised: bool, keep: int) -> Verdict:
    if not promised:
        return Verdict(name, NOT_PROMISED, 0)
    findings = Findings(name, keep)
    PROPERTIES[name](laid, findings)
    return findings.verdict()


def _group_verdicts(clients: ClientHistory, keep: int) -> list[Verdict]:
    verdicts = []
    for name, judge in GROUP_PROPERTIES.items():
        findings = Findings(name, keep)
        judge(clients, findings)
        verdicts.append(findings.verdict())
    return verdicts
