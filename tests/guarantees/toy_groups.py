"""Words of the toy language (toy.py) for client processes and groups, which have one letter each.

c1  q1        process 1 connects; is gone for good
Vg5{a#1,b#1}  a view of g is shown to the processes here that are in it: caused at place 5 of the configuration in force, or by
              the configuration itself at place 0. Its cause, newcomers, leavers and origins are what the lines make true, but for
              what stands behind it: +a#1 joined, -b#1 left, <4 all (<4:a#1 these) come from the view at place 4, ~leave:b#1 is
              the cause, %x the cause of the configuration, ^9 the sequence of the configuration, >1 whom it is shown to,
              !yes or !no whether it is primary, !held that it is not and waits for a quorum (!both: it is, and waits), =h the
              group's name, $x,y the names of the members; + - < or > alone says nobody, or nowhere
lg1           process 1 hears that it left g
s1@g  s1@b#1  message 1 is for the members of g, or for a process
h1>1,2        processes 1 and 2 are handed message 1, which was delivered here; h1>1:gh;2:h 1 through g and h, 2 through h
w1>1          the same of a basic message that had waited
kg1=x  kg1=x/3  process 1 says that g is in state x, at the view in force or behind message 3
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from transis.trace.events import CheckpointEvent, ClientDelivery, ClientLeft, ClientLife, Event, GroupConf, HandedRuns, LateRuns
from transis.trace.reader import read_address
from transis.types.ids import NodeId, Place, ProcessId, ViewId, ViewKind
from transis.types.views import Address, Cause, GroupCause, GroupId, GroupView, GroupViewId, Origin, private_name
from transis.wire.items import encode_address

VIEW = re.compile(r"V(\w)(\d+)\{([^}]*)\}(.*)")
SIGNS = re.compile(r"([-+<>~!=^%$])([^-+<>~!=^%$]*)")
WORD = re.compile(r"[cq]\d+|V\w\d+\{.*|l\w\d+|[hw]\d+>.*|k\w\d+=.*")
"""Anything that this language adds."""

Named = Callable[[str], NodeId]
Configuration = Callable[[str], ViewId]


class Shown(NamedTuple):
    """A view as a token of a line says it."""

    group: str
    id: GroupViewId
    members: tuple[ProcessId, ...]
    signs: dict[str, str]

    def reaches(self, process: ProcessId) -> bool:
        return process in self.members


def address_of(text: str, node: Named) -> bytes:
    """Of `@g`, `@gh` or `@b#1`; empty for nobody in particular."""
    if not text:
        return b""
    if "#" in text:
        return encode_address(Address((), (private_name(_process(text[1:], node)),)))
    return encode_address(Address(tuple(sorted(map(_group, text[1:])))))


def _group(letter: str) -> GroupId:
    return GroupId(ord(letter))


def _process(text: str, node: Named) -> ProcessId:
    name, _, number = text.partition("#")
    return ProcessId(node(name), int(number))


class Groups:
    """All group views of a history, each as the others make it true."""

    def __init__(self, scripts: dict[str, list[str]], node: Named, configuration: Configuration) -> None:
        self.node = node
        self._lines = {node(name): tokens for name, tokens in scripts.items()}
        self._shown = {here: self._read(here, tokens, configuration) for here, tokens in self._lines.items()}

    def _read(self, here: NodeId, tokens: list[str], configuration: Configuration) -> dict[int, Shown]:
        found: dict[int, Shown] = {}
        conf = ViewId(ViewKind.REGULAR, 0, here)
        for at, token in enumerate(tokens):
            if token[0] in "RT":
                conf = configuration(token)
            elif match := VIEW.fullmatch(token):
                group, place, members = match.groups()[:3]
                signs = dict(SIGNS.findall(match[4]))
                claimed = conf._replace(seq=int(signs.get("^", conf.seq)))
                id = GroupViewId(claimed, Place(int(place), 0))
                found[at] = Shown(group, id, self._processes(members), signs)
        return found

    def _processes(self, text: str) -> tuple[ProcessId, ...]:
        return tuple(_process(one, self.node) for one in text.split(",") if one)

    def event(self, here: NodeId, at: int, lseq: int, now: int) -> GroupConf:
        shown = self._shown[here][at]
        local = tuple(number for node, number in shown.members if node == here)
        if ">" in shown.signs:
            local = tuple(int(number) for number in shown.signs[">"].split(",") if number)
        return GroupConf(lseq, now, self.view(here, at), local)

    def in_force(self, here: NodeId, at: int, group: str) -> GroupViewId:
        return next(shown.id for place, shown in reversed(self._shown[here].items()) if place < at and shown.group == group)

    def view(self, here: NodeId, at: int) -> GroupView:
        shown = self._shown[here][at]
        before, regular = self._before(here, at, shown.group)
        origins = {member: self._origin(member, shown) for member in shown.members}
        stay = {member for member, origin in origins.items() if before is not None and origin == before.id}
        joined = tuple(member for member in shown.members if member not in stay)
        left = tuple(member for member in (regular.members if regular else ()) if member not in stay)
        if not shown.id.configuration.is_regular:
            joined, left = (), tuple(member for member in (before.members if before else ()) if member not in shown.members)
        merged = tuple(
            Origin(view, tuple(member for member in shown.members if origins[member] == view))
            for view in sorted({origin for origin in origins.values() if origin is not None})
        )
        cause = self._cause(shown)
        view = GroupView(_group(shown.group), shown.group, shown.id, shown.members, joined, left, merged, cause)
        return self._as_written(view, shown.signs)

    def _as_written(self, view: GroupView, signs: dict[str, str]) -> GroupView:
        if "+" in signs:
            view = view._replace(joined=self._processes(signs["+"]))
        if "-" in signs:
            view = view._replace(left=self._processes(signs["-"]))
        if "<" in signs:
            place, _, members = signs["<"].partition(":")
            origin = GroupViewId(view.id.configuration, Place(int(place or 0), 0))
            from_it = Origin(origin, self._processes(members) if members else view.members)
            view = view._replace(merged_from=(from_it,) if place else ())
        if "~" in signs:
            what, _, process = signs["~"].partition(":")
            view = view._replace(cause=GroupCause(what, _process(process, self.node) if process else None))
        if "%" in signs:
            view = view._replace(cause=GroupCause("configuration", None, Cause(signs["%"])))
        if "$" in signs:
            view = view._replace(names=tuple(signs["$"].split(",")))
        sign = signs.get("!", "")
        primary = {"yes": True, "no": False, "held": False, "both": True}.get(sign)
        return view._replace(primary=primary, held=sign in ("held", "both"), name=signs.get("=", view.name))

    def _before(self, here: NodeId, at: int, group: str) -> tuple[Shown | None, Shown | None]:
        """The view, and the last regular one, that the processes of a node have in force; without any, what their node knows from
        those who were in the group before."""
        inside: set[int] = set()
        before: Shown | None = None
        regular: Shown | None = None
        for place, token in enumerate(self._lines[here][:at]):
            shown = self._shown[here].get(place)
            if shown is not None and shown.group == group:
                inside = {number for node, number in shown.members if node == here}
                before, regular = shown, shown if shown.id.configuration.is_regular else regular
            inside -= set(_leaves(token, group))
        if inside:
            return before, regular
        known = self._predecessor(self._shown[here][at])
        return known, known

    def _predecessor(self, view: Shown) -> Shown | None:
        """The view of the group before this one in the same configuration, wherever it was shown."""
        everything = (shown for line in self._shown.values() for shown in line.values())
        here = [shown for shown in everything if (shown.group, shown.id.configuration) == (view.group, view.id.configuration)]
        return max((shown for shown in here if shown.id < view.id), key=lambda shown: shown.id, default=None)

    def _origin(self, member: ProcessId, view: Shown) -> GroupViewId | None:
        """What a member has in force at its own node when it is shown this view."""
        in_force: GroupViewId | None = None
        for at, token in enumerate(self._lines.get(member.node, ())):
            shown = self._shown[member.node].get(at)
            if shown is not None and shown.group == view.group:
                if shown.id == view.id:
                    return in_force
                in_force = shown.id if shown.reaches(member) else None
            elif member.number in _leaves(token, view.group):
                in_force = None
        return None

    def _cause(self, view: Shown) -> GroupCause:
        if view.id.place.seq == 0:
            return GroupCause("configuration", None, Cause("toy"))
        before = self._predecessor(view)
        members = before.members if before is not None else ()
        new, gone = set(view.members) - set(members), set(members) - set(view.members)
        if len(new) + len(gone) == 1:
            return GroupCause("join" if new else "leave", min(new | gone))
        return GroupCause("joins and leaves")


def _leaves(token: str, group: str) -> Iterator[int]:
    """Processes that are in this group no longer."""
    match = re.fullmatch(rf"(?:l{group}|[cq])(\d+)", token)
    if match:
        yield int(match[1])


class Sent(NamedTuple):
    """What a word about clients needs to know of a message: which it is, how it was addressed, where it was delivered here."""

    process: ProcessId
    counter: int
    address: bytes
    lseq: int

    @property
    def groups(self) -> tuple[GroupId, ...]:
        return read_address(self.address).groups


def event_of(token: str, lseq: int, now: int, message: Callable[[str], Sent], view: Callable[[str], GroupViewId]) -> Event:
    """Of every word but a view."""
    kind, rest = token[0], token[1:]
    if kind in "cq":
        return ClientLife(lseq, now, int(rest), kind == "c")
    if kind == "l":
        return ClientLeft(lseq, now, int(rest[1:]), _group(rest[0]), rest[0], "left", refused=False)
    if kind == "k":
        return _checkpoint(rest, lseq, now, message, view(rest[0]))
    number, _, entries = rest.partition(">")
    sent = message(number)
    handed = tuple(HandedRuns(*_recipients(entry, sent), (sent.lseq,)) for entry in entries.split(";"))
    if kind == "h":
        return ClientDelivery(lseq, now, handed)
    waited = (LateRuns(groups, processes, sent.process, sent.counter, 1) for groups, processes, _ in handed)
    return ClientDelivery(lseq, now, (), tuple(waited))


def _recipients(entry: str, sent: Sent) -> tuple[tuple[GroupId, ...], tuple[int, ...]]:
    processes, through, groups = entry.partition(":")
    return tuple(map(_group, groups)) if through else sent.groups, tuple(map(int, processes.split(",")))


def _checkpoint(rest: str, lseq: int, now: int, message: Callable[[str], Sent], view: GroupViewId) -> CheckpointEvent:
    who, _, said = rest.partition("=")
    state, _, number = said.partition("/")
    about = (lseq, now, int(who[1:]), _group(who[0]), who[0], view)
    if not number:
        return CheckpointEvent(*about, 0, None, 0, Place(0, 0), state.encode())
    sent = message(number)
    return CheckpointEvent(*about, int(number), sent.process, sent.counter, Place(int(number), 0), state.encode())
