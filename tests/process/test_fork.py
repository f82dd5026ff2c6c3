"""A program that forks: its child is told, holds nothing of the parent's, and may begin anew; the parent notices nothing."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transis
from tests.daemon.running import opened_site
from tests.embed.party import PATIENCE_S, Cluster, echo
from tests.process.forking import Child, in_child, not_refused, own_links, refusals
from transis import blocking
from transis.client.stream import Spool
from transis.sessions.frames import Left
from transis.types.errors import ForkedError


@pytest.fixture(params=("thread", "process"))
def run(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Calls = dict[str, Callable[[], Any]]


def of_session(session: transis.Session[bytes], group: transis.Group[bytes], receipt: transis.Receipt) -> Calls:
    return {
        "send": lambda: session.send("x", b"x"),
        "send_many": lambda: session.send_many("x", [b"x"]),
        "join": lambda: session.join("y"),
        "private": lambda: session.private,
        "statistics": session.statistics,
        "about": session.about,
        "close": session.close,
        "closed": lambda: session.closed,
        "group.send": lambda: group.send(b"x"),
        "group.send_many": lambda: group.send_many([b"x"]),
        "group.leave": group.leave,
        "group.close": group.close,
        "group.reload": group.reload,
        "group.view": lambda: group.view,
        "group.members": lambda: group.members,
        "group.position": lambda: group.position,
        "group.checkpoint": lambda: group.checkpoint(b"x"),
        "group.is_due": lambda: group.is_due(2),
        "iteration": lambda: anext(aiter(group)),
        "batches": lambda: anext(aiter(group.batches())),
        "everything": lambda: anext(aiter(group.everything())),
        "receipt": lambda: receipt,
        "receipt.outcome": lambda: receipt.outcome,
    }


def of_node(node: transis.Node) -> Calls:
    return {
        "open": node.open,
        "leave": node.leave,
        "ended": node.ended,
        "connect": node.connect,
        "node.statistics": node.statistics,
        "node.id": lambda: node.id,
        "node.view": lambda: node.view,
        "failure": lambda: node.failure,
    }


def test_every_call_is_refused_in_a_child(tmp_path: Path, run: str) -> None:
    async def story() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            Cluster(tmp_path).node("ann", run=run) as node,
            node.connect() as session,
            session.join("x") as group,
        ):
            delivered = await group.send(b"one")
            await delivered
            iterating = aiter(group)
            opening, joining = node.connect(), session.join("z")
            pending = await group.send(b"two")
            calls = of_session(session, group, pending) | of_node(node)
            calls |= {"delivered": lambda: delivered, "began": lambda: anext(iterating)}
            calls |= {"opening": opening.open, "joining": joining.open}
            assert not_refused(in_child(lambda: refusals(calls))) == {}
            await pending
            await echo(session)

    asyncio.run(story())


def test_every_blocking_call_is_refused_in_a_child() -> None:
    with opened_site() as site:
        site.start("ann").ready()
        blocking_calls_are_refused(site.directory / "ann.sock")


def blocking_calls_are_refused(socket: Path) -> None:
    with blocking.connect(str(socket)) as session, session.join("x") as group:
        receipt = group.send(b"one")
        receipt.wait(PATIENCE_S)
        group.next(PATIENCE_S)
        batches = group.batches()
        calls = {
            "send": lambda: session.send("x", b"x"),
            "send_many": lambda: session.send_many("x", [b"x"], timeout=1),
            "join": lambda: session.join("y"),
            "private": lambda: session.private,
            "statistics": session.statistics,
            "closed": lambda: session.closed,
            "close": session.close,
            "group.send": lambda: group.send(b"x"),
            "group.view": lambda: group.view,
            "group.leave": group.leave,
            "group.close": group.close,
            "group.position": lambda: group.position,
            "next": lambda: next(group),
            "iteration": lambda: next(batches),
            "receipt": receipt.wait,
        }
        assert not_refused(in_child(lambda: refusals(calls))) == {}
        group.send(b"two").wait(PATIENCE_S)


def test_every_call_on_a_blocking_node_is_refused_in_a_child(tmp_path: Path, run: str) -> None:
    with blocking.Node("ann", cluster="tests", state=tmp_path / "ann", group=Cluster(tmp_path).group, run=run) as node:  # type: ignore[arg-type]
        calls = {
            "open": node.open,
            "leave": node.leave,
            "ended": node.ended,
            "connect": node.connect,
            "statistics": node.statistics,
            "id": lambda: node.id,
            "view": lambda: node.view,
        }
        assert not_refused(in_child(lambda: refusals(calls))) == {}
        assert node.statistics(PATIENCE_S)["state"] == "Operational"


def test_a_child_holds_nothing_of_its_parent_which_starts_again_beside_it(tmp_path: Path, run: str) -> None:
    """With the same state directory, the same ports and the same trace, while the child lives."""
    alone = {"transport": "mesh", "port": three_ports(), "run": run, "trace": tmp_path / "traces"}

    async def story() -> None:
        before = own_links()
        node = Cluster(tmp_path).node("ann", **alone)
        async with asyncio.timeout(PATIENCE_S), node, node.connect() as session, session.join("x"):
            taken = own_links() - before
            child = Child(lambda: sorted(own_links() & taken))
        try:
            assert any(link.startswith("socket:") for link in taken)
            of_the_loop = ("anon_inode:",) if run == "process" else ("anon_inode:", "pipe:")  # That of the node's thread.
            assert [link for link in child.result if not link.startswith(of_the_loop)] == []
            async with asyncio.timeout(PATIENCE_S), Cluster(tmp_path).node("ann", **alone) as again, again.connect() as session:
                assert again.id.incarnation == node.id.incarnation + 1
                await echo(session)
        finally:
            child.end()

    asyncio.run(story())


def three_ports() -> int:
    """In a row, and nobody else of these tests has them."""
    return 33_000 + os.getpid() % 9_000 * 3


def test_a_spool_is_not_inherited(tmp_path: Path) -> None:
    """Messages that wait on disk for a transfer of state: the child has neither the file nor the messages."""
    spool = Spool(str(tmp_path))
    spool.append(Left("x", "why"))
    spooled = {link for link in own_links() if link.startswith(str(tmp_path))}
    assert len(spooled) == 1
    assert in_child(lambda: sorted(own_links() & spooled)) == []
    assert spool.popleft() == Left("x", "why")


def test_a_child_begins_anew(tmp_path: Path, run: str) -> None:
    """A node that was made before the fork and entered behind it, and a session with it."""
    cluster = Cluster(tmp_path)

    async def life(node: transis.Node) -> str:
        async with asyncio.timeout(PATIENCE_S), node, node.connect() as session:
            await echo(session)
            return node.id.name

    def child_of(node: transis.Node) -> str:
        return asyncio.run(life(node))

    with blocking.Node("ann", cluster="other", state=tmp_path / "ann", group=cluster.group, run=run):  # type: ignore[arg-type]
        made = cluster.node("bob", run=run)
        assert in_child(lambda: child_of(made)) == "bob"


def test_a_worker_of_multiprocessing_is_told() -> None:
    with opened_site() as site:
        site.start("ann").ready()
        with blocking.connect(str(site.directory / "ann.sock")) as session, session.join("x") as group:
            context = multiprocessing.get_context("fork")
            with context.Pool(1, initializer=inherit, initargs=(group,)) as pool:
                assert f"this Group belongs to process {os.getpid()}" in pool.apply(send_what_was_inherited)
            group.send(b"x").wait(PATIENCE_S)


INHERITED: list[blocking.Group[bytes]] = []


def inherit(group: blocking.Group[bytes]) -> None:
    INHERITED.append(group)


def send_what_was_inherited() -> str:
    with pytest.raises(ForkedError) as refused:
        INHERITED[0].send(b"x")
    return str(refused.value)


PROGRAM = """
import os, sys
from transis import blocking
with blocking.Node("ann", cluster="tests", state=sys.argv[1], flight=False, run=sys.argv[2]) as node:
    with node.connect() as session, session.join("x") as group:
        child = os.fork()
        if child == 0:
            sys.exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        group.send(b"x").wait(30)
        print(code, node.statistics()["state"])
"""


def test_a_child_that_exits_inside_the_contexts_says_nothing(tmp_path: Path, run: str) -> None:
    """Its contexts close nothing of the parent's, not even a node in a process beside it."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "ann"), run]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S)
    assert (done.stdout, done.stderr) == ("7 Operational\n", "")
