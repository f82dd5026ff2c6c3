"""What a type checker tells the author of a program; checked by mypy and by pyright, never run (tests/house/test_typing.py).

A line that ends in two comments is wrong on purpose: each checker must complain there, or it complains about its comment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_type

import transis
from transis import (
    Batch,
    Codec,
    Configuration,
    Confirmation,
    Connection,
    Group,
    Json,
    Message,
    MessageId,
    MsgPack,
    Node,
    ProcessId,
    Raw,
    Receipt,
    Service,
    Session,
    Transfer,
    View,
    blocking,
    errors,
)
from transis.testing import Cluster, Clusters


@dataclass
class Order:
    item: str
    count: int


class Text:
    """A codec of a user's own."""

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> str:
        return data.decode()


# --- sessions ---------------------------------------------------------------------------------------------------------


async def sessions() -> None:
    assert_type(transis.connect(), Connection[bytes])
    assert_type(transis.connect("/run/transis.sock", label="me"), Connection[bytes])
    assert_type(transis.connect(codec=MsgPack(Order)), Connection[Order])
    assert_type(transis.connect(codec=Text()), Connection[str])
    async with transis.connect(host="a:1", key=b"k" * 32, codec=Json(Order)) as session:
        assert_type(session, Session[Order])
        assert_type(session.process, ProcessId)
        assert_type(await session.statistics(), dict[str, Any])
        assert_type(await session.about(), dict[str, str])
        assert_type(await session.send("orders", Order("pear", 3)), Receipt)
        assert_type(await session.send(["orders", session.process], Order("pear", 3), Service.SAFE), Receipt)
        await session.send("orders", b"pear")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await session.send(7, Order("pear", 3))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def codecs() -> None:
    assert_type(Json(Order), Json[Order])
    assert_type(Json(dict[str, int]), Json[dict[str, int]])
    assert_type(MsgPack(list[Order]), MsgPack[list[Order]])
    assert_type(Json(), Json[Any])
    assert_type(Json(int | str), Json[Any])
    either: Json[int | str] = Json(int | str)
    custom: Codec[str] = Text()
    plain: Codec[bytes] = Raw()
    del either, custom, plain


# --- groups -----------------------------------------------------------------------------------------------------------


async def groups(session: Session[Order]) -> None:
    async with session.join("orders") as group:
        assert_type(group, Group[Order])
        assert_type(group.view, View | None)
        assert_type(group.members, tuple[ProcessId, ...])
        receipt = await group.send(Order("pear", 3))
        assert_type(receipt.id, MessageId)
        assert_type(await receipt, Confirmation)
        assert_type((await receipt).phase, Literal["regular", "transitional"])
        await group.send("pear")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        async for event in group:
            assert_type(event, Message[Order] | View)
            if isinstance(event, View):
                assert_type(event, View)
                assert_type(event.members, tuple[ProcessId, ...])
                assert_type(event.primary, bool | None)
            else:
                assert_type(event.data, Order)
                assert_type(event.service, Service)
                assert_type(event.phase, Literal["regular", "transitional"])


async def matched(group: Group[Order]) -> str:
    """After both kinds of event there is nothing left."""
    async for event in group:
        match event:
            case View(members=members):
                assert_type(members, tuple[ProcessId, ...])
            case Message(sender=sender, data=data):
                assert_type(sender, ProcessId)
                assert_type(data, Order)
    return "left"


async def frames(group: Group[bytes]) -> None:
    async for event in group.batches():
        if isinstance(event, Batch):
            assert_type(event.payloads, list[bytes])
            for message in event:
                assert_type(message, Message[bytes])
        else:
            assert_type(event, View)
    async for one in group.everything():
        if isinstance(one, Configuration):
            assert_type(one.id.seq, int)


async def states(session: Session[bytes]) -> None:
    def save() -> Iterator[bytes]:
        yield b""

    async def load(chunks: AsyncIterator[bytes]) -> None:
        async for chunk in chunks:
            assert_type(chunk, bytes)

    async with session.join("words", state=Transfer(save, load)) as group:
        assert_type(await group.reload(), bool)


# --- nodes ------------------------------------------------------------------------------------------------------------


