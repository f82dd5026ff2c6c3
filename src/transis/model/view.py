"""Views: who is together now, how each came here, and why it changed."""

from __future__ import annotations

from typing import NamedTuple

from transis.model.ids import NodeId, ViewId, ViewKind


class Cause(NamedTuple):
    """Why a view exists: what happened, who said so, who was accused, and which timer fired if any."""

    what: str
    accuser: NodeId | None = None
    accused: tuple[NodeId, ...] = ()
    timer: str = ""

    def __str__(self) -> str:
        without = f", without {' '.join(map(str, self.accused))}" if self.accused else ""
        noticed = f", noticed by {self.accuser}" if self.accuser is not None else ""
        return self.what + without + noticed + (f" ({self.timer})" if self.timer else "")


class Member(NamedTuple):
    """A member with the regular view it comes from (None for a first view) and its advertised address."""

    node: NodeId
    address: str
    previous: ViewId | None
    info: bytes = b""


class View(NamedTuple):
    """A regular or transitional configuration.

    1. `members` is sorted by node id and contains the node that delivers the view.
    2. For a transitional view, `regular` names the regular view it follows; for a regular view it is its own id.
    3. Members of a transitional view all have `previous == regular`.
    """

    id: ViewId
    regular: ViewId
    members: tuple[Member, ...]
    cause: Cause
    timestamp: int
    guarantees: str = "evs"

    @property
    def kind(self) -> ViewKind:
        return self.id.kind

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        return tuple(member.node for member in self.members)
