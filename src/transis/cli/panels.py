"""Tables of daemons for `transis monitor` and `transis up`, and the threads that ask the daemons.

1. Each daemon is asked by its own thread, so that a stopped or dead one does not hold up the screen. Its last report is kept
   until the next one.
2. Views are remembered when a report shows a new one. A view that lasted less than the time between two reports may be missed;
   the daemon's own count of views shows that.
3. Columns are chosen by the width of the screen: the least important go first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from rich.table import Table
from rich.text import Text

from transis.cli.admin import AdminConnection, duration
from transis.cli.options import plain_table
from transis.types.config import ENGINES
from transis.types.errors import ConnectError

# --- reports ----------------------------------------------------------------------------------------------------------

Values = Mapping[str, Any]

VIEWS_KEPT: Final = 32
BY_HAND: Final = ("paused", "killed")
STALE_S: Final = 3.0
"""A report that is older than this, plus the time between two reports, means that the daemon hangs."""


class DaemonReport(NamedTuple):
    """A daemon's answers to one round of questions."""

    status: Values
    figures: Values
    taken_s: float

    @property
    def node(self) -> str:
        return str(self.status["node"])

    @property
    def view(self) -> Values | None:
        return self.status["view"]  # type: ignore[no-any-return]  # JSON's

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self.view["members"]) if self.view is not None else ()


class SeenView(NamedTuple):
    node: str
    id: str
    members: tuple[str, ...]
    cause: str
    began_s: float


class WatchedDaemon:
    """One daemon."""

    def __init__(self, label: str, path: Path | None, every_s: float) -> None:
        self.label = label
        self.latest: DaemonReport | None = None
        self.silence = "not asked yet"
        """Why there is no answer now; empty while the daemon answers."""
        self.by_hand = ""
        """`paused` or `killed`, if somebody did that to it by hand (faults.py)."""
        self.views: deque[SeenView] = deque(maxlen=VIEWS_KEPT)
        self._path = path
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {label}", daemon=True)

    @property
    def answers(self) -> bool:
        return not (self.silence or self.by_hand or self.hung_s)

    @property
    def hung_s(self) -> int:
        """How long a connected daemon has not answered; 0 if all is well."""
        if self.latest is None or self.silence:
            return 0
        age_s = monotonic() - self.latest.taken_s
        return int(age_s) if age_s > STALE_S + self._every_s else 0

    def note(self, states: Mapping[str, str]) -> None:
        """What the owner of the daemons says of them, by name."""
        state = states.get(self.label, "")
        self.by_hand = state if state in BY_HAND else ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with AdminConnection(self._path, None) as connection:
                    while not self._over.is_set():
                        self.take(_ask(connection))
                        self._over.wait(self._every_s)
            except ConnectError as error:
                self.silence = str(error)
            self._over.wait(self._every_s)

    def take(self, report: DaemonReport) -> None:
        self.label = report.node
        view = report.view
        if view is not None and (not self.views or self.views[-1].id != view["id"]):
            began_s = report.taken_s - view["since_s"]
            self.views.append(SeenView(report.node, view["id"], report.members, view["cause"], began_s))
        self.latest, self.silence = report, ""


class DaemonWatch:
    """Several watched daemons; None as a path means the daemon at the usual place."""

    def __init__(self, paths: Sequence[tuple[str, Path | None]], every_s: float) -> None:
        self.all = [WatchedDaemon(label, path, every_s) for label, path in paths]

    def __enter__(self) -> DaemonWatch:
        for watched in self.all:
            watched.start()
        return self

    def __exit__(self, *_: object) -> None:
        for watched in self.all:
            watched.stop()

    def reports(self) -> list[DaemonReport]:
        """The latest reports of the daemons that answer."""
        return [one.latest for one in self.all if one.latest is not None and one.answers]

    def is_whole(self) -> bool:
        """Whether all daemons answer, and all are in one view that contains exactly them."""
        reports = self.reports()
        views = {report.view["id"] for report in reports if report.view is not None and report.status["state"] == "Operational"}
        return len(reports) == len(self.all) == len(reports[0].members) and len(views) == 1 if reports else False


