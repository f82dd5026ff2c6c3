"""A site: real daemons on loopback or on a LAN of namespaces, real clients, and somebody who throws junk at them all the time.

Every story ends with `finish`: all who live are together and at rest, the traces pass every checker as they are and once more
after everybody has left, and the clients' own notes agree. Whatever happens, processes, namespaces and sockets go with the site;
traces and logs stay in the test's directory, and a failure says where.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.sources import ROOT
from tests.net.lan import NETWORK, NETWORK_IPV6, why_not
from tests.real.agreement import disagreements
from tests.real.daemons import DaemonProcess, Settings, merged
from tests.real.evidence import ALWAYS, Evidence, judge
from tests.real.listeners import MARK, Listener
from tests.real.switched import HECKLER, SwitchedLan
from tests.real.waiting import PATIENCE_S, Changes, let_pass
from transis.client import Session, connect
from transis.client.connection import WINDOW
from transis.net.interfaces import read_endpoint
from transis.net.state import write_key
from transis.trace.events import History
from transis.types.ids import Service

CLUSTER = "real"
KEY = bytes(range(32))
RESIDENTS = "residents"
"""The group in which every daemon has a client when a story ends."""
MESH_PORT = 5405
JUNK_PER_S = 200
"""Malformed, foreign and replayed datagrams that every site lives with."""
RESTS_MAX = 5
STORY_S = 300.0
"""Nobody waits longer for a whole story, whatever hangs."""
CALM = {
    "token_loss_ms": 300,
    "token_retransmit_ms": 60,
    "token_hold_ms": 20,
    "consensus_ms": 360,
    "fail_to_receive_ms": 700,
    "quarantine_ms": 500,
}
"""Two cores are shared by all these processes and another test: who does not run for a while is not dead."""
CALM_PULSE = {"silence_ms": 300, "probe_ms": 50, "ack_lag_ms": 900, "agree_ms": 1000}

_ports = itertools.count(15_410, 2)


class Way(NamedTuple):
    """How the daemons of a site reach each other."""

    lan: bool = False
    mesh: bool = False
    version: int = 4
    sealed: bool = True


LOOPBACK = Way()
PLAIN = Way(sealed=False)
MESH = Way(mesh=True)
MESH_IPV6 = Way(mesh=True, version=6)
LAN = Way(lan=True)
LAN_IPV6 = Way(lan=True, version=6)
LAN_MESH = Way(lan=True, mesh=True)

Story = Callable[["Site"], Awaitable[None]]


def on(*ways: Way) -> pytest.MarkDecorator:
    """A story on each of them. Where a LAN can be made, the same on loopback is for `make test-long`: it is there for machines on
    which nobody may make one."""
    there_is_a_lan = not why_not()
    told_on_a_lan = [way._replace(lan=False) for way in ways if way.lan and there_is_a_lan]
    marks = {way: [pytest.mark.long] if way in told_on_a_lan else [] for way in ways}
    return pytest.mark.parametrize("way", [pytest.param(way, marks=marks[way], id=_name_of(way)) for way in ways])


def _name_of(way: Way) -> str:
    where = "lan" if way.lan else "loopback"
    return where + ("-mesh" if way.mesh else "") + ("-ipv6" if way.version == 6 else "") + ("" if way.sealed else "-plain")


def tell(
    directory: Path,
    story: Story,
    engine: str,
    way: Way = LOOPBACK,
    machines: Sequence[str] = ("ann", "bob", "cid"),
    junk_per_s: int = JUNK_PER_S,
    story_s: float = STORY_S,
    *,
    rogue: bool = False,
) -> None:
    """Run a story on a site of its own. A `rogue` has the key: whoever throws junk can `lie` too."""
    if way.lan and (reason := why_not()):
        pytest.skip(reason)

    async def run() -> None:
        lan = SwitchedLan(tuple(machines)) if way.lan else None
        try:
            async with Site(way, engine, directory, lan, junk_per_s, rogue=rogue) as site, asyncio.timeout(story_s):
                await story(site)
        finally:
            if lan is not None:
                lan.close()

    asyncio.run(run())


class Site:
    def __init__(self, way: Way, engine: str, directory: Path, lan: SwitchedLan | None, junk_per_s: int, *, rogue: bool) -> None:
        self.way = way
        self.engine = engine
        self.lan = lan
        self.changes = Changes()
        self.daemons: dict[str, DaemonProcess] = {}
        """By label, the newest life of each."""
        self.listeners: list[Listener] = []
        self.evidence = Evidence(directory / "traces")
        self._directory = directory
        self._home = Path(tempfile.mkdtemp(prefix="site-"))
        self._ever: list[DaemonProcess] = []
        self._residents: dict[DaemonProcess, Listener] = {}
        self._marks = itertools.count(1)
        self._parted: tuple[str, ...] = ()
        self._seed = ""
        self._junk_per_s = junk_per_s
        self._key_of_thrower = KEY.hex() if rogue else ""
        self._network = self._plan_network()
        self._thrower: asyncio.subprocess.Process
        self.thrown: dict[str, int] = {}
        """At the end, how many datagrams of each kind."""
        write_key(self._home / "key", KEY)

    # --- beginning and end ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Site:
        await self._start_thrower()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            for daemon in self._ever:
                await daemon.clean_up()
            if self._thrower.returncode is None:
                self._thrower.kill()
            await self._thrower.wait()
            for listener in self.listeners:
                await listener.clean_up()
        finally:
            shutil.rmtree(self._home)
            self._keep_logs()
            if error is not None:
                for daemon in self._ever:
                    error.add_note(daemon.tail())
                error.add_note(f"traces and logs: {self._directory}")

    def _keep_logs(self) -> None:
        for number, daemon in enumerate(self._ever, 1):
            text = "\n".join(map(json.dumps, daemon.lines))
            (self._directory / f"{number:02d}-{daemon.label}.log").write_text(text + "\n")

    def _plan_network(self) -> dict[str, object]:
        """Ports that no other test of this process uses, and a group that no other process uses."""
        way = self.way
        if way.lan:
            interface = NETWORK if way.version == 4 else NETWORK_IPV6
            return {"interface": interface} | ({"transport": "mesh", "port": MESH_PORT} if way.mesh else {})
        loopback = "127.0.0.1" if way.version == 4 else "::1"
        if way.mesh:
            return {"interface": loopback, "transport": "mesh"}
        port, process = next(_ports), os.getpid()
        group = f"239.194.{process >> 8 & 255}.{process & 255}"
        return {"interface": loopback, "group": group, "data_port": port, "control_port": port + 1}

    def settings(self, label: str, name: str = "") -> dict[str, dict[str, object]]:
        """Of a daemon of this site, if its story says nothing else."""
        name = name or label
        seeds: dict[str, object] = {"seeds": [self._seed]} if self.way.mesh and self._seed else {}
        return {
            "node": {
                "name": name,
                "cluster": CLUSTER,
                "state": str(self._home / label),
                "profile": "local",
                "engine": self.engine,
            },
            "timing": dict(CALM),
            "pulse": dict(CALM_PULSE),
            "network": self._network | seeds,
            "security": {"key_file": str(self._home / "key")} if self.way.sealed else {"anybody_may_read_and_write": True},
            "sessions": {"socket": str(self._home / f"{label}.sock")},
            "admin": {"allow_faults": True},
            "trace": {"directory": str(self.evidence.directory), "free_mb": 0},
            "log": {"json": True},
        }

    @property
    def home(self) -> Path:
        return self._home

    # --- daemons ----------------------------------------------------------------------------------------------------

    async def start(self, label: str, settings: Settings | None = None, name: str = "") -> DaemonProcess:
        """Without waiting for anything."""
        inside = self.lan.inside(label) if self.lan is not None else ()
        if self.lan is not None and self.way.mesh:
            self._seed = f"198.18.0.1:{MESH_PORT}"
        daemon = DaemonProcess(label, self._home, merged(self.settings(label, name), settings or {}), inside, self.changes)
        self.evidence.killed -= {before.node for before in self._ever if before.label == label}
        self.daemons[label] = daemon
        self._ever.append(daemon)
        await daemon.start()
        return daemon

    async def boot(self, *labels: str, settings: Settings | None = None) -> list[DaemonProcess]:
        """Until each of them has its first view."""
        daemons = []
        for label in labels:
            daemons.append(await self.start(label, settings))
            if self.way.mesh and not self._seed:
                await self._ready(daemons[0])
                self._seed = (await daemons[0].ask("status"))["address"]
        for daemon in daemons:
            await self._ready(daemon)
            await self._aim_at(daemon)
        return daemons

    async def _ready(self, daemon: DaemonProcess) -> None:
        await self.until(lambda: daemon.is_ready or not daemon.is_alive, lambda: f"{daemon.label} to be ready")
        assert daemon.is_ready, f"{daemon.label} did not start"

    async def gather(self, *labels: str, settings: Settings | None = None) -> list[DaemonProcess]:
        """Boot, and be together with whoever is there already."""
        daemons = await self.boot(*labels, settings=settings)
        await self.together(*(label for label, daemon in self.daemons.items() if daemon.is_alive))
        return daemons

    async def together(self, *labels: str) -> None:
        """All of these have a view of exactly these."""
        daemons = [self.daemons[label] for label in labels]
        names = tuple(sorted(daemon.name for daemon in daemons))

        def views() -> str:
            return f"a view of {' '.join(names)}; there are {[(one.label, one.members) for one in daemons]}"

        await self.until(lambda: all(daemon.members == names for daemon in daemons), views)

    async def kill(self, label: str) -> None:
        daemon = self.daemons[label]
        self.evidence.killed.add(daemon.node)
        await daemon.kill()

    @property
    def living(self) -> list[DaemonProcess]:
        return [daemon for daemon in self.daemons.values() if daemon.is_alive]

    async def until(self, condition: Callable[[], bool], what: Callable[[], str], patience_s: float = PATIENCE_S) -> None:
        await self.changes.until(condition, what, patience_s)

    # --- links ------------------------------------------------------------------------------------------------------

    async def part(self, *labels: str) -> None:
        """These on one side, all others on the other: by the switch, or without one by the daemons themselves."""
        self._parted = labels
        if self.lan is not None:
            self.lan.part(*labels)
            return
        others = tuple(label for label in self.daemons if label not in labels)
        for side, far in ((labels, others), (others, labels)):
            for label in side:
                await self.daemons[label].ask("cut", peers=list(far))

    async def mend(self) -> None:
        if self.lan is not None:
            self.lan.mend(*self._parted)
            return
        for daemon in self.living:
            await daemon.ask("heal")

    # --- clients ----------------------------------------------------------------------------------------------------

    async def session(self, label: str, title: str = "", window: int = WINDOW) -> Session[bytes]:
        return await connect(str(self.daemons[label].clients), label=title or label, window=window).open()

    async def listener(self, label: str, *groups: str, title: str = "", session: Session[bytes] | None = None) -> Listener:
        """A client of this daemon, in these groups; several may share a session."""
        session = session or await self.session(label, title)
        listener = Listener(title or label, session, await session.join(*groups).open(), self.changes)
        self.listeners.append(listener)
        return listener

    async def resident(self, label: str) -> Listener:
        daemon = self.daemons[label]
        if daemon not in self._residents:
            self._residents[daemon] = await self.listener(label, RESIDENTS, title=f"resident of {daemon.node}")
        return self._residents[daemon]

    async def residents(self) -> list[Listener]:
        return [await self.resident(daemon.label) for daemon in self.living]

    async def meet(self, *listeners: Listener) -> None:
        """All of these have one regular view of exactly these processes."""
        processes = tuple(sorted(one.process for one in listeners))

        def have_met() -> bool:
            views = [one.view for one in listeners if one.view is not None and one.view.id.configuration.is_regular]
            return len(views) == len(listeners) and len({view.id for view in views}) == 1 and views[0].members == processes

        await self.until(have_met, lambda: f"one view of {len(processes)}; members are {[len(one.members) for one in listeners]}")

    async def mark(self, *listeners: Listener) -> None:
        """Everybody says a safe word, and has heard those of all: whatever was said before is delivered everywhere."""
        words = [MARK + f"{next(self._marks)} of {one.label}".encode() for one in listeners]
        for one, word in zip(listeners, words, strict=True):
            await one.say(word, Service.SAFE)
        everything = set(words)

        def missing() -> str:
            return f"marks: {[(one.label, sorted(everything - one.marks), one.failure) for one in listeners]}"

        await self.until(lambda: all(everything <= one.marks for one in listeners), missing)

    # --- junk -------------------------------------------------------------------------------------------------------

    async def _start_thrower(self) -> None:
        inside = self.lan.inside(HECKLER) if self.lan is not None else ()
        aim: dict[str, object] = {"interface": self._network["interface"], "cluster": CLUSTER}
        aim |= {"sealed": self.way.sealed, "per_s": self._junk_per_s, "key": self._key_of_thrower, "engine": self.engine}
        if not self.way.mesh:
            aim |= {"data_port": self._network.get("data_port", 5410), "control_port": self._network.get("control_port", 5411)}
            aim |= {"group": self._network.get("group", "239.192.84.115" if self.way.version == 4 else "ff12::7472:6973")}
        self._thrower = await asyncio.create_subprocess_exec(
            *(*inside, sys.executable, "-m", "tests.real.thrower", json.dumps(aim)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            cwd=ROOT,
        )

    async def _aim_at(self, daemon: DaemonProcess) -> None:
        endpoint = read_endpoint((await daemon.ask("status"))["address"])
        assert endpoint is not None
        assert self._thrower.stdin is not None
        for port in range(endpoint.port, endpoint.port + (3 if self.way.mesh else 1)):
            self._thrower.stdin.write(f"{endpoint.host} {port}\n".encode())

    async def lie(self, seconds: float) -> None:
        """So long the rogue says what is not true."""
        assert self._key_of_thrower and self._thrower.stdin is not None
        self._thrower.stdin.write(b"lie\n")
        await let_pass(seconds)
        self._thrower.stdin.write(b"silence\n")

    async def _stop_thrower(self) -> None:
        """It threw, and hit."""
        assert self._thrower.stdin is not None
        self._thrower.stdin.close()
        output, _ = await self._thrower.communicate()
        self.thrown = json.loads(output)
        assert sum(self.thrown.values()) > 0

    # --- the verdict ------------------------------------------------------------------------------------------------

    async def finish(self, *more: str, without: Collection[str] = ()) -> None:
        """`more` properties were exercised than always, or some were not because the story could not."""
        living = self.living
        exercised = await asyncio.to_thread(judge, await self._rest(living))
        for daemon in living:
            assert await daemon.figure("rejected") > 0, f"no junk reached {daemon.label}"
            assert await daemon.figure("trace_dropped_events") == 0
        await self._leave(living)
        await self._stop_thrower()
        exercised |= await asyncio.to_thread(judge, self.evidence.at_the_end())
        assert sorted((ALWAYS | set(more)) - exercised - set(without)) == [], "the story did not exercise these"
        assert disagreements([one.notes for one in self.listeners], self.engine) == []

    async def _rest(self, living: list[DaemonProcess]) -> History:
        """What the traces say while nothing is under way. A busy machine may disturb the rest: then once more."""
        for _ in range(RESTS_MAX):
            await self.together(*(daemon.label for daemon in living))
            residents = await self.residents()
            await self.meet(*residents)
            for one in residents:
                await one.chat(1, (100,))
            await self.mark(*residents)
            before = await self._rings(living)
            history = await asyncio.to_thread(self.evidence.at_rest)
            if len(before) == 1 and await self._rings(living) == before:
                return history
        raise AssertionError(f"no rest in {RESTS_MAX} attempts")

    async def _rings(self, living: list[DaemonProcess]) -> set[tuple[str, str]]:
        """State and view of all of them, by their own word."""
        answers = [await daemon.ask("status") for daemon in living]
        return {(answer["state"], answer["view"]["id"]) for answer in answers}

    async def _leave(self, living: list[DaemonProcess]) -> None:
        """One after the other until two are left: their last view has nobody who could have to deliver something in it."""
        for daemon in living[:-2]:
            daemon.signal(signal.SIGTERM)
            assert await daemon.gone() == 0, daemon.tail()
        for daemon in living[-2:]:
            daemon.signal(signal.SIGTERM)
        for daemon in living[-2:]:
            assert await daemon.gone() == 0, daemon.tail()
