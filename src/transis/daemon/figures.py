"""The figures of a daemon: counters of the node as they are, and rates between looks.

One look a second is kept for a short while, so a rate is that of the last seconds, whoever asks and however often.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from transis.net.driver import Event
from transis.net.transport import StatisticsDict
from transis.types.outputs import Delivered, GroupDelivered

LOOKS: Final = 10
"""Looks that are kept: rates are over so many seconds."""
RATES: Final = {
    "delivered_messages": "delivered_per_s",
    "handed_messages": "handed_per_s",
    "sent_datagrams": "sent_datagrams_per_s",
    "received_datagrams": "received_datagrams_per_s",
    "rotations": "rotations_per_s",
    "bursts_sent": "bursts_per_s",
    "retransmitted": "retransmitted_per_s",
}
"""Counters whose growth people ask for, and what its rate is called."""


class Figures:
    """`sources` are asked at every look; what they say is added up to one table."""

    def __init__(self, sources: Sequence[Callable[[], Mapping[str, int | str]]]) -> None:
        self._sources = sources
        self._looks: deque[tuple[int, StatisticsDict]] = deque(maxlen=LOOKS + 1)
        self.delivered = 0
        self.handed = 0

    def hear(self, events: Sequence[Event]) -> None:
        """Count messages; one step a run."""
        for event in events:
            kind = type(event)
            if kind is Delivered:
                self.delivered += len(event.payloads)  # type: ignore[union-attr]
            elif kind is GroupDelivered:
                self.handed += len(event.run.payloads) * len(event.recipients)  # type: ignore[union-attr]

    def now(self) -> StatisticsDict:
        figures: StatisticsDict = {"delivered_messages": self.delivered, "handed_messages": self.handed}
        for source in self._sources:
            figures |= source()
        return figures

    def look(self, now_us: int) -> StatisticsDict:
        figures = self.now()
        self._looks.append((now_us, figures))
        return figures

    @property
    def latest(self) -> StatisticsDict:
        """What the last look found; a finished table that no other thread sees change."""
        return self._looks[-1][1] if self._looks else {}

    def rates(self) -> dict[str, float]:
        """Per second, over the looks that are kept."""
        if len(self._looks) < 2:
            return dict.fromkeys(RATES.values(), 0.0)
        (first_us, first), (last_us, last) = self._looks[0], self._looks[-1]
        seconds = max(1, last_us - first_us) / 1e6
        return {rate: round(_growth(first, last, counter) / seconds, 1) for counter, rate in RATES.items()}


def _growth(first: StatisticsDict, last: StatisticsDict, counter: str) -> int:
    return int(last.get(counter, 0)) - int(first.get(counter, 0))
