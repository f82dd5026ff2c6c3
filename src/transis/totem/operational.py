"""The installed ring at work: visits, the hold of an idle token, the wake, beacons, Joins (W15, W16).

Deviations: (D10) the representative keeps the token of a ring that was idle for three rotations (safe delivery everywhere takes
two, the third shows that they happened), and paces the rotation while only retransmissions are pending; a member that has work
asks for the token by multicast; (D24) beacons: engine/presence.py says who sends them, and when.

Rings find each other by beacons and Joins (L1). Neither makes a healthy ring gather without need.
"""

from __future__ import annotations

from typing import Final

from transis.engine.presence import (
    Quarantine,
    Release,
    are_all_heard,
    are_too_many,
    beacon_interval_us,
    broadcast_beacon,
    was_superseded,
)
from transis.totem.gather import FAILED_TO_RECEIVE, FOREIGN_RING, MEMBER_GATHERS, Gather
from transis.totem.packets import Join, Token, Wake
from transis.totem.ring import Ring, RingDelivery, TotemCore
from transis.totem.states import Event, State, Trap
from transis.totem.visit import TokenPassing, Visit, is_idle
from transis.types.ids import NodeId
from transis.types.views import Cause
from transis.wire.burst import Burst
from transis.wire.control import Beacon

# --- operational ------------------------------------------------------------------------------------------------------

IDLE_VISITS: Final = 3


class OperationalRing:
    def __init__(self, core: TotemCore, visit: Visit, passing: TokenPassing, delivery: RingDelivery, gather: Gather) -> None:
        self._core = core
        self._visit = visit
        self._passing = passing
        self._delivery = delivery
        self._gather = gather
        self._woken = False

    def ring_data(self, burst: Burst) -> None:
        ring = self._core.ring
        self._core.observe(burst.header.timestamp)
        self._passing.evidence(burst.last_seq)
        if self._delivery.receive(ring, burst, installed=True):
            self._delivery.eager(ring)

    def token_in_operational(self, token: Token) -> None:
        ring = self._core.ring
        if not self._visit.accept(ring, token):
            return
        pause_us = self._pause(ring, token)
        if pause_us:
            self._passing.hold(token, pause_us)
        else:
            self._run_visit(token)

    def _pause(self, ring: Ring, token: Token) -> int:
        """How long the representative keeps the token of a ring that is idle or only waits for retransmissions; otherwise 0."""
        timing = self._core.config.timing
        woken, self._woken = self._woken, False
        if not ring.i_represent or self._core.outbox.has_work():
            ring.idle_visits = 0
            return 0
        if is_idle(token) and ring.safe_upto == token.seq:
            ring.idle_visits += 1
            return timing.token_hold_us if ring.idle_visits >= IDLE_VISITS and not woken else 0
        ring.idle_visits = 0
        waiting = token.aru < token.seq and token.aru == ring.last_aru_sent and token.backlog == 0
        if waiting:
            self._core.trap(Trap.PACED)
        return timing.retransmission_pace_us if waiting else 0

    def release_token(self) -> None:
        token = self._passing.take_held()
        assert token is not None, "the hold timer runs only while a token is held"
        ring = self._core.ring
        if ring.is_singleton:
            ring.token_seq = token.token_seq
            ring.token_at = self._core.now
            self._core.timeouts.saw_rotation(0)
        if not self._visit.is_true(ring, token):
            self._gather.token_lost()  # While I held it, somebody gave its next numbers away.
            return
        self._run_visit(token)

    def _run_visit(self, token: Token) -> None:
        core, ring = self._core, self._core.ring
        if not self._visit.run(ring, token, core.outbox, encapsulated=False):
            accused = ring.members[token.aru_id]
            core.note("failed to receive", accused=str(accused), aru=token.aru, seq=token.seq)
            self._gather.shift(Cause(FAILED_TO_RECEIVE, core.me, (accused,)), fail=(accused,))
            return
        core.announce_room()
        self._delivery.eager(ring)
        ring.store.discard(min(ring.safe_upto, ring.high_delivered))
        if core.is_leaving:
            self._try_to_leave()

    def submitted(self) -> None:
        """There is new work: hurry a held token, or ask for it if the ring is idle."""
        if self._core.state is not State.OPERATIONAL:
            return
        if self._passing.held is not None:
            self._passing.hurry()
        elif self._core.ring.forwarded_idle and not self._core.timers.armed(Event.WAKE_REPEAT):
            self.ask_for_token()

    def ask_for_token(self) -> None:
        ring = self._core.ring
        self._core.broadcast(Wake(ring.tag, ring.token_seq))
        self._core.arm(Event.WAKE_REPEAT, self._core.timeouts.token_retransmit_us)

    def wake_token(self, wake: Wake) -> None:
        if wake.ring == self._core.ring.tag:
            self._woken = self._core.ring.i_represent
            self._passing.hurry()

    def _try_to_leave(self) -> None:
        """Leave once everything that was taken is sent and safe. A held lane counts too: a new view has not opened it yet."""
        ring = self._core.ring
        if not self._core.outbox.queued() and ring.high_delivered >= ring.own_seq and ring.safe_upto >= ring.own_seq:
            self._gather.leave_now()


