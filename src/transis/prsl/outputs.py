"""What a replica hands out, to be carried out in order.

`Append` completes by `Machine.persisted`, in order; one sync may complete several. Everything that must not be said or delivered
before it is on disk comes out of `persisted` and not before (the W-rule).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from transis.prsl.actions import Action, ActionId
from transis.prsl.log import Snapshot, StoreRecord
from transis.types.ids import ProcessId


class Append(NamedTuple):
    """Write these records in one transaction, sync, and say `persisted(ticket)`."""

    ticket: int
    records: tuple[StoreRecord, ...]


class Multicast(NamedTuple):
    """To the group: by the agreed service (R5), or by the safe one, which the ordering engine counts on."""

    payload: bytes
    is_safe: bool = False


class Bulk(NamedTuple):
    """Privately to one process."""

    to: ProcessId
    payload: bytes


class Accepted(NamedTuple):
    """These actions are on this disk, and will be ordered."""

    ids: tuple[ActionId, ...]


class Effect(IntEnum):
    """What an application does with an action that was ordered."""

    RUN = 0
    AGAIN = 1
    """Its client key ran before, at `first`: answer what was answered then."""
    TOO_LATE = 2
    """Its client key may have run so long ago that nobody remembers: do not run it (R25)."""
    VOID = 3
    """It has a place and no effect: its creator was no member there, or it is a change of membership that came too late."""


class Ordered(NamedTuple):
    """The action has this place and offset for all time."""

    place: int
    offset: int
    action: Action
    effect: Effect
    first: int = 0


class MoreToDeliver(NamedTuple):
    """More is delivered again from the disk, a piece at a time: when the host has done with this one it says `deliver_more`."""


class StableTo(NamedTuple):
    """Everything before this place is on every member's disk; every application acknowledged what is before the offset. With
    the ordering engine what is before `majority` is on the disks of a majority; with corel all that is ordered is."""

    place: int
    acked: int
    majority: int = 0


class Refused(NamedTuple):
    """These actions of this replica will never be ordered."""

    ids: tuple[ActionId, ...]
    why: str


class TakeSnapshot(NamedTuple):
    """The application writes its state at this place, and the host says `snapshot_written` when it is synced."""

    snapshot: Snapshot


class LoadSnapshot(NamedTuple):
    """The application goes on from a snapshot that came from another replica."""

    snapshot: Snapshot


class SendSnapshot(NamedTuple):
    """The newest snapshot goes to a replica that is too far behind: as a file, outside the machine."""

    to: ProcessId
    snapshot: Snapshot


class JoinGroup(NamedTuple):
    """Join the process group of the replicas."""


class LeaveGroup(NamedTuple):
    """Leave it: this replica cannot take part now."""

    why: str


class Stopped(NamedTuple):
    """This replica takes part no more. The sentence is for people."""

    why: str


Output = (
    Append
    | Multicast
    | Bulk
    | Accepted
    | Ordered
    | MoreToDeliver
    | StableTo
    | Refused
    | TakeSnapshot
    | LoadSnapshot
    | SendSnapshot
    | JoinGroup
    | LeaveGroup
    | Stopped
)
