"""`transis bench`: what this machine reaches. Speed is a figure with its circumstances, never a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transis.cli.admin import JsonOption
from transis.cli.options import (
    INTERRUPTED,
    PROBLEM,
    SERVICES,
    EngineOption,
    choice,
    one_of,
    picture_file,
    plain_table,
    stdout,
    unable,
    wrong,
)
from transis.types.config import ENGINES, PROFILE_NAMES, TRANSPORTS
from transis.types.errors import TransisError

PATHS: Final = ("embedded", "session")
NODES_MAX: Final = 64

R = TypeVar("R")

BENCH_EXAMPLES = """Examples:
  transis bench throughput --nodes 4 --size 64
  transis bench failover --engine lansis
  transis bench engines --nodes 4 --loss 0 --seconds 1 --kills 0
"""

bench = typer.Typer(
    no_args_is_help=True,
    epilog=BENCH_EXAMPLES,
    rich_markup_mode="rich",
    help="Measure throughput, failover, idle costs, floods, replicas, the flight recorder and both engines on this machine.",
)

THROUGHPUT_EXAMPLES = """Examples:
  transis bench throughput --nodes 4 --size 64 --seconds 5
  transis bench throughput --path session --size 1000 --json
  sudo transis bench throughput --lan --sealed [dim]# four namespaces and a switch[/dim]
"""

NodesOption = Annotated[int, typer.Option(help=f"Nodes, each a process of its own (2 to {NODES_MAX}).")]


@bench.command(epilog=THROUGHPUT_EXAMPLES)
def throughput(
    nodes: NodesOption = 4,
    size: Annotated[int, typer.Option(help="Bytes of a message.")] = 64,
    service: Annotated[str, choice(SERVICES, "Which order and delivery to guarantee.")] = "agreed",
    path: Annotated[
        str, choice(PATHS, "Whether each program has a node in a thread (embedded) or is a client of a daemon (session).")
    ] = "embedded",
    seconds: Annotated[float, typer.Option(help="How long to measure, after a second to warm up.")] = 5.0,
    rate: Annotated[float, typer.Option(help="Messages a second that each program sends; 0: as many as it can.")] = 0.0,
    lan: Annotated[bool, typer.Option("--lan", help="In network namespaces with a switch between them (needs root).")] = False,
    sealed: Annotated[bool, typer.Option("--sealed", help="With a key, as nodes run unless they are told otherwise.")] = False,
    transport: Annotated[str, choice(TRANSPORTS, "How datagrams travel.")] = "multicast",
    engine: EngineOption = ENGINES[0],
    as_json: JsonOption = False,
) -> None:
    """Measure the messages a second that each program receives while all of them send. Losses must be 0."""
    one_of("--service", service, SERVICES)
    one_of("--path", path, PATHS)
    how = one_of("--transport", transport, TRANSPORTS)
    orders = one_of("--engine", engine, ENGINES)
    _check("--nodes", nodes, 2, NODES_MAX)
    _check("--size", size, 0, 1 << 20)
    _check("--seconds", seconds, 0.1, 3600)
    _check("--rate", rate, 0, 1e9)

    from transis.bench.throughput import ThroughputRequest, measure_throughput

    request = ThroughputRequest(nodes, size, service, path, seconds, lan, sealed, how, orders, rate)
    figures = _carry_out("throughput", measure_throughput, request)
    _show(figures, as_json)
    if figures["lost"]:
        raise typer.Exit(PROBLEM)


FAILOVER_EXAMPLES = """Examples:
  transis bench failover --nodes 8
  transis bench failover --nodes 3 --kills 5 --profile lan --json
"""


@bench.command(epilog=FAILOVER_EXAMPLES)
def failover(
    nodes: NodesOption = 8,
    kills: Annotated[int, typer.Option(help="Kills when idle, and as many at 1,000 messages a second.")] = 20,
    profile: Annotated[str, choice(PROFILE_NAMES, "Timeouts; auto is local here, as everything is on one machine.")] = "auto",
    engine: EngineOption = ENGINES[0],
    as_json: JsonOption = False,
) -> None:
    """Kill members, and measure how long the others take to go on without them, phase by phase."""
    timeouts = one_of("--profile", profile, PROFILE_NAMES)
    _check("--nodes", nodes, 2, NODES_MAX)
    _check("--kills", kills, 1, 10_000)
    orders = one_of("--engine", engine, ENGINES)

    from transis.bench.failover import FailoverRequest, measure_failover

    _show(_carry_out("failover", measure_failover, FailoverRequest(nodes, kills, timeouts, orders)), as_json)


IDLE_EXAMPLES = """Examples:
  transis bench idle
  transis bench idle --nodes 5 --seconds 60 --json
