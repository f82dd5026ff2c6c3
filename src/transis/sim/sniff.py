"""Reading what passes on the simulated wire, so that a script can say "drop the next commit token from a to b".

Works on plaintext only: under a seal every packet is of kind `sealed`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from transis.lansis.packets import KIND_ALIVE, KIND_ATTEMPT, KIND_FAULTS, KIND_FLUSHED, KIND_JOINING, KIND_QUERY, Query
from transis.sim.network import Fate
from transis.totem.packets import KIND_COMMIT, KIND_JOIN, KIND_TOKEN, KIND_WAKE, Commit
from transis.types.outputs import Port
from transis.wire.burst import DATA_HEADER_SIZE, KIND_DATA, LAST_OFFSET
from transis.wire.control import KIND_BEACON, KIND_PART, KIND_PROBE, KIND_PROBE_ANSWER, decode_control
from transis.wire.envelope import ENVELOPE_SIZE, FLAG_SEALED
from transis.wire.items import AcksAt, read_item

_FLAGS_AT: Final = 3
_ALONE: Final = b"\0\0\1"
"""Index 0 of its burst, and marked as the last."""

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
    KIND_ALIVE: "alive",
    KIND_ATTEMPT: "aj",
    KIND_JOINING: "ljoin",
    KIND_FAULTS: "fa",
    KIND_FLUSHED: "flushed",
    KIND_QUERY: "query",
}

KINDS: Final = (*NAMES.values(), "commit1", "commit2", "reply", "ack", "any")
"""What a filter may look for; commit1 and commit2 are the rotations of a commit token, reply the answer to a query, and ack is a
burst of Lansis that carries nothing but acknowledgements."""


def kinds_of(datagram: bytes) -> tuple[str, ...]:
    """The names under which a packet may be asked for."""
    if len(datagram) <= ENVELOPE_SIZE:
        return ("any",)
    if datagram[_FLAGS_AT] & FLAG_SEALED:
        return ("any", "sealed")
    body = datagram[ENVELOPE_SIZE:]
    name = NAMES.get(body[0], "unknown")
    match decode_control(body) if name in ("commit", "query") else None:
        case Commit(rotation=rotation):
            return ("any", name, f"commit{rotation}")
        case Query(is_reply=True):
            return ("any", "reply")
        case _:
            return ("any", name, *(("ack",) if name == "data" and _only_acks(body) else ()))


def _only_acks(body: bytes) -> bool:
    """The first datagram of a burst, and the last, and in it one item."""
    if len(body) <= DATA_HEADER_SIZE or body[LAST_OFFSET - 2 : LAST_OFFSET + 1] != _ALONE:
        return False
    found = read_item(body, DATA_HEADER_SIZE)
    return isinstance(found, AcksAt) and found.end == len(body)


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
