"""Every guarantee, in the order of reports: one list for the simulator, the audit, docs/guarantees.md and `--only`.

`check(history)` gives one verdict per property. Each has a file, or shares one with its nearest kin: the predicate of extended
virtual synchrony (EVS94) or a promise of our own in words, a checker, SQL, examples. Checkers share one laid-out history
(history.py) and one proof of order (certificates.py), and run in linear or n log n time.
"""

from __future__ import annotations

from typing import Any, Final

from transis.audit.guarantees.accepted_never_lost import ACCEPTED_NEVER_LOST
from transis.audit.guarantees.basic import BASIC, BASIC_ARRIVES
from transis.audit.guarantees.causal import CAUSAL
from transis.audit.guarantees.clients import ClientHistory
from transis.audit.guarantees.configurations import AGREEMENT_ON_VIEWS, CONFIGURATION, STRUCTURE
from transis.audit.guarantees.creation import NO_CREATION, WHERE_SENT
from transis.audit.guarantees.end_together import END_TOGETHER
from transis.audit.guarantees.exactly_once_keys import EXACTLY_ONCE_KEYS
from transis.audit.guarantees.failure_atomicity import FAILURE_ATOMICITY
from transis.audit.guarantees.fifo import FIFO, NO_DUPLICATES
from transis.audit.guarantees.group_changes import GROUP_CHANGES
from transis.audit.guarantees.group_differences import GROUP_DIFFERENCES
from transis.audit.guarantees.group_held import GROUP_ONLY_PRIMARY
from transis.audit.guarantees.group_messages import GROUP_MEMBERS_ONLY
from transis.audit.guarantees.group_order import GROUP_NO_DUPLICATES, GROUP_ORDER, GROUP_VIRTUAL_SYNCHRONY
from transis.audit.guarantees.group_views import GROUP_AGREEMENT, GROUP_NO_GHOSTS, GROUP_PRIMARY
from transis.audit.guarantees.history import LaidHistory
from transis.audit.guarantees.incarnations import INCARNATIONS
from transis.audit.guarantees.one_primary import ONE_PRIMARY
from transis.audit.guarantees.one_sequence import NO_HOLES, ONE_SEQUENCE, PLACES
from transis.audit.guarantees.ordered_never_lost import ORDERED_NEVER_LOST
from transis.audit.guarantees.property import (
    MODES,
    NOT_PROMISED,
    VIOLATIONS_MAX,
    Findings,
    Property,
    Report,
    Verdict,
    Violation,
    Witness,
)
from transis.audit.guarantees.replicas import REPLICAS_AGREE
from transis.audit.guarantees.replicated_causal import REPLICATED_CAUSAL
from transis.audit.guarantees.replicated_fifo import REPLICATED_FIFO
from transis.audit.guarantees.replicated_order import REPLICATED_ORDER
from transis.audit.guarantees.replication import ReplicaHistory
from transis.audit.guarantees.safe import SAFE_DELIVERED, SAFE_INSTALLED
from transis.audit.guarantees.self_delivery import SELF_DELIVERY
from transis.audit.guarantees.sent_once import SENT_ONCE, SUBMITS
from transis.audit.guarantees.stable_is_everywhere import STABLE_IS_EVERYWHERE
from transis.audit.guarantees.total_order import PARTIAL_ORDER, TOTAL_ORDER
from transis.trace.events import History, ReplicaStep
from transis.types.errors import UsageError

__all__ = [
    "ALL_MEANINGS",
    "EVIDENCE",
    "EVIDENCE_MEANINGS",
    "GROUP_PROPERTIES",
    "HARNESS_MEANINGS",
    "NODE_PROPERTIES",
    "PROPERTIES",
    "REPLICA_MEANINGS",
    "REPLICA_PROPERTIES",
    "UNPROMISED",
    "Report",
    "Verdict",
    "Violation",
    "Witness",
    "check",
    "check_groups",
]

_OF_NODES: Final[tuple[Property[LaidHistory], ...]] = (
    NO_CREATION,
    NO_DUPLICATES,
    SUBMITS,
    SENT_ONCE,
    WHERE_SENT,
    FIFO,
    CONFIGURATION,
    STRUCTURE,
    AGREEMENT_ON_VIEWS,
    END_TOGETHER,
    SELF_DELIVERY,
    FAILURE_ATOMICITY,
    CAUSAL,
    PARTIAL_ORDER,
    TOTAL_ORDER,
    PLACES,
    NO_HOLES,
    ONE_SEQUENCE,
    SAFE_DELIVERED,
    SAFE_INSTALLED,
    INCARNATIONS,
    BASIC,
    BASIC_ARRIVES,
)

_OF_GROUPS: Final[tuple[Property[ClientHistory], ...]] = (
    GROUP_ORDER,
    GROUP_AGREEMENT,
    GROUP_VIRTUAL_SYNCHRONY,
    GROUP_MEMBERS_ONLY,
    GROUP_CHANGES,
    GROUP_NO_GHOSTS,
    GROUP_DIFFERENCES,
    GROUP_NO_DUPLICATES,
    GROUP_PRIMARY,
    GROUP_ONLY_PRIMARY,
    REPLICAS_AGREE,
)

