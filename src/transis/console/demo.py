"""`transis demo`: the story of `story.py` told step by step, then summed up, judged and drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from transis.console import arguments
from transis.console.diagram.file import write_diagram
from transis.console.diagram.picture import picture_of
from transis.console.diagram.scale import clock
from transis.console.story import STEPS, Step, plan
from transis.console.tables import plain_table, say, stdout, verdict_table
from transis.model.ids import NodeId, ViewId
from transis.model.view import View
from transis.sim.checkers.verdict import Findings, Verdict
from transis.sim.cluster import Cluster, show_node, show_view, show_view_id
from transis.sim.sweep import Property
from transis.trace.events import Conf, Delivery, History

DEFAULT_FILE: Final = Path("transis-demo.html")
PROSE_WIDTH: Final = 100
VIOLATED: Final = 1
UNABLE: Final = 2


def demo(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to draw the run: FILE.html or FILE.svg.")] = DEFAULT_FILE,
) -> None:
    """Simulate five nodes through a crash, a partition, a merge and a restart, and tell what happened.

    Runs in seconds, in virtual time, without network or privileges; the same every time.
    """
    file = arguments.picture_file(out, "--out")
    assert file is not None
    console = stdout()
    console.print("Transis: five simulated nodes on one ring, in virtual time.", style="bold")
    cluster = Cluster(plan())
    for number, step in enumerate(STEPS, 1):
        _play(console, cluster, number, step)
    verdicts = _verdicts(cluster)
    _sum_up(console, cluster.history(), verdicts)
    try:
        write_diagram(file, picture_of(cluster.history(), cluster.world.log, "Transis demo: five nodes", _facts(verdicts)))
    except OSError as error:
        Console(stderr=True).print(f"transis demo: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(UNABLE) from error
    say(console, f"\nThe whole run as a space-time diagram: {file} (open it in a browser).")
    raise typer.Exit(VIOLATED if any(verdict.count for verdict in verdicts) else 0)


# -- step by step ------------------------------------------------------------------------------------------------


def _play(console: Console, cluster: Cluster, number: int, step: Step) -> None:
    """Act, then tell: the paragraph, the views that came, and what was delivered in them."""
    since_us = cluster.world.now
    step.act(cluster)
    console.print()
    console.print(Rule(f"{number}. {step.heading}   ({clock(since_us)} to {clock(cluster.world.now)})", align="left"))
    console.print(Text(step.paragraph), width=PROSE_WIDTH)
    console.print()
    console.print(Padding(_installed_table(_installed(cluster.history(), since_us)), (0, 0, 0, 2)))
    delivered = cluster.deliveries()
    if delivered:
        console.print(Text("  Delivered, by view (a1 is the first message of a):", style="dim"))
        console.print(Padding(Text(delivered), (0, 0, 0, 4)))


class Installed(NamedTuple):
    """One view and who installed it."""

    view: View
    at: list[NodeId]
    first_us: int


def _installed(history: History, since_us: int) -> list[Installed]:
    """Views since a time, each once, in the order in which they first appeared."""
    found: dict[ViewId, Installed] = {}
    confs = sorted(_confs(history), key=lambda item: (item[1].time_us, item[0], item[1].lseq))
    for node, conf in confs:
        if conf.time_us >= since_us:
            found.setdefault(conf.view.id, Installed(conf.view, [], conf.time_us)).at.append(node)
    return list(found.values())


def _confs(history: History) -> Iterator[tuple[NodeId, Conf]]:
    for trace in history.nodes:
        yield from ((trace.node, event) for event in trace.events if isinstance(event, Conf))


def _installed_table(views: Sequence[Installed]) -> Table | Text:
    if not views:
        return Text("No view changed.", style="dim")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("at", "view", "kind", "installed by", "cause"):
        table.add_column(column, overflow="fold")
    for installed in views:
        kind = "regular" if installed.view.id.is_regular else "transitional"
        nodes = " ".join(map(show_node, installed.at))
        cause = str(installed.view.cause) if installed.view.id.is_regular else ""
        table.add_row(clock(installed.first_us), show_view(installed.view), Text(kind, style="dim"), nodes, cause)
    return table


# -- the whole run -----------------------------------------------------------------------------------------------


def _sum_up(console: Console, history: History, verdicts: Sequence[Verdict]) -> None:
    console.print()
    console.print(Rule("What happened, in one look", align="left"))
    console.print(_timeline(history))
    console.print()
    console.print(_delivery_table(history))
    console.print()
    console.print(verdict_table({verdict.property: _added(verdict) for verdict in verdicts}))


def _added(verdict: Verdict) -> Property:
    return Property(verdict.verdict, verdict.checked, verdict.count)


def _timeline(history: History) -> Table:
    """Each life's views in order; a transitional view is the seam between two."""
    table = Table(title="View timeline", box=None, pad_edge=False, title_justify="left", title_style="bold", header_style="dim")
    table.add_column("node")
    table.add_column("views, in order (T: transitional)", overflow="fold")
    for trace in history.nodes:
        views = [show_view(event.view) for event in trace.events if isinstance(event, Conf)]
        table.add_row(show_node(trace.node), " → ".join(views))
    return table


def _delivery_table(history: History) -> Table:
    """How many messages each life delivered in which view."""
    counts: dict[tuple[NodeId, ViewId], int] = {}
    first_seen: dict[ViewId, int] = {}
    for trace in history.nodes:
        for event in trace.events:
            if isinstance(event, Delivery):
                counts[(trace.node, event.conf)] = counts.get((trace.node, event.conf), 0) + event.count
                first_seen[event.conf] = min(event.time_us, first_seen.get(event.conf, event.time_us))
    views = sorted(first_seen, key=lambda view: (first_seen[view], view))
    table = plain_table(
        "node", *(f"{show_view_id(view)} of {view.rep.name}" for view in views), title="Messages delivered, by view"
    )
    for trace in history.nodes:
        table.add_row(show_node(trace.node), *(str(counts.get((trace.node, view), "")) for view in views))
    return table


def _verdicts(cluster: Cluster) -> list[Verdict]:
    """The checkers' verdicts, and what the harness itself saw: no node raised, every byte arrived as it was sent."""
    integrity, no_crash = Findings("integrity"), Findings("no_crash")
    integrity.checked, no_crash.checked = cluster.world.verified, cluster.world.turns
    for mishap in cluster.world.mishaps:
        (integrity if mishap.property == "integrity" else no_crash).broken(mishap.explanation)
    return [*cluster.check().verdicts.values(), integrity.verdict(), no_crash.verdict()]


def _facts(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    broken = [verdict.property for verdict in verdicts if verdict.count]
    return (
        "a crash, a partition, a merge and a restart · " + (f"broken: {', '.join(broken)}" if broken else "every guarantee held"),
    )
