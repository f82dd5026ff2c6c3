"""Control messages of groups <-> bytes. Any bytes become a message or a counted rejection, never an error.

1. Control messages are msgpack arrays with a tag in front. Tags are only ever appended; a layout never changes under its tag.
2. msgspec checks types, numbers and the length of every array before it allocates; this file checks what values mean.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from transis.types.errors import Rejection
from transis.types.ids import NodeId, ViewId, ViewKind
from transis.types.limits import MEMBERS_MAX, NAME_MAX, QUORUM_MAX
from transis.types.views import GROUP_MEMBERS_MAX, PROCESSES_MAX, is_group_name, is_process_name
from transis.wire.control import is_valid_node

PART_GROUPS_MAX: Final = 256
"""Groups of one part of an announcement: even with the longest names it stays far below the limit of one message."""

PARTS_MAX: Final = 1024
"""Parts of one announcement: more than LOCAL_MEMBERSHIPS_MAX memberships can need."""

PART_VIEWS_MAX: Final = PART_GROUPS_MAX
"""Configurations of the previous views of one part's groups: at most one each."""

PART_NAMES_MAX: Final = 256
"""Names of processes in one message, which stays far below the limit of one."""

KNOWN_LISTS_MAX: Final = 64
"""Quorum lists of others that are remembered because they did not fit."""

_COUNTER_MAX: Final = 1 << 62

_Number = Annotated[int, msgspec.Meta(ge=0, lt=PROCESSES_MAX)]
_Counter = Annotated[int, msgspec.Meta(ge=0, le=_COUNTER_MAX)]
_Name = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
_Names = Annotated[tuple[_Name, ...], msgspec.Meta(max_length=QUORUM_MAX)]
_Numbers = Annotated[tuple[_Number, ...], msgspec.Meta(max_length=GROUP_MEMBERS_MAX)]


class ControlLayout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields are identified by position; an array that is too short or too long is not a message."""


class JoinRequest(ControlLayout, frozen=True, tag=1):
    process: _Number
    name: str


class LeaveRequest(ControlLayout, frozen=True, tag=2):
    process: _Number
    name: str


class DisconnectRequest(ControlLayout, frozen=True, tag=3):
    process: _Number


class AnnouncedGroup(ControlLayout, frozen=True):
    """One group with the announcer's own processes in it.

    `view` is a rank in the part's table of configurations, or -1 when no process here has a view; then all are in `came`.
    Processes that `stayed` have the view (view, seq, index) of `size` members in force; those that `came` joined after it.
    """

    name: str
    view: Annotated[int, msgspec.Meta(ge=-1, lt=PART_VIEWS_MAX)]
    seq: _Counter
    index: _Counter
    size: Annotated[int, msgspec.Meta(ge=0, le=MEMBERS_MAX * GROUP_MEMBERS_MAX)]
    stayed: _Numbers
    came: _Numbers


class Announcement(ControlLayout, frozen=True, tag=4):
    """Part `part` of `parts` of what one daemon announces in the configuration (ring_seq, ring_rep)."""

    ring_seq: _Counter
    ring_rep: NodeId
    part: Annotated[int, msgspec.Meta(ge=0, lt=PARTS_MAX)]
    parts: Annotated[int, msgspec.Meta(ge=1, le=PARTS_MAX)]
    views: Annotated[tuple[tuple[bool, _Counter, NodeId], ...], msgspec.Meta(max_length=PART_VIEWS_MAX)]
    groups: Annotated[tuple[AnnouncedGroup, ...], msgspec.Meta(max_length=PART_GROUPS_MAX)]

    @property
    def configuration(self) -> ViewId:
        return ViewId(ViewKind.REGULAR, self.ring_seq, self.ring_rep)

    def configurations(self) -> list[ViewId]:
        return [
            ViewId(ViewKind.TRANSITIONAL if transitional else ViewKind.REGULAR, seq, rep) for transitional, seq, rep in self.views
        ]


class KnownList(ControlLayout, frozen=True):
    """What somebody remembers of a node's quorum list in a life of it (quorum.py)."""

    node: _Name
    life: _Counter
    names: _Names
    before: _Names


class QuorumLists(ControlLayout, frozen=True, tag=5):
    """The quorum list of a daemon, said in the configuration (ring_seq, ring_rep), and the lists of others that did not fit."""

    ring_seq: _Counter
    ring_rep: NodeId
    names: _Names
    before: _Names
    known: Annotated[tuple[KnownList, ...], msgspec.Meta(max_length=KNOWN_LISTS_MAX)]

    @property
    def configuration(self) -> ViewId:
        return ViewId(ViewKind.REGULAR, self.ring_seq, self.ring_rep)


class NameRequest(ControlLayout, frozen=True, tag=6):
    """A process has a name, from its beginning to its end."""

    process: _Number
    name: str


class ProcessNames(ControlLayout, frozen=True, tag=7):
    """Names of the announcer's processes, said in the configuration (ring_seq, ring_rep) before its Announcement."""

    ring_seq: _Counter
    ring_rep: NodeId
    names: Annotated[tuple[tuple[_Number, str], ...], msgspec.Meta(max_length=PART_NAMES_MAX)]

    @property
    def configuration(self) -> ViewId:
        return ViewId(ViewKind.REGULAR, self.ring_seq, self.ring_rep)


class WaitingQuorumLists(QuorumLists, frozen=True, tag=8):
    """The same from a daemon whose applications wait for a quorum."""


Request = JoinRequest | LeaveRequest | DisconnectRequest | NameRequest
Control = Request | Announcement | QuorumLists | WaitingQuorumLists | ProcessNames

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Control)


def encode_control(message: Control) -> bytes:
    return _encoder.encode(message)


def decode_control(payload: bytes | memoryview) -> Control | Rejection:
    try:
        message: Control = _decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # ValueError covers text that is not UTF-8; nesting deeper than any layout ends in RecursionError.
        return Rejection("layout", str(error))
    if isinstance(message, JoinRequest | LeaveRequest) and not is_group_name(message.name):
        return Rejection("name", "a group name that is too long or not printable")
    if isinstance(message, QuorumLists | ProcessNames) and not is_valid_node(message.ring_rep):
        return Rejection("node", "a configuration of an unfit node")
    if not all(map(is_process_name, _process_names(message))):
        return Rejection("name", "a name of a process that is too long, not printable or has an @")
    return _checked(message) if isinstance(message, Announcement) else message


def _process_names(message: Control) -> list[str]:
    if isinstance(message, ProcessNames):
        return [name for _, name in message.names]
    return [message.name] if isinstance(message, NameRequest) else []


def _checked(message: Announcement) -> Announcement | Rejection:
    if message.part >= message.parts:
        return Rejection("part", f"part {message.part} of {message.parts}")
    if not all(is_valid_node(node) for node in (message.ring_rep, *(rep for _, _, rep in message.views))):
        return Rejection("node", "a configuration of an unfit node")
    for group in message.groups:
        wrong = _wrong_with(group, len(message.views))
        if wrong:
            return Rejection("group", wrong)
    return message


def _wrong_with(group: AnnouncedGroup, views: int) -> str:
    if not is_group_name(group.name):
        return "a group name that is too long or not printable"
    if group.view >= views:
        return f"configuration {group.view} in a table of {views}"
    if group.view < 0 and group.stayed:
        return "processes that stayed in no view"
    numbers = group.stayed + group.came
    return "a process twice" if len(set(numbers)) < len(numbers) else ""
