"""What replicas say to each other <-> bytes. Any bytes become a message or a counted rejection, never an error.

1. Messages are msgpack arrays with a tag in front. Tags are only ever appended; a layout never changes under its tag.
2. Every message carries the *view* that its sender had processed, as a hash. One with another view is dropped: what was in it is
   folded into red by its sender, and told in its next STATE (R10). Bulk outside the group, to a newcomer, has view 0.
3. All messages of a replica to the group go through one lane in order, so that STATE, ATTEMPT and ACK never overtake its actions.
4. msgspec checks types and the length of every array before it allocates; this file checks what values mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Annotated, Final

import msgspec

from transis.prsl.actions import Action, ActionId, Counter, Lane, wrong_with
from transis.prsl.prefix import Base, Digest, Numbers, Pairs, is_sorted
from transis.prsl.record import Directory, Name
from transis.prsl.votes import Voting
from transis.types.errors import Rejection
from transis.types.ids import ProcessId
from transis.types.limits import REDS_MAX, REPLICAS_MAX, RETRANSMITTED_MAX
from transis.types.views import GroupViewId

Range = tuple[Counter, Lane, Counter, Counter]
"""Creator, lane, first and last number."""

Ids = Annotated[tuple[ActionId, ...], msgspec.Meta(max_length=REDS_MAX)]
Actions = Annotated[tuple[Action, ...], msgspec.Meta(max_length=RETRANSMITTED_MAX)]


def view_tag(view: GroupViewId) -> int:
    """The same everywhere; never 0, which stands for no view."""
    return int.from_bytes(blake2b(repr(tuple(view)).encode(), digest_size=8).digest(), "big") >> 2 or 1


class Layout(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields are identified by position; an array that is too short or too long is not a message."""

    view: Counter


class State(Layout, frozen=True, tag=1):
    """What a replica has when a view begins. All of it is synced."""

    name: Name
    directory: Directory
    life: Counter
    number: Counter
    """As which replica it counts, by its own record; 0 if it knows of no entry."""
    committed: Counter
    attempted: Counter
    yellow: Ids
    red: Annotated[tuple[Range, ...], msgspec.Meta(max_length=REDS_MAX)]
    held_from: Counter
    acked: Counter
    green: Base
    """Everything about its green order but the content (R19)."""
    lines: Annotated[Pairs, msgspec.Meta(max_length=REPLICAS_MAX)] = ()
    """How much of the order it knows to be on the disk of each replica."""
    voting: Voting | None = None
    """With the ordering engine only."""

    @property
    def end(self) -> int:
        return self.green.place + len(self.yellow)


class Attempt(Layout, frozen=True, tag=2):
    """The sender wants a primary of this view, and has what that needs on its disk. (The ordering engine's papers: CPC.)"""


class Ack(Layout, frozen=True, tag=3):
    """The sender has the order up to `synced` on its disk, is green up to `green`, and its application acknowledged `acked`."""

    synced: Counter
    green: Counter
    acked: Counter


class Posted(Layout, frozen=True, tag=4):
    """A new action, durable at its creator, which has the order up to `line` on its disk. With the ordering engine it says
    whether it was sent in a primary."""

    action: Action
    line: Counter = 0
    is_primary: bool = False


class Retransmission(Layout, frozen=True, tag=5):
    """Content that some member lacks, in ascending key (R4)."""

    actions: Actions


class GreenPlaces(Layout, frozen=True, tag=6):
    """Green actions from `place` on, for those who are near (R3)."""

    place: Counter
    actions: Actions


class Exclude(Layout, frozen=True, tag=7):
    """These processes say nothing: the exchange goes on without those whose STATE was not delivered before this (R33)."""

    processes: Annotated[tuple[ProcessId, ...], msgspec.Meta(max_length=1024)]


class Ask(Layout, frozen=True, tag=8):
    """Privately: send me green content from `place` on, up to `end`."""

    place: Counter
    end: Counter


class Chunk(Layout, frozen=True, tag=9):
    """Privately: green content from `place` on; `digest` is that of the order behind it."""

    place: Counter
    actions: Actions
    digest: Digest


class Unable(Layout, frozen=True, tag=10):
    """Privately: I have not got what you asked for."""

    place: Counter


class CaughtUp(Layout, frozen=True, tag=11):
    """The sender was behind, and has all that is green by now: with the ordering engine the exchange waits for it."""


Message = State | Attempt | Ack | Posted | Retransmission | GreenPlaces | Exclude | CaughtUp
BulkMessage = Ask | Chunk | Unable

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)
_bulk_decoder: Final = msgspec.msgpack.Decoder(BulkMessage)


def encode(message: Message | BulkMessage) -> bytes:
    return _encoder.encode(message)


def decode_message(payload: bytes) -> Message | Rejection:
    try:
        message: Message = _decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # ValueError covers text that is not UTF-8; nesting deeper than any layout ends in RecursionError.
        return Rejection("layout", str(error))
    wrong = _wrong_in(message)
    return Rejection("value", wrong) if wrong else message


def decode_bulk(payload: bytes) -> BulkMessage | Rejection:
    try:
        message: BulkMessage = _bulk_decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Rejection("layout", str(error))
    wrong = _wrong_with_actions(message.actions) if isinstance(message, Chunk) else ""
    return Rejection("value", wrong) if wrong else message


def _wrong_in(message: Message) -> str:
    match message:
        case State():
            return _wrong_with_state(message)
        case Posted():
            return wrong_with(message.action)
        case Retransmission() | GreenPlaces():
            return _wrong_with_actions(message.actions)
        case _:
            return ""


def _wrong_with_actions(actions: Iterable[Action]) -> str:
    return next(filter(None, map(wrong_with, actions)), "")


def _wrong_with_state(state: State) -> str:
    if not state.green.record.is_well_formed():
        return "a membership record whose numbers do not fit"
    if not is_sorted(state.green.numbers):
        return "numbers out of order"
    if [number for number, _ in state.lines] != sorted({number for number, _ in state.lines}):
        return "lines out of order"
    if state.held_from > state.green.place:
        return f"a log from place {state.held_from} with {state.green.place} green actions"
    if any(not 1 <= first <= last for _, _, first, last in state.red) or list(state.red) != sorted(state.red):
        return "ranges of red actions out of order"
    if sum(last - first + 1 for _, _, first, last in state.red) > REDS_MAX:
        return f"more than {REDS_MAX} red actions"
    reds = set(ids_of(state.red))
    greens, voting = Numbers(state.green.numbers), state.voting
    if voting is not None and not all(one in reds or one in greens for one in voting.yellow or ()):
        return "yellow actions that the sender does not have"
    named = [*state.yellow, *((creator, lane, first) for creator, lane, first, _ in state.red)]
    return "" if len(set(named)) == len(named) else "an action twice"


def ranges(ids: Iterable[ActionId]) -> tuple[Range, ...]:
    """Ids as ranges, sorted."""
    found: list[Range] = []
    for creator, lane, number in sorted(ids):
        if found and found[-1][:2] == (creator, lane) and found[-1][3] == number - 1:
            found[-1] = (creator, lane, found[-1][2], number)
        else:
            found.append((creator, lane, number, number))
    return tuple(found)


def ids_of(reds: Iterable[Range]) -> Iterator[ActionId]:
    for creator, lane, first, last in reds:
        for number in range(first, last + 1):
            yield ActionId(creator, lane, number)
