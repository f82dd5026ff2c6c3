"""What a client and its node say to each other: typed frames, and their encoding in a stream of bytes.

1. A frame is its length in 4 bytes, then a msgpack array with a tag in front. Tags are only ever appended; a layout never changes
   under its tag. msgspec checks types, numbers and lengths before it allocates.
2. Both directions have credit, in the bytes that `cost` counts: a Send or a stream frame may leave while credit is above zero,
   and may overdraw it once, so that one large message always fits. Everything else is free: answers, receipts and credit
   itself never wait behind a full window, so a client that is behind with its stream can still send, join, leave and be answered.
3. *Stream frames* (Stream, Changed, Left, Configured) are the one ordered stream of a process, the same order everywhere. The
   other frames of a node say nothing about order.
4. A client numbers its messages itself, from 1, in the order of its Sends, and the node counts alike. Done and NotSent use these
   numbers.
5. Any bytes become frames or a rejection; after a rejection the stream is over.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from transis.types.errors import Rejection
from transis.types.ids import Place, ProcessId, Service, ViewId
from transis.types.limits import ADDRESS_MAX, EVENT_US_MAX, MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.views import GroupChange, GroupView, GroupViewId, NameChange, View

SESSION_VERSION: Final = 4
"""The version of this protocol. Client and node must have the same; a client that does not is told which."""

FRAME_MAX: Final = MESSAGE_MAX + (1 << 20)
"""Bytes of one frame: the largest message and what goes with it."""

BATCH_BYTES: Final = 256 * 1024
"""A frame of several messages is closed at this many bytes: large enough to be cheap, small enough for clients to take turns."""

MESSAGE_COST: Final = 16
"""Added to the length of each message when credit is counted, so that empty ones are not free."""

QUESTION_MAX: Final = 64

CHECKPOINT_MAX: Final = 64
"""Bytes of an application's digest of its state."""

TOO_SLOW: Final = "too slow: "
"""How the Goodbye to a client that did not keep up with its stream begins."""

_LENGTH: Final = struct.Struct(">I")
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Text = Annotated[str, msgspec.Meta(max_length=4096)]


class _Layout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields are identified by position."""


# --- from the client ----------------------------------------------------------------------------------------------------------


class Hello(_Layout, frozen=True, tag=1):
    """The first frame. `label` is for people who look at the node's status; `credit` is the window of its stream."""

    version: _Count
    label: Annotated[str, msgspec.Meta(max_length=128)]
    credit: Annotated[int, msgspec.Meta(ge=1, le=1 << 32)]


class Join(_Layout, frozen=True, tag=2):
    name: _Text


class Leave(_Layout, frozen=True, tag=3):
    name: _Text


class Send(_Layout, frozen=True, tag=10):
    """Consecutive messages with one address (wire.address) and service.

    `event_us` is when they were sent, by the client's wall clock in microseconds since 1970. (4 was Send without it.)
    """

    address: Annotated[bytes, msgspec.Meta(max_length=ADDRESS_MAX)]
    service: Service
    payloads: Annotated[list[bytes], msgspec.Meta(min_length=1, max_length=RUN_MESSAGES_MAX)]
    event_us: Annotated[int, msgspec.Meta(ge=0, le=EVENT_US_MAX)]


class Credit(_Layout, frozen=True, tag=5):
    """From the client: the application took so many bytes of the stream. From the node: it took so many bytes of Sends."""

    amount: Annotated[int, msgspec.Meta(ge=1, le=1 << 32)]


class Ask(_Layout, frozen=True, tag=6):
    """A question by its name ("statistics", "about"); the Answer has the same number."""

    number: _Count
    question: Annotated[str, msgspec.Meta(max_length=QUESTION_MAX)]


class Bye(_Layout, frozen=True, tag=7):
    """The client goes on purpose: its groups see it leave, and what it sent is sent."""


class Follow(_Layout, frozen=True, tag=8):
    """Put the node's configurations into the client's stream from now on, first the one in force. Another Follow does nothing."""


