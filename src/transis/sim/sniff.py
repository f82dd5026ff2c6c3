"""Reading what passes on the simulated wire, so that a script can say "drop the next commit token from a to b".

Works on plaintext only: under a seal every packet is of kind `sealed`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from transis.model.contract import Port
from transis.sim.network import Fate
from transis.wire.control import (
    KIND_BEACON,
    KIND_COMMIT,
    KIND_JOIN,
    KIND_PROBE,
    KIND_PROBE_ANSWER,
    KIND_WAKE,
    Commit,
    decode_control,
)
from transis.wire.envelope import ENVELOPE_SIZE, FLAG_SEALED
from transis.wire.header import KIND_DATA
from transis.wire.parts import KIND_PART
from transis.wire.token import KIND_TOKEN

_FLAGS_AT: Final = 3

NAMES: Final = {
    KIND_DATA: "data",
    KIND_TOKEN: "token",
    KIND_JOIN: "join",
    KIND_COMMIT: "commit",
    KIND_BEACON: "beacon",
    KIND_WAKE: "wake",
    KIND_PROBE: "probe",
    KIND_PROBE_ANSWER: "answer",
    KIND_PART: "part",
}

KINDS: Final = (*NAMES.values(), "commit1", "commit2", "any")
"""What a filter may look for; commit1 and commit2 are the rotations of a commit token."""


def kinds_of(datagram: bytes) -> tuple[str, ...]:
    """The names under which a packet may be asked for."""
    if len(datagram) <= ENVELOPE_SIZE:
        return ("any",)
    if datagram[_FLAGS_AT] & FLAG_SEALED:
        return ("any", "sealed")
    name = NAMES.get(datagram[ENVELOPE_SIZE], "unknown")
    if name == "commit":
        packet = decode_control(datagram[ENVELOPE_SIZE:])
        if isinstance(packet, Commit):
            return ("any", name, f"commit{packet.rotation}")
    return ("any", name)


class Caught(NamedTuple):
    """A packet that somebody kept, to let it arrive later."""

    source: str
    target: str
    port: Port
    datagram: bytes


@dataclass(slots=True)
class Filter:
    """Drops, doubles or keeps packets of one kind on some links: `skip` of them pass, then it takes the next `count`."""

    fate: Fate
    source: str
    target: str
    kind: str
    count: int
    skip: int = 0
    kept: list[Caught] | None = None

    def __call__(self, source: str, target: str, port: Port, datagram: bytes) -> Fate:
        if self.count <= 0 or self.source not in ("*", source) or self.target not in ("*", target):
            return Fate.PASS
        if self.kind not in kinds_of(datagram):
            return Fate.PASS
        if self.skip:
            self.skip -= 1
            return Fate.PASS
        self.count -= 1
        if self.kept is not None:
            self.kept.append(Caught(source, target, port, datagram))
        return self.fate


@dataclass(slots=True)
class Tally:
    """Counts what passes, by kind; a multicast counts once for each host that it is carried to."""

    seen: Counter[str] = field(default_factory=Counter)

    def __call__(self, source: str, target: str, port: Port, datagram: bytes) -> Fate:
        self.seen.update(kind for kind in kinds_of(datagram) if kind != "any")
        return Fate.PASS
