"""Client processes of one life: what each asked for, and where it stands by what it was handed.

1. A wish is carried out if it makes sense when its turn comes: who is gone asks for nothing, and one wish joins who is outside
   and lets leave who is inside.
2. `wanted` is what a process asked for and was not refused; at rest it is in exactly these groups.
3. Nothing here judges: the trace is for the checkers. Only liveness asks whether everybody has what it wanted.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from transis.node.node import GroupedNode
from transis.trace.recorder import Recorder
from transis.types.ids import ProcessId
from transis.types.outputs import GroupLeft, GroupRefused, GroupViewInstalled
from transis.types.views import GroupId, GroupView, group_id

FIRST: Final = 1
"""The number of a life's first client process; 0 is the node itself."""


class Want(Enum):
    CONNECT = "connect"
    TOGGLE = "join or leave"
    DISCONNECT = "disconnect"


class Wish(NamedTuple):
    """What a process asks of its node. A newcomer has no number yet; only a join or leave names a group."""

    want: Want
    process: int = 0
    group: str = ""


class Clients:
    """The processes of one life. `inside` has the view in force by process and group."""

    def __init__(self, node: GroupedNode, recorder: Recorder) -> None:
        self._node = node
        self._recorder = recorder
        self._last = FIRST - 1
        self.wanted: dict[int, set[str]] = {}
        self.inside: dict[int, dict[GroupId, GroupView]] = {}

    def connected(self) -> list[int]:
        return sorted(self.wanted)

    def id(self, process: int) -> ProcessId:
        return ProcessId(self._node.id, process)

    # -- what they ask for ---------------------------------------------------------------------------------------

    def ask(self, now_us: int, local: int, wish: Wish) -> None:
        """`now_us` is for the trace, `local` for the node."""
        if wish.want is Want.CONNECT:
            self.connect(now_us)
        elif wish.process in self.wanted:
            if wish.want is Want.DISCONNECT:
                self.disconnect(now_us, local, wish.process)
            else:
                self.toggle(local, wish.process, wish.group)

    def connect(self, now_us: int) -> int:
        self._last += 1
        self._node.connect(self._last)
        self._recorder.client(now_us, self._last, True)
        self.wanted[self._last], self.inside[self._last] = set(), {}
        return self._last

    def disconnect(self, now_us: int, local: int, process: int) -> None:
        self._recorder.client(now_us, process, False)
        del self.wanted[process], self.inside[process]
        self._node.disconnect(local, process)

    def toggle(self, local: int, process: int, group: str) -> None:
        wanted = self.wanted[process]
        door = self._node.leave_group if group in wanted else self._node.join_group
        if door(local, process, group):
            wanted ^= {group}

    # -- what they are told --------------------------------------------------------------------------------------

    def installed(self, output: GroupViewInstalled) -> None:
        for process in output.processes:
            self.inside.get(process, {})[output.view.group] = output.view

    def left(self, output: GroupLeft | GroupRefused) -> None:
        self.inside.get(output.process, {}).pop(output.group, None)
        if isinstance(output, GroupRefused):
            self.wanted.get(output.process, set()).discard(output.name)

    def unrest(self) -> str:
        """Who is not where it wants to be, in words."""
        for process, wanted in self.wanted.items():
            inside = self.inside[process]
            if {group_id(name) for name in wanted} != set(inside):
                names = sorted(view.name for view in inside.values())
                return f"has {self.id(process)}, which asked for {sorted(wanted)} and is in {names}"
            transitional = [view for view in inside.values() if not view.id.configuration.is_regular]
            if transitional:
                return f"has {self.id(process)} in the transitional view {transitional[0].id} of {transitional[0].name}"
        return ""
