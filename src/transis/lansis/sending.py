"""From the Outbox to a burst: when the window permits, what waits leaves as one burst, which is one node of the DAG.

A burst begins with all its sender's acknowledgements and requests, so these cost no packets of their own while there is data
(lansis-1992 3.1). It is stamped, multicast, and put into its sender's own DAG in one step. Under ToTo an *ack burst*, which
carries nothing else, is the vote of a member that has nothing to send. It waits for no window (L8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transis.engine.core import Stamp, multicast, originate
from transis.lansis import window
from transis.lansis.alive import Heartbeat
from transis.lansis.dag import order_key, place_seq
from transis.lansis.packets import FENCE, BurstMark, encode_acks, mark_of, round_of
from transis.lansis.receiving import Receiver
from transis.lansis.repair import Repair
from transis.lansis.states import Event, Trap
from transis.lansis.view import Flow, LansisCore
from transis.types.ids import DatagramClass, NodeId, RingTag
from transis.types.outputs import NEVER, Lane
from transis.wire.burst import COUNTER_MAX, body_max
from transis.wire.items import Filled, FilledDatagram, VisitWriter

if TYPE_CHECKING:
    from transis.lansis.engine import LansisParts

# --- flows ------------------------------------------------------------------------------------------------------------


def flow_tag(node: NodeId) -> RingTag:
    """The tag of a sender's flows. No view has a sequence that high."""
    return RingTag(COUNTER_MAX, node.boot)


def placed(flow: Flow, prefix: bytes, room: int) -> Filled:
    """A flow as a burst of a view: first the acknowledgements, in datagrams of their own, then what flowed."""
    klass, datagrams = flow.filled
    heads = [prefix[start : start + room] for start in range(0, len(prefix), room)]
    ahead = [FilledDatagram(klass, body, index, False, ()) for index, body in enumerate(heads)]
    return Filled(klass, ahead + [part._replace(index=part.index + len(ahead)) for part in datagrams])


def claim_of(flow: Flow, filled: Filled) -> int:
    """The mark of a claim; that of data if more than one datagram is new, because then all of the burst is sent."""
    is_short = len(filled.datagrams) == len(flow.filled.datagrams) + 1
    return round_of(BurstMark.CLAIM, flow.first) if is_short else round_of(BurstMark.DATA)


def mark_of_data(klass: DatagramClass, *, has_control: bool) -> int:
    """The control lane goes first, so an ordered burst begins with what it had."""
    return FENCE if has_control and klass >= DatagramClass.ORDERED else round_of(BurstMark.DATA)


# --- sending ----------------------------------------------------------------------------------------------------------


