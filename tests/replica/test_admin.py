"""Who is a replica, changed by programs: added, removed, replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.embed.party import until
from tests.replica.site import Site, read, tell
from transis import ReplicaLog, within
from transis.types.errors import PostRefused, ReplicaError, UsageError


def names(log: ReplicaLog[bytes]) -> set[str]:
    status = log.status()
    return {status.me, *(one.name for one in status.others)}


def test_a_newcomer_is_added_and_has_everything(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        logs = await site.start()
        await (await logs[0].post_many([b"%d" % number for number in range(5000)])).ordered()
        await site.start_node("dan")
        dan = await site.open_log("dan", replicas=None)
        await logs[1].admin.add("dan")
        receipt = await logs[0].post(b"for four")
        await receipt.ordered()
        assert (await read(dan, 5001))[-1] == (5000, "ann", b"for four")
        assert await (await dan.post(b"by the fourth")).ordered() == 5001
        await receipt.stable()
        await until(lambda: names(logs[2]) == {"ann", "bob", "cyd", "dan"})
        assert dan.status().needed == 3

    tell(tmp_path, story)


def test_a_lost_directory_is_replaced(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        logs = await site.start()
        await (await logs[2].post(b"by the old one")).ordered()
        await site.close_log("cyd")
        cyd = await site.open_log("cyd", replicas=None, directory=tmp_path / "another")
        await logs[0].admin.replace("cyd", directory_lost=True)
        await (await logs[1].post(b"go on")).stable()
        assert await read(cyd, 2) == [(0, "cyd", b"by the old one"), (1, "bob", b"go on")]
        assert await (await cyd.post(b"by the one")).ordered() == 2
        await site.close_log("cyd")
        old = await site.open_log("cyd")
        await until(lambda: bool(old.status().trouble))
        with pytest.raises(ReplicaError):
            await (await old.post(b"by a ghost")).ordered()

    tell(tmp_path, story)


def test_a_dead_one_is_removed(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        logs = await site.start()
        await (await logs[0].post(b"one")).ordered()
        await site.close_log("cyd")
        receipt = await logs[0].post(b"two")
        await receipt.ordered()
        await logs[0].admin.remove("cyd")
        await receipt.stable()  # It waits for nobody who is no replica any more.
        await until(lambda: names(logs[1]) == {"ann", "bob"})

    tell(tmp_path, story)


def test_who_is_removed_is_told(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        logs = await site.start()
        await (await logs[0].post(b"one")).ordered()
        await logs[0].admin.remove("cyd")
        await until(lambda: "removed" in logs[2].status().trouble)
        with pytest.raises(ReplicaError, match="removed from the group"):
            await logs[2].post(b"one")

    tell(tmp_path, story)


def test_of_two_changes_one_wins(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        logs = await site.start()
        await (await logs[0].post(b"one")).stable()
        outcomes = await asyncio.gather(logs[0].admin.remove("cyd"), logs[1].admin.remove("cyd"), return_exceptions=True)
        assert sorted(map(type, outcomes), key=str) == sorted([type(None), PostRefused], key=str)

    tell(tmp_path, story)


def test_mistakes_are_named(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        ann, *_ = await site.start()
        await (await ann.post(b"one")).ordered()
        with pytest.raises(UsageError, match="'bob' is a replica already"):
            await ann.admin.add("bob")
        with pytest.raises(UsageError, match="'eve' is no replica of 'accounts'"):
            await ann.admin.remove("eve")
        with pytest.raises(UsageError, match="'bob' has its directory: start it again"):
            await ann.admin.replace("bob", directory_lost=False)
        with pytest.raises(ReplicaError, match="nobody called 'eve' waits to become a replica of 'accounts'"), within(0.01):
            await ann.admin.add("eve")

    tell(tmp_path, story)
