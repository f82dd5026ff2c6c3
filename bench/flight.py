"""What the flight recorder costs a node at full speed, measured inside one run.

    python -m bench.flight [--nodes 4] [--sizes 64,1000] [--seconds 120] [--slice 1.0] [--engine totem] [--json]

`transis bench flight` compares runs with it and without, and two runs of the same nodes differ by a tenth whatever they do. Here
the nodes stay, and record in every second slice of time, all of them in the same ones: a machine has one clock. Two neighbouring
slices are a pair; the result is the median of the pairs' ratios with its 95 % confidence interval.

While a node does not record, an observer that takes nothing stands in its place. What was recorded in a
slice is written when the slice is over. Only the steady cost of recording is measured: the ring files of the first view are
exported (by a process of low priority, once for each change of view) before the first slice counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from transis.bench.machines import Site, Worker, Workers, next_order, open_orders, report
from transis.bench.throughput import interval
from transis.bench.workers import GROUP_NAME, BenchClient, ProgramSpec, Stopwatch
from transis.client.connection import WINDOW, Connection
from transis.client.events import Raw
from transis.embed.thread import ThreadedNode
from transis.net.host import Opening
from transis.net.runtime import boottime_us, end_with_parent, fast_loop
from transis.net.transport import Group as MulticastGroup
from transis.settings.load import settings_of
from transis.settings.resolve import resolve
from transis.trace.flight import Flight
from transis.types.ids import NodeId
from transis.types.outputs import Configure, NodeOutput, Observer

WARM_UP_S = 14.0
"""Longer than FlightLimits.after_s, so that developing is over."""
PATIENCE_S = 60.0
PROJECT = Path(__file__).resolve().parents[1]


class Paused(Observer):
    """Takes nothing but configurations, without which no tape can go on."""

    kinds = frozenset({Configure})

    def __init__(self, flight: Flight) -> None:
        self._tape = flight.tape

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            if isinstance(output, Configure):
                self._tape.configured(output.view)


class SlicedNode(ThreadedNode):
    """An embedded node that records in every second slice."""

    def __init__(self, opening: Opening, slice_us: int) -> None:
        super().__init__(opening)
        self._slice_us = slice_us

    async def start(self) -> NodeId:
        node = await super().start()
        asyncio.run_coroutine_threadsafe(self._take_turns(), self._living_loop())
        return node

    async def _take_turns(self) -> None:
        driver = self._host.driver
        flight = next((one for one in driver.observers if isinstance(one, Flight)), None)
        assert flight is not None, "its settings want one"
        place, paused = driver.observers.index(flight), Paused(flight)
        while True:
            await asyncio.sleep(until_next_slice_s(self._slice_us))
            recording = is_recording(boottime_us(), self._slice_us)
            if not recording:
                flight.look(boottime_us())
            driver.observers[place] = flight if recording else paused


def is_recording(now_us: int, slice_us: int) -> bool:
    return bool(now_us // slice_us % 2)


def until_next_slice_s(slice_us: int) -> float:
    return (slice_us - boottime_us() % slice_us) / 1e6


# --- a node's process -----------------------------------------------------------------------------------------------


async def count_slices(speaker: BenchClient, seconds: float, slice_us: int) -> list[dict[str, Any]]:
    """What the application took, and the process used of a processor, in each slice."""
    await asyncio.sleep(WARM_UP_S)
    await asyncio.sleep(until_next_slice_s(slice_us))
    slices: list[dict[str, Any]] = []
    for _ in range(2 * max(1, int(seconds * 1e6 / slice_us / 2))):
        began_us, taken, cpu_s = boottime_us(), speaker.taken, time.process_time()
        await asyncio.sleep(until_next_slice_s(slice_us))
        passed_s = (boottime_us() - began_us) / 1e6
        messages, used_s = speaker.taken - taken, time.process_time() - cpu_s
        number, recording = began_us // slice_us, is_recording(began_us, slice_us)
        slices.append({"number": number, "on": recording, "rate": messages / passed_s, "cpu": used_s / max(1, messages)})
    return slices


async def node_of_its_own() -> None:
    orders = await open_orders()
    told = await next_order(orders)
    job, slice_us = msgspec.convert(told["job"], ProgramSpec), int(told["slice_us"])
    end_with_parent(job.parent)
    settings = settings_of(
        job.name,
        cluster=job.cluster,
        plaintext=True,
        group=MulticastGroup(job.group, job.group_port, job.group_port + 1),
        state=job.state,
        engine=job.engine,
    )
    node = SlicedNode(resolve(settings), slice_us)
    await node.start()
    async with AsyncExitStack() as opened:
        session = await opened.enter_async_context(Connection(node.link, job.name, WINDOW, Raw()))
        group = await opened.enter_async_context(session.join(GROUP_NAME))
        speaker = BenchClient(job, group, Stopwatch())
        await speaker.until_together()
        report({"ready": True})
        await next_order(orders)
        taking, sending = asyncio.create_task(speaker.take_all()), asyncio.create_task(speaker.send_all())
        slices = await count_slices(speaker, job.seconds, slice_us)
        report({"slices": slices, "view_changes": speaker.view_changes})
        speaker.stop()
        await sending
        await taking
        report({"lost": speaker.lost})
        await next_order(orders)
    await node.leave()


# --- the benchmark --------------------------------------------------------------------------------------------------


async def run_nodes(arguments: argparse.Namespace, site: Site, size: int) -> list[dict[str, Any]]:
    async with Workers() as workers:
        nodes = [await start_node(arguments, site, workers, name, size) for name in site.names]
        await asyncio.gather(*(node.hear("ready") for node in nodes))
        for node in nodes:
            node.send({"go": True})
        heard = await asyncio.gather(*(node.hear("slices", arguments.seconds + PATIENCE_S) for node in nodes))
        losses = await asyncio.gather(*(node.hear("lost") for node in nodes))
        return [one | loss for one, loss in zip(heard, losses, strict=True)]


async def start_node(arguments: argparse.Namespace, site: Site, workers: Workers, name: str, size: int) -> Worker:
    worker = await workers.start(f"node {name}", "bench.flight", "--node")
    job = ProgramSpec(
        name=name,
        parent=os.getpid(),
        nodes=arguments.nodes,
        size=size,
        service="agreed",
        seconds=arguments.seconds,
        warm_up=WARM_UP_S,
        cluster=site.cluster,
        group=site.group,
        group_port=site.group_port,
        state=site.state(name),
        engine=arguments.engine,
    )
    worker.send({"job": msgspec.to_builtins(job), "slice_us": int(arguments.slice * 1e6)})
    return worker


def sum_up(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """A slice's figure is that of the median node; slices that a node did not see whole are left out."""
    by_number: dict[int, list[dict[str, Any]]] = {}
    for node in nodes:
        for one in node["slices"]:
            by_number.setdefault(one["number"], []).append(one)
    whole = {number: seen for number, seen in by_number.items() if len(seen) == len(nodes)}
    pairs = [(whole[number], whole[number + 1]) for number in sorted(whole) if number % 2 == 0 and number + 1 in whole]
    figures = {name: ratios(pairs, name) for name in ("rate", "cpu")}
    return figures | {name: sum(node[name] for node in nodes) for name in ("lost", "view_changes")}


