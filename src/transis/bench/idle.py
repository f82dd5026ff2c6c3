"""`transis bench idle`: what daemons cost that do nothing, and how soon after their start they are in one view."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple

from transis.bench.machines import PATIENCE_S, BenchError, Site, Usage, Workers, usage_of
from transis.bench.throughput import machine
from transis.cli.admin import AdminConnection

LOOK_S: Final = 0.01

Say = Callable[[str], None]


class Idle(NamedTuple):
    nodes: int
    seconds: float
    engine: str


def measure_idle(wanted: Idle, say: Say) -> dict[str, Any]:
    with TemporaryDirectory(prefix="transis-bench-") as directory:
        site = Site(wanted.nodes, Path(directory), engine=wanted.engine)
        return asyncio.run(_measure(wanted, site, say))


async def _measure(wanted: Idle, site: Site, say: Say) -> dict[str, Any]:
    async with Workers() as workers:
        say(f"starting {wanted.nodes} daemons")
        began = perf_counter()
        daemons = [await site.start_daemon(workers, name) for name in site.names]
        for daemon in daemons:
            await daemon.hear("ready")
        ready_s = perf_counter() - began
        await _together(site, wanted.nodes)
        together_s = perf_counter() - began
        say(f"watching them do nothing for {wanted.seconds:g} s")
        before, since = [usage_of(daemon.pid) for daemon in daemons], perf_counter()
        await asyncio.sleep(wanted.seconds)
        after, passed_s = [usage_of(daemon.pid) for daemon in daemons], perf_counter() - since
    return _sum_up(wanted, before, after, passed_s) | {"ready_s": round(ready_s, 2), "first_common_view_s": round(together_s, 2)}


async def _together(site: Site, nodes: int) -> None:
    """Until every daemon has all of them in its view."""
    with ExitStack() as opened:
        asked = [opened.enter_context(AdminConnection(None, Path(site.socket(name)))) for name in site.names]
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not all(len(one.ask("members")["members"]) == nodes for one in asked):
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise BenchError(f"the daemons did not come to one view within {PATIENCE_S:g} s") from None


def _sum_up(wanted: Idle, before: list[Usage], after: list[Usage], passed_s: float) -> dict[str, Any]:
    cpu = [100 * (late.cpu_s - early.cpu_s) / passed_s for early, late in zip(before, after, strict=True)]
    return {
        "engine": wanted.engine,
        "nodes": wanted.nodes,
        "seconds": round(passed_s, 2),
        "cpu_percent": round(statistics.median(cpu), 2),
        "cpu_percent_max": round(max(cpu), 2),
        "rss_mb": round(statistics.median(one.rss_bytes for one in after) / 1e6, 1),
        "rss_mb_max": round(max(one.rss_bytes for one in after) / 1e6, 1),
        "machine": machine(),
    }
