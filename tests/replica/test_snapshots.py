"""Snapshots of replicated objects: taken, read again at a start, sent to who lacks what was trimmed; and what cannot be saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.embed.party import until
from tests.replica.site import Site, tell
from transis import context, replicated
from transis.replication.snapshots import KEPT, SnapshotFiles
from transis.replication.state import restore, save
from transis.types.errors import StoreError, UsageError


@replicated
@dataclass
class Counters:
    """State with types in the class body."""

    seen: dict[str, tuple[int, ...]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    last: Any = None

    @replicated.action
    def count(self, name: str) -> int:
        self.seen[name] = (*self.seen.get(name, ()), context.offset)
        self.names.add(name)
        return len(self.seen[name])

    @replicated.query
    def all(self) -> dict[str, tuple[int, ...]]:
        return self.seen


@replicated
class OwnWay:
    """It saves itself, in chunks."""

    def __init__(self) -> None:
        self.words: list[str] = []

    @replicated.action
    def say(self, word: str) -> int:
        self.words.append(word)
        return len(self.words)

    @replicated.query
    def all(self) -> list[str]:
        return self.words

    def snapshot(self) -> Iterator[bytes]:
        for word in self.words:
            yield word.encode()

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.words = [chunk.decode() for chunk in chunks]


def places(site: Site, name: str) -> list[int]:
    return sorted(int(path.name) for path in (site.log_directory(name) / "snapshots").glob("[0-9]*"))


def test_who_comes_back_begins_at_its_snapshot(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.start_node("ann")
        given = {"replicas": ["ann"], "snapshot_every": 10}
        machine = await site.open_machine("ann", OwnWay(), **given)
        for number in range(25):
            await machine.say(f"word {number}")
        await until(lambda: len(places(site, "ann")) == KEPT)
        await until(lambda: machine.status().kept_from > 0)
        await until(lambda: list((site.log_directory("ann") / "snapshots").glob(".*")) == [])
        before = await machine.all()
        await site.close_log("ann")
        twin = OwnWay()
        machine = await site.open_machine("ann", twin, **given)
        assert await machine.all() == before == [f"word {number}" for number in range(25)]
        assert await machine.say("next") == 26

    tell(tmp_path, story, ["ann"])


def test_a_newcomer_and_a_laggard_get_a_snapshot(tmp_path: Path) -> None:
    """What they lack was trimmed."""

    async def story(site: Site) -> None:
        given = {"snapshot_every": 20}
        for name in site.names:
            await site.start_node(name)
        ann, bob, cyd = [await site.open_machine(name, Counters(), **given) for name in site.names]
        await ann.count("before")
        await cyd.all()
        for number in range(50):
            await bob.count(f"{number % 7}")
        await until(lambda: ann.status().kept_from > 0 and bob.status().kept_from > 0)
        await site.start_node("dan")
        dan = await site.open_machine("dan", Counters(), replicas=None, **given)
        await ann.admin.add("dan")
        await until(lambda: dan.status().is_primary)
        assert await dan.count("dan") == 1
        assert await dan.all() == await ann.all() == await bob.all()
        assert places(site, "dan")
        things: Any = site.things
        assert vars(things["dan"]) == vars(things["ann"])

    tell(tmp_path, story)


def test_what_was_answered_is_remembered_in_a_snapshot(tmp_path: Path) -> None:
    thing = Counters({"a": (1, 2)}, {"a"}, None)
    twin = Counters()
    restore(twin, save(thing))
    assert vars(twin) == vars(thing)


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    class Odd:
        def __init__(self, value: object) -> None:
            self.value = {"a": [value]}

    for value in ((1, 2), {1}, object(), 1 + 2j):
        with pytest.raises(UsageError, match=r"Odd.value holds \w+: give it a type in the class body, or write snapshot"):
            list(save(Odd(value)))
    assert msgspec.msgpack.decode(b"".join(save(Odd(1.5)))) == {"value": {"a": [1.5]}}


def test_an_object_that_cannot_be_saved_goes_on(tmp_path: Path) -> None:
    @replicated
    class Odd:
        def __init__(self) -> None:
            self.value: Any = ()

        @replicated.action
        def add(self, number: int) -> int:
            self.value = (*self.value, number)
            return len(self.value)

    async def story(site: Site) -> None:
        await site.start_node("ann")
        machine = await site.open_machine("ann", Odd(), replicas=["ann"], snapshot_every=1)
        await machine.add(1)
        await until(lambda: "no snapshot was taken at offset 1: Odd.value holds tuple" in machine.status().trouble)
        assert await machine.add(2) == 2

    tell(tmp_path, story, ["ann"])


def test_a_restore_that_raises_ends_the_replica(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.start_node("ann")
        given = {"replicas": ["ann"], "snapshot_every": 1}
        machine = await site.open_machine("ann", OwnWay(), **given)
        await machine.say("one")
        await until(lambda: machine.status().kept_from > 0)
        await site.close_log("ann")
        path = SnapshotFiles(site.log_directory("ann")).path(places(site, "ann")[-1])
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole[:5], b"", whole[:8] + b"\xff" + whole[9:], whole + b"x"):
            path.write_bytes(damaged)
            with pytest.raises(StoreError, match=r"is damaged\. Keep the directory aside"):
                await site.open_machine("ann", OwnWay(), **given)
        path.unlink()
        with pytest.raises(StoreError, match=r"a snapshot cannot be read: .*No such file"):
            await site.open_machine("ann", OwnWay(), **given)

    tell(tmp_path, story, ["ann"])


def test_a_log_is_trimmed_behind_what_all_acknowledged(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        for name in site.names:
            await site.start_node(name)
        logs = [await site.open_log(name, explicit_ack=True, snapshot_every=1) for name in site.names]
        receipt = await logs[0].post_many([b"%d" % number for number in range(100)])
        await receipt.ordered()
        for log in logs:
            await until(lambda log=log: log.end == 100)  # type: ignore[misc]
            assert receipt.outcome == "ordered"
            log.ack(99)
        await receipt.stable()
        await (await logs[0].post(b"more")).ordered()
        for log in logs:
            await until(lambda log=log: log.end == 101)  # type: ignore[misc]
            log.ack(100)
        await until(lambda: all(log.status().kept_from > 0 for log in logs))

    tell(tmp_path, story)
