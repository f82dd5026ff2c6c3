"""Views: who is together now, where each member came from, and why it changed; and process groups as seen above an engine.

A group is identified by the 64-bit hash of its name. Two names with one hash cannot both be groups: the second is refused. A
group view is identified by its configuration and the place of what caused it, so daemons give it the same id without talking
about it. `Place(0, 0)` is the configuration change itself: messages are placed from 1 on.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple, NewType

from transis.types.errors import UsageError
from transis.types.ids import NodeId, Place, ProcessId, ViewId, ViewKind, listed

# --- view -------------------------------------------------------------------------------------------------------------


class Cause(NamedTuple):
    """Why a view exists: what happened, who said so, who was accused, and which timer fired, if any."""

    what: str
    accuser: NodeId | None = None
    accused: tuple[NodeId, ...] = ()
    timer: str = ""

    def __str__(self) -> str:
        return self.in_words(str)

    def in_words(self, name: Callable[[NodeId], str]) -> str:
        """In plain words, which leave out nothing: different causes read differently. `name` makes a word of a node."""
        what, doubt, doubts = self.what.partition("; ")
        words, usual = _SAYINGS.get(what, (what, ""))
        who = "somebody" if self.accuser is None else name(self.accuser)
        accused = " ".join(map(name, self.accused))
        parts = [words.format(who=who, accused=accused or "nobody") if what in _SAYINGS else words]
        if accused and "{accused}" not in words:
            parts.append(f"without {accused}")
        is_of_itself = "{accused}" in words and (self.accuser,) == self.accused
        if self.accuser is not None and "{who}" not in words and not is_of_itself:
            parts.append(f"noticed by {who}")
        return ", ".join(parts) + (f" ({self.timer})" if self.timer not in ("", usual) else "") + doubt + doubts


_SAYINGS: Final = {
    "start": ("the node started", ""),
    "leave": ("{accused} left on purpose", ""),
    "foreign join": ("{who} asked to join", ""),
    # On the ring.
    "token lost": ("token loss noticed by {who}", "token loss timer"),
    "foreign ring": ("the ring of {who} was heard", ""),
    "join while forming": ("{who} asked to join while a ring was being formed", ""),
    "member gathers": ("{who} began the change", ""),
    "members lost": ("{who} no longer heard {accused}", ""),
    "failed to receive": ("{accused} did not receive for too long, said {who}", ""),
    "blamed for failed attempts": ("rings with {accused} did not come about, said {who}", ""),
    # On Lansis.
    "foreign view": ("the view of {who} was heard", ""),
    "silent": ("{accused} was silent for too long, said {who}", "watch timer"),
    "does not keep up": ("{accused} acknowledged nothing for too long, said {who}", "watch timer"),
    "broken data": ("what {accused} sent made no sense, said {who}", "watch timer"),
    "did not agree": ("{accused} did not agree on the next view, said {who}", "agree timer"),
    "did not flush": ("{accused} did not flush the old view, said {who}", "flush late timer"),
    "accused": ("{accused} accused {who}", ""),
    "born again": ("{who} was born again", ""),
    "member in another view": ("{accused} is in another view, said {who}", ""),
    "renewed": ("{who} began the change again", ""),
}
"""What engines say of a change, in plain words, and the timer that is behind it and so goes without saying. For `member gathers`
the log of the member that began has the reason."""


class Member(NamedTuple):
    """A member, its advertised address, and the regular view it comes from (None for a first view)."""

    node: NodeId
    address: str
    previous: ViewId | None
    info: bytes = b""

    def __str__(self) -> str:
        return f"{self.node} at {self.address}"


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

    def __str__(self) -> str:
        return f"{self.id}: {listed(self.nodes)} ({self.cause})"

    @property
    def kind(self) -> ViewKind:
        """Regular or transitional."""
        return self.id.kind

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """The ids of the members."""
        return tuple(member.node for member in self.members)


# --- groups -----------------------------------------------------------------------------------------------------------

GroupId = NewType("GroupId", int)

GROUP_NAME_MAX: Final = 128
"""Bytes of a group's name in UTF-8: names travel in joins and announcements, never with messages."""

GROUPS_MAX: Final = 65_536
"""Groups of one configuration: every daemon knows all of them, and a view change walks over them. Further joins are refused."""

GROUP_MEMBERS_MAX: Final = 16_384
"""Processes of one group: a view names each of them. Further joins are refused."""

LOCAL_MEMBERSHIPS_MAX: Final = 65_536
"""Memberships of one daemon's processes: bounds what it announces after a change. A further join raises at once."""

PROCESSES_MAX: Final = 1 << 31
"""Numbers of clients' processes stay below it; those from here on belong to the daemon itself."""

NAMED_PROCESSES_MAX: Final = 4096
"""Processes of one daemon that have names: everybody knows all of them, and they are announced after a change."""

ADDRESSED_GROUPS_MAX: Final = 64
"""Groups that one message goes to: the address is repeated in every run header."""

ADDRESSED_PROCESSES_MAX: Final = 32
"""Processes that one message goes to by their private names, for the same reason."""

AT_CONFIGURATION: Final = Place(0, 0)
"""The place of a group view that the configuration change itself caused."""


class GroupViewId(NamedTuple):
    """The configuration of a group view, and the place of its cause in that configuration's order."""

    configuration: ViewId
    place: Place

    def __str__(self) -> str:
        return f"{self.configuration}+{self.place}"


