"""`transis monitor`: daemons live on a terminal, once, or as JSON lines; with the latency of a message.

Latency is measured by a client of each daemon that sends to itself and waits for the receipt. Such a message has one reader and
goes around the ring like any other. Each daemon has one message at a time on its way, so no queue is in the figure.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from threading import Event
from time import perf_counter
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from transis.cli.faults import states_in
from transis.cli.options import PROBLEM, UNABLE, complain, stdout, unable
from transis.cli.panels import (
    DaemonReport,
    DaemonWatch,
    WatchedDaemon,
    ask_once,
    daemon_table,
    name_lines,
    past_views,
    view_lines,
    warning_lines,
)
from transis.client.connection import connect
from transis.client.session import Session
from transis.types.errors import ConnectError, TransisError
from transis.types.ids import Service

# --- latency ----------------------------------------------------------------------------------------------------------

KEPT: Final = 20
"""Number of measurements whose median is shown."""
PATIENCE_S: Final = 5.0

Milliseconds = Mapping[Service, float]


async def measure(session: Session[bytes]) -> dict[Service, float]:
    """Milliseconds from sending to the receipt. The first message of each service warms up and is not measured."""
    found = {}
    for service in (Service.AGREED, Service.SAFE):
        for _ in range(2):
            began = perf_counter()
            await (await session.send(session.process, b"", service))
            found[service] = (perf_counter() - began) * 1000
    return found


def measure_once(socket: str) -> dict[Service, float]:
    """Empty if the daemon gives us no session, or does not answer in time."""

    async def once() -> dict[Service, float]:
        async with asyncio.timeout(PATIENCE_S), connect(socket, label="transis monitor") as session:
            return await measure(session)

    try:
        return asyncio.run(once())
    except (TransisError, TimeoutError):
        return {}


class LatencyProbe:
    """Measures one daemon repeatedly, in a thread of its own."""

    def __init__(self, socket: str, every_s: float) -> None:
        self._socket = socket
        self._every_s = every_s
        self._found: dict[Service, deque[float]] = {}
        self._thread = threading.Thread(target=self._run, name=f"probe {socket}", daemon=True)
        self._thread.start()

    def median_ms(self) -> dict[Service, float]:
        return {service: median(kept) for service, kept in list(self._found.items()) if kept}

    def _run(self) -> None:
        asyncio.run(self._measure_forever())

    async def _measure_forever(self) -> None:
        while True:
            try:
                async with connect(self._socket, label="transis monitor") as session:
                    while True:
                        async with asyncio.timeout(PATIENCE_S):
                            self._keep(await measure(session))
                        await asyncio.sleep(self._every_s)
            except (TransisError, TimeoutError):
                self._found = {}
            await asyncio.sleep(self._every_s)

    def _keep(self, measured: Mapping[Service, float]) -> None:
        for service, value in measured.items():
            self._found.setdefault(service, deque(maxlen=KEPT)).append(value)


def latency_text(measured: Mapping[Service, float]) -> str:
    return " / ".join(f"{measured[service]:.1f}" for service in (Service.AGREED, Service.SAFE) if service in measured)


# --- monitor ----------------------------------------------------------------------------------------------------------

MONITOR_EXAMPLES = """Examples:
  transis monitor
  transis monitor --admin /tmp/cluster [dim]# all daemons of transis up --dir /tmp/cluster[/dim]
  transis monitor --admin one-admin.sock --admin two-admin.sock
  transis monitor --once [dim]# print and stop[/dim]
  transis monitor --json --every 5 >> figures.jsonl