# --- presence ---------------------------------------------------------------------------------------------------------


class RingPresence:
    def __init__(self, core: TotemCore, gather: Gather, quarantine: Quarantine) -> None:
        self._core = core
        self._gather = gather
        self._quarantine = quarantine

    def send_beacon(self) -> None:
        core, ring = self._core, self._core.ring
        broadcast_beacon(core, ring.id, ring.member_set)
        core.arm(Event.BEACON_SEND, beacon_interval_us(core, ring.i_represent))

    def beacon_in_operational(self, beacon: Beacon) -> None:
        """A beacon of another ring: gather, unless its sender is a member of ours, superseded, or in quarantine."""
        core, sender = self._core, beacon.sender
        if sender in core.ring.member_set or self._was_superseded(sender) or self._is_full(beacon.members):
            return
        mutual = core.ring.member_set <= beacon.heard and self._hear_all(beacon.members)
        if self._quarantine.holds(sender, core.now, Release.HEARING if mutual else None):
            return
        self._gather.shift(Cause(FOREIGN_RING, sender), proc=beacon.members | {sender})

    def _is_full(self, others: frozenset[NodeId]) -> bool:
        return are_too_many(self._core.ring.members, others)

    def _hear_all(self, nodes: frozenset[NodeId]) -> bool:
        return are_all_heard(self._core, nodes, self._core.ring.member_set)

    def join_in_operational(self, join: Join) -> None:
        core, sender = self._core, join.sender
        if self._is_noise(join):
            return
        if join.leaving:
            self._gather.shift(Cause("leave", sender, (sender,)), fail=(sender,))
            return
        stranger = sender not in core.ring.member_set
        self._gather.shift(Cause("foreign join" if stranger else MEMBER_GATHERS, sender), proc=(sender,), join=join)

    def _is_noise(self, join: Join) -> bool:
        """Joins that must not make a healthy ring gather (trap 17): stale, superseded, in quarantine, or from strangers that fail
        one of our members; those finish their own Gather first and then meet us by their beacon."""
        core, sender = self._core, join.sender
        if sender in core.ring.member_set:
            fails_me = core.me in join.fail_set and not join.leaving
            if fails_me:
                core.trap(Trap.FAILS_ME)
            return join.ring_seq < core.ring.id.seq or fails_me
        if self._is_full(frozenset()) and not self._replaces_a_member(sender):
            return True
        fails_us = not join.fail_set.isdisjoint(core.ring.member_set)
        return join.leaving or fails_us or self._was_superseded(sender) or self._stays_in_quarantine(join)

    def _stays_in_quarantine(self, join: Join) -> bool:
        """A Join that proposes all our members, and only nodes that I hear, shows that the network lets us form a ring again."""
        mutual = self._core.ring.member_set <= join.proposal and self._hear_all(join.proposal)
        return self._quarantine.holds(join.sender, self._core.now, Release.ANSWER if mutual else None)

    def _replaces_a_member(self, node: NodeId) -> bool:
        return any(member.name == node.name for member in self._core.ring.members)

    def _was_superseded(self, node: NodeId) -> bool:
        return was_superseded(node, self._core.ring.members)
