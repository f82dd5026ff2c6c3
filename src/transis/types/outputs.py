"""The outputs of an engine and of a node, the order in which they are carried out, and who may watch.

Outputs are carried out in list order: `Originated` precedes its `Send`, `Configure` its `Deliver`s. Whoever drives a node never
holds one back; an engine that needs durability first waits, and emits the `Send` after `persisted(ticket)`.

Three of a node's outputs are effects, which the driver carries out. All others are news: observers record them, sessions tell
clients. Observers see all outputs, before any of them takes effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, IntEnum
from typing import ClassVar, Final, NamedTuple, Protocol

from transis.types.ids import NodeId, Place, ProcessId, Service, Stretch, ViewId
from transis.types.views import GroupId, GroupView, GroupViewId, View

# --- of an engine -----------------------------------------------------------------------------------------------------

NEVER = 1 << 62
"""A deadline that does not come."""


class Port(IntEnum):
    """Three sockets: data and control are multicast, token is unicast with a port per node.

    Lansis has no token. It uses that socket, which no data can fill, to ask silent members whether they are alive.
    """

    DATA = 0
    CONTROL = 1
    TOKEN = 2


class Audience(Enum):
    """RING: the members of the view in use. WORLD: everybody on the LAN, strangers included."""

    RING = "ring"
    WORLD = "world"


class Lane(IntEnum):
    """CONTROL is drained first and is never held; APPLICATION is held by every regular Configure until opened."""

    CONTROL = 0
    APPLICATION = 1


class Phase(IntEnum):
    """In which configuration of its ring a message is delivered: the regular one or the transitional one after it."""

    REGULAR = 0
    TRANSITIONAL = 1


class OutboundRun(NamedTuple):
    """Consecutive messages of one process with one address and service, handed down together.

    `event_us` is when they were sent, by the wall clock of their sender in microseconds since 1970; 0 if it did not say.
    Those that are `for_primary` are sent in a primary configuration, or refused.
    """

    process: int
    address: bytes
    service: Service
    first_counter: int
    payloads: Sequence[bytes]
    event_us: int = 0
    for_primary: bool = False

    @property
    def last_counter(self) -> int:
        return self.first_counter + len(self.payloads) - 1


class RunIds(NamedTuple):
    """The ids of a run: `count` messages of `process` from `first_counter` on."""

    process: int
    first_counter: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    service: Service
    address: bytes = b""


class BurstSlice(Protocol):
    """Consecutive datagrams of one sender as one object, from which messages are cut lazily (`wire.burst.Burst`)."""

    @property
    def first_seq(self) -> int: ...
    @property
    def last_seq(self) -> int: ...


class Send(NamedTuple):
    to: NodeId | Audience
    port: Port
    datagrams: Sequence[bytes | memoryview]


class Deliver(NamedTuple):
    """Datagrams of one sender that left the order: `view` is the *regular* view they belong to."""

    burst: BurstSlice
    sender: NodeId
    view: ViewId
    phase: Phase
    early: bool
    """True for basic datagrams delivered on receipt, before their place."""
    place_seq: int
    """`Place.seq` of the messages that end in the first datagram; each further datagram adds one."""


class Originated(NamedTuple):
    """These messages got their places."""

    ids: RunIds
    view: ViewId
    stretches: Sequence[Stretch]
    timestamp: int


class Refused(NamedTuple):
    ids: RunIds
    why: str


class Room(NamedTuple):
    """The lane's Outbox has room again after a submit was cut short."""

    lane: Lane


class Configure(NamedTuple):
    view: View


class Persist(NamedTuple):
    """Write key = value durably, then call persisted(ticket). Later writes of a key replace earlier ones."""

    ticket: int
    key: str
    value: int


class Note(NamedTuple):
    """Something that an operator, a test or the coverage table wants to know; never part of the protocol."""

    what: str
    detail: tuple[tuple[str, str | int], ...] = ()


class Stopped(NamedTuple):
    why: str


Output = Send | Deliver | Originated | Refused | Room | Configure | Persist | Note | Stopped
"""What an engine hands out."""


# --- of a node --------------------------------------------------------------------------------------------------------


class Accepted(NamedTuple):
    """The node took these messages from its application: they have ids now and will be sent or refused."""

    ids: RunIds


class Transmit(NamedTuple):
    """Sealed datagrams for the network: to one advertised address, or to an audience by multicast."""

    to: str | Audience
    port: Port
    datagrams: Sequence[bytes]


class Reach(NamedTuple):
    """From here on RING means these addresses. Comes ahead of the view itself, which the groups may still hold back."""

    addresses: tuple[str, ...]