class BurstSender:
    def __init__(self, core: LansisCore, receiver: Receiver, repair: Repair, heartbeat: Heartbeat, parts: LansisParts) -> None:
        self._core = core
        self._parts = parts
        self._receiver = receiver
        self._repair = repair
        self._heartbeat = heartbeat
        self._next_at = 0
        self._sent_at = 0
        self._first = 0
        """The last counter of my first burst after a pause."""
        self._is_full = False
        self.bursts_sent = 0
        self.acks_sent = 0
        self.delay_us = 0

    def try_to_send(self) -> bool:
        """Send what may be sent now; True if anything was."""
        core = self._core
        before = self.bursts_sent
        while core.outbox.has_work() or self._has_flowed():
            if core.clock >= core.view.renewal_at:
                self._parts.membership.renew()
                break
            if self._has_flowed():
                self.place_flowed(len(core.flowed))
                continue
            if core.now < self._next_at:
                core.timers.arm(Event.SEND_DUE, self._next_at)
                break
            load, usable = self._load(), core.view.rate.window
            permit = window.permit(usable, load)
            if permit == 0 or window.is_crumb(usable, load, permit):
                self._wait_for_room(permit)
                break
            if self._gathers(permit, load):
                break
            if not self._send_burst(permit, load):
                break
        self._vote_in_time()
        if self.bursts_sent > before:
            core.announce_room()
        return self.bursts_sent > before

    def _has_flowed(self) -> bool:
        return bool(self._core.flowed) and self._core.outbox.is_open(Lane.APPLICATION)

    def placeable_flows(self) -> int:
        """While views change: how many flows may have their places in the view that ends. A part of a message may not: its rest
        may have to go to the next view."""
        core = self._core
        if not self._has_flowed() or core.clock >= core.view.renewal_at:
            return 0
        return max((count for count, flow in enumerate(core.flowed, 1) if flow.is_end), default=0)

    def place_flowed(self, count: int) -> None:
        """Give so many flows their places. In a new view that is all of them, before anything else of that lane is sent: a
        message may be half in a flow and half in the Outbox. The flows of all members together are no more than a window."""
        core, view = self._core, self._core.view
        for _ in range(count):
            flow = core.flowed.popleft()
            acks = view.dag.acks()
            prefix = encode_acks(view.order.frontier, acks, self._repair.take_nacks())
            filled = placed(flow, prefix, body_max(core.config.datagram))
            self._multicast(filled, len(acks), claim_of(flow, filled))

    def _wait_for_room(self, permit: int) -> None:
        """Wait: stability or a change of membership will wake the sender."""
        if permit == 0 and not self._is_full:
            self._is_full = True
            self._core.trap(Trap.WINDOW_FULL)

    def _gathers(self, permit: int, load: window.WindowLoad) -> bool:
        """Should I wait a little? Messages come so fast that one burst will soon carry them all, acknowledgements included."""
        core = self._core
        burst_bytes, passed_us = permit * body_max(core.config.datagram), core.now - self._sent_at
        until = self._sent_at + window.gather_us(core.config.pulse, load, core.outbox.queued(), burst_bytes, passed_us)
        if core.now >= until:
            return False
        core.timers.arm(Event.SEND_DUE, until)
        self._heartbeat.is_spoken_for(until)
        return True

    def _load(self) -> window.WindowLoad:
        view = self._core.view
        named, stable = view.dag.named, view.stability.stable
        own = named[view.rank] - stable[view.rank]
        return window.WindowLoad(len(view), sum(named) - sum(stable), own, len(view) if self._is_starting else self._speakers())

    @property
    def _is_starting(self) -> bool:
        """Was I silent, and is my first burst since then not yet stable? Others may have begun at the same moment."""
        view = self._core.view
        return self._has_paused or view.stability.stable[view.rank] < self._first

    @property
    def _has_paused(self) -> bool:
        return self._core.now - self._sent_at > self._core.view.round_us

    def _speakers(self) -> int:
        """How many members want a share of the window: those with something on its way now or a moment ago, and I. The slowest
        member's acknowledgement empties the window for all at once: if only what is on its way counted, each would see nobody
        else and take all of it."""
        view, since = self._core.view, self._core.now - self._core.view.round_us
        own, named, stable, spoke_at = view.rank, view.dag.named, view.stability.stable, view.spoke_at
        return sum(rank == own or named[rank] > stable[rank] or spoke_at[rank] > since for rank in range(len(view)))

    def _send_burst(self, permit: int, load: window.WindowLoad) -> bool:
        core, view = self._core, self._core.view
        acks = view.dag.acks()
        has_control = core.outbox.has_work(Lane.CONTROL)
        filled = core.outbox.fill_burst(permit, encode_acks(view.order.frontier, acks, self._repair.take_nacks()))
        if filled is None:
            return False
        has_paused = self._has_paused
        self._multicast(filled, len(acks), mark_of_data(filled.klass, has_control=has_control))
        if has_paused:
            self._first = core.counter
        self._is_full = False
        sent = len(filled.datagrams)
        after = load._replace(unstable=load.unstable + sent, own_unstable=load.own_unstable + sent)
        if not self._is_starting:
            view.rate.sent(core.counter, core.now, after)
        calm_us = window.delay_us(view.rate.window, after, window.unit_us(core.config.pulse))
        self.delay_us = max(calm_us, view.pressure.extra_us)
        self._sent_at, self._next_at = core.now, core.now + self.delay_us
        return True

    def _vote_in_time(self) -> None:
        """Send an ack burst if my vote is due, so that nobody waits longer for it, whatever I have to send and when I may."""
        core, by = self._core, self._heartbeat.vote_by
        if not core.may_send:
            return  # The view is being renewed: my statement is out.
        if by <= core.now and core.clock >= core.view.renewal_at:
            self._parts.membership.renew()
        elif by <= core.now:
            self._send_acks()
        elif by < NEVER and (by < self._next_at or not core.timers.armed(Event.SEND_DUE)):
            core.timers.arm(Event.SEND_DUE, by)

    def vote(self) -> None:
        """While views change: what the next statement covers may be a vote."""
        if self._heartbeat.vote_by < NEVER and self._core.clock < self._core.view.renewal_at:
            self._send_acks()

    def _send_acks(self) -> None:
        core, view = self._core, self._core.view
        acks, room = view.dag.acks(), body_max(core.config.datagram)
        prefix = encode_acks(view.order.frontier, acks, self._repair.take_nacks())
        self._multicast(VisitWriter(room, -(-len(prefix) // room), prefix).burst(DatagramClass.CAUSAL), len(acks))

    def _multicast(self, filled: Filled, acks: int, mark: int = 0) -> None:
        """Stamp and send a burst. Of one that claims a flow only the first datagram leaves: the others have the rest."""
        core, view = self._core, self._core.view
        self.bursts_sent += 1
        self.acks_sent += acks
        timestamp = core.tick()
        stamp = Stamp(view.view_id, view.tag, view.rank, mark, timestamp)
        first_place = place_seq(order_key(timestamp - view.base, view.rank), 0)
        burst = originate(core, stamp, core.counter + 1, first_place, filled.datagrams)
        core.counter = burst.last_seq
        if not view.is_singleton:
            is_claim = mark_of(burst.header) is BurstMark.CLAIM
            multicast(core, [burst.slice(burst.first_seq, burst.first_seq) if is_claim else burst])
        self._receiver.accept_own(burst)
        self._heartbeat.paid()

    def statistics(self) -> dict[str, int]:
        load, usable = self._load(), self._core.view.rate.window.window
        return {
            "bursts_sent": self.bursts_sent,
            "acks_sent": self.acks_sent,
            "unsafe_datagrams": load.unstable,
            "unsafe_bytes": self._core.view.dag.held_bytes,
            "window": self._core.config.window.window,
            "window_usable": usable,
            "window_used_permille": 1000 * load.unstable // usable,
            "send_delay_us": self.delay_us,
        }
