"""Simulated clusters: what may be done to them, sessions on them, and that a seed decides everything."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from transis.client import Message, Session, View
from transis.client.sending import Receipt
from transis.sessions.host import SessionHost, SessionPolicy
from transis.testing.cluster import Cluster, Clusters, GuaranteeBroken, Unsettled
from transis.trace.events import Delivery
from transis.types.config import ENGINES
from transis.types.errors import ConnectError, SessionLost, SlowConsumer, UsageError
from transis.types.ids import Service
from transis.types.outputs import Delivered, News


@pytest.fixture(params=ENGINES)
def clusters(request: pytest.FixtureRequest) -> Iterator[Clusters]:
    """Without the plugin."""
    made = Clusters(engine=request.param)
    yield made
    made.close()


async def datas(session: Session[bytes], group: str, count: int) -> list[bytes]:
    """The first so many messages of a group."""
    found: list[bytes] = []
    async with session.join(group) as stream:
        async for event in stream:
            if isinstance(event, Message):
                found.append(event.data)
                if len(found) == count:
                    return found
    return found


# --- machines ----------------------------------------------------------------------------------------------------------------


def test_a_cluster_begins_settled(clusters: Clusters) -> None:
    c = clusters(4, seed=1)
    assert c.names == c.alive == tuple("abcd")
    assert {c.members(name) for name in c.names} == {tuple("abcd")}
    assert c.unrest() == ""


def test_a_cold_cluster_settles(clusters: Clusters) -> None:
    c = clusters(["rome", "paris"], settled=False)
    assert c.now == 0
    assert c.unrest() == "not all nodes have started"
    c.settle()
    assert c.members("rome") == ("paris", "rome")


def test_parts_of_a_partition_settle_apart(clusters: Clusters) -> None:
    c = clusters(5)
    c.partition("ab", "c")
    c.settle()
    assert [c.members(name) for name in "abcde"] == [("a", "b"), ("a", "b"), ("c",), ("d", "e"), ("d", "e")]
    c.heal()
    c.settle()
    assert {c.members(name) for name in "abcde"} == {tuple("abcde")}


def test_crash_restart_pause_leave(clusters: Clusters) -> None:
    c = clusters(4)
    c.crash("a")
    c.pause("b")
    c.settle()
    assert c.alive == ("b", "c", "d")
    assert c.members("c") == ("c", "d")
    c.restart("a")
    c.resume("b")
    c.settle()
    assert c.members("c") == tuple("abcd")
    c.leave("d")
    c.settle()
    assert c.alive == tuple("abc")


def test_loss_does_not_hinder_messages(clusters: Clusters) -> None:
    c = clusters(3, seed=5)
    c.lossy(0.05)
    c.weather("duplicate", 0.05)

    async def talk() -> list[bytes]:
        async with c.connect("a") as one, c.connect("c") as other:
            reading = asyncio.create_task(datas(other, "g", 50))
            await c.settle()
            for number in range(50):
                await one.send("g", b"%d" % number)
            return await reading

    assert c.run(talk()) == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda c: c.crash("z"), "there is no node 'z'"),
        (lambda c: c.partition("ab", "bc"), "in two components"),
        (lambda c: c.partition("z"), "there is no node 'z'"),
        (lambda c: c.restart("a"), "a runs"),
        (lambda c: (c.crash("a"), c.pause("a")), "a is down"),
        (lambda c: (c.crash("a"), c.members("a")), "a is down"),
        (lambda c: c.connect("z"), "there is no node 'z'"),
        (lambda c: c.lossy(10), "at a rate from 0 to 1"),
        (lambda c: c.weather("rain", 0.1), "must be one of loss"),
    ],
)
def test_nonsense_is_refused(clusters: Clusters, wrong: object, said: str) -> None:
    c = clusters(3)
    assert callable(wrong)
    with pytest.raises(UsageError, match=said):
        wrong(c)


def test_so_are_clusters_that_cannot_be(clusters: Clusters) -> None:
    for nodes in (0, 1_000, ["a", "a"]):
        with pytest.raises(UsageError):
            clusters(nodes)


def test_what_does_not_settle_says_why(clusters: Clusters) -> None:
    c = clusters(2)
    c.lossy(1)
    c.run_for(0.2)
    with pytest.raises(Unsettled, match=r"(?s)a is in a view of .*weather loss .*replay: cluster\(2, seed=0.*\)"):
        c.settle(within=0.3)
    c.lossy(0)
    c.settle()


# --- time --------------------------------------------------------------------------------------------------------------------


def test_virtual_time_is_awaited_or_passes_at_once(clusters: Clusters) -> None:
    c = clusters(2)
    before = c.now
    c.run_for(1.5)
    assert c.now == pytest.approx(before + 1.5)

    async def later() -> float:
        await c.run_for(1)
        await c.settle()
        return c.now

    assert c.run(later()) == pytest.approx(before + 2.5, abs=0.1)


def test_clusters_of_one_test_share_the_time(clusters: Clusters) -> None:
    one, other = clusters(2), clusters(3)
    start = one.now, other.now
    one.run_for(2)
    assert other.now - start[1] == pytest.approx(one.now - start[0]) == pytest.approx(2)


def test_a_coroutine_inside_a_coroutine_is_awaited(clusters: Clusters) -> None:
    c = clusters(2)

    async def outer() -> None:
        c.run(inner())

    async def inner() -> None:
        raise LookupError

    with pytest.raises(UsageError, match="await this one"):
        c.run(outer())


def test_another_loop_is_refused(clusters: Clusters) -> None:
    c = clusters(2)

    async def elsewhere() -> None:
        async with c.connect("a"):
            pass

    with pytest.raises(UsageError, match="another event loop"):
        asyncio.run(elsewhere())


# --- sessions ----------------------------------------------------------------------------------------------------------------


def test_both_sides_of_a_partition_and_their_merge(clusters: Clusters) -> None:
    c = clusters(4, seed=3, quorum="abc")
    seen: dict[str, list[object]] = {"a": [], "d": []}

    async def member(name: str) -> None:
        async with c.connect(name) as session, session.join("g") as group:
            async for event in group:
                seen[name].append(
                    event.data if isinstance(event, Message) else (event.kind.name, len(event.members), event.primary)
                )

    async def talk() -> None:
        tasks = [asyncio.create_task(member(name)) for name in seen]
        await c.settle()
        c.partition("ab", "cd")
        await c.settle()
        async with c.connect("b") as left, c.connect("c") as right:
            await (await left.send("g", b"left", Service.SAFE))
            await (await right.send("g", b"right", Service.SAFE))
        await c.settle()
        c.heal()
        await c.settle()
        for task in tasks:
            task.cancel()

    c.run(talk())
    whole, part = ("REGULAR", 2, True), ("REGULAR", 1, True)
    assert seen["a"][-5:] == [whole, ("TRANSITIONAL", 1, True), part, b"left", whole]
    assert seen["d"][-5:] == [whole, ("TRANSITIONAL", 1, False), ("REGULAR", 1, False), b"right", whole]


@pytest.mark.parametrize(("end", "said"), [("crash", "it crashed"), ("leave", "the node has stopped")])
def test_sessions_of_a_node_that_is_gone_are_lost(clusters: Clusters, end: str, said: str) -> None:
    c = clusters(3)

    async def talk() -> None:
        async with c.connect("a") as session, session.join("g") as group:
            assert isinstance(await anext(group), View)
            getattr(c, end)("a")
            with pytest.raises(SessionLost, match=said):
                await anext(group)
        with pytest.raises(ConnectError, match=r"restart\('a'\)"):
            await c.connect("a").open()
        c.restart("a")
        await c.settle()
        async with c.connect("a") as session:
            assert session.process.node.incarnation == 2

    c.run(talk())


def test_a_paused_node_answers_when_it_goes_on(clusters: Clusters) -> None:
    c = clusters(3)

    async def talk() -> float:
        async with c.connect("a") as session:
            c.pause("a")
            began = c.now
            sending = asyncio.create_task(session.send("g", b"x"))
            await c.run_for(0.5)
            c.resume("a")
            await (await sending)
            return c.now - began

    assert c.run(talk()) > 0.5


def test_a_client_that_does_not_read_is_ended(clusters: Clusters) -> None:
    c = clusters(2, policy=SessionPolicy(patience_us=200_000))

    async def talk() -> None:
        async with c.connect("a", window=4096) as lazy, lazy.join("g") as group, c.connect("b") as busy:
            for _ in range(10):
                await busy.send("g", bytes(1000))
                await c.run_for(0.1)
            with pytest.raises(SlowConsumer, match="too slow"):
                async for _ in group:
                    pass

    c.run(talk())


def test_many_processes_of_one_node(clusters: Clusters) -> None:
    c = clusters(2)

    async def talk() -> list[list[bytes]]:
        sessions = [await c.connect("a").open() for _ in range(20)]
        reading = [asyncio.create_task(datas(session, "g", 20)) for session in sessions]
        await c.settle()
        for number, session in enumerate(sessions):
            await session.send("g", b"%d" % number)
        return await asyncio.gather(*reading)

    orders = c.run(talk())
    assert sorted(map(int, orders[0])) == list(range(20))
    assert all(order == orders[0] for order in orders)


def test_a_client_that_says_a_lot_to_a_paused_node_does_not_come_first(clusters: Clusters) -> None:
    """Clients take turns: of what waited, the message of the one that came last is among the first."""
    c = clusters(2)

    async def talk() -> list[bytes]:
        listener, flooder, other = [await c.connect("a").open() for _ in range(3)]
        reading = asyncio.create_task(datas(listener, "g", 101))
        await c.settle()
        c.pause("a")
        for number in range(100):
            await flooder.send("g", b"%d" % number)
            await flooder.send("nobody", b"so that the next one is a frame of its own")
        await c.run_for(0.001)
        await other.send("g", b"late")
        await c.run_for(0.001)
        c.resume("a")
        return await reading

    order = c.run(talk())
    assert [data for data in order if data != b"late"] == [b"%d" % number for number in range(100)]
    assert order.index(b"late") < 10


# --- receipts ----------------------------------------------------------------------------------------------------------------


async def speak(c: Cluster, name: str, receipts: list[Receipt]) -> None:
    """Send in every service as long as the session lasts, and connect again; one session in three ends with a Bye."""
    while True:
        try:
            async with c.connect(name) as session:
                for number in range(c.random.between(1, 40)):
                    service = list(Service)[number % len(Service)]
                    receipts.append(await session.send_many("g", [bytes(c.random.between(1, 3000))] * 3, service))
                    await c.run_for(c.random.between(0, 20) / 1000)
        except (SessionLost, ConnectError):
            await c.run_for(0.05)


def strike(c: Cluster, name: str) -> None:
    match c.random.below(6):
        case 0:
            c.crash(name)
        case 1:
            c.leave(name)
        case 2:
            c.pause(name)
        case 3:
            c.partition([name])
        case 4:
            c.heal()
        case _:
            c.lossy(c.random.pick((0.0, 0.05, 0.2)))


@pytest.mark.parametrize("seed", range(4))
def test_every_receipt_ends_whatever_happens_to_the_nodes(clusters: Clusters, seed: int) -> None:
    """Delivered, refused or, if the session was lost, in doubt; of sessions that last, as soon as the cluster is at rest."""
    c, receipts = clusters(4, seed=seed), list[Receipt]()

    async def story() -> None:
        await c.settle()
        speaking = [asyncio.create_task(speak(c, name, receipts)) for name in c.names for _ in range(2)]
        for _ in range(6):
            strike(c, c.random.pick(c.alive))
            await c.run_for(c.random.between(50, 600) / 1000)
            for name in c.names:
                if name not in c.alive:
                    c.restart(name)
                c.resume(name)
        c.heal()
        c.lossy(0)
        await c.run_for(0.2)
        for task in speaking:
            task.cancel()
        await asyncio.gather(*speaking, return_exceptions=True)
        await c.settle()

    c.run(story())
    outcomes = Counter(receipt.outcome for receipt in receipts)
    assert outcomes["pending"] == 0, outcomes
    assert outcomes["delivered"] > 100


class Forgetful(SessionHost):
    """Does not hear that the first message of its client was delivered."""

    def hear(self, now: int, news: Sequence[News]) -> None:
        super().hear(now, [one for one in news if not (isinstance(one, Delivered) and one.first_counter == 1)])


class Repeating(SessionHost):
    """Hears everything twice."""

    def hear(self, now: int, news: Sequence[News]) -> None:
        super().hear(now, [one for one in news for _ in range(1 + isinstance(one, Delivered))])


def broken_cluster(made: Clusters, host: type[SessionHost]) -> Cluster:
    c = made(2, check=False, settled=False)
    c.session_host = host
    c.settle()
    return c


def test_a_receipt_that_stays_open_is_no_rest(clusters: Clusters) -> None:
    c = broken_cluster(clusters, Forgetful)

    async def talk() -> None:
        async with c.connect("a") as session:
            forgotten = await session.send("g", b"x")
            with pytest.raises(Unsettled, match="a has not told its clients what became of 1 of their messages"):
                await c.settle(within=5)
            assert forgotten.outcome == "pending"

    c.run(talk())


def test_an_end_that_is_told_twice_is_noticed(clusters: Clusters) -> None:
    c = broken_cluster(clusters, Repeating)

    async def talk() -> None:
        async with c.connect("a") as session:
            await (await session.send("g", b"x"))
            await c.settle()

    with pytest.raises(AssertionError, match="is told more ends than it sent messages"):
        c.run(talk())


# --- judgement ---------------------------------------------------------------------------------------------------------------


def test_sessions_are_judged_with_the_ring(clusters: Clusters) -> None:
    c = clusters(3)

    async def talk() -> None:
        async with c.connect("a") as one, c.connect("b") as other:
            reading = [asyncio.create_task(datas(session, "g", 5)) for session in (one, other)]
            await c.settle()
            await one.send_many("g", [b"x"] * 5)
            await asyncio.gather(*reading)

    c.run(talk())
    verdicts = c.check().verdicts
    for name in ("total_order_6_1", "group_order", "group_members_only", "group_no_duplicates"):
        assert verdicts[name].verdict == "held"
        assert verdicts[name].checked > 0


def test_a_broken_guarantee_is_explained(clusters: Clusters) -> None:
    """If b delivered another message than a sent, the history is none that can have happened."""
    c = clusters(2, check=False, seed=4)

    async def talk() -> None:
        async with c.connect("a") as session:
            await (await session.send("g", b"x"))

    c.run(talk())
    c.crash("a")
    c.settle()
    events = c.history().nodes[1].events
    events[:] = [event._replace(first=99) if isinstance(event, Delivery) else event for event in events]
    with pytest.raises(GuaranteeBroken, match=r"(?s)please report it.*seed 4.*crash a.*replay: cluster\(2, seed=4.*\)"):
        c.check()


def test_closing_checks_and_ends(clusters: Clusters) -> None:
    with clusters(2) as c:
        c.run_for(0.1)
    before = c.now
    clusters(1).run_for(0.1)
    assert c.now == before
    c.close()


def test_what_fails_unseen_fails_the_test() -> None:
    clusters = Clusters()
    c = clusters(1)

    async def fail() -> None:
        raise LookupError("unseen")

    async def talk() -> None:
        for task in [asyncio.create_task(fail())]:
            await asyncio.wait([task])

    c.run(talk())
    with pytest.raises(AssertionError, match="nobody looked") as raised:
        clusters.close()
    assert isinstance(raised.value.__cause__, LookupError)


# --- the seed decides --------------------------------------------------------------------------------------------------------

WILD = """
import asyncio
from transis.client import Message
from transis.testing.cluster import Clusters