async def nodes() -> None:
    async with Node("ann") as node, node.connect() as session, session.join("orders") as group:
        assert_type(node, Node)
        assert_type(session, Session[bytes])
        assert_type(group, Group[bytes])
        assert_type(node.connect(codec=Json(Order)), Connection[Order])
        assert_type(node.view, Configuration | None)
    Node("ann", engine="lansis", order="toto", mode="evs", run="process", transport="mesh", profile="wan", state=Path("/s"))
    Node("ann", engine="paxos")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Node("ann", run="fibre")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Node("ann", colour="red")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def failures(receipt: Receipt) -> bool:
    try:
        await receipt
    except (errors.SendRefused, errors.InDoubt) as error:
        raise SystemExit(str(error)) from error
    return receipt.outcome == "lost"  # type: ignore[comparison-overlap]  # pyright: ignore[reportUnnecessaryComparison]


# --- threads ----------------------------------------------------------------------------------------------------------


# --- replicas -----------------------------------------------------------------------------------------------------------


@transis.replicated
class Accounts:
    def __init__(self) -> None:
        self.balance: dict[str, int] = {}

    @transis.replicated.action
    def move(self, source: str, target: str, amount: int) -> int:
        return amount

    @transis.replicated.query
    def of(self, account: str) -> int:
        return self.balance[account]


async def replicas(node: Node) -> None:
    async with transis.replica("log", me="ann", replicas=["ann"], directory="log", connect=node.connect) as log:
        assert_type(log, transis.ReplicaLog[bytes])
        assert_type(await log.post(b""), transis.PostReceipt)
        assert_type(await (await log.post(b"")).ordered(timeout=5), int)
        async for entry in log.read(after=0):
            assert_type(entry, transis.Entry[bytes])
        async for batch in log.read().batches():
            assert_type(batch, transis.EntryBatch[bytes])
        await log.post("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async with transis.replica("log", settings="bank.toml", codec=Json(Order)) as orders:
        assert_type(orders, transis.ReplicaLog[Order])
        await orders.post(Order("pear", 3))
    async with transis.replica("bank", settings="bank.toml", machine=Accounts()) as bank:
        assert_type(bank, transis.ReplicaMachine[Accounts])
        assert_type(await bank.call(Accounts.move, "7", "9", 50), int)
        assert_type(await bank.ask(Accounts.of, "7"), int)
        assert_type(await (await bank.post(Accounts.move, "7", "9", amount=50)).result(), int)
        await bank.call(Accounts.move, "7", "9", "50")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert_type(bank.status(), transis.ReplicaStatus)
        await bank.admin.replace("cyd", directory_lost=True)


def replicas_in_threads() -> None:
    with blocking.replica("log", settings="bank.toml") as log:
        assert_type(log.post(b"").ordered(timeout=5), int)
        for entry in log.read():
            assert_type(entry, transis.Entry[bytes])
    with blocking.replica("bank", settings="bank.toml", machine=Accounts()) as bank:
        assert_type(bank.call(Accounts.move, "7", "9", 50), int)


def threads() -> None:
    with blocking.Node("ann", engine="lansis") as node, node.connect(codec=Json(Order)) as session:
        assert_type(node, blocking.Node)
        assert_type(session, blocking.Session[Order])
        with session.join("orders") as group:
            assert_type(group, blocking.Group[Order])
            assert_type(group.send(Order("pear", 3)), blocking.Receipt)
            assert_type(group.send(Order("pear", 3)).wait(timeout=1), Confirmation)
            for event in group:
                assert_type(event, Message[Order] | View)
    blocking.Node("ann", engine="paxos")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with blocking.connect() as plain:
        assert_type(plain, blocking.Session[bytes])


# --- tests ------------------------------------------------------------------------------------------------------------


async def answer() -> str:
    return ""


async def test_of_a_user(cluster: Clusters) -> None:
    made = cluster(3, engine="lansis")
    assert_type(made, Cluster)
    async with made.connect("a", codec=Json(Order)) as session:
        assert_type(session, Session[Order])
    await made.settle()
    assert_type(made.run(answer()), str)
    cluster(3, engine="paxos")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
