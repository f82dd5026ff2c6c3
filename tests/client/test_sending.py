"""Sends: packed within the credit, in turn, cancelled without a trace or accepted for good; and what receipts say of them."""

from __future__ import annotations

import asyncio
import gc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.hosted import Hosted
from tests.client.loops import run, turns
from transis.client.sending import Receipt, Receipts, SendBuffer, Sender, divide
from transis.sessions.frames import BATCH_BYTES, ClientFrame, Credit, NotSent, Send, cost
from transis.sessions.host import SessionPolicy
from transis.types.errors import InDoubt, MessageTooLarge, SendRefused, SessionLost, UsageError
from transis.types.ids import NodeId, ProcessId, Service, ViewId, ViewKind
from transis.types.limits import MESSAGE_MAX, RUN_MESSAGES_MAX

ANN = NodeId("ann", 1, 7)
SENT_US = 1_600_000_000_000_000
SENDER = Sender(SendBuffer(lambda frames: None, lambda: SENT_US), ProcessId(ANN, 1))
VIEWS = (ViewId(ViewKind.REGULAR, 4, ANN), ViewId(ViewKind.TRANSITIONAL, 6, ANN), ViewId(ViewKind.REGULAR, 8, ANN))


# --- packing and credit -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, BATCH_BYTES + 10), max_size=20))
def test_portions_fit_frames_and_keep_the_order(sizes: list[int]) -> None:
    payloads = [bytes(size) for size in sizes]
    portions = divide(payloads)
    assert [payload for portion in portions for payload in portion] == payloads
    assert all(sum(map(len, portion)) <= BATCH_BYTES or len(portion) == 1 for portion in portions)
    assert all(sum(map(len, one)) + len(other[0]) > BATCH_BYTES for one, other in pairwise(portions))


def test_a_portion_has_no_more_messages_than_a_run() -> None:
    assert [len(portion) for portion in divide([b""] * (RUN_MESSAGES_MAX + 1))] == [RUN_MESSAGES_MAX, 1]


