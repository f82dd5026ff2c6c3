"""What a simulation tries: small, because the command line has it too and must not load an engine to be parsed."""

from __future__ import annotations

from typing import Final, NamedTuple

PROMISED: Final = "promised"
JUDGES: Final = (PROMISED, "evs")
"""What a run is held to: what its engine promises, or extended virtual synchrony, whether that is promised or not."""


class Tried(NamedTuple):
    """What a run tries: which engine, ordering how and promising what, whether components may be cut off from each other, and
    what it is held to: what it promises, or all of extended virtual synchrony."""

    engine: str = "totem"
    order: str = "all-ack"
    mode: str = "evs"
    partitions: bool = True
    judge: str = PROMISED

    @property
    def options(self) -> str:
        """As the command line has them; what is usual is not said."""
        order = f" --order {self.order}" if self.order != TOTEM.order else ""
        mode = f" --mode {self.mode}" if self.mode != TOTEM.mode else ""
        judge = f" --judge {self.judge}" if self.judge != TOTEM.judge else ""
        return f"--engine {self.engine}{order}{mode}{'' if self.partitions else ' --no-partitions'}{judge}"


TOTEM: Final = Tried()