"""


@bench.command(epilog=IDLE_EXAMPLES)
def idle(
    nodes: NodesOption = 3,
    seconds: Annotated[float, typer.Option(help="How long to watch them.")] = 10.0,
    engine: EngineOption = ENGINES[0],
    as_json: JsonOption = False,
) -> None:
    """Measure the processor time and memory of idle daemons, and the time from their start to one common view."""
    _check("--nodes", nodes, 2, NODES_MAX)
    _check("--seconds", seconds, 0.1, 3600)
    orders = one_of("--engine", engine, ENGINES)

    from transis.bench.throughput import IdleRequest, measure_idle

    _show(_carry_out("idle", measure_idle, IdleRequest(nodes, seconds, orders)), as_json)


FLIGHT_EXAMPLES = """Examples:
  transis bench flight [dim]# takes some minutes[/dim]
  transis bench flight --size 64 --rounds 4 --json
"""


@bench.command(epilog=FLIGHT_EXAMPLES)
def flight(
    nodes: NodesOption = 4,
    size: Annotated[str, typer.Option(metavar="N,N...", help="Bytes of a message.")] = "64,1000",
    rounds: Annotated[int, typer.Option(help="Pairs of runs, with the flight recorder and without.")] = 10,
    seconds: Annotated[float, typer.Option(help="How long to measure each, after a second to warm up.")] = 3.0,
    path: Annotated[str, choice(PATHS, "As for throughput.")] = "embedded",
    engine: EngineOption = ENGINES[0],
    as_json: JsonOption = False,
) -> None:
    """Measure what the flight recorder costs in throughput and processor time, in pairs of runs. Losses must be 0."""
    sizes = _whole_numbers("--size", size, 0, 1 << 20)
    orders = one_of("--engine", engine, ENGINES)
    one_of("--path", path, PATHS)
    _check("--nodes", nodes, 2, NODES_MAX)
    _check("--rounds", rounds, 1, 1000)
    _check("--seconds", seconds, 0.1, 3600)

    from transis.bench.throughput import FlightRequest, measure_flight

    figures = _carry_out("flight", measure_flight, FlightRequest(nodes, sizes, rounds, seconds, orders, path))
    _show(figures, as_json)
    if any(one["lost"] for one in figures["sizes"].values()):
        raise typer.Exit(PROBLEM)


FLOOD_EXAMPLES = """Examples:
  transis bench flood
  transis bench flood --engine lansis --sessions 8 --json
"""
SESSIONS_MAX: Final = 64


@bench.command(epilog=FLOOD_EXAMPLES)
def flood(
    nodes: NodesOption = 3,
    sessions: Annotated[int, typer.Option(help=f"Clients that flood one node at once (1 to {SESSIONS_MAX}).")] = 4,
    seconds: Annotated[float, typer.Option(help="How long each kind of flood goes on.")] = 1.0,
    engine: EngineOption = ENGINES[0],
    as_json: JsonOption = False,
) -> None:
    """Flood a node with each kind of frame in turn: measure its longest turn, and the view changes that this caused."""
    _check("--nodes", nodes, 2, NODES_MAX)
    _check("--sessions", sessions, 1, SESSIONS_MAX)
    _check("--seconds", seconds, 0.1, 3600)
    orders = one_of("--engine", engine, ENGINES)

    from transis.bench.flood import FloodRequest, measure_flood

    figures = _carry_out("flood", measure_flood, FloodRequest(nodes, seconds, sessions, orders))
    if as_json:
        print(json.dumps(figures))
    else:
        stdout().print(_flood_table(figures["kinds"]))


def _flood_table(kinds: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each kind; what the node said to sessions that it ended stands below."""
    table = plain_table(
        "flood", "frames/s", "longest turn, ms", "of that processor", "another waited, ms", "views changed", "ended"
    )
    for name, one in kinds.items():
        figures = (
            one["frames_per_s"],
            one["pause_ms"],
            one["work_ms"],
            one["other_waited_ms"],
            one["view_changes"],
            one["ended"],
        )
        table.add_row(name, *map(_words, figures))
    return table


