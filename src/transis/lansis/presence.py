"""Presence, the paper's Stage 0: views that do not share traffic find each other, and healthy views are left in peace.

Beacons are as on the ring: engine/presence.py says who sends them, and when.
"""

from __future__ import annotations

from transis.engine.presence import (
    Quarantine,
    Release,
    are_all_heard,
    are_too_many,
    beacon_interval_us,
    broadcast_beacon,
    was_superseded,
)
from transis.lansis.flush import FOREIGN_VIEW
from transis.lansis.membership import MembershipChange
from transis.lansis.packets import Statement
from transis.lansis.statements import Opinion
from transis.lansis.states import Event, Trap
from transis.lansis.view import LansisCore
from transis.types.ids import NodeId
from transis.types.views import Cause
from transis.wire.control import Beacon


class ViewPresence:
    def __init__(self, core: LansisCore, membership: MembershipChange, quarantine: Quarantine) -> None:
        self._core = core
        self._membership = membership
        self._quarantine = quarantine

    def send_beacon(self) -> None:
        core, view = self._core, self._core.view
        broadcast_beacon(core, view.id, frozenset(view.members))
        core.arm(Event.BEACON_SEND, beacon_interval_us(core, view.i_represent))

    # --- beacons and attempts ---------------------------------------------------------------------------------------

    def beacon_in_operational(self, beacon: Beacon) -> None:
        if self._is_member(beacon.sender):
            self.beacon_of_member(beacon)
            return
        mutual = self._ccs <= beacon.heard and self._hear_all(beacon.members)
        self._meet_stranger(beacon.sender, beacon.members, Release.HEARING if mutual else None)

    def beacon_of_member(self, beacon: Beacon) -> None:
        """A member that is in another view is behind me, or gone."""
        if self._is_member(beacon.sender):
            self._membership.is_current(beacon.sender, beacon.ring)

    def attempt_in_operational(self, said: Statement) -> None:
        if not self._is_member(said.sender):
            self._meet_stranger(said.sender, said.j, None)
        elif self._membership.is_current(said.sender, said.view):
            self._membership.gather(said.cause, said.j)

    def _meet_stranger(self, sender: NodeId, members: frozenset[NodeId], evidence: Release | None) -> None:
        """Enter Stage 1, unless the sender is an old life, in quarantine, or the view is full."""
        core = self._core
        if self._replaces_a_member(sender) or self._was_superseded(sender) or self._is_full(members):
            return
        if not self._quarantine.holds(sender, core.now, evidence):
            self._membership.gather(Cause(FOREIGN_VIEW, sender), members | {sender})

    # --- statements while all is well -------------------------------------------------------------------------------

    def statement_in_operational(self, said: Statement) -> None:
        """Somebody has begun a change. I follow a member; I follow a stranger if it names me and accuses none of our members."""
        core, membership = self._core, self._membership
        is_member = self._is_member(said.sender)
        if not is_member and self._is_noise(said):
            return
        opinion = membership.take(said)
        if opinion is Opinion.BROKEN:
            what = "leave" if said.leaving else "accused"
            membership.begin(Cause(what, said.sender, (said.sender,)) if said.leaving else Cause(what, core.me, (said.sender,)))
        elif opinion is not Opinion.DROPPED:
            membership.begin(said.cause if is_member else Cause("foreign join", said.sender))

    def _is_noise(self, said: Statement) -> bool:
        """Statements of strangers that must not end a healthy view: those finish their own change first, and then meet us by
        their beacon (trap 17)."""
        if self._core.me not in said.accept or not said.f.isdisjoint(self._ccs) or self._was_superseded(said.sender):
            return True
        if self._replaces_a_member(said.sender):
            return True
        mutual = self._ccs <= said.accept and self._hear_all(said.accept)
        return self._quarantine.holds(said.sender, self._core.now, Release.ANSWER if mutual else None)

    # --- who is who -------------------------------------------------------------------------------------------------

    @property
    def _ccs(self) -> frozenset[NodeId]:
        return self._membership.sets.ccs

    def _is_member(self, node: NodeId) -> bool:
        return self._core.view.rank_of(node) is not None

    def _is_full(self, others: frozenset[NodeId]) -> bool:
        return are_too_many(self._core.view.members, others)

    def _hear_all(self, nodes: frozenset[NodeId]) -> bool:
        return are_all_heard(self._core, nodes, self._ccs)

    def _replaces_a_member(self, node: NodeId) -> bool:
        """Is it a later life of a member? Then the member is dead, and must be accused before its successor can join."""
        dead = tuple(old for old in self._core.view.members if old.name == node.name and old.incarnation < node.incarnation)
        if not dead:
            return False
        self._core.trap(Trap.REBORN_MEMBER)
        self._membership.break_with(dead, Cause("born again", node, dead))
        return True

    def _was_superseded(self, node: NodeId) -> bool:
        return was_superseded(node, self._core.view.members)
