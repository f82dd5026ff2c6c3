"""Handing the token on, and what happens until there is proof that it arrived (TOCS95 section 4; F7, W8).

Serves the regular and the commit token alike. Deviations: (D7) only a datagram with a number above the one that I forwarded
proves that the token moved on (F7); it also proves that the ring lives, so it re-arms the loss timer; (D8) after a few unicast
retries the token goes by multicast, addressed to the successor, so that a broken unicast path does not break the ring (W8).
"""

from __future__ import annotations

from collections.abc import Sequence

from transis.totem.packets import Token, encode_token
from transis.totem.ring import Ring, TotemCore
from transis.totem.states import Event
from transis.types.ids import NodeId
from transis.types.outputs import Audience, Port, Send

SELF_ROTATION_US = 100
"""How long a singleton's token takes for its rotation: it must not spin."""


class TokenPassing:
    def __init__(self, core: TotemCore) -> None:
        self._core = core
        self.held: Token | None = None
        self._to: NodeId | None = None
        self._datagrams: Sequence[bytes] = ()
        self._retries = 0
        self._forwarded_seq = 0

    def forward_token(self, ring: Ring, token: Token) -> None:
        """Send the token to the successor; a singleton keeps it and comes back to it by a timer."""
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
        """Send a token on. One that will be held on its way is not late before the hold is over."""
        self._to, self._datagrams, self._retries = to, datagrams, 0
        self._core.emit(Send(to, Port.TOKEN, datagrams))
        self._core.arm(Event.TOKEN_RETRANSMIT, self._core.timeouts.token_retransmit_us + hold_us)
        self._core.arm(Event.TOKEN_LOSS, self._core.timeouts.token_loss_us)

    def hold(self, token: Token, for_us: int) -> None:
        """Keep the token for a while: it cannot be lost meanwhile."""
        self.held = token
        self._core.timers.cancel(Event.TOKEN_LOSS, Event.TOKEN_RETRANSMIT)
        self._core.arm(Event.TOKEN_HOLD, for_us)

    def take_held(self) -> Token | None:
        token, self.held = self.held, None
        return token

    def hurry(self) -> None:
        """There is work: let a held token go in this very turn, after everything else of the turn."""
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
        """A datagram numbered above the token that I forwarded: somebody after me had it."""
        if self._to is not None and self.held is None and seq > self._forwarded_seq:
            self._core.timers.cancel(Event.TOKEN_RETRANSMIT)
            self._core.arm(Event.TOKEN_LOSS, self._core.timeouts.token_loss_us)

    def arrived(self) -> None:
        """A fresh token or commit token is here: what I sent before has arrived."""
        self._core.timers.cancel(Event.TOKEN_RETRANSMIT, Event.TOKEN_LOSS, Event.WAKE_REPEAT)

    def forget(self) -> None:
        self.held, self._to, self._datagrams, self._forwarded_seq = None, None, (), 0
        self._core.timers.cancel(Event.TOKEN_RETRANSMIT, Event.TOKEN_LOSS, Event.TOKEN_HOLD, Event.WAKE_REPEAT)
