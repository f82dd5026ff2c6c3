"""Messages of replicas <-> bytes: whole ones come back, anything else is a rejection."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tests.prsl.stories import action
from transis.prsl.actions import Action, ActionId, Kind, Lane, wrong_with
from transis.prsl.log import Snapshot
from transis.prsl.machine import Config, first_base
from transis.prsl.messages import (
    Ack,
    Ask,
    Attempt,
    CaughtUp,
    Chunk,
    Exclude,
    GreenPlaces,
    Message,
    Posted,
    Retransmission,
    State,
    Unable,
    decode_bulk,
    decode_message,
    encode,
    ids_of,
    ranges,
    view_tag,
)
from transis.prsl.record import Change, Entry, What, change_of, encode_change, founding
from transis.prsl.votes import Primary, Voting, Vulnerable
from transis.types.errors import Rejection
from transis.types.ids import NodeId, Place, ProcessId, ViewId, ViewKind
from transis.types.views import GroupViewId

ANN = ProcessId(NodeId("ann", 1, 7), 1)
BASE = first_base(Config("ann", bytes(16), ("ann", "bob")))
ONE = action(1, 2, lts=9, deps=((2, 4),))
KEYED = msgspec.structs.replace(ONE, key=bytes(16), at=7, posted=1_700_000_000_000_000)
FOUND = founding([Entry(1, "ann", bytes(16)), Entry(2, "bob", bytes(16))])
STATE = State(5, "ann", bytes(16), 3, 1, 4, 6, (ONE.id,), ((2, Lane.MESSAGES, 1, 3),), 0, 2, BASE)
VOTING = Voting(Primary(4, 1, (1, 2), (1,)), 2, Vulnerable(4, 2, (1, 2), (1,)), (ActionId(2, Lane.MESSAGES, 3),))
MESSAGES: tuple[Message, ...] = (
    STATE,
    msgspec.structs.replace(STATE, lines=((1, 4), (2, 3)), voting=VOTING),
    CaughtUp(5),
    Attempt(5),
    Ack(5, 10, 9, 4),
    Posted(5, ONE),
    Posted(5, KEYED, 7, True),
    Posted(5, FOUND),
    Retransmission(5, (ONE, KEYED)),
    GreenPlaces(5, 3, (FOUND,)),
    Exclude(5, (ANN,)),
)
BULK = (Ask(0, 3, 9), Chunk(5, 3, (ONE,), bytes(8)), Unable(5, 3))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_a_message_comes_back(message: Message) -> None:
    assert decode_message(encode(message)) == message


@pytest.mark.parametrize("message", BULK, ids=lambda one: type(one).__name__)
def test_a_private_message_comes_back(message: Ask | Chunk | Unable) -> None:
    assert decode_bulk(encode(message)) == message


@pytest.mark.parametrize("seed", range(8))
def test_any_bytes_are_a_message_or_a_rejection(seed: int) -> None:
    """Noise, and good messages with bytes changed, cut or repeated; what is let through can be sent on."""
    random = Random(seed)
    good = [encode(message) for message in (*MESSAGES, *BULK)]
    for _ in range(1500):
        data = bytearray(random.choice(good) if random.random() < 0.8 else random.randbytes(random.randrange(40)))
        for _ in range(random.randrange(4)):
            _wound(random, data)
        for decode in (decode_message, decode_bulk):
            message = decode(bytes(data))
            assert isinstance(message, Rejection) or decode(encode(message)) == message


def _wound(random: Random, data: bytearray) -> None:
    place = random.randrange(len(data) + 1)
    match random.randrange(3):
        case 0:
            del data[place:]
        case 1:
            data[place : place + 1] = random.randbytes(1)
        case _:
            data[place:place] = data[random.randrange(len(data) + 1) :][:8]


@pytest.mark.parametrize(
    ("wrong", "field", "why"),
    [
        (msgspec.structs.replace(ONE, id=ActionId(1, Lane.MESSAGES, 0)), "value", "without a number"),
        (msgspec.structs.replace(ONE, id=ActionId(1, Lane.CHANGES, 2)), "value", "numbered among the changes"),
        (msgspec.structs.replace(ONE, id=ActionId(0, Lane.MESSAGES, 2)), "value", "numbered among the messages"),
        (msgspec.structs.replace(ONE, lengths=(5,)), "value", "add up"),
        (msgspec.structs.replace(ONE, key=b"short"), "value", "a key of 5 bytes"),
        (msgspec.structs.replace(ONE, deps=((2, 4), (1, 3))), "value", "out of order"),
        (msgspec.structs.replace(ONE, lengths=(0,) * 5000), "layout", "length"),
        (msgspec.structs.replace(ONE, lts=-1), "layout", ">= 0"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_an_unfit_action_is_rejected(wrong: Action, field: str, why: str) -> None:
    found = decode_message(encode(Posted(5, wrong)))
    assert isinstance(found, Rejection) and found.field == field and why in found.why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"held_from": 3}, "a log from place 3 with 0 green"),
        ({"red": ((2, Lane.MESSAGES, 3, 1),)}, "out of order"),
        ({"red": ((3, Lane.MESSAGES, 1, 1), (2, Lane.MESSAGES, 1, 1))}, "out of order"),
        ({"red": ((2, Lane.MESSAGES, 1, 1 << 40),)}, "more than"),
        ({"yellow": (ONE.id, ONE.id)}, "an action twice"),
        ({"lines": ((2, 1), (1, 1))}, "lines out of order"),
        ({"voting": msgspec.structs.replace(VOTING, yellow=(ActionId(9, Lane.MESSAGES, 1),))}, "does not have"),
        ({"green": msgspec.structs.replace(BASE, record=msgspec.structs.replace(BASE.record, members=(2, 1)))}, "do not fit"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_an_unfit_state_is_rejected(changes: dict[str, object], why: str) -> None:
    found = decode_message(encode(msgspec.structs.replace(STATE, **changes)))
    assert isinstance(found, Rejection) and why in found.why


def test_ranges_are_the_ids_again() -> None:
    random = Random(3)
    for _ in range(50):
        ids = {ActionId(random.randint(1, 3), Lane(random.randint(0, 1)), random.randint(1, 9)) for _ in range(12)}
        assert set(ids_of(ranges(ids))) == ids
        assert len(set(ids_of(ranges(ids)))) == len(list(ids_of(ranges(ids))))


def test_a_view_has_one_tag() -> None:
    view = GroupViewId(ViewId(ViewKind.REGULAR, 4, ANN.node), Place(3, 1))
    other = view._replace(place=Place(3, 2))
    assert view_tag(view) == view_tag(GroupViewId(*view)) != view_tag(other)
    assert 0 < view_tag(view) < 1 << 62


def test_a_change_that_cannot_be_read_asks_for_nothing() -> None:
    change = Change(What.JOIN, 1, 0, (Entry(0, "dan", bytes(16)),))
    good = Action(ActionId(1, Lane.CHANGES, 1), Kind.CHANGE, 1, (), (), encode_change(change))
    assert change_of(good) == change and not wrong_with(good)
    assert change_of(msgspec.structs.replace(good, data=b"\xc1")) is None
    assert change_of(ONE) is None


def test_a_snapshot_begins_with_nothing() -> None:
    assert Snapshot(BASE).keys == () and Snapshot(BASE).base.place == 0
