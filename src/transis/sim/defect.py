"""What a deliberate defect is: a textual change of one or several source files."""

from __future__ import annotations

from typing import NamedTuple

from transis.types.config import ENGINES


class Change(NamedTuple):
    """`module` by its name within the package: the stack has loaded it, and the simulator has no business importing it."""

    module: str
    old: str
    new: str


class Defect(NamedTuple):
    why: str
    changes: tuple[Change, ...]
    harmless: str = ""
    """Why it breaks nothing, of a change that looks like a defect and is none."""

    @property
    def engines(self) -> tuple[str, ...]:
        """Those whose room it breaks into, or all if it breaks into none."""
        rooms = {change.module.partition(".")[0] for change in self.changes}
        return tuple(engine for engine in ENGINES if engine in rooms) or ENGINES
