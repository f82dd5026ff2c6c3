"""What the groups hand to local processes."""

from __future__ import annotations

from typing import NamedTuple

from transis.model.contract import Delivered
from transis.model.groups import GroupId, GroupView


class Recipient(NamedTuple):
    """A local process that gets a run, and the addressed groups through which it does; none for a private name."""

    process: int
    groups: tuple[GroupId, ...]


class GroupViewInstalled(NamedTuple):
    """From here on this view is in force for these local processes."""

    view: GroupView
    processes: tuple[int, ...]


class GroupDelivered(NamedTuple):
    """A run for local processes: one copy each, whatever number of groups it went to."""

    run: Delivered
    recipients: tuple[Recipient, ...]


class GroupLeft(NamedTuple):
    """The last word to a local process about a group: from here on it gets nothing from it."""

    process: int
    group: GroupId
    name: str
    why: str


class GroupRefused(NamedTuple):
    """A join came to its place in the order and was refused, by all daemons alike."""

    process: int
    group: GroupId
    name: str
    why: str


GroupOutput = GroupViewInstalled | GroupDelivered | GroupLeft | GroupRefused
"""What the groups hand to local processes, in order."""
