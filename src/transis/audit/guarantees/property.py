"""What a property is; Finding, Verdict, Report.

Guarantees by name: what each means, in a line, and the words of a verdict. The name in a table is for finding, the line is
for reading.

The numbers in the names are those of the specification of extended virtual synchrony (protocols 2.2 and 2.3).

What a checker says: violations with a witness, and one verdict per property.

A verdict is broken before pending before held; with nothing checked it is `not exercised` (traces 5). Violations are
capped so that one bug does not fill a page, but `count` is the true number.

Sentences for people: lists that stay short, messages by their ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from transis.audit.guarantees.history import LaidHistory
from transis.types.ids import MessageId, NodeId

# --- guarantees -------------------------------------------------------------------------------------------------------

HELD: Final = "held"
BROKEN: Final = "broken"
PENDING: Final = "pending"
NOT_EXERCISED: Final = "not exercised"
NOT_PROMISED: Final = "not promised"

WEIGHT: Final = (NOT_PROMISED, NOT_EXERCISED, HELD, PENDING, BROKEN)
"""Of the verdicts of several runs the heaviest, which comes last here, is that of all."""

UNPROMISED: Final[dict[str, frozenset[str]]] = {
    "evs": frozenset(),
    "transis": frozenset({"delivered_where_sent_1_3", "one_sequence"}),
    "toto": frozenset({"total_order_6_1", "places", "no_holes_6_3", "one_sequence"}),
    "toto one component": frozenset({"places", "one_sequence"}),
}
"""What a mode does not promise (traces 3): ToTo no order across partitions (F9), `transis` mode not 1.3. Whether either keeps
`one_sequence` beyond that was not looked at, so it is not promised.