class Checkpoint(_Layout, frozen=True, tag=9):
    """A digest of the application's state after a message. It has no answer and takes no credit.

    The message is the `count`-th agreed or safe one of the group since the group view; `sender`, `counter` and `place` name it,
    or are None, 0 and (0, 0) when there was none since.
    """

    name: _Text
    view: GroupViewId
    count: _Count
    sender: ProcessId | None
    counter: _Count
    place: Place
    digest: Annotated[bytes, msgspec.Meta(min_length=1, max_length=CHECKPOINT_MAX)]


class NamedHello(Hello, frozen=True, tag=11):
    """The first frame of a process with a name. (Others say Hello, so that a node of any release can tell them its version.)"""

    name: _Text


class Inquire(_Layout, frozen=True, tag=12):
    """A question about groups and processes; the Answer has the same number.

    `groups` and `names` behind a name, `members` of a group behind a process, `where` a name or a process is; `changes` in a
    group, or in all, behind a place of the log, and `end` of such a question, which has no answer.
    """

    number: _Count
    question: Annotated[str, msgspec.Meta(max_length=QUESTION_MAX)]
    name: _Text = ""
    process: ProcessId | None = None
    at: _Count = 0


class SendToPrimary(Send, frozen=True, tag=13):
    """The same, but these are sent in a primary configuration or refused."""


# --- from the node ------------------------------------------------------------------------------------------------------------


class Welcome(_Layout, frozen=True, tag=33):
    """`credit` is the window of this client's Sends. `process` is the client's id for everybody: its private name."""

    version: _Count
    cluster: str
    process: ProcessId
    credit: Annotated[int, msgspec.Meta(ge=1, le=1 << 32)]


class Joined(_Layout, frozen=True, tag=34):
    """The join came to its place in the order; its first view follows in the stream."""

    name: str


class NotJoined(_Layout, frozen=True, tag=35):
    name: str
    why: str


class Stream(_Layout, frozen=True, tag=45):
    """Messages of one sender with one address and service, counters from `first` on.

    `view` is the configuration in force (regular or transitional), `sent_us` the sender's clock when the first of them got its
    place. `times` says when they were sent, by the sender's wall clock: (event_us, count) for `count` consecutive messages.
    `cost` is what the frame takes of the client's credit: the node counted it by runs, and the client need not add up messages.
    A client passes them to those streams whose groups it is in at this point of its own stream.
    (36 was Stream without `times`.)
    """

    sender: ProcessId
    address: bytes
    service: Service
    view: ViewId
    sent_us: int
    first: _Count
    stretches: list[tuple[_Count, _Count, _Count]]
    payloads: list[bytes]
    times: list[tuple[_Count, _Count]]
    cost: _Count


class Changed(_Layout, frozen=True, tag=37):
    """A group view is in force from here on."""

    view: GroupView


class Left(_Layout, frozen=True, tag=38):
    """The last frame about a group: the client left it as it asked, or was removed for the reason given."""

    name: str
    why: str


class Done(_Layout, frozen=True, tag=44):
    """These messages of this client were delivered at its node, as their service promises.

    `view` is the configuration that was in force, regular or transitional. (39 was Done without it.)
    """

    first: _Count
    count: _Count
    view: ViewId


class NotSent(_Layout, frozen=True, tag=40):
    """These messages of this client will not be sent."""

    first: _Count
    count: _Count
    why: str


class Answer(_Layout, frozen=True, tag=41):
    """`value` is the answer in msgpack; if the question cannot be answered, it is empty and `why` has the reason."""

    number: _Count
    value: bytes
    why: str = ""


class Goodbye(_Layout, frozen=True, tag=42):
    """The last frame: why the node ends this session."""

    why: str


class Configured(_Layout, frozen=True, tag=43):
    """A configuration of the node is in force from here on; only for clients that sent Follow."""

    view: View


class WithoutQuorum(_Layout, frozen=True, tag=47):
    """`why` says what the configuration lacks to be primary: how many nodes are needed, who is here and who is missing. Empty: it
    lacks nothing. `held`: all that this client sends waits at the node until then. `raises`: the client should say so at once,
    instead of waiting too."""

    why: str
    held: bool
    raises: bool


