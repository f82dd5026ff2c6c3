"""The index of synchrony (lansis-1992 section 3): at how many members a message is known to be when it is delivered."""

from __future__ import annotations

from typing import Final

from transis.types.ids import DatagramClass

_NAMES: Final = {
    DatagramClass.BASIC: "basic",
    DatagramClass.CAUSAL: "causal",
    DatagramClass.ORDERED: "agreed",
    DatagramClass.SAFE: "safe",
}


class Synchrony:
    """By class of burst, over the life of the node; counted by burst."""

    def __init__(self) -> None:
        self._count = [0] * len(_NAMES)
        self._sum = [0] * len(_NAMES)
        self._least = [0] * len(_NAMES)

    def delivered(self, klass: DatagramClass, holders: int) -> None:
        least = self._least[klass]
        self._count[klass] += 1
        self._sum[klass] += holders
        self._least[klass] = holders if not least or holders < least else least

    def figures(self) -> dict[str, int]:
        """Mean in thousandths, and the least; nothing for a class that was never delivered."""
        found: dict[str, int] = {}
        for klass, name in _NAMES.items():
            if self._count[klass]:
                found[f"synchrony_{name}_milli"] = 1000 * self._sum[klass] // self._count[klass]
                found[f"synchrony_{name}_min"] = self._least[klass]
        return found
