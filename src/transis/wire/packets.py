"""Control packets as the engine sees them: plain immutable values, checked already, with sets as sets.

Here are those of the ring and those that both engines send; lansis_packets.py has the others.

Rows, proposals and attempts serve reachability and blame as common knowledge (W7, W8); obligations and flags of a
commit entry are those of TOCS95 sec. 5 with the corrections F1 and W3.
"""

from __future__ import annotations

from typing import NamedTuple

from transis.model.ids import NodeId, RingId, RingTag
from transis.model.view import Cause
from transis.wire.lansis_packets import Attempt, Faults, Flushed, Joining, LansisPacket, Query


class Row(NamedTuple):
    """Whom `node` does not hear, by its own word; `version` is the number of its Gather, `beat` counts its Joins in it."""

    node: NodeId
    version: int
    beat: int
    unheard: frozenset[NodeId]


class Join(NamedTuple):
    """`rows` are sorted by node. `attempt_*` name the last ring tried and the highest commit index seen in it."""

    sender: NodeId
    address: str
    info: bytes
    ring_seq: int
    proc_set: frozenset[NodeId]
    fail_set: frozenset[NodeId]
    proposal: frozenset[NodeId]
    rows: tuple[Row, ...]
    attempt_seq: int
    attempt_index: int
    leaving: bool
    timestamp: int
    digest: bytes
    versions: tuple[int, int]


class CommitEntry(NamedTuple):
    """What one member says of itself while the commit token passes; `filled` tells said from not yet said."""

    node: NodeId
    address: str
    info: bytes
    filled: bool
    old_ring: RingId | None
    old_members_digest: bytes
    aru: int
    high_delivered: int
    received_flg: bool
    obligation: frozenset[NodeId]
    timestamp: int


class Commit(NamedTuple):
    """Entries stand in ring order, the representative first; `sender` and `target` are indices into them."""

    ring: RingId
    rotation: int
    token_seq: int
    sender: int
    target: int
    attempt: int
    cause: Cause
    entries: tuple[CommitEntry, ...]


class Beacon(NamedTuple):
    sender: NodeId
    address: str
    ring: RingId
    members: frozenset[NodeId]
    heard: frozenset[NodeId]
    timestamp: int
    digest: bytes
    versions: tuple[int, int]


class Wake(NamedTuple):
    """Somebody has something to send: the representative should let a held token go."""

    ring: RingTag
    token_seq: int


class Probe(NamedTuple):
    """May I run under this name? Asked before a node joins anything (C4)."""

    sender: NodeId
    address: str


class ProbeAnswer(NamedTuple):
    """`about` is the prober. taken: the name is alive elsewhere; stale: a higher incarnation was seen; copied:
    the same incarnation under another boot id."""

    about: NodeId
    by: NodeId
    verdict: str
    known_incarnation: int


ControlPacket = Join | Commit | Beacon | Wake | Probe | ProbeAnswer | LansisPacket

Announcement = Join | Beacon | Attempt | Joining | Faults | Flushed
"""What its sender says to the world of itself and of who is together: of each sender only news counts."""
Introducing = Announcement | Probe | Query
"""Packets that name their sender and its address: nobody sends them for somebody else."""
Asking = Join | Attempt | Joining
"""Whose sender wants to be together with who hears it."""
VERDICTS = ("taken", "stale", "copied")
