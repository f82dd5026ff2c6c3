"""A visit of the token: answer requests, send what flow control permits, update aru, ask for what is missing, pass the token on.

Follows TOCS95 sections 4 and 8 and figure 4. The same visit serves Operational, where new datagrams come from the Outbox, and
Recovery, where they come from the retransmission queue.

Deviations: (D6) a datagram is requested only if it is not above the seq of my *previous* visit: unicast tokens overtake
multicast data on real networks (trap 15), and the Accelerated Ring needs the same horizon; (D9) failure to receive: aru_id is
accused by others, never by itself, and only after both K rotations and T_frx (L4); (D28) requests for what is safe are taken off
the token; (D31) a token is taken only if it has made the hops that are due and covers every number that I hold.

Flow control is pure arithmetic, in datagrams. Deviations: (D4) my own contribution to the last rotation is taken out of fcc, or a
lone sender would alternate between full and zero (L5a); (D5) the floor of one datagram applies after the minimum of the fairness
terms but below the hard caps, or a slow sender beside a saturated one would starve (L5b, W4). One datagram of the window is kept
for each member, and a member whose gap grows may still send it.

Passing the token on is the same for the regular and the commit token: it is sent again until there is proof that it arrived.
Deviations: (D7) only a datagram with a number above the seq that I forwarded proves that the token moved on (F7); it also proves
that the ring is alive, so it re-arms the loss timer; (D8) after a few unicast retries the token goes by multicast, addressed to
the successor, so that a broken unicast path does not break the ring (W8).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from transis.engine.core import Stamp, multicast, originate
from transis.totem.packets import FCC_MAX, NOBODY, Token, encode_token
from transis.totem.ring import Ring, RingDelivery, TotemCore
from transis.totem.states import Event, Trap
from transis.types.config import Window
from transis.types.ids import NodeId
from transis.types.limits import RTR_RANGES_MAX, SEQ_JUMP_MAX
from transis.types.outputs import Audience, Port, Send
from transis.wire.burst import COUNTER_MAX, Burst
from transis.wire.outbox import FilledDatagram

# --- passing the token on ---------------------------------------------------------------------------------------------

SELF_ROTATION_US = 100
"""How long the token of a singleton takes for a rotation, so that it does not spin."""


class TokenPassing:
    def __init__(self, core: TotemCore) -> None:
        self._core = core
        self.held: Token | None = None
        self._to: NodeId | None = None
        self._datagrams: Sequence[bytes] = ()
        self._retries = 0
        self._forwarded_seq = 0

    def forward_token(self, ring: Ring, token: Token) -> None:
        """Send the token to the successor; a singleton keeps it until a timer fires."""
        core = self._core
        if ring.i_represent:
            token.round = (token.round + 1) & 0xFFFFFFFF
        token.token_seq = ring.token_seq + 1
        token.sender, token.target = ring.rank, ring.successor
        token.timestamp = core.clock
        self._forwarded_seq = token.seq
        if ring.is_singleton:
            idle = ring.forwarded_idle and ring is core.ring
            self.hold(token, core.config.timing.token_hold_us if idle else SELF_ROTATION_US)
            return
        hold_us = core.config.timing.token_hold_us if ring.forwarded_idle else 0
        self.forward(ring.members[ring.successor], [encode_token(token)], hold_us)

    def forward(self, to: NodeId, datagrams: Sequence[bytes], hold_us: int = 0) -> None:
        """Forward a token. If the representative will hold it, it is not late before the hold is over."""
        self._to, self._datagrams, self._retries = to, datagrams, 0
        self._core.emit(Send(to, Port.TOKEN, datagrams))
        self._core.arm(Event.TOKEN_RETRANSMIT, self._core.timeouts.token_retransmit_us + hold_us)
        self._core.arm(Event.TOKEN_LOSS, self._core.timeouts.token_loss_us)

    def hold(self, token: Token, for_us: int) -> None:
        """Keep the token for a while, during which it cannot be lost."""
        self.held = token
        self._core.timers.cancel(Event.TOKEN_LOSS, Event.TOKEN_RETRANSMIT)
        self._core.arm(Event.TOKEN_HOLD, for_us)

    def take_held(self) -> Token | None:
        token, self.held = self.held, None
        return token

    def hurry(self) -> None:
        """There is work: let a held token go at once, after everything else that happens now."""
        if self.held is not None:
            self._core.arm(Event.TOKEN_HOLD, 0)

    def retransmit_token(self) -> None:
        assert self._to is not None, "the retransmit timer runs only after a token was forwarded"
        self._retries += 1
        if self._retries > self._core.config.window.unicast_retries:
            self._core.emit(Send(Audience.WORLD, Port.CONTROL, self._datagrams))
        else:
            self._core.emit(Send(self._to, Port.TOKEN, self._datagrams))
        self._core.note("token retransmitted", retry=self._retries)
        self._core.arm(Event.TOKEN_RETRANSMIT, self._core.timeouts.token_retransmit_us)

    def evidence(self, seq: int) -> None:
        """A datagram with a number above the seq of the token that I forwarded: a member after me has had the token."""
        if self._to is not None and self.held is None and seq > self._forwarded_seq:
            self._core.timers.cancel(Event.TOKEN_RETRANSMIT)
            self._core.arm(Event.TOKEN_LOSS, self._core.timeouts.token_loss_us)

    def arrived(self) -> None:
        """A newer token or commit token is here, so the one that I forwarded has arrived."""
        self._core.timers.cancel(Event.TOKEN_RETRANSMIT, Event.TOKEN_LOSS, Event.WAKE_REPEAT)

    def forget(self) -> None:
        self.held, self._to, self._datagrams, self._forwarded_seq = None, None, (), 0
        self._core.timers.cancel(Event.TOKEN_RETRANSMIT, Event.TOKEN_LOSS, Event.TOKEN_HOLD, Event.WAKE_REPEAT)


# --- flow control -----------------------------------------------------------------------------------------------------


class Demand(NamedTuple):
    """What is known when a node asks how much it may send in this token visit."""

    members: int
    fcc: int
    """Datagrams sent in the last rotation by all members, as the token says."""
    my_last: int
    """My own share of fcc, from my previous visit."""
    backlog: int
    """Bytes queued at all members, as the token says."""
    my_last_backlog: int
    """My own share of backlog, as I put it on the token at my previous visit."""
    my_backlog: int
    """Bytes queued here now."""
    unsafe: int
    """Datagrams on the ring that are not yet safe: seq - safe_upto."""
    gap_grows: bool
    """More is missing here than at my previous visit: I must not add to the load."""


def permit(window: Window, demand: Demand) -> int:
    """How many new datagrams a node may send in this visit."""
    if demand.my_backlog == 0:
        return 0
    hard_cap = max(0, window.gap_max - demand.unsafe)
    if demand.gap_grows:
        hard_cap = min(hard_cap, 1)
    fair = min(window.visit_max, _left_in_window(window, demand), _share(window, demand))
    return min(max(1, fair), hard_cap)


def _shared_window(window: Window, members: int) -> int:
    """The window less one datagram per member, kept for the floor of one (W4)."""
    return max(1, window.window - members)


def _left_in_window(window: Window, demand: Demand) -> int:
    others = max(0, demand.fcc - demand.my_last)
    return _shared_window(window, demand.members) - others


def _share(window: Window, demand: Demand) -> int:
    """My part of the window, in proportion to my part of the whole backlog, rounded up."""
    total = max(demand.my_backlog, demand.backlog - demand.my_last_backlog + demand.my_backlog)
    return -(-_shared_window(window, demand.members) * demand.my_backlog // total)


# --- the visit --------------------------------------------------------------------------------------------------------

GAP_SHARE: Final = 2
"""A growing gap matters once it is half a window large; smaller ones are the ordinary work of retransmission."""


class Source(Protocol):
    """Where new datagrams come from."""

    def backlog(self) -> int: ...
    def fill(self, permit: int) -> list[FilledDatagram]: ...


class Retransmissions(NamedTuple):
    """What became of a token's requests: how many datagrams were sent again, and which ranges stay open."""

    answered: int
    left: list[tuple[int, int]]