"""

ADMIN_SOCKETS: Final = "*-admin.sock"
VIEWS_SHOWN: Final = 8
Measured = Mapping[str, Milliseconds]
"""By node."""


def monitor(
    admin: Annotated[
        list[Path] | None,
        typer.Option("--admin", metavar="PATH", help="Admin socket of a daemon, or a directory with several; repeatable."),
    ] = None,
    every: Annotated[float, typer.Option(min=0.1, metavar="S", help="Ask the daemons every S seconds.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Ask once, print, and stop.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, for each daemon and each time it is asked.")
    ] = False,
    probe: Annotated[
        bool,
        typer.Option("--probe/--no-probe", help="Measure latency, each time with two messages per daemon that nobody else gets."),
    ] = True,
) -> None:
    """Show members, views with their causes, rates, latency, backlog and problems of daemons, live. Ctrl-C ends it.

    With --once, exit code 1 if one of the named daemons does not answer.
    """
    try:
        paths, clusters = _paths(admin or []), [path for path in admin or [] if path.is_dir()]
        if once:
            raise typer.Exit(_once(paths, clusters, as_json, probe))
        _require_an_answer(paths)
    except TransisError as error:
        raise unable("monitor", error) from None
    try:
        with DaemonWatch([(_label(path), path) for path in paths], every) as watch:
            latencies = LatencyProbes(every) if probe else None
            if as_json:
                _write_forever(watch, latencies, every)
            else:
                _show_forever(stdout(), watch, clusters, latencies, every)
    except (KeyboardInterrupt, BrokenPipeError):
        raise typer.Exit from None


def _paths(given: Sequence[Path]) -> list[Path | None]:
    """The admin sockets: those inside directories, or of the daemon at the usual place if none was given."""
    found: list[Path | None] = []
    for path in given:
        inside = sorted(path.glob(ADMIN_SOCKETS)) if path.is_dir() else [path]
        if not inside:
            raise ConnectError(f"there is no admin socket ({ADMIN_SOCKETS}) in {path}")
        found += inside
    return found or [None]


def _label(path: Path | None) -> str:
    return path.name.removesuffix(ADMIN_SOCKETS[1:]) if path is not None else "daemon"


def _require_an_answer(paths: Sequence[Path | None]) -> None:
    """If no daemon answers at first, the user made a mistake. One that goes away later is shown instead."""
    failures = []
    for path in paths:
        try:
            ask_once(path)
        except ConnectError as error:
            failures.append(error)
    if len(failures) == len(paths):
        raise failures[0]


# --- once -----------------------------------------------------------------------------------------------------------


def _once(paths: Sequence[Path | None], clusters: Sequence[Path], as_json: bool, probe: bool) -> int:
    watched = [WatchedDaemon(_label(path), path, 0.0) for path in paths]
    _note(watched, clusters)
    for path, one in zip(paths, watched, strict=True):
        if one.by_hand:
            continue
        try:
            one.take(ask_once(path))
        except ConnectError as error:
            one.silence = str(error)
            complain("monitor", error)
    reports = [one.latest for one in watched if one.latest is not None]
    if not reports:
        return UNABLE
    measured = {report.node: measure_once(str(report.status["socket"])) for report in reports} if probe else None
    if as_json:
        for report in reports:
            print(_object(report, (measured or {}).get(report.node)))
    else:
        console = stdout()
        console.print(_page(console, watched, reports, measured, with_past=False))
    return PROBLEM if len(reports) < len(watched) else 0


# --- live -----------------------------------------------------------------------------------------------------------


class LatencyProbes:
    """A probe for each daemon seen so far."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._probes: dict[str, LatencyProbe] = {}

    def of(self, reports: Sequence[DaemonReport]) -> Measured:
        found = {}
        for report in reports:
            socket = str(report.status["socket"])
            if socket not in self._probes:
                self._probes[socket] = LatencyProbe(socket, self._every_s)
            found[report.node] = self._probes[socket].median_ms()
        return found


def _note(watched: Sequence[WatchedDaemon], clusters: Sequence[Path]) -> None:
    """What was done by hand to the daemons of clusters of `transis up`."""
    states = {name: state for directory in clusters for name, state in states_in(directory).items()}
    for one in watched:
        one.note(states)


def _show_forever(
    console: Console, watch: DaemonWatch, clusters: Sequence[Path], latencies: LatencyProbes | None, every: float
) -> None:
    def page() -> Group:
        _note(watch.all, clusters)
        reports = watch.reports()
        measured = latencies.of(reports) if latencies is not None else None
        return _page(console, watch.all, reports, measured, with_past=True)

    pause = Event()
    if not console.is_terminal:
        while True:
            pause.wait(every)
            console.print(page())
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(page(), refresh=True)
            pause.wait(min(every, 1.0))


def _page(
    console: Console,
    watched: Sequence[WatchedDaemon],
    reports: Sequence[DaemonReport],
    measured: Measured | None,
    *,
    with_past: bool,
) -> Group:
    latencies = {node: latency_text(found) for node, found in measured.items()} if measured is not None else None
    said = [*view_lines(reports), *name_lines(reports), *warning_lines(reports)]
    parts: list[Any] = [daemon_table(watched, console.width, latencies), Text(), *said]
    silent = [Text(f"{one.label}: {one.silence}", style="yellow") for one in watched if one.silence and not one.by_hand]
    if with_past:
        parts += [Text(), Text("Views that came, the newest first", style="bold"), past_views(watched, VIEWS_SHOWN)]
    notes = "latency: median milliseconds of an agreed / a safe message" if measured is not None else ""
    return Group(*parts, *silent, *([Text(), Text(notes, style="dim")] if notes else []))


def _write_forever(watch: DaemonWatch, latencies: LatencyProbes | None, every: float) -> None:
    pause = Event()
    written: dict[str, float] = {}
    while True:
        reports = watch.reports()
        measured = latencies.of(reports) if latencies is not None else {}
        for report in reports:
            if written.get(report.node) != report.taken_s:
                written[report.node] = report.taken_s
                print(_object(report, measured.get(report.node)), flush=True)
        pause.wait(every)


def _object(report: DaemonReport, measured: Milliseconds | None) -> str:
    latency = {service.name.lower(): round(value, 3) for service, value in (measured or {}).items()}
    status = {name: value for name, value in report.status.items() if name != "ok"}
    return json.dumps(status | {"statistics": dict(report.figures), "latency_ms": latency or None})