def ask_once(path: Path | None) -> DaemonReport:
    """Raises ConnectError if the daemon does not answer."""
    with AdminConnection(path, None) as connection:
        return _ask(connection)


def _ask(connection: AdminConnection) -> DaemonReport:
    status = connection.ask("status")
    return DaemonReport(status, connection.ask("statistics")["statistics"], monotonic())


# --- tables -----------------------------------------------------------------------------------------------------------

PADDING: Final = 2
NO_ANSWER: Final = "no answer"


class Column(NamedTuple):
    heading: str
    width: int
    rank: int
    """If the columns do not all fit, those of the highest rank are left out first."""
    cell: Callable[[DaemonReport], str]
    engine: str = ""
    """The only engine with this column; empty if every engine has it."""


def _rate(name: str) -> Callable[[DaemonReport], str]:
    return lambda report: short(float(report.status["rates"].get(name, 0)))


def _figure(*names: str) -> Callable[[DaemonReport], str]:
    return lambda report: short(sum(int(report.figures.get(name, 0)) for name in names))


def _lost(report: DaemonReport) -> str:
    return short(sum(value for name, value in report.figures.items() if name.startswith("tokens_lost_")))


def _rotation(report: DaemonReport) -> str:
    """A dash if there is nobody to pass the token to, or nothing was measured yet."""
    rotation_us = int(report.figures.get("last_rotation_us", 0))
    return f"{rotation_us / 1000:.1f} ms" if rotation_us else "-"


def _window(report: DaemonReport) -> str:
    used = report.figures.get("window_used", report.figures.get("unsafe_datagrams", 0))
    return f"{used}/{report.figures.get('window', 0)}"


COLUMNS: Final = (
    Column("view", 14, 0, lambda report: str(report.view["id"]) if report.view is not None else "none yet"),
    Column("members", 7, 0, lambda report: str(len(report.members))),
    Column("clients", 7, 0, lambda report: short(int(report.status["sessions"]))),
    Column("groups", 6, 1, lambda report: short(int(report.status["groups"]))),
    Column("msg/s", 6, 0, _rate("delivered_per_s")),
    Column("in/s", 6, 3, _rate("received_datagrams_per_s")),
    Column("out/s", 6, 3, _rate("sent_datagrams_per_s")),
    Column("rotation", 8, 1, _rotation, "totem"),
    Column("unstable", 8, 1, _figure("unsafe_datagrams"), "lansis"),
    Column("backlog", 7, 2, _figure("outbox_bytes", "ring_backlog_bytes")),
    Column("waiting", 7, 4, _figure("session_queue_bytes")),
    Column("window", 7, 4, _window),
    Column("resent", 6, 2, _figure("retransmitted")),
    Column("lost tokens", 11, 3, _lost, "totem"),
    Column("given up", 8, 3, _figure("breaks_silence", "breaks_lag"), "lansis"),
    Column("views", 5, 5, _figure("views")),
    Column("pauses", 6, 5, _figure("pauses")),
    Column("up", 8, 4, lambda report: duration(int(report.status["up_s"]))),
)
"""`backlog`: bytes waiting to be sent; `waiting`: bytes waiting for clients; `window`: datagrams of the last rotation, or, with
Lansis, those not known to be everywhere, which `unstable` counts too; `given up`: members that this node left out of its view."""


def daemon_table(
    watched: Sequence[WatchedDaemon], width: int, latencies: Mapping[str, str] | None = None, never_seen: str = NO_ANSWER
) -> Table:
    """`never_seen` is shown for a daemon that has not answered yet."""
    names = max([4, *(len(one.label) for one in watched)])
    more = [Column("agreed/safe", 15, 1, lambda report: (latencies or {}).get(report.node, ""))] if latencies is not None else []
    engines = {engine_of(one.latest) for one in watched if one.latest is not None}
    known = [column for column in COLUMNS if not column.engine or column.engine in engines]
    columns = _fitting([*known, *more], width - names - 11 - 2 * PADDING)
    table = plain_table("node", "state", *(column.heading for column in columns))
    table.columns[1].justify = "left"
    for one in watched:
        table.add_row(*_row(one, columns, never_seen))
    return table


