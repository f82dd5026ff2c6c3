"""Questions of clients about groups and processes: which groups there are, who is in one, who has a name, and what changes.

1. Lists come in pages of PAGE entries, each true when it is made, with its place in the log of changes; a question names the last
   entry before its page. So no answer is long, and a list of any length leaves room for others between its pages.
2. Of a group the view in force is told: what its members saw last.
3. One who watches asks what changed behind a place (`changes`). If nothing did, the question waits, WAITING_MAX of a session and
   one answer for each, or until its client ends it. So a watcher takes changes when it has time, and nothing is kept for one that
   does not ask: in the end it is told that it missed something (`ChangeLog`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from transis.node.node import Node
from transis.sessions.frames import Answer, Changes, GroupsPage, Inquire, MembersPage, NamesPage, Whereabouts, encode_value
from transis.sessions.queues import StreamQueues
from transis.sessions.session import SessionState
from transis.types.ids import ProcessId
from transis.types.views import GroupChange, NameChange, full_name, group_id

# --- limits ----------------------------------------------------------------------------------------------------------

PAGE: Final = 500
"""Entries of a page: well below a millisecond of work."""

WAITING_MAX: Final = 16
"""Questions of one session that may wait for a change."""

SLICE_WATCHERS: Final = 64
"""Watchers that are answered in a slice: with the longest answers, a few milliseconds."""

# --- directory --------------------------------------------------------------------------------------------------------


class DirectoryAnswers:
    """`_waiting` has the questions that wait, by session and number; `due` the sessions of those that may have an answer now."""

    def __init__(self, node: Node, queues: StreamQueues) -> None:
        self._node = node
        self._queues = queues
        self._waiting: dict[SessionState, dict[int, Inquire]] = {}
        self.due: OrderedDict[SessionState, None] = OrderedDict()

    def inquire(self, session: SessionState, inquire: Inquire) -> None:
        made = self._made(session, inquire)
        if isinstance(made, str):
            self._queues.answer(session, Answer(inquire.number, b"", made))
        elif made is not None:
            self._queues.answer(session, Answer(inquire.number, encode_value(made)))

    def _made(self, session: SessionState, inquire: Inquire) -> NamedTuple | str | None:
        """The answer, or why there is none; None if it has to wait."""
        match inquire.question:
            case "groups":
                return self._groups(inquire.name)
            case "members":
                return self._members(inquire.name, inquire.process)
            case "names":
                return self._names(inquire.name)
            case "where":
                return self._where(inquire.name, inquire.process)
            case "changes":
                return self._changes(inquire) or self._wait(session, inquire)
            case "end":
                self._waiting.get(session, {}).pop(inquire.number, None)
                return None
        return f"{inquire.question[:40]!r} is not a question about groups that this node can answer"

    # --- lists ------------------------------------------------------------------------------------------------------

    def _groups(self, after: str) -> GroupsPage:
        page = self._node.table.after(after, PAGE + 1)
        sizes = [(group.name, 0 if group.in_force is None else len(group.in_force.members)) for group in page[:PAGE]]
        return GroupsPage(sizes, len(page) > PAGE, self._node.changes.at)

    def _members(self, name: str, after: ProcessId | None) -> MembersPage:
        table = self._node.table
        group = table.groups.get(group_id(name))
        view = None if group is None or group.name != name else group.in_force
        members = () if view is None else view.members
        first = 0 if after is None else bisect_right(members, after)
        page = members[first : first + PAGE]
        return MembersPage([(one, self._name_of(one)) for one in page], first + PAGE < len(members), self._node.changes.at)

    def _name_of(self, process: ProcessId) -> str:
        name = self._node.table.names.of(process)
        return full_name(name, process) if name else ""

    def _names(self, after: str) -> NamesPage:
        page = self._node.table.names.after(after, PAGE + 1)
        return NamesPage(page[:PAGE], len(page) > PAGE, self._node.changes.at)

    def _where(self, name: str, process: ProcessId | None) -> Whereabouts | str:
        found = process if process is not None else self._node.table.names.find(name)
        if found is None:
            return f"no process that this node can reach is called {name[:200]!r}"
        address = self._node.address_of(found.node)
        if address is None:
            return f"{found.node} is not in the configuration of this node"
        return Whereabouts(found, self._name_of(found), address)

    # --- watching ---------------------------------------------------------------------------------------------------

    def _changes(self, inquire: Inquire) -> Changes | None:
        """What changed in the group, or, without a name, in all groups and names; None if nothing did."""
        log = self._node.changes
        found = log.since(inquire.at)
        if isinstance(found, str):
            return Changes([], [], log.at, found)
        groups = [one for one in found if isinstance(one, GroupChange) and inquire.name in ("", one.group)]
        names = [one for one in found if isinstance(one, NameChange) and not inquire.name]
        return Changes(groups, names, log.at, "") if groups or names else None

    def _wait(self, session: SessionState, inquire: Inquire) -> str | None:
        waiting = self._waiting.setdefault(session, {})
        if len(waiting) >= WAITING_MAX:
            return f"{WAITING_MAX} questions of this session wait for a change, and no more may: end a watch first"
        waiting[inquire.number] = self._later(inquire)
        self._node.changes.is_watched = True
        return None

    def _later(self, inquire: Inquire) -> Inquire:
        """What the log has so far is nothing to this question."""
        return msgspec.structs.replace(inquire, at=self._node.changes.at)

    def changed(self) -> None:
        """There is something new in the log: whoever waits may have an answer."""
        for session in self._waiting:
            self.due.setdefault(session)

    def go_on(self) -> None:
        """A slice."""
        for _ in range(min(SLICE_WATCHERS, len(self.due))):
            session, _ = self.due.popitem(last=False)
            self._tell(session)

    def _tell(self, session: SessionState) -> None:
        waiting = self._waiting[session]
        for number, inquire in list(waiting.items()):
            changes = self._changes(inquire)
            if changes is None:
                waiting[number] = self._later(inquire)
            else:
                del waiting[number]
                self._queues.answer(session, Answer(number, encode_value(changes)))
        if not waiting:
            self.forget(session)

    def forget(self, session: SessionState) -> None:
        """Nobody waits for its answers."""
        self._waiting.pop(session, None)
        self.due.pop(session, None)
        self._node.changes.is_watched = bool(self._waiting)
