"""Replicated logs on real nodes: what was posted is ordered alike everywhere, whatever becomes of nodes and sessions."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import transis
from tests.embed.party import until
from tests.replica.site import NAMES, Site, read, tell, until_primary
from transis import Json
from transis.types.errors import ConfigError, MessageTooLarge, NoPrimary, PostRefused, ReplicaError, StoreError, UsageError


def test_messages_are_ordered_alike_and_stable(tmp_path: Path, engine: str) -> None:
    async def story(site: Site) -> None:
        logs = await site.start()
        receipts = await asyncio.gather(*(logs[number % 3].post(b"%d" % number) for number in range(300)))
        assert {receipt.outcome for receipt in receipts} <= {"accepted", "ordered", "stable"}
        offsets = [await receipt.ordered() for receipt in receipts]
        assert sorted(offsets) == list(range(300))
        for receipt in receipts:
            await receipt.stable()
            assert receipt.outcome == "stable"
        orders = [await read(log, 300) for log in logs]
        assert orders[0] == orders[1] == orders[2]
        for number, offset in enumerate(offsets):
            assert orders[0][offset] == (offset, NAMES[number % 3], b"%d" % number)

    tell(tmp_path, story, engine=engine)


def test_a_node_without_the_guarantees_is_refused(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.start_node("ann")
        log = await site.open_log("ann", replicas=["ann"])
        await until(lambda: "a replica needs 'evs': choose another mode" in log.status().trouble)
        assert (await log.post(b"one")).outcome == "accepted"

    tell(tmp_path, story, ["ann"], "lansis", mode="transis")


def test_what_is_posted_together_is_one_action(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        log, *_ = await site.start()
        await until_primary(log)
        receipts = await asyncio.gather(*(log.post(b"x") for _ in range(100)))
        assert len({receipt.actions[0] for receipt in receipts}) == 1
        many = await log.post_many([bytes(1000)] * 1000)
        assert len(many.actions) == 4  # 256 KiB each at most.
        assert await many.ordered() == 100
        batches = [batch async for batch in _first(log, 5)]
        assert [len(batch) for batch in batches] == [100, *(len(one) for one in batches[1:])]
        assert sum(map(len, batches)) == 1100

    async def _first(log: transis.ReplicaLog[bytes], count: int) -> Any:
        batches = log.read().batches()
        for _ in range(count):
            yield await anext(batches)

    tell(tmp_path, story)


def test_a_lost_node_costs_nothing(tmp_path: Path) -> None:
    """The replica connects again by itself, and receipts stay open."""

    async def story(site: Site) -> None:
        log, *others = await site.start()
        await (await log.post(b"before")).ordered()
        await site.end_node("ann")
        await until(lambda: not log.status().is_primary)
        receipt = await log.post(b"without a node")
        with pytest.raises(NoPrimary, match=r"not ordered yet, no primary here: .*; it stays posted as 1:2"):
            await receipt.ordered(timeout=0.05)
        assert "ann is down" in log.status().trouble
        await (await others[0].post(b"by the others")).ordered()
        await site.start_node("ann")
        assert await receipt.ordered() == 2
        assert [data for _, _, data in await read(log, 3)] == [b"before", b"by the others", b"without a node"]

    tell(tmp_path, story)


def test_a_minority_posts_and_says_who_is_missing(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        log, *_ = await site.start()
        await (await log.post(b"one")).ordered()
        for name in ("bob", "cyd"):
            await site.close_log(name)
        receipt = await log.post(b"two")
        await until(lambda: log.status().here == ("ann",))
        with pytest.raises(
            NoPrimary, match=r"2 of 3 needed, here: ann; bob last seen \d+ s ago, cyd last seen \d+ s ago"
        ) as raised:
            await receipt.ordered(timeout=0.1)
        assert raised.value.receipt is receipt and receipt.outcome == "accepted"
        assert str(log.status()).splitlines()[0].startswith("accounts at ann: not primary, ")
        bob = await site.open_log("bob")
        assert await receipt.ordered() == 1
        assert await read(bob, 2) == [(0, "ann", b"one"), (1, "ann", b"two")]

    tell(tmp_path, story)


def test_all_come_back_with_everything(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        logs = await site.start()
        await (await logs[0].post_many([b"%d" % number for number in range(20_000)])).stable()
        before = await read(logs[1], 20_000)
        for name in NAMES:
            await site.close_log(name)
        logs = [await site.open_log(name) for name in NAMES]
        assert await (await logs[2].post(b"next")).ordered() == 20_000
        for log in logs:
            assert await read(log, 20_001) == [*before, (20_000, "cyd", b"next")]
            assert await read(log, 1, after=19_999) == [(20_000, "cyd", b"next")]

    tell(tmp_path, story)


def test_a_key_counts_once_wherever_it_is_posted(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        logs = await site.start()
        first = await logs[0].post(b"order 17", key="17")
        again = await logs[1].post(b"order 17", key="17", at=0)
        last = await logs[2].post(b"the end")
        assert await first.ordered() == await again.ordered()
        await last.ordered()
        entries = await read(logs[1], 2)
        assert sorted(data for _, _, data in entries) == [b"order 17", b"the end"]

    tell(tmp_path, story)


def test_codecs_and_closing(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.start_node("ann")
        node, codec = site.nodes["ann"], Json(list[int])
        async with transis.replica(
            "one", me="ann", replicas=["ann"], directory=tmp_path / "one", connect=node.connect, codec=codec
        ) as log:
            reader = log.read()
            receipt = await log.post([1, 2])
            assert await receipt.ordered() == 0
            assert (await anext(reader)).data == [1, 2]
        with pytest.raises(StopAsyncIteration):
            await anext(reader)
        with pytest.raises(UsageError, match="the replica is closed"):
            await log.post([3])
        assert receipt.outcome == "stable"

    tell(tmp_path, story, ["ann"])


def test_lists_that_differ_are_told(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        for name in ("ann", "bob"):
            await site.start_node(name)
        ann = await site.open_log("ann")
        await site.open_log("bob", replicas=["ann", "bob"])
        await until(lambda: bool(ann.status().trouble))
        assert ann.status().trouble == (
            "the lists of replicas differ: ann has [ann, bob, cyd]; bob has [ann, bob]. Start them all with the same list"
        )
        await site.close_log("bob")
        with pytest.raises(StoreError, match=r"made for the replicas \[ann, bob\], and these are \[ann, bob, cyd\]: start it"):
            await site.open_log("bob")

    tell(tmp_path, story)


def test_a_lost_directory_does_not_come_back_under_its_name(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        logs = await site.start()
        await (await logs[0].post(b"one")).stable()
        await site.close_log("cyd")
        cyd = await site.open_log("cyd", directory=tmp_path / "empty")
        receipt = await cyd.post(b"two")
        with pytest.raises(ReplicaError, match=r"another directory is a member: start it from that one\. If"):
            await receipt.ordered()
        with pytest.raises(ReplicaError, match="with another directory is a member"):
            await cyd.post(b"three")
        assert await (await logs[1].post(b"four")).ordered() == 1

    tell(tmp_path, story)


def test_a_copied_directory_is_told(tmp_path: Path) -> None:
    """Whoever hears of the other stops, or both do. Either may be started again: it is another life then."""

    async def story(site: Site) -> None:
        await site.start()
        await (await site.logs["ann"].post(b"one")).stable()
        await site.close_log("cyd")
        shutil.copytree(site.log_directory("cyd"), tmp_path / "copy")
        cyd = await site.open_log("cyd")
        await until_primary(cyd)
        twin = await transis.replica(
            "accounts", me="cyd", replicas=NAMES, directory=tmp_path / "copy", connect=lambda: site.connect("cyd")
        ).open()
        what = "the directory of 'cyd' was copied, and two processes run from it"
        await until(lambda: what in cyd.status().trouble or what in twin.status().trouble)
        await twin.close()
        await site.close_log("cyd")
        cyd = await site.open_log("cyd")
        assert await (await cyd.post(b"two")).ordered() == 1

    tell(tmp_path, story)


def test_a_directory_is_open_once(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.open_log("ann")
        with pytest.raises(StoreError, match="in use by another process: stop that one, or choose another directory"):
            await site.open_log("ann")
        with pytest.raises(StoreError, match="belongs to the replica 'ann', not 'bob'"):
            await site.close_log("ann")
            await site.open_log("bob", directory=site.log_directory("ann"))

    tell(tmp_path, story)


def test_a_node_is_not_needed_to_post(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        log = await site.open_log("ann")
        receipt = await log.post(b"one")
        assert receipt.outcome == "accepted"
        assert str(log.status()).splitlines()[0] == "accounts at ann: not primary, in no view"
        with pytest.raises(MessageTooLarge, match="post it in parts"):
            await log.post(bytes(16 << 20))
        with pytest.raises(UsageError, match="for one there is post"):
            await log.post_many(b"one")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="this log was delivered up to -1"):
            log.ack(0)

    tell(tmp_path, story)


def test_a_newcomer_waits_to_be_added(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        log = await site.open_log("dan", replicas=None)
        with pytest.raises(PostRefused, match="'dan' is not a member yet: add it at one of the members"):
            await log.post(b"one")

    tell(tmp_path, story)


SETTINGS = """
[replica.accounts]
me = "ann"
replicas = ["ann"]
directory = "{directory}"
"""


def test_settings_come_from_a_file(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        path = tmp_path / "bank.toml"
        path.write_text(SETTINGS.format(directory=tmp_path / "log"), encoding="utf-8")
        async with transis.replica("accounts", settings=path, connect=lambda: site.connect("ann")) as log:
            assert log.me == "ann"
            await log.post(b"one")
        assert (tmp_path / "log" / "log.db").is_file()
        with pytest.raises(ConfigError, match=r"there is no table \[replica.others\] in it"):
            transis.replica("others", settings=path)
        path.write_text("[replica.accounts]\nname = 'ann'\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"replica.accounts.name = 'ann': there is only me, replicas, directory"):
            transis.replica("accounts", settings=path)
        path.write_text("[replica.accounts]\nme = 'ann'\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"directory is not set: give .*, or write it in \[replica.accounts\] of "):
            transis.replica("accounts", settings=path)
        for content in (b"[", b"\xff"):
            path.write_bytes(content)
            with pytest.raises(ConfigError, match="the file cannot be read"):
                transis.replica("accounts", settings=path)
        with pytest.raises(ConfigError, match=r"the file cannot be read: .*No such file or directory"):
            transis.replica("accounts", settings=tmp_path / "none.toml")

    tell(tmp_path, story, ["ann"])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"me": "eve"}, "me = 'eve': the replicas are ann, bob: add it to the list"),
        ({"me": ""}, "me = '': a replica's name is 1 to 64 bytes of printable text"),
        ({"replicas": "ann"}, "replicas = 'ann': give a list of names"),
        ({"replicas": ["ann", "ann"]}, "name each replica once"),
        ({"ack": "some"}, "ack = 'some': write 'majority' or 'all'"),
        ({"connect": 7}, "connect = 7: give something to call"),
        ({"group": "a@b"}, "group = 'a@b': use at most"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, wrong: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"group": "accounts", "me": "ann", "replicas": ["ann", "bob"], "directory": tmp_path}
    with pytest.raises(ConfigError) as raised:
        transis.replica(**{**given, **wrong})
    assert str(raised.value).startswith(why) or why in str(raised.value)