class Other:
    """The node's side of credit, by the letter: a Send may leave while credit is above zero, and overdraws it once."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.owed = 0
        self.payloads: list[bytes] = []
        self.frames: list[Send] = []

    def transmit(self, frames: object) -> None:
        for frame in frames:  # type: ignore[attr-defined]
            assert self.credit > 0, "a Send without credit"
            self.credit -= cost(frame)
            self.owed += cost(frame)
            self.payloads += frame.payloads
            self.frames.append(frame)


@given(
    st.integers(1, 3000),
    st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.lists(st.integers(0, 900), min_size=1, max_size=4)), max_size=25),
    st.randoms(use_true_random=False),
)
def test_no_send_leaves_without_credit_and_none_is_lost_or_overtaken(window: int, asked: list, random: object) -> None:
    """Many senders at once, credit that comes back in any pieces, some senders cancelled while they wait."""

    async def story() -> None:
        other = Other(window)
        out = SendBuffer(other.transmit, lambda: SENT_US)
        out.grant(window)
        accepted: list[bytes] = []
        tasks = []
        for number, (address, sizes) in enumerate(asked):
            payloads = [b"%d." % number + bytes(size) for size in sizes]

            def accept(_: int, address: bytes = address, payloads: list[bytes] = payloads) -> None:
                out.accept(address, Service.AGREED, payloads)
                accepted.extend(payloads)

            tasks.append(asyncio.ensure_future(out.accept_in_turn(accept, 1)))
            if random.random() < 0.2:  # type: ignore[attr-defined]
                random.choice(tasks).cancel()  # type: ignore[attr-defined]
            await turns(random.randint(0, 2))  # type: ignore[attr-defined]
        while not all(task.done() for task in tasks):
            await turns(3)
            back = random.randint(0, other.owed)  # type: ignore[attr-defined]
            other.owed -= back
            other.credit += back
            out.grant(back)
        await turns(3)
        assert other.payloads == accepted
        asked_for = [int(payload.split(b".")[0]) for payload in accepted]
        assert asked_for == sorted(asked_for), "in the order of asking"
        assert out.accepted == len(accepted)
        assert out.credit == other.credit

    run(story)


def test_consecutive_messages_of_one_turn_share_a_frame() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            for number in range(100):
                await ann.send("g", b"%d" % number)
            await ann.send("g", b"safe", Service.SAFE)
            await ann.send("h", b"other", Service.SAFE)
            await turns()
            sends = [frame for frame in hosted.links[1].sent if isinstance(frame, Send)]
            assert [(len(frame.payloads), frame.service) for frame in sends] == [
                (100, Service.AGREED),
                (1, Service.SAFE),
                (1, Service.SAFE),
            ]

    run(story)


def test_a_message_that_is_too_large_is_refused_at_once() -> None:
    async def story() -> None:
        async with Hosted().connect() as ann:
            with pytest.raises(MessageTooLarge, match="in parts"):
                await ann.send("g", bytes(MESSAGE_MAX + 1))
            with pytest.raises(MessageTooLarge):
                await ann.send_many("g", [b"", bytes(MESSAGE_MAX + 1)])
            with pytest.raises(UsageError, match="no messages"):
                await ann.send_many("g", [])

    run(story)


def test_a_send_that_is_cancelled_while_it_waits_was_not_sent() -> None:
    """Scenario 57: and the others go on."""

    async def story() -> None:
        hosted = Hosted(SessionPolicy(send_window=4096))
        async with hosted.connect() as ann, ann.join("g") as group:
            hosted.paused = True
            filling = await group.send(bytes(5000))
            waiting = [asyncio.ensure_future(group.send(b"%d" % number)) for number in range(5)]
            await turns()
            assert not any(task.done() for task in waiting)
            waiting[0].cancel()
            waiting[3].cancel()
            await turns()
            hosted.resume()
            await asyncio.gather(*waiting, return_exceptions=True)
            await filling
            await group.send(b"end")
            got = []
            async for event in group:
                data = getattr(event, "data", b"")
                got += [data] if len(data) in (1, 3) else []
                if data == b"end":
                    break
            assert got == [b"1", b"2", b"4", b"end"]

    run(story)


def test_a_batch_that_is_cancelled_in_the_middle_is_sent_as_far_as_it_was_accepted() -> None:
    async def story() -> None:
        hosted = Hosted(SessionPolicy(send_window=4096))
        async with hosted.connect() as ann, ann.join("g") as group:
            hosted.paused = True
            sending = asyncio.ensure_future(group.send_many([bytes(BATCH_BYTES)] * 3))
            await turns()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            hosted.resume()
            after = await group.send(b"after")
            assert after.first == 2
            await after
            assert (await ann.statistics())["client"]["unconfirmed_receipts"] == 0

    run(story)


def test_sending_and_awaiting_receipts_inside_the_loop_cannot_deadlock() -> None:
    """Scenario 57, with a window that one message fills and another that one frame does."""

    async def story() -> None:
        hosted = Hosted(SessionPolicy(send_window=4096))
        async with hosted.connect(window=4096) as ann, ann.join("g") as group:
            await group.send(bytes(3000))
            count = 0
            async for event in group:
                if hasattr(event, "data"):
                    count += 1
                    if count == 50:
                        break
                    await (await group.send(bytes(3000)))
                    if count % 10 == 0:
                        await group.send(bytes(10))
                        await anext(group)

    run(story)


# --- receipts -----------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_receipts_against_a_table_of_messages(counts: list[int], random: object) -> None:
    """Every message is settled once, in any order and in any ranges; the receipts know what a dictionary would."""
    receipts, made, first = Receipts(), [], 1
    for count in counts:
        made.append(Receipt(SENDER, first, count))
        receipts.add(made[-1])
        first += count
    fate: dict[int, str] = {}
    todo = list(range(1, first))
    while todo:
        start = random.choice(todo)  # type: ignore[attr-defined]
        end = start
        while end in todo and random.random() < 0.8:  # type: ignore[attr-defined]
            end += 1
        end = max(end, start + 1)
        why = random.choice(["", "", "no"])  # type: ignore[attr-defined]
        view = random.choice(VIEWS)  # type: ignore[attr-defined]
        assert receipts.settle(start, end - start, () if why else (view,), why)
        for counter in range(start, end):
            fate[counter] = why
            todo.remove(counter)
        for receipt in made:
            mine = [fate.get(counter) for counter in range(receipt.first, receipt.first + receipt.count)]
            expected = "pending" if None in mine else "refused" if "no" in mine else "delivered"
            assert receipt.outcome == expected
    assert len(receipts) == 0
    assert not receipts.settle(1, 1, VIEWS[:1])
    assert not receipts.settle(first, 1, VIEWS[:1])


def test_a_node_that_settles_twice_or_beyond_is_not_believed() -> None:
    receipts = Receipts()
    receipts.add(Receipt(SENDER, 1, 2))
    assert receipts.settle(1, 1, VIEWS[:1])
    assert not receipts.settle(1, 2, VIEWS[:1])
    assert not Receipts().settle(1, 1, VIEWS[:1])


REGULAR, TRANSITIONAL, NEXT = VIEWS


@pytest.mark.parametrize(
    ("came", "view", "phase"),
    [
        ([REGULAR, REGULAR, REGULAR], REGULAR, "regular"),
        ([REGULAR, TRANSITIONAL, TRANSITIONAL], TRANSITIONAL, "transitional"),
        ([REGULAR, TRANSITIONAL, NEXT], TRANSITIONAL, "transitional"),
        ([REGULAR, NEXT, NEXT], NEXT, "regular"),
    ],
)
def test_a_receipt_confirms_the_configuration_that_promises_least(came: list[ViewId], view: ViewId, phase: str) -> None:
    receipts, receipt = Receipts(), Receipt(SENDER, 1, 3)
    receipts.add(receipt)
    with pytest.raises(UsageError, match="3 of the messages have no outcome yet: write `await receipt`"):
        receipt.confirmation()
    for counter, at in enumerate(came, 1):
        assert receipts.settle(counter, 1, (at,))
    confirmation = receipt.confirmation()
    assert (confirmation.view, confirmation.phase) == (view, phase)
    assert confirmation.views == tuple(dict.fromkeys(came)), "each configuration once, in order"


def test_a_receipt_ends_as_delivered_refused_or_in_doubt() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            delivered = await ann.send("g", b"x")
            confirmation = await delivered
            assert confirmation.phase == "regular"
            assert (delivered.outcome, delivered.id.counter, delivered.count) == ("delivered", 1, 1)
            hosted.paused = True
            refused, lost = await ann.send_many("g", [b"1", b"2"]), await ann.send("g", b"3")
            await turns()
            hosted.links[1].deliver([NotSent(2, 2, "the node is leaving")])
            with pytest.raises(SendRefused, match=r"2 of 2 .* the node is leaving"):
                await refused
            waiting = asyncio.ensure_future(_until(lost))
            await turns()
            hosted.links[1].cut("it was killed")
            with pytest.raises(InDoubt, match="it was killed"):
                await waiting
            with pytest.raises(InDoubt):
                await lost
            assert (refused.outcome, lost.outcome) == ("refused", "in doubt")
            with pytest.raises(SessionLost, match="it was killed"):
                await ann.send("g", b"4")

    run(story)


async def _until(receipt: Receipt) -> None:
    await receipt


def test_cancelling_one_who_waits_for_a_receipt_does_not_touch_the_others() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            hosted.paused = True
            receipt = await ann.send("g", b"x")
            waiting = [asyncio.ensure_future(_until(receipt)) for _ in range(3)]
            await turns()
            waiting[1].cancel()
            await turns()
            hosted.resume()
            await asyncio.gather(waiting[0], waiting[2])
            assert waiting[1].cancelled()

    run(story)


def test_a_receipt_that_nobody_looks_at_says_nothing() -> None:
    """Not when it was refused, and not when the session is lost; warnings are errors here, complaints of the loop are kept."""

    async def story() -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        hosted = Hosted()
        async with hosted.connect() as ann:
            hosted.paused = True
            await ann.send_many("g", [b"x", b"y"])
            await turns()
            hosted.links[1].deliver([NotSent(1, 1, "no")])
            hosted.links[1].cut()
        gc.collect()
        await turns()
        assert complaints == []

    run(story)


def test_credit_frames_do_not_break_a_run_apart() -> None:
    async def story() -> None:
        frames: list[ClientFrame] = []
        out = SendBuffer(frames.extend, lambda: SENT_US)
        out.grant(1000)
        out.accept(b"a", Service.AGREED, [b"1"])
        out.post_anywhere(Credit(5))
        out.accept(b"a", Service.AGREED, [b"2"])
        await turns(2)
        assert frames == [Credit(5), Send(b"a", Service.AGREED, [b"1", b"2"], SENT_US)]

    run(story)
