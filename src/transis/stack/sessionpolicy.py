"""What a node grants its sessions, and what happens to who wants more. Errors name the field, as everywhere in a configuration.

The figures count what `wire.session.cost` counts: payload bytes and a little for each message. Objects and encoded copies come
on top, so that a node may really hold about three times as much for small messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from transis.types.config import MS, SECOND
from transis.types.errors import ConfigError

KIB: Final = 1 << 10
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """The limits of every session of a node."""

    send_window: int = MIB
    """Bytes of Sends that a client may have on their way into the node: enough for a busy ring, little enough for a thousand
    clients. An honest client waits for credit; one that sends without it is ended."""
    queue_max: int = 32 * MIB
    """Bytes of its stream that wait for one client. Above a quarter of it the client's own Sends get credit only in a trickle;
    above all of it the client is ended, and nobody else notices. A burst of the ring must fit, so do not go far below 8 MiB."""
    patience_us: int = 30 * SECOND
    """How long a stream may wait without any credit from its client before the client counts as hung and is ended."""
    sessions_max: int = 4096
    """Sessions at one time: each is a descriptor and a process in the tables of all nodes. One more is turned away."""
    total_max: int = 512 * MIB
    """Bytes that wait for all clients and from all clients together. Beyond it whoever has the most waiting is ended."""
    trickle_us: int = 50 * MS
    """A client that is far behind with its stream gets credit for one Send after so long: never none, or a client that sends
    from inside its handler would wait for itself."""

    @property
    def throttle_above(self) -> int:
        return self.queue_max // 4

    def validated(self) -> SessionPolicy:
        """Check every range and relation; return self, so that a caller can chain."""
        _between("send_window", self.send_window, 4 * KIB, 1 << 31, "bytes")
        _between("queue_max", self.queue_max, 64 * KIB, 1 << 34, "bytes")
        _between("patience_us", self.patience_us, 100 * MS, 24 * 3_600 * SECOND, "microseconds")
        _between("sessions_max", self.sessions_max, 1, 65_536, "sessions")
        _between("total_max", self.total_max, self.queue_max, 1 << 40, "bytes (at least sessions.queue_max)")
        _between("trickle_us", self.trickle_us, 1 * MS, 10 * SECOND, "microseconds")
        return self


def _between(field: str, value: int, low: int, high: int, unit: str) -> None:
    if not low <= value <= high:
        raise ConfigError(f"sessions.{field}", value, f"must be from {low} to {high} {unit}")
