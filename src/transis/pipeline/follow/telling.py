"""What the fold is told and what it says: plain values, so that it needs neither Spark nor files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from transis.trace.events import Event
from transis.types.ids import NodeId, ViewId

ONE_SEQUENCE: Final = "one_sequence"
ATOMICITY: Final = "failure_atomicity_4"
AGREEMENT: Final = "agreement_on_views"
REPLICAS: Final = "replicas_agree"
JUDGED: Final = (ONE_SEQUENCE, ATOMICITY, AGREEMENT, REPLICAS)
"""What digests can say something about; the audit of traces judges all the others, and these too."""


class Told(NamedTuple):
    """The events of one file of digests."""

    cluster: str
    mode: str
    node: NodeId
    modified_us: int
    """When the file was sealed, by the clock of its file system."""
    events: Sequence[Event]


class Trouble(NamedTuple):
    """A file that cannot be read, or not to its end, and why."""

    path: str
    why: str
    may_pass: bool = False
    """The disk, the network or a permission refused it: it is worth another try."""


class Divergence(NamedTuple):
    """A guarantee is broken: the sides say different things of one configuration."""

    cluster: str
    property: str
    conf: ViewId
    regular: ViewId
    """Its regular one, by which flight recorders find it."""
    equal_at: int
    """Behind so many messages all of them still said the same; of the group's view where replicas are compared."""
    differs_at: int
    sides: tuple[tuple[str, ...], ...]
    """The largest first."""
    explanation: str
    before: int = 0
    """Messages of the regular configuration, where this one is its transitional successor and counts from 0 again."""


class FollowVerdict(NamedTuple):
    cluster: str
    property: str
    verdict: str
    """One of the words of model/guarantees.py."""
    checked: int
    violations: int
    pending: int


def named(lives: Sequence[str]) -> str:
    """As people name several: a, b and c."""
    return lives[0] if len(lives) == 1 else f"{', '.join(lives[:-1])} and {lives[-1]}"
