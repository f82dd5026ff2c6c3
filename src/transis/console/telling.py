"""A history told to a person: which views came, what was delivered in them, and what became of every guarantee.

The same for a simulated run and for the traces of real daemons. Messages of the daemons themselves, as when a process joins a
group, are part of the evidence but not of the story.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from transis.console.tables import plain_table, verdict_table
from transis.drawing.times import clock
from transis.sim.checkers.verdict import Verdict
from transis.sim.cluster import grouped, show_node, show_view, show_view_id
from transis.sim.sweep import Property
from transis.trace.events import Conf, Delivery, History
from transis.types.ids import NodeId, Service, ViewId
from transis.types.views import PROCESSES_MAX, View

PROSE_WIDTH: Final = 100
MARKS: Final = {Service.BASIC: "({})", Service.CAUSAL: "<{}>"}
RUN_SHOWN: Final = 3
"""Messages of a run that are named one by one."""


def tell_step(console: Console, number: int, heading: str, paragraph: str, times_us: tuple[int, int]) -> None:
    console.print()
    console.print(Rule(f"{number}. {heading}   ({clock(times_us[0])} to {clock(times_us[1])})", align="left"))
    console.print(Text(paragraph), width=min(PROSE_WIDTH, console.width))
    console.print()


def tell_outcome(console: Console, history: History, since_us: int) -> None:
    """The views that came since, and what was delivered in them."""
    console.print(Padding(_installed_table(_installed(history, since_us)), (0, 0, 0, 2)))
    delivered = _deliveries(history, since_us)
    if delivered:
        marked = "; (a1) is a basic, <a1> a causal one" if "(" in delivered or "<" in delivered else ""
        console.print(Text(f"  Delivered, by view (a1 is the first message of a{marked}):", style="dim"))
        console.print(Padding(Text(delivered), (0, 0, 0, 4)))


def sum_up(console: Console, history: History, verdicts: Sequence[Verdict], more: Sequence[Table] = ()) -> None:
    console.print()
    console.print(Rule("What happened, in one look", align="left"))
    for table in (_timeline(history), _delivery_table(history), *more):
        console.print(table)
        console.print()
    added = {verdict.property: Property(verdict.verdict, verdict.checked, verdict.count) for verdict in verdicts}
    console.print(verdict_table(added))


# --- views ----------------------------------------------------------------------------------------------------------


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


def _timeline(history: History) -> Table:
    """Each life's views in order; a transitional view is the seam between two."""
    table = Table(title="View timeline", box=None, pad_edge=False, title_justify="left", title_style="bold", header_style="dim")
    table.add_column("node")
    table.add_column("views, in order (T: transitional)", overflow="fold")
    for trace in history.nodes:
        views = [show_view(event.view) for event in trace.events if isinstance(event, Conf)]
        table.add_row(show_node(trace.node), " → ".join(views))
    return table


# --- deliveries -----------------------------------------------------------------------------------------------------


def _told(event: object) -> bool:
    return isinstance(event, Delivery) and event.process.number < PROCESSES_MAX


def _deliveries(history: History, since_us: int) -> str:
    """Nodes that delivered the same share a line: `a b: R8: a1 a2 b1; T10: c1`."""
    lines = []
    for trace in history.nodes:
        parts: dict[ViewId, list[str]] = {}
        for event in filter(_told, trace.events):
            assert isinstance(event, Delivery)
            if event.time_us >= since_us:
                parts.setdefault(event.conf, []).append(_run_of(event))
        if parts:
            words = "; ".join(f"{show_view_id(view)}: {' '.join(runs)}" for view, runs in parts.items())
            lines.append((show_node(trace.node), words))
    return grouped(lines)


def _run_of(event: Delivery) -> str:
    """A node speaks for its one client here: `a1`, `a1 a2`, `a1..a9`, and `c/2:1` in a second life.

    What need not have the same place everywhere is marked, or two nodes that deliver it differently seem to break a guarantee."""
    node = show_node(event.process.node)
    name = f"{node}:" if node[-1].isdigit() else node
    last = event.first + event.count - 1
    if event.count > RUN_SHOWN:
        run = f"{name}{event.first}..{name}{last}"
    else:
        run = " ".join(f"{name}{counter}" for counter in range(event.first, last + 1))
    return MARKS.get(event.service, "{}").format(run)


def _delivery_table(history: History) -> Table:
    """How many messages each life delivered in which view."""
    counts: dict[tuple[NodeId, ViewId], int] = {}
    first_seen: dict[ViewId, int] = {}
    for trace in history.nodes:
        for event in filter(_told, trace.events):
            assert isinstance(event, Delivery)
            counts[(trace.node, event.conf)] = counts.get((trace.node, event.conf), 0) + event.count
            first_seen[event.conf] = min(event.time_us, first_seen.get(event.conf, event.time_us))
    views = sorted(first_seen, key=lambda view: (first_seen[view], view))
    headings = (f"{show_view_id(view)} of {view.rep.name}" for view in views)
    table = plain_table("node", *headings, title="Messages delivered, by view")
    for trace in history.nodes:
        table.add_row(show_node(trace.node), *(str(counts.get((trace.node, view), "")) for view in views))
    return table