class GroupCause(NamedTuple):
    """Why a group view exists: a process joined, left or was disconnected; several did, in one datagram; or the configuration
    changed, for the cause given."""

    what: str
    process: ProcessId | None = None
    configuration: Cause | None = None

    def __str__(self) -> str:
        if self.process is not None:
            return f"{self.process} {_PAST.get(self.what, self.what)}"
        return str(self.configuration) if self.configuration is not None else _PAST.get(self.what, self.what)


_PAST: Final = {
    "join": "joined",
    "leave": "left",
    "disconnect": "was disconnected",
    "joins and leaves": "several joined or left",
    "configuration": "the view of nodes changed",
}


class Origin(NamedTuple):
    """Members that come from one previous group view, and so have delivered the same messages up to now."""

    view: GroupViewId
    members: tuple[ProcessId, ...]

    def __str__(self) -> str:
        return f"{listed(self.members)} from {self.view}"


MEMBERS_SHOWN: Final = 12
"""Members that a line about a group names."""


class GroupView(NamedTuple):
    """The members of a group, from here on.

    1. `members`, `joined` and `left` are sorted; `joined` is a subset of `members`.
    2. Equal ids have equal members, names, causes and origins, everywhere. `joined` and `left` compare with what *this* daemon
       had in force, so two sides of a merge see them differently.
    3. A process in both `joined` and `left` went away and came back between two views, and may have missed messages.
    4. A transitional view has only members that come from the regular view before it; nobody joins in it.
    """

    group: GroupId
    name: str
    id: GroupViewId
    members: tuple[ProcessId, ...]
    joined: tuple[ProcessId, ...]
    left: tuple[ProcessId, ...]
    merged_from: tuple[Origin, ...]
    cause: GroupCause
    primary: bool | None = None
    """Whether the configuration holds a majority of the configured nodes; None when none are configured."""
    names: tuple[str, ...] = ()
    """The names of `members`, in their order, "" for one without; nothing at all if none has one."""
    held: bool = False
    """Nothing is sent or delivered in this view: it is not primary, and the cluster does not go on without a quorum."""

    def __str__(self) -> str:
        if not self.id.configuration.is_regular:
            now = f"transitional, what comes now is certain only among {self._listed(self.members)}"
            return f"{self.name}: {now} ({self.cause})"
        count = len(self.members)
        words = f"{self.name}: {count} member{'s' if count != 1 else ''}: {self._listed(self.members)}"
        for what, processes in (("joined", self.joined), ("left", self.left)):
            words += f"; {what}: {self._listed(processes)}" if processes else ""
        return f"{words}{_PRIMARY[self.primary]} ({self.cause})"

    @property
    def kind(self) -> ViewKind:
        """Regular or transitional."""
        return self.id.configuration.kind

    def _listed(self, processes: tuple[ProcessId, ...]) -> str:
        return listed(list(map(self.label, processes)), MEMBERS_SHOWN) if self.names else listed(processes, MEMBERS_SHOWN)

    def label(self, member: ProcessId) -> str:
        """A `member` for people: `billing@n1` if it has a name, else its id."""
        name = self.names[self.members.index(member)] if self.names and member in self.members else ""
        return full_name(name, member) if name else str(member)


class GroupChange(NamedTuple):
    """To one who watches groups: how many members the group has now, and who came or went. One without members is gone."""

    group: str
    size: int
    joined: tuple[ProcessId, ...]
    left: tuple[ProcessId, ...]

    @property
    def changed(self) -> int:
        """How many processes came or went."""
        return len(self.joined) + len(self.left)


class NameChange(NamedTuple):
    """To one who watches names: the process has this name from here on; None, nobody has it any more."""

    name: str
    process: ProcessId | None

    @property
    def changed(self) -> int:
        """How many members a group gained or lost: none."""
        return 0


_PRIMARY: Final = {True: "; primary", False: "; not primary", None: ""}


class PrivateName(NamedTuple):
    """A process as an address names it, with its node given by the boot id, which no other life of any node has."""

    boot: int
    number: int


class Address(NamedTuple):
    """Where a message goes: to all members of these groups, and to these processes, each at most once."""

    groups: tuple[GroupId, ...] = ()
    processes: tuple[PrivateName, ...] = ()


def group_id(name: str) -> GroupId:
    """The same in every process and Python version, unlike the built-in hash."""
    return GroupId(int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"))


def is_group_name(name: str) -> bool:
    return 1 <= len(name.encode("utf-8", "surrogatepass")) <= GROUP_NAME_MAX and name.isprintable()


def require_group_name(name: str) -> str:
    if not is_group_name(name):
        raise UsageError(f"{name[:40]!r} is not a group name: use 1 to {GROUP_NAME_MAX} bytes of printable text")
    if name.startswith("/") or not {".", ".."}.isdisjoint(name.split("/")):
        raise UsageError(f"{name[:40]!r} is not a group name: it reads like a path, so leave out . and .. and the / in front")
    return name


def is_process_name(name: str) -> bool:
    return is_group_name(name) and "@" not in name


def require_process_name(name: str) -> str:
    if not is_process_name(name):
        raise UsageError(f"{name[:40]!r} cannot name a process: use 1 to {GROUP_NAME_MAX} bytes of printable text without @")
    return name


def full_name(name: str, process: ProcessId) -> str:
    """A process's name as others use it: billing@n1."""
    return f"{name}@{process.node.name}"


def private_name(process: ProcessId) -> PrivateName:
    return PrivateName(process.node.boot, process.number)


def is_primary(quorum: frozenset[str], nodes: tuple[NodeId, ...]) -> bool | None:
    """Whether more than half of the configured names are together. Two components can never both say yes."""
    if not quorum:
        return None
    return 2 * len(quorum.intersection(node.name for node in nodes)) > len(quorum)
