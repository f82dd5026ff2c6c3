"""Back-off for peers with whom no ring could be formed (W7): without it, a network that is not transitive flaps for ever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from transis.types.config import Timing
from transis.types.ids import NodeId


class Mercy(IntEnum):
    """What ends a sentence early."""

    HEARING = 0
    """A beacon that shows that we hear each other: that was what was missing."""
    ANSWER = 1
    """Only a Join: the peer invited us by its beacon but did not answer ours, so it may be deaf."""
    NONE = 2
    """Nothing: it hears and is heard, but rings with it fail."""


class Sentence(NamedTuple):
    until: int
    length_us: int
    mercy: Mercy


class Quarantine:
    """A peer that was left out triggers no Gather until its back-off ends; each time it is twice as long."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._sentences: dict[NodeId, Sentence] = {}

    def holds(self, node: NodeId, now: int, evidence: Mercy | None = None) -> bool:
        """Must the peer wait? `evidence` is what it has shown now, if anything."""
        sentence = self._sentences.get(node)
        if sentence is None or now >= sentence.until:
            return False
        return evidence is None or evidence < sentence.mercy

    def installed(self, members: Iterable[NodeId], left_out: Mapping[NodeId, Mercy], now: int) -> None:
        """After an installation: members are free, those left out wait.

        A sentence that ended long ago is forgotten: every life of every node would stay here otherwise.
        """
        remembered = now - self._timing.quarantine_max_us
        self._sentences = {node: it for node, it in self._sentences.items() if it.until >= remembered}
        for node in members:
            self._release(node, now)
        for node in sorted(left_out):
            before = self._sentences.get(node)
            length = self._timing.quarantine_us if before is None else min(2 * before.length_us, self._timing.quarantine_max_us)
            self._sentences[node] = Sentence(now + length, length, left_out[node])

    def _release(self, node: NodeId, now: int) -> None:
        """A member is free. Who breaks every ring it is in comes back each time, so its record is kept for a while."""
        sentence = self._sentences.pop(node, None)
        if sentence is not None and sentence.mercy is Mercy.NONE:
            self._sentences[node] = sentence._replace(until=min(sentence.until, now))