def engine_of(report: DaemonReport) -> str:
    """Older daemons do not report it; they have only one engine."""
    return str(report.status.get("engine", ENGINES[0]))


def _fitting(columns: Sequence[Column], width: int) -> list[Column]:
    chosen = list(columns)
    while sum(column.width + PADDING for column in chosen) > width and chosen[-1:]:
        least = max(chosen, key=lambda column: (column.rank, columns.index(column)))
        if least.rank == 0:
            break
        chosen.remove(least)
    return chosen


def _row(watched: WatchedDaemon, columns: Sequence[Column], never_seen: str) -> list[Text]:
    report = watched.latest
    if watched.by_hand:
        return [Text(watched.label), Text(watched.by_hand, style="bold yellow")]
    if report is None or watched.silence:
        return [Text(watched.label), Text(never_seen if report is None else NO_ANSWER, style="bold yellow")]
    if watched.hung_s:
        return [Text(watched.label), Text(f"hangs {watched.hung_s} s", style="bold yellow")]
    state = Text(str(report.status["state"]), style="green" if report.status["state"] == "Operational" else "bold yellow")
    return [Text(watched.label), state, *(Text(column.cell(report), overflow="ellipsis", no_wrap=True) for column in columns)]


def view_lines(reports: Sequence[DaemonReport]) -> list[Text]:
    """The views in force, each once. More than one means a partition, or a change under way."""
    found: dict[str, DaemonReport] = {}
    for report in reports:
        if report.view is not None:
            found.setdefault(str(report.view["id"]), report)
    return [_view_line(view, report) for view, report in sorted(found.items(), key=lambda item: item[1].members)]


def _view_line(view: str, report: DaemonReport) -> Text:
    assert report.view is not None
    line = Text(f"view {view}: ").append(" ".join(report.members), style="bold")
    line.append(f", for {duration(int(report.view['since_s']))}: {report.view['cause']}", style="dim")
    if report.view["primary"] is False:
        line.append("; without a majority of the quorum", style="bold yellow")
    return line


def name_lines(reports: Sequence[DaemonReport]) -> list[Text]:
    """The processes with names, once for each view: all its members know the same ones. Older daemons do not say."""
    named = [report for report in reports if report.status.get("named")]
    found = {str(report.view["id"]): report.status for report in named if report.view is not None}
    return [_name_line(view, status) for view, status in sorted(found.items())]


def _name_line(view: str, status: Values) -> Text:
    names = ", ".join(f"{one['name']} is {one['process']}" for one in status["names"])
    more = status["named"] - len(status["names"])
    return Text(f"names in {view}: {names}" + (f", and {more:,} more: transis groups" if more else ""))


def warning_lines(reports: Sequence[DaemonReport]) -> list[Text]:
    return [Text(f"{report.node}: {warning}", style="yellow") for report in reports for warning in report.status["warnings"]]


def past_views(watched: Sequence[WatchedDaemon], count: int) -> Table:
    """The latest views, newest first, each with the nodes that installed it."""
    found: dict[str, tuple[SeenView, list[str]]] = {}
    for one in watched:
        for seen in one.views:
            found.setdefault(seen.id, (seen, []))[1].append(seen.node)
    newest = sorted(found.values(), key=lambda item: -item[0].began_s)[:count]
    table = plain_table("ago", "view", "members", "seen at", "cause")
    for column in table.columns[1:]:
        column.justify = "left"
    for seen, nodes in newest:
        ago = duration(max(0, int(monotonic() - seen.began_s)))
        table.add_row(ago, seen.id, " ".join(seen.members), " ".join(nodes), Text(seen.cause, style="dim"))
    return table


def short(number: float) -> str:
    """At most five characters: `950`, `12.3k`, `4.5M`."""
    for unit in ("", "k", "M", "G", "T"):
        if number < 999.5 or unit == "T":
            return f"{number:.0f}{unit}" if not unit or number >= 99.5 else f"{number:.1f}{unit}"
        number /= 1000
    raise AssertionError("the last unit takes everything")