def ratios(pairs: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]], figure: str) -> dict[str, float]:
    found = []
    for pair in pairs:
        middle = {seen[0]["on"]: statistics.median(one[figure] for one in seen) for seen in pair}
        found.append(middle[True] / max(1e-12, middle[False]))
    low, high = interval(sorted(found))
    return {"pairs": len(found), "ratio": round(statistics.median(found), 4), "from": round(low, 4), "to": round(high, 4)}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    figures: dict[str, Any] = {"nodes": arguments.nodes, "engine": arguments.engine, "slice_s": arguments.slice, "sizes": {}}
    for size in map(int, arguments.sizes.split(",")):
        figures["sizes"][str(size)] = measure_size(arguments, size)
    return figures


def measure_size(arguments: argparse.Namespace, size: int) -> dict[str, Any]:
    with ExitStack() as opened:
        directory = Path(opened.enter_context(TemporaryDirectory(prefix="transis-bench-")))
        site = opened.enter_context(Site(arguments.nodes, directory, engine=arguments.engine))
        return sum_up(asyncio.run(run_nodes(arguments, site, size)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--sizes", default="64,1000")
    parser.add_argument("--seconds", type=float, default=120.0, help="measured for each size")
    parser.add_argument("--slice", type=float, default=1.0, help="seconds with it, then as many without")
    parser.add_argument("--engine", default="totem", choices=("totem", "lansis"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--node", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.node:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with asyncio.Runner(loop_factory=fast_loop()) as runner:
            runner.run(node_of_its_own())
        return 0
    figures = measure(arguments)
    if arguments.json:
        print(json.dumps(figures))
        return 0
    for size, found in figures["sizes"].items():
        for name, words in (("rate", "messages a second"), ("cpu", "processor time a message")):
            ratio, low, high, pairs = (found[name][part] for part in ("ratio", "from", "to", "pairs"))
            print(f"{size:>5} B  {words:26} x {ratio:.4f}  (95 %: {low:.4f} to {high:.4f}, {pairs} pairs)")
        print(f"{'':8} lost {found['lost']}, view changes {found['view_changes']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