Of a run without partitions ToTo promises more: there is one order, though not by places that were known at sending.
"""

EVIDENCE: Final = "quality_"
"""How the names of checks begin that judge the evidence itself: when one of them fails, the others may say nothing."""

MEANINGS: Final = {
    "no_creation": "what is delivered was sent",
    "no_duplicates": "nobody delivers a message twice",
    "every_submit_accounted": "every accepted message is sent or refused, once",
    "sent_once_1_4": "a message is sent once, in one view",
    "delivered_where_sent_1_3": "a message is delivered in the view it was sent in",
    "fifo": "a sender's messages arrive in the order it sent them",
    "configuration_2_2": "events happen in the view that is in force",
    "structure": "regular and transitional views follow each other as they must",
    "agreement_on_views": "the same view has the same members for everybody",
    "end_together_2_1": "who installed a view goes on from it, or failed",
    "self_delivery_3": "a sender delivers its own messages, unless it fails",
    "failure_atomicity_4": "who moves on together has delivered the same",
    "causal_5": "no answer comes before its question",
    "partial_order_1_1": "what happened before stays before, everywhere",
    "total_order_6_1": "any two nodes deliver in the same order",
    "places": "a message has the same place in the order everywhere",
    "no_holes_6_3": "what is delivered has no gap that matters before it",
    "one_sequence": "members of a view deliver one sequence in it, position by position",
    "safe_7_1": "a safe message is delivered by all of its view, unless they fail",
    "safe_7_2": "a safe message is delivered only in a view that all its members installed",
    "incarnations_never_overlap": "no name lives twice at a time",
    "basic": "basic messages: sent, and at most once",
    "liveness": "once faults end, one view forms and everything is delivered in time",
    "fairness": "nobody who has something to send is starved",
    "incarnations_are_new": "a restarted node never takes an incarnation that was used",
    "integrity": "delivered bytes are the bytes that were submitted",
    "no_crash": "no node raised an error, no invariant broke",
}

GROUP_MEANINGS: Final = {
    "group_order": "views and messages of all groups come in one order",
    "group_agreement_on_views": "the same group view has the same members, origins and cause for everybody",
    "group_virtual_synchrony": "who goes together from one view of a group to the next got the same of it",
    "group_members_only": "a process gets what is for it while it is a member, and nothing else",
    "group_one_view_per_change": "a change is told once, and to the groups that it concerns only",
    "group_no_ghosts": "members are there by their own node's word, on nodes of the configuration",
    "group_differences": "who joined, left and came from which view is told truly",
    "group_no_duplicates": "nobody gets a message or a view twice",
    "group_primary": "no two components call themselves primary at a time",
    "replicas_agree": "who got the same messages says that it is in the same state, where applications say so",
}
"""What groups promise, on nodes that have them."""

EVIDENCE_MEANINGS: Final = {
    "quality_readable": "every trace file can be read, to its end",
    "quality_chain": "no file of a trace is missing or was changed",
    "quality_density": "no event is missing without a word about it",
    "quality_clocks": "no clock goes backward",
    "quality_members": "everybody who is spoken of has a trace",
    "quality_mixed": "the traces are those of one run each",
}
"""What traces must be like before anything can be said from them."""

ALL_MEANINGS: Final = EVIDENCE_MEANINGS | MEANINGS | GROUP_MEANINGS
"""In the order in which they are told."""


# --- verdict ----------------------------------------------------------------------------------------------------------

VIOLATIONS_MAX: Final = 10
"""Violations kept per property: the first few explain, the rest only count."""

Witness = tuple[tuple[NodeId, int], ...]
"""Events that together show a violation, each as (node, lseq)."""


class Violation(NamedTuple):
    property: str
    explanation: str
    witness: Witness
    messages: tuple[MessageId, ...]


class Verdict(NamedTuple):
    property: str
    verdict: str
    checked: int
    violations: tuple[Violation, ...] = ()
    count: int = 0  # type: ignore[assignment]  # A tuple has a method of this name; nobody counts in a verdict.
    pending: int = 0


class Findings:
    """Collects what one checker finds; becomes its verdict."""

    def __init__(self, name: str, keep: int = VIOLATIONS_MAX) -> None:
        self.name = name
        self.keep = keep
        self.checked = 0
        self.pending = 0
        self.count = 0
        self._kept: list[Violation] = []

    def broken(self, explanation: str, witness: Witness = (), messages: tuple[MessageId, ...] = ()) -> None:
        self.count += 1
        if len(self._kept) < self.keep:
            self._kept.append(Violation(self.name, explanation, witness, messages))

    def verdict(self) -> Verdict:
        return Verdict(self.name, self._word(), self.checked, self._shortest_first(), self.count, self.pending)

    def _word(self) -> str:
        if self.count:
            return BROKEN
        if self.pending:
            return PENDING
        return HELD if self.checked else NOT_EXERCISED

    def _shortest_first(self) -> tuple[Violation, ...]:
        return tuple(sorted(self._kept, key=lambda violation: len(violation.witness)))


class Report:
    """The verdicts of one history, in the order in which the checkers are listed."""

    def __init__(self, verdicts: list[Verdict]) -> None:
        self.verdicts: dict[str, Verdict] = {verdict.property: verdict for verdict in verdicts}

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(name for name, verdict in self.verdicts.items() if verdict.verdict == BROKEN)

    @property
    def pending(self) -> tuple[str, ...]:
        return tuple(name for name, verdict in self.verdicts.items() if verdict.verdict == PENDING)

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(violation for verdict in self.verdicts.values() for violation in verdict.violations)


# --- words ------------------------------------------------------------------------------------------------------------

NAMED_MAX: Final = 5
"""Things named one by one in a sentence; the rest are counted."""


def several(things: Iterable[object]) -> str:
    """`x`, or `x, y and 3 more`."""
    names = [str(thing) for thing in things]
    if len(names) <= NAMED_MAX:
        return ", ".join(names) if names else "nothing"
    return f"{', '.join(names[:NAMED_MAX])} and {len(names) - NAMED_MAX} more"


def messages(history: LaidHistory, codes: Iterable[int]) -> tuple[MessageId, ...]:
    """Ids of messages, in the order given."""
    return tuple(map(history.message, codes))


def named(history: LaidHistory, codes: Iterable[int]) -> str:
    return several(history.message(code) for code in codes)
