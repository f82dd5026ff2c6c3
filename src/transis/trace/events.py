"""The events of a trace, as every checker and audit reads them.

The events of a node are totally ordered by `lseq`, dense from 1. Messages are recorded as runs: `count` consecutive messages of
one process starting at counter `first`; the i-th has place (place.seq, place.index + i) and, when ordered, tpos + i. What client
processes got is recorded by pointing at deliveries in the same trace, so that a client's stream can be compared with its node's
at the cost of one number per run. Where a row per delivery is too much, a node records digests instead (`Prefix`, tape.py), and
applications digests of their own state (`CheckpointEvent`).
"""

from __future__ import annotations

from typing import NamedTuple

from transis.types.ids import NodeId, Place, ProcessId, Service, ViewId
from transis.types.views import GroupId, GroupView, GroupViewId, View


class Submit(NamedTuple):
    """The API accepted messages and gave them ids."""

    lseq: int
    time_us: int
    process: int
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of an event
    service: Service
    address: bytes


class Refuse(NamedTuple):
    """Submitted messages will not be sent."""

    lseq: int
    time_us: int
    process: int
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of an event
    why: str


class Sent(NamedTuple):
    """Origination (SEND): the messages got their place under a permit, in the regular configuration `conf`."""

    lseq: int
    time_us: int
    conf: ViewId
    process: int
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of an event
    service: Service
    address: bytes
    place: Place
    timestamp: int


class Delivery(NamedTuple):
    """DELIVER: `conf` is the configuration in force (regular or transitional), `regular` the one it belongs to.

    `tpos` counts agreed and safe (and on the ring causal) deliveries in `regular` and its transitional successor,
    from 0; it is -1 for basic messages, which are outside the total order.
    """

    lseq: int
    time_us: int
    conf: ViewId
    regular: ViewId
    process: ProcessId
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of an event
    service: Service
    address: bytes
    place: Place
    tpos: int
    origin_us: int
    timestamp: int
    size: int


class Conf(NamedTuple):
    """A configuration was installed."""

    lseq: int
    time_us: int
    view: View


class End(NamedTuple):
    """The node's life ended: `stopped` by itself, `failed` (recorded by an observer), or `unknown`."""

    lseq: int
    time_us: int
    how: str


class Fault(NamedTuple):
    """A fault that the harness injected into this node or its links."""

    lseq: int
    time_us: int
    what: str


class NoteEvent(NamedTuple):
    """Rotations, retransmissions, state changes, clock pairs: never part of a guarantee."""

    lseq: int
    time_us: int
    what: str
    detail: tuple[tuple[str, str | int], ...]


class Gap(NamedTuple):
    """The recorder had to drop the events `first_lseq` to `last_lseq`: obligations that touch them are pending."""

    lseq: int
    time_us: int
    first_lseq: int
    last_lseq: int


class GroupConf(NamedTuple):
    """GVIEW: a group view was installed for these client processes of the node."""

    lseq: int
    time_us: int
    view: GroupView
    processes: tuple[int, ...]


class HandedRuns(NamedTuple):
    """DELIVER events, by growing lseq, whose messages these processes got through these groups."""

    groups: tuple[GroupId, ...]
    processes: tuple[int, ...]
    runs: tuple[int, ...]


class LateRuns(NamedTuple):
    """A run that reached these processes long after its DELIVER: basic messages wait until group views are agreed."""

    groups: tuple[GroupId, ...]
    processes: tuple[int, ...]
    sender: ProcessId
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of an event


class ClientDelivery(NamedTuple):
    """CDELIVER: what client processes got since the last event about clients, or in this turn.

    A process got its runs in the order of their lseq, across all entries. The group views in force are those of the last GVIEW
    events before this one.
    """

    lseq: int
    time_us: int
    handed: tuple[HandedRuns, ...]
    waited: tuple[LateRuns, ...] = ()


class ClientLeft(NamedTuple):
    """CLEFT: the end of a process's membership in a group, or the refusal of its join."""

    lseq: int
    time_us: int
    process: int
    group: GroupId
    name: str
    why: str
    refused: bool


class ClientLife(NamedTuple):
    """A process connected, or is gone for good. In a trace without these, a silent process may simply be gone."""

    lseq: int
    time_us: int
    process: int
    connected: bool


class Prefix(NamedTuple):
    """The first `count` ordered messages delivered in `conf` have these sums (tape.py); `last`: there were no more.

    Equal (conf, count) have equal sums at every node: the regular part of a configuration is one sequence, and nodes that share a
    transitional one deliver the same messages in it.
    """

    lseq: int
    time_us: int
    conf: ViewId
    regular: ViewId
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of an event
    a: int
    b: int
    last: bool


class CheckpointEvent(NamedTuple):
    """An application's digest of its own state, behind `count` ordered messages of a group since that group's view.

    The last of them is `counter` of `sender` at `place`; without one they are None, 0 and (0, 0).
    """

    lseq: int
    time_us: int
    process: int
    group: GroupId
    name: str
    view: GroupViewId
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of an event
    sender: ProcessId | None
    counter: int
    place: Place
    digest: bytes


class ReplicaStep(NamedTuple):
    """What became of a replica (docs/replication.md). All steps of a life of its directory are one trace, whose node is the
    replica `ann@accounts`, with the life as its incarnation.

    opened     the directory was opened; `place` is the end of the order on its disk
    posted     an action got its number; `seen` has, of each creator, the highest number that its poster could have seen
    accepted   it is on this disk, and will be ordered
    refused    it will never be ordered
    ordered    it was handed over at `place`, from `offset` on, with this `effect`; `state` is the application's digest behind it
    synced     the order is on this disk up to `place`
    stable     the order is on the disk of all `members` up to `place`
    primary    the replica is in primary `number`, in the view `tag`
    taken      a snapshot at `place`; `state` is the application's digest there
    loaded     the application goes on from a snapshot of another replica
    lost       the directory is gone for good
    left       the replica was removed from the group, and knows it
    rest       all members are together and have ordered all that they know; `place` is the end of what was handed over here
    """

    lseq: int
    time_us: int
    group: str
    replica: str
    directory: bytes
    what: str
    creator: int = 0
    lane: int = 0
    number: int = 0
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which nobody wants of an event
    place: int = -1
    offset: int = -1
    effect: str = ""
    key: bytes = b""
    seen: tuple[tuple[int, int], ...] = ()
    members: tuple[int, ...] = ()
    tag: int = 0
    state: bytes = b""


OfNode = Submit | Refuse | Sent | Delivery | Conf | End | Fault | NoteEvent | Gap | Prefix
OfClients = GroupConf | ClientDelivery | ClientLeft | ClientLife | CheckpointEvent
Event = OfNode | OfClients | ReplicaStep


class NodeTrace(NamedTuple):
    """One life of one node, its events in order of lseq."""

    node: NodeId
    events: list[Event]


class History(NamedTuple):
    """All traces of one run; `closed` means that the run reached quiescence, so that nothing is pending."""

    nodes: list[NodeTrace]
    closed: bool
    promises: str = "evs"
    engine: str = "totem"


def is_ordered(service: Service, engine: str) -> bool:
    """Whether messages of this service are in the total order. Causal ones are only on the ring, which orders all messages."""
    return service in (Service.AGREED, Service.SAFE) or (service is Service.CAUSAL and engine == "totem")
