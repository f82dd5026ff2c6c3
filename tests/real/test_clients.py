"""Clients that do not read, and clients whose daemon is gone: they are told what happened, and nobody else is harmed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGSTOP

import pytest

from tests.real.listeners import payload
from tests.real.site import LAN, LOOPBACK, RESIDENTS, Site, Way, on, tell
from tests.real.test_faults import SLOW
from transis.client import connect
from transis.sessions.frames import SESSION_VERSION, Hello, Join, encode_frame
from transis.types.errors import ConnectError, InDoubt, SessionLost, SlowConsumer
from transis.types.ids import Service

NAMES = ("ann", "bob", "cid")
QUEUE_MB = 8
FLOOD_BYTES = 100_000
FLOOD_MESSAGES = 320
"""Together several times of what may wait for a client."""
GROWTH_MAX = 96 << 20
"""Bytes that a daemon may grow by meanwhile: what waits, its encoded copies, and what the ring holds."""


@contextmanager
def deaf(path: Path, group: str) -> Iterator[None]:
    """A program that joins and then never reads a byte again, as if it had been stopped."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(encode_frame(Hello(SESSION_VERSION, "deaf", 1 << 20)) + encode_frame(Join(group)))
        yield


@on(LOOPBACK, LAN)
def test_clients_that_do_not_read_are_ended_with_a_reason_and_harm_nobody(tmp_path: Path, engine: str, way: Way) -> None:
    """One does not read its socket, another reads it but never takes its messages out of the library."""

    async def story(site: Site) -> None:
        await site.gather(*NAMES, settings=SLOW | {"sessions": {"queue_mb": QUEUE_MB}})
        residents = await site.residents()
        ann, bob = site.daemons["ann"], residents[1]
        lazy = await site.session("ann", "lazy", window=1 << 16)
        untaken = await lazy.join(RESIDENTS).open()
        with deaf(ann.clients, RESIDENTS):
            await site.until(lambda: len(bob.members) == 5, lambda: "both of them to be members")
            before = ann.resident_bytes()
            views = len(ann.views)
            for number in range(FLOOD_MESSAGES):
                await (await bob.say(payload(number, FLOOD_BYTES)))
            await site.until(lambda: len(bob.members) == 3, lambda: f"both to be put out; members are {bob.members}")
            assert ann.resident_bytes() - before < GROWTH_MAX
        await site.until(
            lambda: ann.said(r"\(deaf\).*too slow") and ann.said(r"\(lazy\).*too slow"),
            lambda: "the daemon to say whom it ended, and why",
        )
        with pytest.raises(SlowConsumer, match="too slow"):
            await untaken.send(b"I am still here")
        await lazy.close()
        assert len(ann.views) == views
        await site.mark(*residents)
        assert all(one.failure is None for one in residents)
        await site.finish()

    tell(tmp_path, story, engine, way)


@on(LOOPBACK, LAN)
def test_a_daemon_killed_under_its_clients_leaves_them_in_doubt(tmp_path: Path, engine: str, way: Way) -> None:
    """Its clients are told at once. What they sent last is in doubt; with a new session they ask the group, and send it again."""

    async def story(site: Site) -> None:
        await site.gather(*NAMES)
        ann, bob, cid = await site.residents()
        await site.meet(ann, bob, cid)
        other = await site.listener("cid", "elsewhere", title="other client of cid")
        known = await cid.say(payload(1, 100), Service.SAFE)
        await known
        site.daemons["cid"].signal(SIGSTOP)
        doubtful = [await cid.say(payload(number, 100), Service.SAFE) for number in range(2, 12)]
        await site.kill("cid")
        await site.until(lambda: cid.has_ended and other.has_ended, lambda: "both clients to be told")
        assert isinstance(cid.failure, SessionLost)
        assert isinstance(other.failure, SessionLost)
        assert known.outcome == "delivered"
        assert [receipt.outcome for receipt in doubtful] == ["in doubt"] * 10
        with pytest.raises(InDoubt, match="session was lost"):
            await doubtful[0]
        with pytest.raises(SessionLost):
            await cid.say(b"too late")
        with pytest.raises(ConnectError, match="transis daemon"):
            await connect(str(site.daemons["cid"].clients)).open()
        await site.together("ann", "bob")
        await site.gather("cid")
        again = await site.resident("cid")
        assert again.process.node.incarnation == 2
        await site.meet(ann, bob, again)
        await again.chat(1)
        await site.finish()

    tell(tmp_path, story, engine, way)