# --- answers about groups and processes -------------------------------------------------------------------------------------


class GroupsPage(NamedTuple):
    groups: list[tuple[str, int]]
    more: bool
    at: int


class MembersPage(NamedTuple):
    members: list[tuple[ProcessId, str]]
    more: bool
    at: int


class NamesPage(NamedTuple):
    names: list[tuple[str, ProcessId]]
    more: bool
    at: int


class Whereabouts(NamedTuple):
    """A process, its name as others use it ("" without one), and the address of its node; `process.node` has the node's life."""

    process: ProcessId
    name: str
    address: str


class Changes(NamedTuple):
    """What changed up to the place `at`; or, if `why` says so, everything has to be listed anew."""

    groups: list[GroupChange]
    names: list[NameChange]
    at: int
    why: str


ClientFrame = Hello | Join | Leave | Send | Credit | Ask | Bye | Follow | Checkpoint | NamedHello | Inquire | SendToPrimary
StreamFrame = Stream | Changed | Left | Configured
NodeFrame = (
    Welcome
    | Joined
    | NotJoined
    | Stream
    | Changed
    | Left
    | Done
    | NotSent
    | Answer
    | Goodbye
    | Credit
    | Configured
    | WithoutQuorum
)
Frame = ClientFrame | NodeFrame

_encoder: Final = msgspec.msgpack.Encoder()
CLIENT_FRAMES: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(ClientFrame)
NODE_FRAMES: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(NodeFrame)


def payload_cost(payloads: list[bytes]) -> int:
    return sum(map(len, payloads)) + MESSAGE_COST * len(payloads)


def cost(frame: Frame) -> int:
    """What a frame costs of the credit of its direction; 0 for frames that never wait."""
    match frame:
        case Send(payloads=payloads):
            return payload_cost(payloads)
        case Stream(cost=counted):
            return counted
        case Changed(view=view):
            return MESSAGE_COST * (len(view.members) + len(view.joined) + len(view.left) + 1)
        case Left():
            return MESSAGE_COST
        case Configured(view=configuration):
            return MESSAGE_COST * (len(configuration.members) + 1)
        case _:
            return 0


def encode_frame(frame: Frame) -> bytes:
    body = _encoder.encode(frame)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Reads frames from a stream of bytes as they come. A frame stays bytes until somebody wants it."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any]) -> None:
        self._decoder = decoder
        self._pending = bytearray()
        self._position = 0

    @property
    def waiting(self) -> int:
        """Bytes that are no frame yet."""
        return len(self._pending) - self._position

    def add(self, data: bytes | bytearray | memoryview) -> None:
        self._drop_read()
        self._pending += data

    def next(self) -> Any | Rejection | None:
        """The next frame; None if it is not whole yet. After a rejection the stream cannot be read on."""
        start, have = self._position + _LENGTH.size, len(self._pending)
        if start > have:
            return None
        (length,) = _LENGTH.unpack_from(self._pending, self._position)
        if length > FRAME_MAX:
            return Rejection("length", f"a frame of {length} bytes, at most {FRAME_MAX} are allowed")
        if start + length > have:
            return None
        self._position = start + length
        with memoryview(self._pending) as whole, whole[start : self._position] as body:
            try:
                return self._decoder.decode(body)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                return Rejection("frame", str(error))

    def feed(self, data: bytes | bytearray | memoryview) -> list[Any] | Rejection:
        """The frames that are complete now. After a rejection nothing more can be read."""
        self.add(data)
        frames: list[Any] = []
        while (frame := self.next()) is not None:
            if isinstance(frame, Rejection):
                return frame
            frames.append(frame)
        self._drop_read()
        return frames

    def _drop_read(self) -> None:
        if self._position:
            del self._pending[: self._position]
            self._position = 0


def decode_value(value: bytes) -> Any:
    """The value of an Answer."""
    return msgspec.msgpack.decode(value)


def encode_value(value: Any) -> bytes:
    return _encoder.encode(value)
