"""`transis bench failover`: a member is killed; how long until the others have a view without it, and where the time went.

1. Each kill ends a real process (SIGKILL). The time after it is divided at three points: the first survivor suspects, the first
   one knows who will be in the new view, the last one begins to recover; STAGES has the states of each engine that show this. It
   ends when the last survivor has delivered the new regular view.
2. A view that lacks a living member of the view before is a false exclusion, whenever it comes.
3. The killed node is started again and taken back before the next kill, so that every kill hits a full view. The time for this
   is counted from the node's first view, in which it is alone.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec

from transis.bench.machines import PATIENCE_S, BenchError, Line, Site, Worker, Workers, machine
from transis.bench.workers import NodeSpec
from transis.net.runtime import boottime_us
from transis.settings.load import settings_of
from transis.settings.resolve import resolve
from transis.types.config import MS, EngineName, ProfileName

LOADED_RATE: Final = 1000.0
PHASES: Final = ("detection", "consensus", "commit", "recovery", "total", "merge")
MEASURED: Final = {
    "detection": "from the kill until the first survivor suspects",
    "consensus": "until the first survivor knows the new view",
    "commit": "until the last survivor begins to recover",
    "recovery": "until the last survivor has delivered the new regular view",
    "merge": "from the first view of the node that was started again, alone, until everybody has delivered the view of all",
}


class Stages(NamedTuple):
    """The states that an engine enters when it suspects, when it knows the next view, and when it recovers what that needs."""

    suspects: tuple[str, ...]
    knows: str
    recovers: str


STAGES: Final = {
    "totem": Stages(("Gather",), "Commit", "Recovery"),
    "lansis": Stages(("Faults", "Stage 1", "Stage 2"), "Flush", "Flush"),
}
SETTLE_S: Final = 0.25
"""From a full view to the next kill, with a different remainder each time, so that kills fall anywhere in a rotation."""

Say = Callable[[str], None]


class FailoverRequest(NamedTuple):
    nodes: int
    kills: int
    profile: ProfileName
    engine: EngineName


class Phases(NamedTuple):
    """Milliseconds of one kill."""

    detection: float
    consensus: float
    commit: float
    recovery: float
    total: float
    merge: float


class RingMember:
    """One node as the benchmark sees it: its process, and what it reported."""

    def __init__(self, name: str, worker: Worker) -> None:
        self.name = name
        self.worker = worker
        self.reported: list[Line] = []
        self.members: list[str] = []
        self.reading: asyncio.Task[None] | None = None

    def last(self, state: str, since_us: int, until_us: int) -> int | None:
        """When it last entered the state within this time."""
        times = [line["at"] for line in self.reported if line.get("state") == state and since_us <= line["at"] <= until_us]
        return times[-1] if times else None

    def first(self, states: tuple[str, ...], since_us: int) -> int | None:
        return next((line["at"] for line in self.reported if line.get("state") in states and line["at"] >= since_us), None)

    @property
    def view_times(self) -> list[int]:
        return [line["at"] for line in self.reported if "view" in line]

    def view_without(self, victim: str, since_us: int) -> int | None:
        """When it first delivered a regular view without the victim."""
        views = (line for line in self.reported if "view" in line and line["at"] >= since_us)
        return next((line["at"] for line in views if victim not in line["members"]), None)


class WatchedRing:
    """All members, and the false exclusions among their views."""

    def __init__(self, site: Site, workers: Workers, profile: ProfileName, rate: float) -> None:
        self._site = site
        self._workers = workers
        self._profile = profile
        self._rate = rate / len(site.names)
        self._changed = asyncio.Event()
        self._false: set[str] = set()
        self.members: dict[str, RingMember] = {}

    @property
    def false_exclusions(self) -> int:
        return len(self._false)

    async def start(self, name: str) -> None:
        worker = await self._workers.start(f"node {name}", "transis.bench.workers")
        worker.send(msgspec.to_builtins(NodeSpec(**self._site.place(name), profile=self._profile, rate=self._rate)))
        member = self.members[name] = RingMember(name, worker)
        member.reading = asyncio.create_task(self._read(member))

    async def _read(self, member: RingMember) -> None:
        while True:
            try:
                line = await member.worker.hear("at", 3600.0)
            except BenchError:
                self._changed.set()
                return
            member.reported.append(line)
            if "view" in line:
                self._judge(member, line)
                member.members = line["members"]
            self._changed.set()

    def _judge(self, member: RingMember, line: Line) -> None:
        """Rule 2: the benchmark knows who is alive, whatever the ring believes."""
        alive = {name for name, one in self.members.items() if one.worker.process.returncode is None}
        if (set(member.members) & alive) - set(line["members"]):
            self._false.add(line["view"])

    async def kill(self, name: str) -> int:
        victim = self.members.pop(name)
        killed_us = boottime_us()
        victim.worker.process.kill()
        await victim.worker.process.wait()
        return killed_us

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise BenchError(f"{what} did not come about within {PATIENCE_S:g} s") from None

    async def together(self) -> None:
        names = sorted(self.members)
        await self.until(lambda: all(one.members == names for one in self.members.values()), f"a view of {' '.join(names)}")

    def stop_reading(self) -> None:
        for member in self.members.values():
            if member.reading is not None:
                member.reading.cancel()


def measure_failover(request: FailoverRequest, say: Say) -> dict[str, Any]:
    figures = {load: _measure_at(request, load, rate, say) for load, rate in (("idle", 0.0), ("loaded", LOADED_RATE))}
    circumstances = {"engine": request.engine, "nodes": request.nodes, "profile": request.profile} | _suspicion(request)
    return circumstances | {"loaded_msgs_per_s": LOADED_RATE} | figures | {"measured": MEASURED, "machine": machine()}


def _suspicion(request: FailoverRequest) -> dict[str, float]:
    """After how much silence this engine suspects, as it is configured."""
    config = resolve(settings_of("any", profile=request.profile, engine=request.engine)).config
    return {"token_loss_ms" if request.engine == "totem" else "silence_ms": config.detection_us / MS}


def measure_kills(request: FailoverRequest, say: Say) -> dict[str, Any]:
    """Kills of an idle cluster only."""
    return _suspicion(request) | _measure_at(request, "idle", 0.0, say)


def _measure_at(request: FailoverRequest, load: str, rate: float, say: Say) -> dict[str, Any]:
    with TemporaryDirectory(prefix="transis-bench-") as directory:
        site = Site(request.nodes, Path(directory), engine=request.engine)
        return asyncio.run(_measure(request, site, rate, lambda words: say(f"{load}: {words}")))


async def _measure(request: FailoverRequest, site: Site, rate: float, say: Say) -> dict[str, Any]:
    async with Workers() as workers:
        ring = WatchedRing(site, workers, request.profile, rate)
        say(f"starting {request.nodes} nodes")
        for name in site.names:
            await ring.start(name)
        await ring.together()
        found = []
        for number in range(request.kills):
            await asyncio.sleep(SETTLE_S + number * 0.013)
            say(f"kill {number + 1} of {request.kills}")
            found.append(await _one_kill(ring, site.names[number % request.nodes], STAGES[request.engine]))
        ring.stop_reading()
    return _sum_up(found) | {"kills": len(found), "false_exclusions": ring.false_exclusions}


async def _one_kill(ring: WatchedRing, victim: str, stages: Stages) -> Phases:
    killed_us = await ring.kill(victim)
    await ring.together()
    phases = _phases(list(ring.members.values()), victim, killed_us, stages)
    await ring.start(victim)
    await ring.together()
    alone_us = ring.members[victim].view_times[0]
    together_us = max(member.view_times[-1] for member in ring.members.values())
    return phases._replace(merge=(together_us - alone_us) / MS)


def _phases(survivors: list[RingMember], victim: str, killed_us: int, stages: Stages) -> Phases:
    over = max(_known(one.view_without(victim, killed_us) for one in survivors))
    gather = min(_known(one.first(stages.suspects, killed_us) for one in survivors))
    commit = min(_known(one.last(stages.knows, killed_us, over) for one in survivors))
    recovery = max(_known(one.last(stages.recovers, killed_us, over) for one in survivors))
    detection, consensus, committed, recovered = (
        (later - earlier) / MS for earlier, later in pairwise((killed_us, gather, commit, recovery, over))
    )
    return Phases(detection, consensus, committed, recovered, (over - killed_us) / MS, 0.0)


def _known(times: Iterable[int | None]) -> list[int]:
    known = [time for time in times if time is not None]
    if not known:
        raise BenchError("the survivors did not say how they came to their view")
    return known


def _sum_up(found: list[Phases]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for phase in PHASES:
        spans = [getattr(one, phase) for one in found]
        figures[f"{phase}_ms"] = {"median": round(statistics.median(spans), 1), "max": round(max(spans), 1)}
    return figures