_OF_REPLICAS: Final[tuple[Property[ReplicaHistory], ...]] = (
    REPLICATED_ORDER,
    REPLICATED_FIFO,
    REPLICATED_CAUSAL,
    ACCEPTED_NEVER_LOST,
    ORDERED_NEVER_LOST,
    ONE_PRIMARY,
    STABLE_IS_EVERYWHERE,
    EXACTLY_ONCE_KEYS,
)

_ALL: Final[tuple[Property[Any], ...]] = (*_OF_NODES, *_OF_GROUPS, *_OF_REPLICAS)
PROPERTIES: Final = {one.name: one for one in _ALL}
"""Every property by the name it has in reports, in their order."""

NODE_PROPERTIES: Final = tuple(one.name for one in _OF_NODES)
GROUP_PROPERTIES: Final = tuple(one.name for one in _OF_GROUPS)
"""What groups promise their members (docs/groups.md), judged where a history has client processes."""
REPLICA_PROPERTIES: Final = tuple(one.name for one in _OF_REPLICAS)
"""What replicas promise (docs/replication.md), judged where a history has any."""

UNPROMISED: Final[dict[str, frozenset[str]]] = {
    mode: frozenset(one.name for one in PROPERTIES.values() if mode not in one.promised_in) for mode in MODES
}
"""What a mode does not promise: ToTo no order across partitions (F9), `transis` mode not 1.3. Whether either keeps `one_sequence`
beyond that was not looked at, so it is not promised."""

# --- what else has a verdict --------------------------------------------------------------------------------------------

EVIDENCE: Final = "quality_"
"""The prefix of checks that judge the evidence itself: when one of them fails, the other verdicts may mean nothing."""

EVIDENCE_MEANINGS: Final = {
    "quality_readable": "every trace file can be read, to its end",
    "quality_chain": "no file of a trace is missing or was changed",
    "quality_density": "no event is missing without a word about it",
    "quality_clocks": "no clock goes backward",
    "quality_members": "everybody who is spoken of has a trace",
    "quality_mixed": "the traces are those of one run each",
}
"""What must hold of traces before anything can be judged from them."""

HARNESS_MEANINGS: Final = {
    "liveness": "once faults end, one view forms and everything is delivered in time",
    "fairness": "nobody who has something to send is starved",
    "incarnations_are_new": "a restarted node never takes an incarnation that was used",
    "integrity": "delivered bytes are the bytes that were submitted",
    "no_crash": "no node raised an error, no invariant broke",
}
"""What no trace alone can show: the simulator and the demo, which see more, judge it."""

REPLICA_MEANINGS: Final = {
    "delivered_is_synced": "what a replica delivers is on its disk",
    "replicas_live": "any majority that is together orders all it knows in time",
    "replicas_run": "no replica raised an error",
}
"""What the trace of replicas alone cannot show: judged by simulations that have any."""

ALL_MEANINGS: Final = {
    **EVIDENCE_MEANINGS,
    **{one.name: one.meaning for one in _OF_NODES},
    **HARNESS_MEANINGS,
    **{one.name: one.meaning for one in _OF_GROUPS},
    **{one.name: one.meaning for one in _OF_REPLICAS},
    **REPLICA_MEANINGS,
}
"""Everything that has a verdict, in the order of reports."""

# --- checking -----------------------------------------------------------------------------------------------------------


def check(history: History, keep: int = VIOLATIONS_MAX) -> Report:
    """The verdict of every property on this history; those of groups and replicas only if it has any.

    The first `keep` violations of each property are kept, and all are counted.
    """
    if history.promises not in MODES:
        raise UsageError(f"promises = {history.promises!r}: must be one of {', '.join(MODES)}")
    laid = LaidHistory(history)
    clients = ClientHistory(laid)
    of_groups = _OF_GROUPS if clients.lives else ()
    verdicts = [_verdict(one, laid, keep, history.promises) for one in _OF_NODES]
    verdicts += [_verdict(one, clients, keep, history.promises) for one in of_groups]
    if any(isinstance(event, ReplicaStep) for life in laid.lives if not life.confs for event in life.events):
        replicas = ReplicaHistory(laid)
        verdicts += [_verdict(one, replicas, keep, history.promises) for one in _OF_REPLICAS]
    return Report(verdicts)


def check_groups(history: History) -> Report:
    """The verdicts on what groups promise, whatever ordered their messages."""
    clients = ClientHistory(LaidHistory(history))
    return Report([_verdict(one, clients, VIOLATIONS_MAX, history.promises) for one in _OF_GROUPS])


def _verdict(one: Property[Any], laid: LaidHistory | ClientHistory | ReplicaHistory, keep: int, promises: str) -> Verdict:
    if promises not in one.promised_in:
        return Verdict(one.name, NOT_PROMISED, 0)
    findings = Findings(one.name, keep, one.broken)
    one.check(laid, findings)
    return findings.verdict()