class Visit:
    def __init__(self, core: TotemCore, passing: TokenPassing, delivery: RingDelivery) -> None:
        self._core = core
        self._passing = passing
        self._delivery = delivery

    def accept(self, ring: Ring, token: Token) -> bool:
        """Is this token mine, from my predecessor, and newer than the last? (F6, traps 5, 12, 14)"""
        if token.target != ring.rank or token.sender != ring.predecessor:
            return False
        if token.token_seq <= ring.token_seq:
            self._core.trap(Trap.TOKEN_TWICE)
            return False
        hops = len(ring.members) if ring.token_seq else ring.rank + 1
        if token.token_seq != ring.token_seq + hops:
            return self._refuse(ring, f"it has made {token.token_seq} hops, and {ring.token_seq + hops} are due")
        if not self.is_true(ring, token):
            return False
        if token.seq > ring.store.highest:
            self._core.trap(Trap.OVERTAKEN)
        self._core.observe(token.timestamp)
        if ring.token_at:
            self._core.timeouts.saw_rotation(self._rotation_us(ring))
        ring.token_seq = token.token_seq
        ring.token_at = self._core.now
        self._passing.arrived()
        return True

    def is_true(self, ring: Ring, token: Token) -> bool:
        """Could an honest predecessor have sent this, given all that I know? What I hold got its number at an earlier visit, and
        a number that is given out again would stand for two messages."""
        known = max(ring.own_seq, ring.seq_seen, ring.store.highest)
        if token.seq < known:
            return self._refuse(ring, f"it says that {token.seq} is the last number, and {known} was given out")
        if token.seq > ring.store.aru + SEQ_JUMP_MAX:
            return self._refuse(ring, f"it says that {token.seq} is the last number, far beyond {ring.store.aru}")
        if token.aru_id != NOBODY and token.aru_id >= len(ring.members):
            return self._refuse(ring, f"it names member {token.aru_id} of {len(ring.members)}")
        return True

    def _refuse(self, ring: Ring, why: str) -> bool:
        """Its sender repeats it, so what is wrong with it is noted once."""
        if not ring.has_refused_token:
            ring.has_refused_token = True
            self._core.note("impossible token", node=str(ring.members[ring.predecessor]), why=why)
        return False

    def _rotation_us(self, ring: Ring) -> int:
        """How long the token was away; the hold of an idle ring does not count."""
        held_us = self._core.config.timing.token_hold_us if ring.forwarded_idle else 0
        return max(0, self._core.now - ring.token_at - held_us)

    def run(self, ring: Ring, token: Token, source: Source, *, encapsulated: bool) -> bool:
        """The whole visit. False if the member that holds aru back was accused instead of passing the token on."""
        requests = self._answer(ring, token)
        token.rtr = requests.left
        my_backlog = source.backlog()
        permit = self._permit(ring, token, my_backlog)
        capped = token.seq - ring.safe_upto >= self._core.config.window.gap_max
        assert permit > 0 or my_backlog == 0 or capped, "nobody who has something to send is starved (W4)"
        first, later = self._send_new(ring, token, source.fill(permit), encapsulated=encapsulated)
        self._update_aru(ring, token)
        if self._failed_to_receive(ring, token):
            return False
        self._request_missing(ring, token)
        self._account(ring, token, requests.answered + first + sum(map(len, later)), source.backlog())
        self._pass_on(ring, token)
        multicast(self._core, later)
        self._learn_safe(ring, token)
        return True

    def _answer(self, ring: Ring, token: Token) -> Retransmissions:
        """Retransmissions come first: send every requested datagram that is held here, byte for byte."""
        budget = self._core.config.window.window
        answered: list[Burst] = []
        left: list[tuple[int, int]] = []
        for asked, last in token.rtr:
            # Nobody misses what is safe. Its holders may have discarded it, so such a request would never be answered.
            expected = first = max(asked, ring.safe_upto + 1)
            for burst in ring.store.between(first, last):
                if sum(map(len, answered)) >= budget:
                    break
                if burst.first_seq > expected:
                    left.append((expected, burst.first_seq - 1))
                answered.append(burst)
                expected = burst.last_seq + 1
            if expected <= last:
                left.append((expected, last))
        multicast(self._core, answered)
        count = sum(map(len, answered))
        if count:
            self._core.retransmitted += count
            self._core.note("retransmitted", count=count)
        return Retransmissions(count, left[:RTR_RANGES_MAX])

    def _permit(self, ring: Ring, token: Token, my_backlog: int) -> int:
        missing = ring.store.highest - ring.store.aru
        demand = Demand(
            members=len(ring.members),
            fcc=token.fcc,
            my_last=ring.my_last,
            backlog=token.backlog,
            my_last_backlog=ring.my_last_backlog,
            my_backlog=my_backlog,
            unsafe=token.seq - ring.safe_upto,
            gap_grows=missing > max(ring.last_missing, self._core.config.window.window // GAP_SHARE),
        )
        ring.last_missing = missing
        return permit(self._core.config.window, demand)

    def _send_new(
        self, ring: Ring, token: Token, filled: Sequence[FilledDatagram], *, encapsulated: bool
    ) -> tuple[int, list[Burst]]:
        """Number, keep and multicast new datagrams; the last `accelerated` of them only after the token."""
        bursts = list(self._stamp(ring, token, filled, encapsulated=encapsulated))
        after = min(self._core.config.window.accelerated, len(filled)) if not encapsulated else 0
        before = len(filled) - after
        now_bursts, later = _cut(bursts, before)
        multicast(self._core, now_bursts)
        for burst in bursts:
            placed = self._delivery.accept(ring, burst, installed=not encapsulated)
            assert placed == [burst], f"{burst!r} has numbers of its own: the token was not behind what I hold"
        return before, later

    def _stamp(self, ring: Ring, token: Token, filled: Sequence[FilledDatagram], *, encapsulated: bool) -> Iterable[Burst]:
        """Number the datagrams. Consecutive ones of one class and one stream become a burst."""
        core = self._core
        if not filled:
            return
        stamp = Stamp(ring.view_id, ring.tag, ring.rank, token.round, core.tick(), encapsulated)
        for _, stretch in groupby(enumerate(filled), key=lambda pair: (pair[1].klass, pair[0] - pair[1].index)):
            seq = token.seq + 1
            burst = originate(core, stamp, seq, seq, (part for _, part in stretch))
            token.seq = burst.last_seq
            yield burst
        ring.own_seq = token.seq

    def _update_aru(self, ring: Ring, token: Token) -> None:
        my_aru = min(ring.store.aru, token.seq)
        if my_aru < token.aru or token.aru_id in (ring.rank, NOBODY):
            token.aru = my_aru
            token.aru_id = NOBODY if token.aru == token.seq else ring.rank

    def _failed_to_receive(self, ring: Ring, token: Token) -> bool:
        """Has another member held the aru back for so many rotations *and* so long that it must be deaf? (L4)"""
        core = self._core
        if token.aru != ring.last_aru_sent or token.aru_id == NOBODY or token.aru_id != ring.aru_still_id:
            ring.aru_still, ring.aru_still_id, ring.aru_still_since = 0, token.aru_id, core.now
            return False
        ring.aru_still += 1
        patience_us = max(core.config.timing.fail_to_receive_us, 2 * core.timeouts.token_loss_us)
        return (
            token.aru_id != ring.rank
            and ring.aru_still > core.config.window.fail_to_receive_rotations
            and core.now - ring.aru_still_since >= patience_us
        )

    def _request_missing(self, ring: Ring, token: Token) -> None:
        room = RTR_RANGES_MAX - len(token.rtr)
        mine = ring.store.missing(min(ring.seq_seen, token.seq), RTR_RANGES_MAX)
        self._core.requested += sum(last - first + 1 for first, last in mine)
        if mine and mine[-1][1] == token.seq:
            self._core.trap(Trap.TAIL_LOST)
        token.rtr = _merge(token.rtr, mine) if room > 0 else token.rtr
        ring.seq_seen = token.seq

    def _account(self, ring: Ring, token: Token, sent: int, my_backlog: int) -> None:
        """Replace my share of fcc and backlog with the present one (trap 25: never negative, nor more than decoders take)."""
        token.fcc = min(FCC_MAX, max(0, token.fcc - ring.my_last) + sent)
        token.backlog = min(COUNTER_MAX, max(0, token.backlog - ring.my_last_backlog) + my_backlog)
        ring.my_last, ring.my_last_backlog = sent, my_backlog
        ring.last_fcc, ring.last_backlog = token.fcc, token.backlog

    def _pass_on(self, ring: Ring, token: Token) -> None:
        ring.forwarded_idle = is_idle(token)
        self._passing.forward_token(ring, token)

    def _learn_safe(self, ring: Ring, token: Token) -> None:
        """Safe is what two successive tokens that I forwarded included in their aru (TOCS95 4.3)."""
        ring.safe_upto = max(ring.safe_upto, min(ring.last_aru_sent, token.aru))
        ring.last_aru_sent = token.aru


def is_idle(token: Token) -> bool:
    """Nothing is missing, queued, or newly sent: the ring has nothing to do."""
    return token.aru == token.seq and not token.rtr and not token.backlog and not token.fcc and not token.retrans_flg


def _cut(bursts: Sequence[Burst], count: int) -> tuple[list[Burst], list[Burst]]:
    """The first `count` datagrams of some bursts, and the rest."""
    first: list[Burst] = []
    rest: list[Burst] = []
    for burst in bursts:
        here = min(count, len(burst))
        if here:
            first.append(burst.slice(burst.first_seq, burst.first_seq + here - 1))
        if here < len(burst):
            rest.append(burst.slice(burst.first_seq + here, burst.last_seq))
        count -= here
    return first, rest


def _merge(ranges: Sequence[tuple[int, int]], more: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of two lists of ranges, sorted and disjoint, cut to what a token may carry."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted([*ranges, *more]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged[:RTR_RANGES_MAX]