clusters = Clusters()
c = clusters(4, seed={seed})
heard = []

async def member(name):
    async with c.connect(name) as session, session.join("g", "h") as group:
        async for event in group:
            if isinstance(event, Message):
                heard.append((name, event.data))
                if len(event.data) < 4:
                    await group.send(event.data + name.encode())

async def talk():
    async with asyncio.TaskGroup() as tasks:
        members = [tasks.create_task(member(name)) for name in "abcd"]
        await c.settle()
        async with c.connect("b") as session:
            await session.send(["g", "h"], b"x")
            c.partition("ab")
            await c.run_for(c.random.random())
            c.lossy(0.02)
            c.heal()
            await session.send("h", b"y")
            await c.settle()
        for member_ in members:
            member_.cancel()

c.run(talk())
c.settle()
print(c.digest(), len(heard))
clusters.close()
"""


def outcome(seed: int, hash_seed: int) -> str:
    source = str(Path(__file__).parents[2] / "src")
    run = subprocess.run(
        [sys.executable, "-c", WILD.format(seed=seed)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": source},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_seed_decides_everything_in_every_process() -> None:
    first = outcome(7, 1)
    assert outcome(7, 2) == first
    assert outcome(8, 1) != first


def test_a_cluster_is_shown_in_words(clusters: Clusters) -> None:
    c: Cluster = clusters(2, seed=9)
    assert repr(c).startswith("<Cluster a b, seed 9, at 0.")
    c.pause("b")
    c.crash("a")
    assert "b is paused in R" in c.story()
    assert "a is down" in c.story()