REPLICATE_EXAMPLES = """Examples:
  transis bench replicate
  transis bench replicate --replicas 5 --size 1000 --no-peers --json
  transis bench replicate --directory /var/lib [dim]# on the disk that replicas will have[/dim]
"""


@bench.command(epilog=REPLICATE_EXAMPLES)
def replicate(
    replicas: Annotated[int, typer.Option(help=f"Replicas, each a process with a node of its own (1 to {NODES_MAX}).")] = 3,
    size: Annotated[str, typer.Option(metavar="N,N...", help="Sizes of messages, in bytes.")] = "64,1000",
    seconds: Annotated[float, typer.Option(help="How long to measure each load, after a second to warm up.")] = 3.0,
    engine: EngineOption = ENGINES[0],
    directory: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the logs below this directory while it runs.")
    ] = None,
    peers: Annotated[
        bool, typer.Option(help="Measure JetStream (nats-server) and PySyncObj, too, if they are installed.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Measure the messages a second that replicas order and sync at a majority, beside the disk's own limit and other systems."""
    _check("--replicas", replicas, 1, NODES_MAX)
    sizes = _whole_numbers("--size", size, 0, 1 << 18)
    _check("--seconds", seconds, 0.1, 3600)
    orders = one_of("--engine", engine, ENGINES)
    if directory is not None and not directory.is_dir():
        raise wrong("--directory", str(directory), "must be a directory that exists")

    from transis.bench.replicate import ReplicateRequest, measure_replicate

    request = ReplicateRequest(replicas, sizes, seconds, orders, peers, directory)
    figures = _carry_out("replicate", measure_replicate, request)
    if as_json:
        print(json.dumps(figures))
    else:
        stdout().print(_replicate_table(figures))


def _replicate_table(figures: Mapping[str, Any]) -> Table:
    """For each size a row for us, one for the disk, and one for each other system."""
    table = plain_table("bytes", "", "messages/s", "p50, ms", "p99, ms", "at 1,000/s: p50, ms", "p99, ms", "we are")
    for size, found in figures["sizes"].items():
        full, paced, disk = found["full"], found["paced"], found["disk"]
        rows = [("transis", full, paced, "")]
        rows += [(one["peer"], one.get("full", {}), one.get("paced", {}), _times(one)) for one in found["peers"]]
        for name, fast, slow, ratio in rows:
            words = [_words(part.get(key, "")) for part, key in ((fast, "msgs_per_s"), (fast, "p50_ms"), (fast, "p99_ms"))]
            table.add_row(size, name, *words, _words(slow.get("p50_ms", "")), _words(slow.get("p99_ms", "")), ratio)
        syncs = (_words(disk["sync_p50_ms"]), _words(disk["sync_p99_ms"]))
        table.add_row(size, "the disk alone", _words(disk["msgs_per_s"]), "", "", *syncs, f"{found['part_of_disk']:g} x")
    return table


def _times(peer: Mapping[str, Any]) -> str:
    return peer["failed"] if "failed" in peer else f"{peer['ratio']:g} x"


ENGINES_EXAMPLES = """Examples:
  transis bench engines --json --out engines.svg > engines.json [dim]# takes some minutes[/dim]
  transis bench engines --nodes 4 --loss 0 --seconds 1 --kills 0
"""


@bench.command(epilog=ENGINES_EXAMPLES)
def engines(
    nodes: Annotated[str, typer.Option(metavar="N,N...", help="Numbers of nodes.")] = "4,8,16",
    loss: Annotated[str, typer.Option(metavar="N,N...", help="Percentages of datagrams to lose on purpose.")] = "0,1,2,5",
    size: Annotated[int, typer.Option(help="Bytes of a message.")] = 64,
    seconds: Annotated[float, typer.Option(help="How long to measure each load, after half a second to warm up.")] = 2.0,
    kills: Annotated[int, typer.Option(help="Members to kill and take back, for each engine.")] = 5,
    toto: Annotated[bool, typer.Option("--toto", help="Also measure lansis with the order ToTo.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the figures, too: FILE.svg.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the engines: throughput and latency at low and full load, with one sender and with all, with and without loss, and
    how long a death and a merge take."""
    counts, losses = _whole_numbers("--nodes", nodes, 2, NODES_MAX), _numbers("--loss", loss, 0, 50)
    _check("--size", size, 13, 1 << 16)
    _check("--seconds", seconds, 0.1, 60)
    _check("--kills", kills, 0, 100)
    picture_file(out, "--out", (".svg",))
    contestants = ("totem", "lansis", "lansis toto") if toto else ("totem", "lansis")

    from transis.bench.engines import EnginesRequest, draw_engines, measure_engines

    figures = _carry_out("engines", measure_engines, EnginesRequest(counts, losses, size, seconds, kills, contestants))
    if as_json:
        print(json.dumps(figures))
    else:
        _show_engines(figures, contestants)
    if out is not None:
        out.write_text(draw_engines(figures), encoding="utf-8")


def _show_engines(figures: Mapping[str, Any], contestants: Sequence[str]) -> None:
    console, changes = stdout(), figures["changes"]
    console.print(_rounds_table(figures["rounds"], contestants))
    if not changes:
        return
    table = plain_table("after a kill, and taking it back", *changes)
    for name in dict.fromkeys(name for found in changes.values() for name in found):
        table.add_row(name, *(_words(found.get(name, "")) for found in changes.values()))
    console.print()
    console.print(table)


def _whole_numbers(option: str, given: str, low: float, high: float) -> tuple[int, ...]:
    found = _numbers(option, given, low, high)
    if not all(number.is_integer() for number in found):
        raise wrong(option, repr(given), "must be whole numbers")
    return tuple(map(int, found))


def _numbers(option: str, given: str, low: float, high: float) -> tuple[float, ...]:
    """At most eight different numbers: each costs time."""
    try:
        found = sorted({float(word) for word in given.split(",")})
    except ValueError:
        raise wrong(option, repr(given), "must be numbers separated by commas, such as 4,8") from None
    if len(found) > 8:
        raise wrong(option, repr(given), "must be eight numbers at most")
    for number in found:
        _check(option, number, low, high)
    return tuple(found)


def _rounds_table(rounds: Sequence[Mapping[str, Any]], contestants: Sequence[str]) -> Table:
    """A row for each load; for each engine messages a second and latencies in milliseconds."""
    table = plain_table("nodes", "loss", "senders", "load", "service", *(f"{name}: msgs/s, p50/p99 ms" for name in contestants))
    for one in rounds:
        figures = (_outcome(one[name]) for name in contestants)
        words = (str(one["nodes"]), f"{one['loss_percent']:g} %", one["senders"], one["load"], one["service"])
        table.add_row(*words, *figures)
    return table


def _outcome(figures: Mapping[str, Any]) -> str:
    if "failed" in figures:
        return "failed"
    return f"{figures['msgs_per_s']:,}, {figures['p50_ms']:g}/{figures['p99_ms']:g}"


def _check(option: str, given: float, low: float, high: float) -> None:
    if not low <= given <= high:
        raise wrong(option, f"{given:.10g}", f"must be {low:.10g} to {high:.10g}")


def _carry_out(name: str, measure: Callable[[R, Callable[[str], None]], dict[str, Any]], request: R) -> dict[str, Any]:
    """Measure, with progress on stderr. Ctrl-C ends all processes, and then this command."""
    console = Console(stderr=True, highlight=False, markup=False)
    try:
        with console.status("") as status:

            def say(words: str) -> None:
                status.update(Text(f"transis bench {name}: {words}"))
                if not console.is_terminal:
                    console.print(f"transis bench {name}: {words}", soft_wrap=True)

            return measure(request, say)
    except KeyboardInterrupt:
        console.print(f"transis bench {name}: interrupted; its processes were ended")
        raise typer.Exit(INTERRUPTED) from None
    except (TransisError, OSError) as error:
        raise unable(f"bench {name}", error) from None


def _show(figures: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures))
        return
    stdout().print(_table(figures))


def _table(figures: Mapping[str, Any]) -> Table:
    table = plain_table("figure", "")
    table.columns[1].justify = "left"
    for name, value in figures.items():
        table.add_row(name, _words(value))
    return table


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {_words(one)}" for name, one in value.items())
    if isinstance(value, list):
        return " ".join(map(_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
