"""Real nodes on real sockets: they meet, agree, lose one, take it back, and are not disturbed by strangers.

The same stories run over multicast and over the mesh, in the open and sealed; each ends with the checkers over the traces.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.net.party import Opening, Party, loopback, mesh_around, multicast_lan
from transis.audit.guarantees import check
from transis.net.runtime import boottime_us
from transis.net.sockets import aim_multicast
from transis.trace.events import History
from transis.types.config import LOCAL
from transis.types.errors import UsageError
from transis.types.ids import Service

KEY = bytes(range(32))
ROUNDS = 40


def openings() -> list[tuple[str, Callable[[], Opening], bytes | None]]:
    return [
        ("multicast", multicast_lan, None),
        ("multicast sealed", multicast_lan, KEY),
        ("mesh", lambda: mesh_around([]), None),
        ("mesh sealed", lambda: mesh_around([], KEY), KEY),
        ("mesh ipv6", lambda: mesh_around([], version=6), None),
    ]


@pytest.fixture(params=openings(), ids=lambda one: str(one[0]).replace(" ", "-"))
def make_party(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> Callable[[], Party]:
    _, opening, key = request.param
    return lambda: Party(opening(), tmp_path, key, engine)


def tell(make_party: Callable[[], Party], story: Callable[[Party], Awaitable[None]]) -> None:
    """Run a story, then ask the checkers about every life in it."""

    async def run() -> Party:
        async with make_party() as party:
            await story(party)
            return party

    party = asyncio.run(run())
    report = check(History([guest.trace for guest in party.ever], closed=False, engine=party.engine))
    assert [violation for verdict in report.verdicts.values() for violation in verdict.violations] == []


def test_three_meet_and_deliver_the_same_in_the_same_order(make_party: Callable[[], Party]) -> None:
    async def story(party: Party) -> None:
        party.invite("ann", "bob", "eve")
        await party.together("ann", "bob", "eve")
        count = await party.chatter(ROUNDS)
        await party.everybody_got(count)
        texts = [guest.texts for guest in party.guests]
        assert texts[0] == texts[1] == texts[2]
        assert len(texts[0]) == count

    tell(make_party, story)


def test_one_that_vanishes_is_excluded_and_comes_back_as_a_new_life(make_party: Callable[[], Party]) -> None:
    async def story(party: Party) -> None:
        ann, _, eve = party.invite("ann", "bob", "eve")
        await party.together("ann", "bob", "eve")
        await party.chatter(ROUNDS)
        party.lose(eve)
        await party.together("ann", "bob")
        (again,) = party.invite("eve")
        await party.together("ann", "bob", "eve")
        assert again.driver.node.id.incarnation == eve.driver.node.id.incarnation + 1
        await ann.driver.send(Service.SAFE, [b"welcome"])
        await party.until(lambda: all("welcome" in guest.texts for guest in party.guests))
        assert "welcome" not in eve.texts

    tell(make_party, story)


def test_who_leaves_is_gone_without_suspicion(make_party: Callable[[], Party]) -> None:
    async def story(party: Party) -> None:
        _, bob = party.invite("ann", "bob")
        await party.together("ann", "bob")
        await bob.driver.send(Service.SAFE, [b"farewell"])
        assert await bob.driver.leave()
        party.guests.remove(bob)
        await party.together("ann")
        assert party.guests[0].texts == ["farewell"]
        assert bob.stops == [await bob.driver.ended()]
        with pytest.raises(UsageError, match="has ended"):
            bob.driver.submit(Service.BASIC, [b"too late"])

    tell(make_party, story)


def test_junk_on_every_port_disturbs_nobody(make_party: Callable[[], Party]) -> None:
    async def story(party: Party) -> None:
        party.invite("ann", "bob", "eve")
        await party.together("ann", "bob", "eve")
        views = [guest.views for guest in party.guests]
        with Heckler(party) as heckler:
            for number in range(ROUNDS):
                heckler.throw(number)
                await party.chatter(1)
        await party.everybody_got(3 * ROUNDS)
        assert [guest.views for guest in party.guests] == views
        texts = [guest.texts for guest in party.guests]
        assert texts[0] == texts[1] == texts[2]
        assert all(guest.driver.statistics()["rejected"] != 0 for guest in party.guests)

    tell(make_party, story)


class Heckler:
    """Throws bytes at every socket of every guest, whatever address it is bound to."""

    def __init__(self, party: Party) -> None:
        self._targets = sorted({_bound_to(one) for guest in party.guests for one in guest.transport.files().values()})
        version = ip_address(self._targets[0][0]).version
        self._socket = socket.socket(loopback(version).family, socket.SOCK_DGRAM)
        if version == 4:
            aim_multicast(self._socket, loopback())

    def __enter__(self) -> Heckler:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def throw(self, number: int) -> None:
        for target in self._targets:
            for junk in (b"", b"Ts", bytes([number]) * 1400, b"Ts\x01\x00" + bytes([number]) * (30 + number)):
                self._socket.sendto(junk, target)


def _bound_to(descriptor: int) -> tuple[str, int]:
    """Where a socket of this process listens, seen through a second handle to it."""
    with socket.socket(fileno=os.dup(descriptor)) as handle:
        host, port = handle.getsockname()[:2]
    return host, port


def test_a_pause_of_everybody_excludes_nobody(make_party: Callable[[], Party]) -> None:
    """All nodes live in this loop, so blocking it stops them all, as a paused machine does."""

    async def story(party: Party) -> None:
        party.invite("ann", "bob", "eve")
        await party.together("ann", "bob", "eve")
        views = [guest.views for guest in party.guests]
        for _ in range(3):
            block(5 * LOCAL.token_loss_us)
            before = len(party.guests[0].texts)
            await party.chatter(1)
            await party.everybody_got(before + 3)
        assert [guest.views for guest in party.guests] == views
        assert all(guest.driver.statistics()["pauses"] != 0 for guest in party.guests)

    tell(make_party, story)


SENDING_US = [8_800, 9_600, 10_400, 11_200]
"""Ten times so long is about what a member of a ring may be silent, in the timing of these tests."""


@pytest.mark.parametrize("pause_us", SENDING_US)
def test_who_sends_for_long_in_one_go_suspects_nobody(tmp_path: Path, engine: str, pause_us: int) -> None:
    """Seen where this loop had to share its processor: each submit told the node how late it was, until its first turn, in
    which it read its own sockets, found nothing and took the token for lost, that waited in those of the next."""

    async def story(party: Party) -> None:
        party.invite("ann", "bob", "eve")
        await party.together("ann", "bob", "eve")
        views = [guest.views for guest in party.guests]
        for _ in range(10):
            block(pause_us)
            await party.chatter(1)
        await party.everybody_got(30)
        assert [guest.views for guest in party.guests] == views

    tell(lambda: Party(mesh_around([]), tmp_path, engine=engine), story)


def block(time_us: int) -> None:
    """What a stopped process does with its time, and the loop with it."""
    end = boottime_us() + time_us
    while boottime_us() < end:
        pass


def test_two_newcomers_who_share_one_seed_find_each_other(tmp_path: Path, engine: str) -> None:
    """The mesh introduces: neither of the two was told of the other."""

    async def story(party: Party) -> None:
        party.invite("ann")
        await party.together("ann")
        party.invite("bob", "eve", "joe")
        await party.together("ann", "bob", "eve", "joe")

    tell(lambda: Party(mesh_around([]), tmp_path, engine=engine), story)


def test_large_messages_arrive_whole(tmp_path: Path, engine: str) -> None:
    async def story(party: Party) -> None:
        ann, bob = party.invite("ann", "bob")
        await party.together("ann", "bob")
        payload = bytes(range(256)) * 8192
        await ann.driver.send(Service.AGREED, [payload, b"after"])
        await party.until(lambda: len(bob.payloads) == 2)
        assert bob.payloads == [payload, b"after"]

    tell(lambda: Party(multicast_lan(), tmp_path, engine=engine), story)


def test_a_full_outbox_makes_a_sender_wait_and_loses_nothing(tmp_path: Path, engine: str) -> None:
    async def story(party: Party) -> None:
        ann, _ = party.invite("ann", "bob")
        await party.together("ann", "bob")
        batch = [f"{number:06d}".encode().ljust(4000, b".") for number in range(3000)]
        taken = ann.driver.submit(Service.AGREED, batch)
        assert 0 < taken < len(batch)
        await ann.driver.send(Service.AGREED, batch[taken:])
        await party.everybody_got(len(batch))
        assert all(guest.texts == [payload[:40].decode() for payload in batch] for guest in party.guests)

    tell(lambda: Party(multicast_lan(), tmp_path, engine=engine), story)


def test_a_failing_application_ends_its_node_and_is_heard_of(tmp_path: Path, engine: str) -> None:
    async def story(party: Party) -> None:
        ann, bob = party.invite("ann", "bob")
        await party.together("ann", "bob")

        def fail(events: object) -> None:
            raise ArithmeticError("a bug of the application")

        bob.then = fail
        await ann.driver.send(Service.AGREED, [b"provoke"])
        with pytest.raises(ArithmeticError, match="a bug of the application"):
            await bob.driver.ended()
        party.guests.remove(bob)
        await party.together("ann")

    tell(lambda: Party(multicast_lan(), tmp_path, engine=engine), story)
