"""Back-off for peers with whom no ring could be formed (W7): without it, a non-transitive network flaps for ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from transis.model.config import Timing
from transis.model.ids import NodeId


class Sentence(NamedTuple):
    until: int
    length_us: int


class Quarantine:
    """A peer left out because it could not be mutually heard triggers no Gather until its back-off ends."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._sentences: dict[NodeId, Sentence] = {}

    def holds(self, node: NodeId, now: int) -> bool:
        sentence = self._sentences.get(node)
        return sentence is not None and now < sentence.until

    def installed(self, members: Iterable[NodeId], left_out: Iterable[NodeId], now: int) -> None:
        """After an installation: members are free again, those left out wait, each time twice as long.

        A sentence that ended long ago is forgotten: every life of every node would stay here otherwise.
        """
        remembered = now - self._timing.quarantine_max_us
        self._sentences = {node: it for node, it in self._sentences.items() if it.until >= remembered}
        for node in members:
            self._sentences.pop(node, None)
        for node in left_out:
            before = self._sentences.get(node)
            length = self._timing.quarantine_us if before is None else min(2 * before.length_us, self._timing.quarantine_max_us)
            self._sentences[node] = Sentence(now + length, length)

    def pardon(self, node: NodeId) -> None:
        """The peer's own beacon shows that it hears all of us: it may come at once."""
        self._sentences.pop(node, None)
