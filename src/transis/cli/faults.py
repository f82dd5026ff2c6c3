"""`transis kill`, `pause`, `resume`, `restart`, `cut` and `heal`: break a cluster of `transis up --faults` by hand.

The daemons belong to the process of `transis up`, so these commands ask it (cluster_control.py): that of the cluster in
a directory, or of the cluster that clients find by default.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from transis.cli.admin import LineConnection
from transis.cli.options import unable
from transis.types.errors import ConnectError, TransisError
from transis.types.paths import CLUSTER_SOCKET, cluster_beside, socket_candidates

# --- asking -----------------------------------------------------------------------------------------------------------

ANSWER_PATIENCE_S: Final = 30.0
"""A restart waits for daemons that leave first."""

DirectoryOption = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Directory of the cluster; by default the cluster that clients find."),
]


def cluster_at(directory: Path | None) -> LineConnection:
    """A connection to the owner of the cluster in this directory, or of the one that clients find by default."""
    tried = (
        [directory / CLUSTER_SOCKET]
        if directory is not None
        else [cluster_beside(Path(one)) for one in socket_candidates(os.environ)]
    )
    for path in tried:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.settimeout(ANSWER_PATIENCE_S)
        try:
            connected.connect(str(path))
        except OSError:
            connected.close()
            continue
        return LineConnection(connected, "the cluster")
    remedy = "start one with `transis up --faults`" + ("" if directory is not None else ", or name its directory with --dir")
    raise ConnectError(f"no cluster of `transis up` answers at {', '.join(map(str, tried))}: {remedy}")


def states_in(directory: Path) -> dict[str, str]:
    """The nodes of a cluster of `transis up` and the state of each; nothing if there is no such cluster."""
    if not (directory / CLUSTER_SOCKET).exists():
        return {}
    try:
        with cluster_at(directory) as cluster:
            return dict(cluster.ask("nodes")["nodes"])
    except ConnectError:
        return {}


def complete_node(incomplete: str) -> list[tuple[str, str]]:
    try:
        with cluster_at(None) as cluster:
            nodes = cluster.ask("nodes")["nodes"]
    except TransisError:
        return []
    return [(name, state) for name, state in nodes.items() if name.startswith(incomplete)]


def _break(command: str, directory: Path | None, **request: object) -> None:
    try:
        with cluster_at(directory) as cluster:
            print(cluster.ask(command, **request)["done"])
    except TransisError as error:
        raise unable(command, error) from None


# --- commands ---------------------------------------------------------------------------------------------------------

NodesArgument = Annotated[
    list[str], typer.Argument(metavar="NODE", help="Names of nodes, as `transis up` shows them.", autocompletion=complete_node)
]

KILL_EXAMPLES = """Examples:
  transis up --faults [dim]# in another terminal[/dim]
  transis kill n2
  transis kill n1 n2 --dir ~/cluster
"""
PAUSE_EXAMPLES = """Examples:
  transis pause n2 [dim]# until transis resume n2[/dim]
"""
RESUME_EXAMPLES = """Examples:
  transis resume n2
"""
RESTART_EXAMPLES = """Examples:
  transis kill n2
  transis restart n2 [dim]# the next life of n2, from its state directory[/dim]
"""
CUT_EXAMPLES = """Examples:
  transis cut n1,n2 from n3
  transis cut n3 [dim]# from all others[/dim]
  transis heal
"""
HEAL_EXAMPLES = """Examples:
  transis cut n1 from n2,n3
  transis heal
"""


def kill(nodes: NodesArgument, directory: DirectoryOption = None) -> None:
    """Kill nodes of a cluster of `transis up --faults` with SIGKILL, as a crash does."""
    _break("kill", directory, nodes=nodes)


def pause(nodes: NodesArgument, directory: DirectoryOption = None) -> None:
    """Freeze nodes of a cluster of `transis up --faults`, as SIGSTOP does, until they are resumed."""
    _break("pause", directory, nodes=nodes)


def resume(nodes: NodesArgument, directory: DirectoryOption = None) -> None:
    """Let paused nodes go on. Meanwhile the others may have excluded them; they come back by themselves."""
    _break("resume", directory, nodes=nodes)


def restart(nodes: NodesArgument, directory: DirectoryOption = None) -> None:
    """Start killed nodes again, with the state they left; nodes that run leave first. Their cut links are restored."""
    _break("restart", directory, nodes=nodes)


def cut(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="NODES",
            help="Names separated by commas; after `from`, those of the other side.",
            autocompletion=complete_node,
        ),
    ],
    directory: DirectoryOption = None,
) -> None:
    """Cut the links between two sets of nodes, in both directions: a partition of `transis up --faults`."""
    nodes, others = parse_sides(sides)
    _break("cut", directory, nodes=nodes, others=others)


def heal(directory: DirectoryOption = None) -> None:
    """Restore all links that `transis cut` has cut."""
    _break("heal", directory)


def parse_sides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """`n1,n2 from n3`: the nodes before and after `from`; without it, none after."""
    sides: list[list[str]] = [[]]
    for word in words:
        if word == "from":
            sides.append([])
        else:
            sides[-1] += [name for name in word.split(",") if name]
    if len(sides) > 2 or not all(sides):
        raise typer.BadParameter("write the nodes as in `transis cut n1,n2 from n3`", param_hint="NODES")
    return sides[0], sides[1] if len(sides) == 2 else []