class Delivered(NamedTuple):
    """A run of messages as it left the engine and was put together again: one object, however many datagrams it came in.

    Nodes may get one run in different pieces; `parts` are the same everywhere. `view` is the regular view; `stretches` has the
    places, one stretch for each datagram that a message ends in. `payloads` are cut out of the burst when they are looked at;
    keep a copy, not the slice.
    """

    process: ProcessId
    address: bytes
    service: Service
    first_counter: int
    payloads: Sequence[bytes | memoryview]
    view: ViewId
    phase: Phase
    stretches: Sequence[Stretch]
    early: bool
    origin_us: int
    timestamp: int
    ordered: bool
    """Whether the run has a place in the total order: basic messages have none, causal ones only if the engine orders them."""
    event_us: int = 0
    """When the messages were sent, as in OutboundRun. Carried, never used."""

    @property
    def place(self) -> Place:
        """The place of the first message."""
        seq, index, _ = self.stretches[0]
        return Place(seq, index)

    def parts(self) -> Iterator[Delivered]:
        """The same messages, one part for each datagram that any of them ends in."""
        if len(self.stretches) == 1:
            yield self
            return
        done = 0
        for stretch in self.stretches:
            end = done + stretch[2]
            payloads, first = self.payloads[done:end], self.first_counter + done
            yield self._replace(first_counter=first, payloads=payloads, stretches=(stretch,))
            done = end


# --- of its groups and processes --------------------------------------------------------------------------------------


class Recipient(NamedTuple):
    """A local process that gets a run, and the addressed groups it gets it through; none if addressed by its private name."""

    process: int
    groups: tuple[GroupId, ...]


class GroupViewInstalled(NamedTuple):
    """From here on this view is in force for these local processes."""

    view: GroupView
    processes: tuple[int, ...]


class GroupDelivered(NamedTuple):
    """A run for local processes: one copy each, however many groups it went to."""

    run: Delivered
    recipients: tuple[Recipient, ...]


class GroupLeft(NamedTuple):
    """The last output about a group to a local process: from here on it gets nothing from that group."""

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


class GroupsChanged(NamedTuple):
    """For those who watch groups and names, wherever their members are: the log of changes has got to this place."""

    at: int


class QuorumChanged(NamedTuple):
    """What the configuration lacks to be primary from here on: how many nodes are needed, who is here and who is missing.
    Empty: it is primary, or nobody has a list. With `held`, all that applications send waits here until then."""

    lacks: str
    held: bool


GroupOutput = GroupViewInstalled | GroupDelivered | GroupLeft | GroupRefused | GroupsChanged
"""What the groups hand to local processes, in order."""


class ProcessConnected(NamedTuple):
    process: int


class ProcessGone(NamedTuple):
    process: int


class Checkpoint(NamedTuple):
    """What a local process says about its state, and after which message of its group. All of it is the process's claim."""

    process: int
    group: GroupId
    name: str
    view: GroupViewId
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    sender: ProcessId | None
    counter: int
    place: Place
    digest: bytes


ProcessOutput = ProcessConnected | ProcessGone | Checkpoint
"""What local processes do that only observers need to know."""

# --- carrying out -----------------------------------------------------------------------------------------------------

Effect = Transmit | Persist | Reach
News = (
    Accepted | Delivered | Originated | Refused | Room | Configure | Note | Stopped | QuorumChanged | GroupOutput | ProcessOutput
)
NodeOutput = Effect | News
"""What a node hands to its driver."""

EFFECTS: Final = (Transmit, Persist, Reach)
"""What a driver carries out; every other output is news."""
HAND_OVER: Final = (Port.DATA, Port.CONTROL, Port.TOKEN)
"""The order in which a driver reads its sockets, so that data sent before a token is handed over before it."""


class Observer:
    """Sees a node's outputs before any of them takes effect. Never raises, never waits, never changes anything."""

    kinds: ClassVar[frozenset[type[NodeOutput]]]
    """It is called for a step that has an output of one of these kinds, and then with all outputs of the step."""
    keeps_evidence: ClassVar[bool] = False
    """If true, what it observed must be written down before effects begin, and `flush` is called once a step. Such observers
    come first, because a later one may act on what it sees: a daemon announces that it is ready."""

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        """The outputs of one step of the node, in order."""

    def flush(self) -> None:
        """Write down what was observed: evidence precedes effect."""

    def close(self, now_us: int, how: str) -> None:
        """The life is over; `how` is `stopped` or `failed`."""
