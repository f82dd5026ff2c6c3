"""Configurations among the messages, and positions: where a reader stands, the same for all who read the same."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from tests.client.hosted import Hosted
from tests.client.loops import run, turns
from tests.client.test_transfer import Member, start
from transis import Json, Message, MsgPack, Position, Raw, Service, Session
from transis.client import Batch, Configuration, View
from transis.sessions.frames import Checkpoint, Follow
from transis.testing import Cluster, Clusters
from transis.types.config import ENGINES
from transis.types.errors import ConnectError, SessionLost, UsageError
from transis.types.ids import NodeId, Place, ViewId, ViewKind
from transis.types.views import GroupViewId


async def take(stream: Any, count: int) -> list[Any]:
    return [await anext(stream) for _ in range(count)]


# --- configurations -----------------------------------------------------------------------------------------------------------


def test_a_stream_with_configurations_begins_with_the_one_in_force() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g", configurations=True) as group:
            await group.send(b"1")
            configuration, view, batch = await take(group.everything(), 3)
            assert isinstance(configuration, Configuration)
            assert isinstance(view, View)
            assert view.id.configuration == configuration.id
            assert batch.payloads == [b"1"]

    run(story)


def test_the_first_view_is_known_before_the_iteration_also_behind_a_configuration() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g", configurations=True) as group:
            assert group.members == (ann.process,)
            before = group.view
            _, view = await take(group.everything(), 2)
            assert before == view == group.view

    run(story)


def test_the_node_is_asked_once_and_every_stream_begins_with_the_one_in_force() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g", configurations=True), ann.join("h", configurations=True) as other:
            first, second = await take(other.everything(), 2)
            assert isinstance(first, Configuration)
            assert isinstance(second, View)
        (link,) = hosted.all_links
        assert sum(isinstance(frame, Follow) for frame in link.sent) == 1

    run(story)


def test_iteration_and_batches_pass_over_configurations() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            async with ann.join("g", configurations=True) as group:
                await group.send(b"1")
                view, message = await take(group, 2)
                assert isinstance(view, View)
                assert message.data == b"1"
            async with ann.join("h", configurations=True) as group:
                (view,) = await take(group.batches(), 1)
                assert isinstance(view, View)

    run(story)


def test_who_does_not_ask_gets_none() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            (first,) = await take(group.everything(), 1)
            assert isinstance(first, View)
        assert not any(isinstance(frame, Follow) for frame in hosted.all_links[0].sent)

    run(story)


def test_a_node_is_asked_what_it_is() -> None:
    async def story() -> None:
        async with Hosted().connect() as ann:
            about = await ann.about()
            assert (about["engine"], about["guarantees"]) == ("totem", "evs")

    run(story)


# --- stretches ----------------------------------------------------------------------------------------------------------------


def test_stretches_are_the_places_of_the_messages_also_behind_some_of_them() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            await group.send_many([b"x" * 400] * 40)
            _, batch = await take(group.batches(), 2)
            for gone in (0, 1, 3, 20, len(batch)):
                rest = batch.after(gone)
                places = [(seq, index + step) for seq, index, count in rest.stretches for step in range(count)]
                assert places == [tuple(message.place) for message in rest]

    run(story)


# --- positions ----------------------------------------------------------------------------------------------------------------


def test_a_position_counts_agreed_and_safe_messages_since_the_view() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob, ann.join("g") as group:
            with pytest.raises(UsageError, match="before the first view"):
                _ = group.position
            first = await anext(group)
            assert group.position == Position(first.id, 0)
            await group.send_many([b"1", b"2", b"3"])
            await take(group, 1)
            message = await anext(group)
            assert group.position == Position(first.id, 2, ann.process, 2, message.place)
            assert (group.is_due(1), group.is_due(2), group.is_due(3)) == (True, True, False)
            await take(group, 1)
            await (await group.send(b"causal", Service.CAUSAL))
            await take(group, 1)
            assert (group.position.count, group.is_due(1)) == (3, False), "a causal message is not counted"
            async with bob.join("g"):
                second = await anext(group)
                assert (group.position, group.is_due(1)) == (Position(second.id, 0), False)

    run(story)


def test_behind_a_batch_the_position_is_its_end() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            await group.send_many([b"%d" % number for number in range(9)])
            await take(group, 4)
            assert group.position.count == 3
            (rest,) = await take(group.batches(), 1)
            assert isinstance(rest, Batch)
            assert (len(rest), group.position.count, group.position.counter) == (6, 9, 9)

    run(story)


@pytest.mark.parametrize(("digest", "data"), [(b"\x01", b"\x01"), ("ä", "ä".encode()), (258, bytes(6) + b"\x01\x02")])
def test_a_checkpoint_tells_the_position_and_the_digest(digest: bytes | str | int, data: bytes) -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            await (await group.send(b"1"))
            await take(group, 2)
            group.checkpoint(digest)
            await ann.about()  # Frames stay in order, so the checkpoint has arrived.
            (told,) = hosted.alone.checkpoints
            process, _, *rest = told
            assert (process, Checkpoint(*rest)) == (ann.process.number, Checkpoint("g", *group.position, data))

    run(story)


@pytest.mark.parametrize("digest", [b"", "", bytes(65), "x" * 65, -1, 1 << 64])
def test_digests_that_cannot_be(digest: bytes | str | int) -> None:
    async def story() -> None:
        async with Hosted().connect() as ann, ann.join("g") as group:
            await anext(group)
            with pytest.raises(UsageError, match="digest"):
                group.checkpoint(digest)

    run(story)


def test_a_stream_of_several_names_has_no_position() -> None:
    async def story() -> None:
        async with Hosted().connect() as ann, ann.join("g", "h") as group:
            await anext(group)
            with pytest.raises(UsageError, match="belongs to one group"):
                _ = group.position

    run(story)


class Counting(Member):
    """Keeps which message stood at which position."""

    def __init__(self, session: Session[bytes]) -> None:
        super().__init__(session)
        self.seen: dict[tuple[str, int], str] = {}

    async def read(self) -> None:
        assert self.group is not None
        async for event in self.group:
            if isinstance(event, Message):
                self.state.append(event.data)
                self.seen[str(self.group.position.view), self.group.position.count] = str(event.id)


def test_who_loads_a_state_in_the_middle_of_a_view_counts_from_its_beginning() -> None:
    """What came between the view and the snapshot is in the state, and counts."""

    async def story() -> None:
        hosted = Hosted()
        members: list[Any] = await start(hosted, 1, Counting)

        async def traffic() -> None:
            for number in range(2000):
                await members[0].session.send("g", b"%d" % number)
                if number % 20 == 0:
                    await turns(1)

        sending = asyncio.ensure_future(traffic())
        for _ in range(3):
            await turns(15)
            members += await start(hosted, 1, Counting)
        await sending
        for member in members:
            await member.reaches(b"1999")
        assert members[1].loads == 1
        for member in members[1:]:
            shared = member.seen.keys() & members[0].seen.keys()
            assert len(shared) == len(member.seen) > 100
            assert all(member.seen[position] == members[0].seen[position] for position in shared)
        await asyncio.gather(*(member.session.close() for member in members))
        await asyncio.gather(*(member.reading for member in members))

    run(story)


# --- the same everywhere ------------------------------------------------------------------------------------------------------

Seen = dict[tuple[str, int], set[tuple[str, int]]]
"""Which message stood at a position, by view and count: one, if all count alike."""


async def live(c: Cluster, name: str, seen: Seen) -> None:
    while True:
        try:
            async with c.connect(name) as session:
                await visit(c, session, seen)
        except (SessionLost, ConnectError):
            await c.run_for(0.02)


async def visit(c: Cluster, session: Session[bytes], seen: Seen) -> None:
    drawn = c.random
    try:
        async with asyncio.timeout(drawn.between(50, 800) / 1000), session.join("g") as group:
            await group.send_many([b"x"] * drawn.between(1, 40), drawn.pick(tuple(Service)))
            async for event in group:
                if isinstance(event, Message) and event.service >= Service.AGREED:
                    position = group.position
                    seen[str(position.view), position.count].add((str(event.sender), event.counter))
                    assert (position.sender, position.counter, position.place) == (event.sender, event.counter, event.place)
                if isinstance(event, Message) and drawn.chance(40):
                    await group.send(b"again", drawn.pick(tuple(Service)))
    except TimeoutError:
        pass


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(3))
async def test_members_of_a_view_count_the_same_messages(cluster: Clusters, seed: int, engine: str) -> None:
    c = cluster(4, seed=seed, engine=engine)
    seen: Seen = defaultdict(set)
    clients = [asyncio.create_task(live(c, name, seen)) for name in 2 * c.names]
    for number in range(4):
        await c.run_for(c.random.stretched(50_000, 200_000) / 1e6)
        c.partition(c.random.some(c.names, 2)) if number % 2 == 0 else c.heal()
    c.heal()
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)
    await c.settle()
    assert len(seen) > 100
    assert {position: who for position, who in seen.items() if len(who) > 1} == {}


# --- in a line ----------------------------------------------------------------------------------------------------------------


def printed(*things: object) -> list[str]:
    """What `print` says of each: one line."""
    lines = [str(thing) for thing in things]
    assert all(len(line.splitlines()) == 1 for line in lines), lines
    return lines


def test_everything_a_stream_gives_prints_as_one_readable_line() -> None:
    async def story() -> list[str]:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g", configurations=True) as group:
            receipt = await group.send_many([b"one", b"two", b"three"], Service.SAFE)
            confirmation = await receipt
            configuration, view, batch = await take(group.everything(), 3)
            about = printed(configuration, view, batch, *batch, group.position)
            return [*about, *printed(confirmation, receipt, view.id, view.cause, batch.service, view.kind)]

    assert run(story) == [
        "R0@ann/1: ann/1 (the node started)",
        "g: 1 member: ann/1#1; joined: ann/1#1 (ann/1#1 joined)",
        "ann/1#1:1..3 to g (safe): 3 messages",
        "ann/1#1:1 to g (safe): b'one'",
        "ann/1#1:2 to g (safe): b'two'",
        "ann/1#1:3 to g (safe): b'three'",
        "3 messages into R0@ann/1+1.0, behind ann/1#1:3 at 2.2",
        "delivered in R0@ann/1 (regular)",
        "<Receipt ann/1#1:1..3: delivered>",
        "R0@ann/1+1.0",
        "ann/1#1 joined",
        "SAFE",
        "REGULAR",
    ]


def test_what_is_open_prints_as_one_readable_line() -> None:
    async def story() -> list[str]:
        connection = Hosted().connect(label="tests")
        async with connection as ann, ann.join("g", "h") as group:
            await ann.send(ann.process, b"psst")
            message = await anext(ann.private)
            return printed(connection, ann, ann.join("k"), group, ann.private, message, ann.process, ann.process.node)

    assert run(story) == [
        "<Connection, entered>",
        "<Session ann/1#1 with the node of this test>",
        "<Joining k>",
        "<Group g h of ann/1#1>",
        "<Stream of private messages to ann/1#1>",
        "ann/1#1:1 private (agreed): b'psst'",
        "ann/1#1",
        "ann/1",
    ]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"x" * 100_000, f"b'{'x' * 58}... (100,000 bytes)"),
        ("y" * 61, f"'{'y' * 59}... (61 characters)"),
        ("two\nlines", r"'two\nlines'"),
        (list(range(1000)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1..."),
    ],
)
def test_long_data_are_cut(data: object, shown: str) -> None:
    async def story() -> None:
        async with Hosted().connect(codec=MsgPack()) as ann, ann.join("g") as group:
            await group.send(data)
            _, message = await take(group, 2)
            assert printed(message) == [f"ann/1#1:1 to g (agreed): {shown}"]

    run(story)


def test_codecs_and_positions_print_plainly() -> None:
    view = GroupViewId(ViewId(ViewKind.REGULAR, 4, NodeId("ann", 2, 7)), Place(3, 0))
    assert printed(Raw(), Json(), MsgPack(int), Position(view, 0)) == [
        "Raw()",
        "Json()",
        "MsgPack(int)",
        "the beginning of R4@ann/2+3.0",
    ]
