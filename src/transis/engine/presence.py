"""How views that share no traffic find each other, and which peers must wait before they may disturb a healthy view.

1. Every member beacons, with or without traffic: the representative every T_merge, the others at a fifth of that rate (L1, D24).
2. A beacon names the nodes that its sender has heard since its view was installed. Mutual hearing ends a quarantine early (W7).
3. A peer with which no view could be formed waits for a back-off that doubles each time (W7, D27). Without it, a network that is
   not transitive would flap forever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from transis.engine.core import BaseCore
from transis.types.config import Timing
from transis.types.ids import NodeId, RingId
from transis.types.limits import MEMBERS_MAX
from transis.wire.control import Beacon
from transis.wire.envelope import WIRE_VERSION, WIRE_VERSION_MIN

# --- beacons ----------------------------------------------------------------------------------------------------------

BEACONS_OF_OTHERS: Final = 5
HEARD_BEACONS: Final = 12
"""A node counts as heard for this many beacon intervals, so an ordinary member may lose two beacons."""


def broadcast_beacon(core: BaseCore[Any, Any], view: RingId, members: frozenset[NodeId]) -> None:
    lately = core.now - HEARD_BEACONS * core.config.timing.beacon_us
    core.heard_at = {node: at for node, at in core.heard_at.items() if at >= lately}
    heard, versions = frozenset(core.heard_at), (WIRE_VERSION_MIN, WIRE_VERSION)
    core.broadcast(Beacon(core.me, core.config.address, view, members, heard, core.clock, core.digest, versions))


def beacon_interval_us(core: BaseCore[Any, Any], i_represent: bool) -> int:
    return core.config.timing.beacon_us * (1 if i_represent else BEACONS_OF_OTHERS)


def are_too_many(members: Sequence[NodeId], others: frozenset[NodeId]) -> bool:
    """A full view takes no more members: a change would end in the same two views, again and again."""
    return max(len(members), len(others)) >= MEMBERS_MAX


def are_all_heard(core: BaseCore[Any, Any], nodes: frozenset[NodeId], members: frozenset[NodeId]) -> bool:
    """Has this node heard all of these since its view was installed? Those it heard before may be out of reach by now."""
    return nodes <= core.heard_at.keys() | members


def was_superseded(node: NodeId, members: Sequence[NodeId]) -> bool:
    """Is a later life of this node a member?"""
    return any(member.name == node.name and member.incarnation > node.incarnation for member in members)


# --- quarantine -------------------------------------------------------------------------------------------------------


class Release(IntEnum):
    """What ends a back-off early."""

    HEARING = 0
    """A beacon that shows mutual hearing, which was what was missing."""
    ANSWER = 1
    """Only a Join: we heard the peer's beacon but it did not answer us, so it may not hear us."""
    NONE = 2
    """Nothing: we hear each other, but rings with this peer fail."""


class PeerBackoff(NamedTuple):
    until: int
    length_us: int
    release: Release


class Quarantine:
    """A peer that was left out triggers no Gather until its back-off ends; each back-off is twice as long as the one before."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._backoffs: dict[NodeId, PeerBackoff] = {}

    def holds(self, node: NodeId, now: int, evidence: Release | None = None) -> bool:
        """Must the peer wait? `evidence` is what it has just shown, if anything."""
        backoff = self._backoffs.get(node)
        if backoff is None or now >= backoff.until:
            return False
        return evidence is None or evidence < backoff.release

    def installed(self, members: Iterable[NodeId], left_out: Mapping[NodeId, Release], now: int) -> None:
        """After an installation: members are free, those left out wait.

        A back-off that ended long ago is forgotten; otherwise every life of every node would stay here.
        """
        remembered = now - self._timing.quarantine_max_us
        self._backoffs = {node: it for node, it in self._backoffs.items() if it.until >= remembered}
        for node in members:
            self._release(node, now)
        for node in sorted(left_out):
            before = self._backoffs.get(node)
            length = self._timing.quarantine_us if before is None else min(2 * before.length_us, self._timing.quarantine_max_us)
            self._backoffs[node] = PeerBackoff(now + length, length, left_out[node])

    def _release(self, node: NodeId, now: int) -> None:
        """Free a member. If it breaks every ring it is in, it will be back, so that record is kept for a while."""
        backoff = self._backoffs.pop(node, None)
        if backoff is not None and backoff.release is Release.NONE:
            self._backoffs[node] = backoff._replace(until=min(backoff.until, now))
