"""`transis bench engines`: the engines side by side, under one load after the other, on one machine and with one stack.

1. A *field* is a number of nodes and a rate of loss. In each, every contender has processes of its own (workers.py), one
   contender after the other, and plays the same rounds: who speaks, how much, with which service.
2. The fields are every number of nodes without loss, and the smallest number with every rate of loss. So their count is bounded,
   and the time they take: rounds times seconds, and some for starting.
3. Then members are killed and taken back, as `transis bench failover` does it, without load.
4. A round that could not be played says why in place of its figures, and the others are played all the same.
5. The figures fit in one drawing: a panel for each question, a bar for each engine in each circumstance.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec

from transis.audit.draw.svg import element, group, line, rect, sender_class, style, text, title
from transis.bench.failover import FailoverRequest, measure_kills
from transis.bench.machines import PATIENCE_S, BenchError, Site, Worker, Workers, machine
from transis.bench.workers import LoadRound, NodeSpec
from transis.types.config import EngineName, Order

# --- measuring --------------------------------------------------------------------------------------------------------

LOW_PER_S: Final = 200.0
"""Messages a second that all speakers send together at low load."""
WARM_UP_S: Final = 0.5
SERVICES: Final = ("agreed", "safe")
SATURATED: Final = -1.0
SEED: Final = 1992
MEASURED: Final = {
    "msgs_per_s": "messages that each node delivered, median of the nodes",
    "p50_ms, p99_ms": "from the call of send to the delivery, all nodes, all queues included; median of the nodes",
    "cpu_us_per_msg": "processor time of a node for each message that it delivered, median of the nodes",
    "detection_ms": "from a kill until the first survivor suspects",
    "total_ms": "from a kill until the last survivor has delivered the view without it",
    "merge_ms": "from the first view of a node that was started, alone, until everybody has delivered the view of all",
    "low load": f"{LOW_PER_S:g} messages a second of all speakers together",
    "loss": "of every datagram at every receiver, dropped after the socket",
}

Say = Callable[[str], None]


class Contestant(NamedTuple):
    engine: EngineName
    order: Order


CONTESTANTS: Final = {
    "totem": Contestant("totem", "all-ack"),
    "lansis": Contestant("lansis", "all-ack"),
    "lansis toto": Contestant("lansis", "toto"),
}


class EnginesRequest(NamedTuple):
    nodes: tuple[int, ...]
    loss_percent: tuple[float, ...]
    size: int
    seconds: float
    kills: int
    contestants: tuple[str, ...]


class Field(NamedTuple):
    nodes: int
    loss_percent: float


class LoadSpec(NamedTuple):
    senders: str
    load: str
    service: str


Played = tuple[LoadSpec, dict[str, Any]]

LOADS: Final = [
    LoadSpec(senders, load, service) for senders in ("one", "all") for load in ("low", "full") for service in SERVICES
]


def fields_of(request: EnginesRequest) -> list[Field]:
    losses = [Field(min(request.nodes), loss) for loss in request.loss_percent if loss]
    return [Field(nodes, 0.0) for nodes in request.nodes] + losses


def measure_engines(request: EnginesRequest, say: Say) -> dict[str, Any]:
    found: dict[tuple[Field, LoadSpec], dict[str, Any]] = {(field, load): {} for field in fields_of(request) for load in LOADS}
    for field in fields_of(request):
        for name in request.contestants:
            for load, figures in _play_field(request, field, name, say):
                found[field, load][name] = figures
    rounds = [field._asdict() | load._asdict() | figures for (field, load), figures in found.items()]
    return {
        "size": request.size,
        "seconds": request.seconds,
        "network": "loopback",
        "sealed": False,
        "rounds": rounds,
        "changes": _changes(request, say),
        "measured": MEASURED,
        "machine": machine(),
    }


def _changes(request: EnginesRequest, say: Say) -> dict[str, Any]:
    """By engine alone: the order it uses plays no part in its membership."""
    if not request.kills:
        return {}
    engines = dict.fromkeys(CONTESTANTS[name].engine for name in request.contestants)
    return {engine: measure_kills(FailoverRequest(min(request.nodes), request.kills, "auto", engine), say) for engine in engines}


def _play_field(request: EnginesRequest, field: Field, name: str, say: Say) -> list[Played]:
    contestant = CONTESTANTS[name]

    def say_where(words: str) -> None:
        say(f"{name}, {field.nodes} nodes, {field.loss_percent:g} % loss: {words}")

    with TemporaryDirectory(prefix="transis-bench-") as directory:
        site = Site(field.nodes, Path(directory), engine=contestant.engine)
        return asyncio.run(_play(request, field, contestant, site, say_where))


async def _play(request: EnginesRequest, field: Field, contestant: Contestant, site: Site, say: Say) -> list[Played]:
    found: list[Played] = []
    async with Workers() as workers:
        say("starting")
        try:
            nodes = [await _start_node(workers, site, name, field, contestant) for name in site.names]
            await asyncio.gather(*(_together(worker, site.names) for worker in nodes))
        except BenchError as error:
            return [(load, {"failed": str(error)}) for load in LOADS]
        for number, load in enumerate(LOADS, 1):
            say(f"{load.service}, {load.load} load of {load.senders}")
            try:
                found.append((load, await _round(request, number, load, nodes)))
            except BenchError as error:  # A node that hangs would spoil the later rounds, too.
                return found + [(other, {"failed": str(error)}) for other in LOADS[len(found) :]]
        for worker in nodes:
            worker.send({"end": True})
        await asyncio.gather(*(worker.process.wait() for worker in nodes))
    return found


async def _start_node(workers: Workers, site: Site, name: str, field: Field, contestant: Contestant) -> Worker:
    worker = await workers.start(f"node {name}", "transis.bench.workers")
    spec = NodeSpec(
        **site.place(name),
        order=contestant.order,
        loss_permille=round(10 * field.loss_percent),
        seed=SEED + site.names.index(name),
    )
    worker.send(msgspec.to_builtins(spec))
    return worker


async def _together(worker: Worker, names: Sequence[str]) -> None:
    while (await worker.hear("members"))["members"] != list(names):
        pass


async def _round(request: EnginesRequest, number: int, load: LoadSpec, nodes: Sequence[Worker]) -> dict[str, Any]:
    for rate, worker in zip(_rates(load, len(nodes)), nodes, strict=True):
        order = LoadRound(
            number=number, service=load.service, size=request.size, rate=rate, warm_up=WARM_UP_S, seconds=request.seconds
        )
        worker.send({"round": msgspec.to_builtins(order)})
    patience_s = WARM_UP_S + request.seconds + PATIENCE_S
    results = await asyncio.gather(*(worker.hear("result", patience_s) for worker in nodes))
    return _sum_up([line["result"] for line in results])


def _rates(load: LoadSpec, nodes: int) -> Iterator[float]:
    speakers = 1 if load.senders == "one" else nodes
    rate = SATURATED if load.load == "full" else LOW_PER_S / speakers
    return (rate if number < speakers else 0.0 for number in range(nodes))


def _sum_up(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def middle(values: Iterator[float], digits: int) -> float:
        return round(statistics.median(values), digits)

    return {
        "msgs_per_s": int(middle((one["messages"] / one["seconds"] for one in results), 0)),
        "p50_ms": middle((one["p50_ms"] for one in results), 2),
        "p99_ms": middle((one["p99_ms"] for one in results), 2),
        "cpu_us_per_msg": middle((1e6 * one["cpu_s"] / max(1, one["messages"]) for one in results), 1),
        "datagrams_per_s": int(sum(one["sent_datagrams"] / one["seconds"] for one in results)),
        "retransmitted": int(sum(one["retransmitted"] for one in results)),
        "overflows": int(sum(one["overflows"] for one in results)),
        "view_changes": int(sum(one["view_changes"] for one in results)),
    }


# --- the drawing ------------------------------------------------------------------------------------------------------

PANEL_W: Final = 430.0
PANEL_H: Final = 230.0
COLUMNS: Final = 2
HEAD: Final = 62.0
MARGIN: Final = 24.0
BASE: Final = 180.0
"""The distance from the top of a panel to the foot of its bars."""
TALLEST: Final = 120.0

Values = Mapping[str, Any]


class Panel(NamedTuple):
    """`along` is what differs between its groups of bars; all other circumstances are fixed."""

    heading: str
    along: str
    figure: str
    fixed: Values


PANELS: Final = (
    Panel("messages a second, all send as fast as they may", "nodes", "msgs_per_s", {"senders": "all", "load": "full"}),
    Panel("messages a second, one sends as fast as it may", "nodes", "msgs_per_s", {"senders": "one", "load": "full"}),
    Panel("ms to agreed delivery (median), one sends a little", "nodes", "p50_ms", {"senders": "one", "load": "low"}),
    Panel("ms to agreed delivery (median), all send a little", "nodes", "p50_ms", {"senders": "all", "load": "low"}),
    Panel(
        "ms to safe delivery (median), all send a little", "nodes", "p50_ms", {"senders": "all", "load": "low", "service": "safe"}
    ),
    Panel(
        "messages a second under loss, all of {fewest} nodes send",
        "loss_percent",
        "msgs_per_s",
        {"senders": "all", "load": "full"},
    ),
    Panel(
        "ms to agreed delivery under loss (99 %), all of {fewest} nodes send a little",
        "loss_percent",
        "p99_ms",
        {"senders": "all", "load": "low"},
    ),
)


def draw_engines(figures: Values) -> str:
    """A whole SVG document. Loads that could not be measured have no bar."""
    rounds: Sequence[Values] = figures["rounds"]
    names = [name for name in rounds[0] if isinstance(rounds[0][name], Mapping)]
    rows = -(-len(PANELS) // COLUMNS)
    width, height = COLUMNS * PANEL_W + 2 * MARGIN, HEAD + rows * PANEL_H + MARGIN
    drawn = [_panel(panel, index, rounds, names) for index, panel in enumerate(PANELS)]
    return element(
        "svg",
        element("style", style()),
        rect(0, 0, width, height, class_="paper"),
        *_head(figures, names),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
    )


def _head(figures: Values, names: Sequence[str]) -> Iterator[str]:
    machine = figures["machine"]
    words = f"{figures['size']} bytes, {figures['seconds']:g} s each, {figures['network']}, "
    words += f"{machine['cores']} cores, {machine['system']}"
    yield text(MARGIN, 26, "The engines side by side", class_="title")
    yield text(MARGIN, 46, words, class_="faint")
    for index, name in enumerate(names):
        x = MARGIN + 500 + 110 * index
        yield rect(x, 36, 11, 11, class_=sender_class(index)) + text(x + 17, 46, name)


def _panel(panel: Panel, index: int, rounds: Sequence[Values], names: Sequence[str]) -> str:
    left, top = MARGIN + (index % COLUMNS) * PANEL_W, HEAD + (index // COLUMNS) * PANEL_H
    found = {one[panel.along]: one for one in rounds if _is_asked(panel, one, rounds)}
    return group(
        [
            text(0, 30, panel.heading.format(fewest=_fewest(rounds)), class_="lane"),
            *_bars(panel, found, names),
            line(0, BASE, PANEL_W - 40, BASE, class_="grid"),
        ],
        transform=f"translate({left:g} {top:g})",
    )


def _is_asked(panel: Panel, one: Values, rounds: Sequence[Values]) -> bool:
    """A panel along the number of nodes has rounds without loss; one along loss has the fewest nodes."""
    apart = {"loss_percent": 0.0} if panel.along == "nodes" else {"nodes": _fewest(rounds)}
    return all(one[name] == value for name, value in ({"service": "agreed"} | dict(panel.fixed) | apart).items())


def _fewest(rounds: Sequence[Values]) -> int:
    fewest: int = min(one["nodes"] for one in rounds)
    return fewest


def _bars(panel: Panel, found: Mapping[float, Values], names: Sequence[str]) -> Iterator[str]:
    highest = max((one[name].get(panel.figure, 0) for one in found.values() for name in names), default=0) or 1
    room = (PANEL_W - 40) / max(1, len(found))
    bar = min(44.0, (room - 16) / len(names))
    for at, (circumstance, one) in enumerate(sorted(found.items())):
        unit = "nodes" if panel.along == "nodes" else "% loss"
        yield text(at * room + len(names) * bar / 2, BASE + 18, f"{circumstance:g} {unit}", class_="middle")
        for index, name in enumerate(names):
            value = one[name].get(panel.figure)
            if value is not None:
                yield _bar(at * room + index * bar, bar - 3, TALLEST * value / highest, value, index, name)


def _bar(x: float, width: float, height: float, value: float, index: int, name: str) -> str:
    words = short(value)
    bar = rect(x, BASE - height, width, height, title(f"{name}: {value:g}"), class_=sender_class(index))
    return bar + text(x + width / 2, BASE - height - 5, words, class_="small middle")


def short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:.2f}M"
    if value >= 1000:
        return f"{value / 1000:.0f}k"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
