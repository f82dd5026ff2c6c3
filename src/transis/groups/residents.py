"""The processes of this node, and the groups that each asked to be in, ahead of the order: what cannot be is refused at once."""

from __future__ import annotations

from transis.groups.encoding import DisconnectRequest, JoinRequest, LeaveRequest
from transis.groups.routing import Router
from transis.groups.state import Identify
from transis.types.errors import UsageError
from transis.types.views import LOCAL_MEMBERSHIPS_MAX, PROCESSES_MAX, GroupId, require_group_name


class Residents:
    """`router` is told who is connected."""

    def __init__(self, router: Router, identify: Identify) -> None:
        self._router = router
        self._identify = identify
        self._highest_process = -1
        self._wanted: dict[int, set[GroupId]] = {}

    def is_connected(self, process: int) -> bool:
        return process in self._router.processes

    def connect(self, process: int) -> None:
        """Numbers only grow: a new process is never taken for one that is gone (traps 27)."""
        if not self._highest_process < process < PROCESSES_MAX:
            raise UsageError(f"process {process}: numbers grow, the last was {self._highest_process}, the end is {PROCESSES_MAX}")
        self._highest_process = process
        self._router.processes.add(process)
        self._router.forget()

    def join(self, process: int, name: str) -> tuple[GroupId, JoinRequest]:
        group = self._identify(require_group_name(name))
        wanted = self._wanted_by(process)
        if group in wanted:
            raise UsageError(f"process {process} joined {name!r} already")
        if sum(map(len, self._wanted.values())) >= LOCAL_MEMBERSHIPS_MAX:
            raise UsageError(f"the processes of this node have {LOCAL_MEMBERSHIPS_MAX} memberships, and no more are allowed")
        wanted.add(group)
        return group, JoinRequest(process, name)

    def leave(self, process: int, name: str) -> LeaveRequest:
        group = self._identify(require_group_name(name))
        wanted = self._wanted_by(process)
        if group not in wanted:
            raise UsageError(f"process {process} is not in {name!r}")
        wanted.discard(group)
        return LeaveRequest(process, name)

    def disconnect(self, process: int) -> DisconnectRequest:
        self._wanted_by(process)
        self._wanted.pop(process)
        self._router.processes.discard(process)
        self._router.forget()
        return DisconnectRequest(process)

    def no_longer_in(self, process: int, group: GroupId) -> None:
        """It was refused, or its group gave way to another: it may ask again."""
        self._wanted.get(process, set()).discard(group)

    def _wanted_by(self, process: int) -> set[GroupId]:
        if not self.is_connected(process):
            raise UsageError(f"process {process} is not connected")
        return self._wanted.setdefault(process, set())
