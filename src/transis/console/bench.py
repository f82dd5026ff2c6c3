"""`transis bench`: what this machine reaches. Speed is a figure with its circumstances, never a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transis.console.arguments import wrong
from transis.console.asking import JsonOption, unable
from transis.console.tables import plain_table, stdout
from transis.model.errors import TransisError

SERVICES: Final = ("basic", "causal", "agreed", "safe")
PATHS: Final = ("embedded", "session")
TRANSPORTS: Final = ("multicast", "mesh")
PROFILES: Final = ("auto", "local", "lan", "wan")
NODES_MAX: Final = 64
LOST: Final = 1
INTERRUPTED: Final = 130

bench = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Measure throughput, failover and idle costs on this machine."
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
    service: Annotated[str, typer.Option(help=f"{', '.join(SERVICES)}.")] = "agreed",
    path: Annotated[
        str, typer.Option(help="embedded: each program has a node in a thread. session: each is a client of a daemon.")
    ] = "embedded",
    seconds: Annotated[float, typer.Option(help="How long to measure, after a second to warm up.")] = 5.0,
    rate: Annotated[float, typer.Option(help="Messages a second that each program sends; 0: as many as it may.")] = 0.0,
    lan: Annotated[bool, typer.Option("--lan", help="In network namespaces with a switch between them (needs root).")] = False,
    sealed: Annotated[bool, typer.Option("--sealed", help="With a key, as on a real network.")] = False,
    transport: Annotated[str, typer.Option(help="multicast or mesh.")] = "multicast",
    as_json: JsonOption = False,
) -> None:
    """Messages a second that each program takes while all of them send; what is lost must be 0."""
    for option, given, choices in (
        ("--service", service, SERVICES),
        ("--path", path, PATHS),
        ("--transport", transport, TRANSPORTS),
    ):
        if given not in choices:
            raise wrong(option, repr(given), f"must be one of {', '.join(choices)}")
    _check("--nodes", nodes, 2, NODES_MAX)
    _check("--size", size, 0, 1 << 20)
    _check("--seconds", seconds, 0.1, 3600)
    _check("--rate", rate, 0, 1e9)

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from transis.console.bench_throughput import Throughput, measure_throughput

        return measure_throughput(Throughput(nodes, size, service, path, seconds, lan, sealed, transport, rate), say)

    figures = _carry_out("throughput", measure)
    _show(figures, as_json)
    if figures["lost"]:
        raise typer.Exit(LOST)


FAILOVER_EXAMPLES = """Examples:

transis bench failover --nodes 8

transis bench failover --nodes 3 --kills 5 --profile lan --json
"""


@bench.command(epilog=FAILOVER_EXAMPLES)
def failover(
    nodes: NodesOption = 8,
    kills: Annotated[int, typer.Option(help="Kills when idle, and as many at 1,000 messages a second.")] = 20,
    profile: Annotated[str, typer.Option(help="Timeouts: auto (local, as all is on one machine), local, lan, wan.")] = "auto",
    as_json: JsonOption = False,
) -> None:
    """How long until the others go on after a member was killed, and what the time went into."""
    if profile not in PROFILES:
        raise wrong("--profile", repr(profile), f"must be one of {', '.join(PROFILES)}")
    _check("--nodes", nodes, 2, NODES_MAX)
    _check("--kills", kills, 1, 10_000)

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from transis.console.bench_failover import Failover, measure_failover

        return measure_failover(Failover(nodes, kills, profile), say)

    _show(_carry_out("failover", measure), as_json)


IDLE_EXAMPLES = """Examples:

transis bench idle

transis bench idle --nodes 5 --seconds 60 --json
"""


@bench.command(epilog=IDLE_EXAMPLES)
def idle(
    nodes: NodesOption = 3,
    seconds: Annotated[float, typer.Option(help="How long to watch them.")] = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Processor and memory of daemons that do nothing, and the time from their start to one common view."""
    _check("--nodes", nodes, 2, NODES_MAX)
    _check("--seconds", seconds, 0.1, 3600)

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        from transis.console.bench_idle import Idle, measure_idle

        return measure_idle(Idle(nodes, seconds), say)

    _show(_carry_out("idle", measure), as_json)


def _check(option: str, given: float, low: float, high: float) -> None:
    if not low <= given <= high:
        raise wrong(option, given, f"must be {low:.10g} to {high:.10g}")


def _carry_out(name: str, measure: Callable[[Callable[[str], None]], dict[str, Any]]) -> dict[str, Any]:
    """With its progress on stderr. Ctrl-C ends all processes, and then this command."""
    console = Console(stderr=True, highlight=False, markup=False)
    try:
        with console.status("") as status:

            def say(words: str) -> None:
                status.update(Text(f"transis bench {name}: {words}"))
                if not console.is_terminal:
                    console.print(f"transis bench {name}: {words}", soft_wrap=True)

            return measure(say)
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
