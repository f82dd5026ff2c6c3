"""A node embedded in a program, in a thread and in a process: the same sessions, the same ends, the same errors."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

import transis
from tests.embed.party import PATIENCE_S, Cluster, echo, names_of, together, until
from transis.net.state import StateDirectory
from transis.trace.events import End
from transis.trace.files import beside
from transis.trace.reader import read_history
from transis.types.errors import ConfigError, IdentityError, NodeLost, SessionLost, UsageError


@pytest.fixture(params=("thread", "process"))
def run(request: pytest.FixtureRequest) -> str:
    """Where the node runs; tests that ask for it are run with both."""
    return str(request.param)


EARLIER: set[int] = set()
"""Processes that other tests started before, Spark for one: they are not ours."""


@pytest.fixture(autouse=True)
def told_apart() -> None:
    EARLIER.clear()
    EARLIER.update(own_children())


def own_children() -> list[int]:
    """The processes that this test started, in whichever thread; one that ends just now has none any more."""
    children: list[int] = []
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            children += map(int, (task / "children").read_text().split())
    return [pid for pid in children if pid not in EARLIER]


def test_on_loopback_nodes_of_one_user_meet_sealed_and_nobody_without_their_key_is_heard(tmp_path: Path, run: str) -> None:
    """A second bob, without the key as another user would be, neither stops the first nor is kept out by it."""

    async def story() -> None:
        cluster = Cluster(tmp_path)
        async with cluster.node("ann", run=run) as ann, cluster.node("bob") as bob:
            await together(ann, bob)
            async with cluster.node("bob", plaintext=True, state=tmp_path / "another") as stranger:
                for node in (ann, bob):
                    while not (await node.statistics()).get("rejected_plaintext"):
                        await asyncio.wait([asyncio.ensure_future(bob.ended())], timeout=0.01)
                assert names_of(stranger) == ["bob"]
                assert names_of(ann) == names_of(bob) == ["ann", "bob"]
                assert stranger.id.boot != bob.id.boot
            async with ann.connect() as session:
                await echo(session)

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


def test_two_nodes_talk_and_a_leave_is_graceful(tmp_path: Path, run: str, engine: str) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path, engine)
        async with cluster.node("ann", run=run) as ann:
            async with cluster.node("bob", run=run) as bob:
                await together(ann, bob)
                async with ann.connect(label="a") as here, bob.connect() as there:
                    assert (here.process.node, there.process.node) == (ann.id, bob.id)
                    await asyncio.gather(echo(here), echo(there))
                    assert (await ann.statistics())["state"] == "Operational"
                    assert (await here.statistics())["session"]["label"] == "a"
            await until(lambda: names_of(ann) == ["ann"])
            assert ann.view is not None
            assert "left on purpose" in str(ann.view.cause)

    asyncio.run(story())


def test_the_same_messages_in_the_same_order_on_both(tmp_path: Path, run: str, engine: str) -> None:
    async def told(session: transis.Session[bytes], count: int) -> list[tuple[str, int]]:
        async with session.join("order") as group:
            async for event in group:
                if isinstance(event, transis.View) and len(event.members) == 2:
                    break
            await group.send_many([bytes(100)] * count, transis.Service.SAFE)
            found: list[tuple[str, int]] = []
            async for event in group:
                if isinstance(event, transis.Message):
                    found.append((event.sender.node.name, event.counter))
                    if len(found) == 2 * count:
                        return found
        raise AssertionError("the stream ended too early")

    async def story() -> None:
        cluster = Cluster(tmp_path, engine)
        async with cluster.node("ann", run=run) as ann, cluster.node("bob", run=run) as bob:
            await together(ann, bob)
            async with asyncio.timeout(PATIENCE_S), ann.connect() as here, bob.connect() as there:
                one, other = await asyncio.gather(told(here, 3000), told(there, 3000))
                assert one == other

    asyncio.run(story())


def test_leaving_under_a_session_is_a_lost_session(tmp_path: Path, run: str, engine: str) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, engine).node("ann", run=run) as ann, ann.connect() as session, session.join("x") as group:
            await ann.leave()
            with pytest.raises(SessionLost, match="stopped"):
                async with asyncio.timeout(PATIENCE_S):
                    async for _ in group:
                        pass
            with pytest.raises(NodeLost):
                await ann.connect().open()
            assert "left" in await ann.ended()

    asyncio.run(story())


def test_what_the_program_raises_comes_out_of_the_context(tmp_path: Path, run: str, engine: str) -> None:
    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            async with Cluster(tmp_path, engine).node("ann", run=run) as ann, ann.connect():
                raise ZeroDivisionError

    asyncio.run(story())
    assert own_children() == []


def test_a_node_is_one_life(tmp_path: Path, run: str, engine: str) -> None:
    async def story() -> None:
        ann = Cluster(tmp_path, engine).node("ann", run=run)
        with pytest.raises(UsageError, match="not running"):
            await ann.statistics()
        async with ann:
            with pytest.raises(UsageError, match="cannot be started again"):
                await ann.open()
        await ann.leave()

    asyncio.run(story())


def test_a_state_directory_has_one_owner_and_a_second_life_is_another(tmp_path: Path, run: str, engine: str) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path, engine)
        async with cluster.node("ann", run=run) as ann:
            with pytest.raises(IdentityError, match="another process uses"):
                await cluster.node("ann", run=run).open()
        async with cluster.node("ann", run=run) as again:
            assert again.id.incarnation > ann.id.incarnation

    asyncio.run(story())
    assert own_children() == []


def test_a_state_directory_may_change_its_engine_between_two_lives(tmp_path: Path, run: str) -> None:
    async def story() -> None:
        for life, engine in enumerate(("totem", "lansis", "totem"), 1):
            async with Cluster(tmp_path, engine).node("ann", run=run) as ann, ann.connect() as session:
                await echo(session)
                assert ann.view is not None
                assert ann.view.nodes[0].incarnation == life

    asyncio.run(story())


def test_what_cannot_be_opened_is_told_on_entering(tmp_path: Path, run: str, engine: str) -> None:
    (tmp_path / "ann").write_text("a file")

    async def story() -> None:
        with pytest.raises(ConfigError, match="cannot be used") as refused:
            await Cluster(tmp_path, engine).node("ann", run=run).open()
        assert refused.value.field == "state directory"

    asyncio.run(story())
    assert own_children() == []


def test_a_name_that_is_taken_does_not_come_up(tmp_path: Path, run: str, engine: str) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path, engine)
        async with cluster.node("ann", run=run) as ann:
            twin = cluster.node("ann", run=run, state=tmp_path / "elsewhere")
            with pytest.raises((IdentityError, NodeLost)):
                async with asyncio.timeout(PATIENCE_S), twin:
                    await twin.ended()
                    raise NodeLost("the twin was the one to go")
            async with ann.connect() as session:
                await echo(session)

    asyncio.run(story())


def test_a_cancelled_opening_leaves_nothing_behind(tmp_path: Path, run: str, engine: str) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path, engine)
        opening = asyncio.ensure_future(cluster.node("ann", run=run).open())
        await asyncio.wait({opening}, timeout=0.01)
        opening.cancel()
        await asyncio.wait({opening})
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    async with cluster.node("ann", run=run) as ann:
                        assert names_of(ann) == ["ann"]
                    return
                except IdentityError:
                    continue  # The thread that nobody wants is on its way out.

    asyncio.run(story())
    assert own_children() == []


def test_a_trace_is_recorded_and_sealed(tmp_path: Path, run: str, engine: str) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, engine).node("ann", run=run, trace=tmp_path / "traces") as ann, ann.connect() as session:
            await echo(session)

    asyncio.run(story())
    history = read_history(tmp_path / "traces")
    (node,) = history.nodes
    assert isinstance(node.events[-1], End)


async def lose(run: str, cluster: Cluster) -> None:
    """Kill the child; a thread fails by its disk: a stranger makes it write, and a directory lies where its file should go."""
    if run == "process":
        (child,) = own_children()
        os.kill(child, signal.SIGKILL)
        return
    beside(cluster.directory / "ann" / "ring_seq").mkdir()
    far_ahead = StateDirectory(cluster.directory / "bob", "bob")
    far_ahead.write("ring_seq", 1_000_000)
    far_ahead.close()
    async with cluster.node("bob") as bob:
        await until(lambda: names_of(bob) == ["bob"])


# Lansis writes nothing while it runs, so that no disk can fail it in a thread; what ends a thread is the same for both.
@pytest.mark.parametrize(("run", "engine"), [("thread", "totem"), ("process", "totem"), ("process", "lansis")])
def test_a_node_that_fails_surfaces_in_its_sessions_and_in_its_context(tmp_path: Path, run: str, engine: str) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path, engine)
        async with cluster.node("ann", run=run) as ann, ann.connect() as session, session.join("x") as group:
            receipt = await group.send(b"in time")
            await receipt
            await lose(run, cluster)
            with pytest.raises(SessionLost):
                async with asyncio.timeout(PATIENCE_S):
                    async for _ in group:
                        pass
            with pytest.raises(SessionLost):
                await group.send(b"too late")

    with pytest.raises(NodeLost if run == "process" else IsADirectoryError):  # A timeout would be an OSError, too.
        asyncio.run(story())
    assert own_children() == []
