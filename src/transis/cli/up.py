"""`transis up`: a cluster of daemons on this machine, shown as a live screen, as lines for a log, or as JSON lines."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Annotated, Final, NoReturn, Protocol

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from transis.cli.cluster_control import ClusterControl
from transis.cli.local_cluster import ClusterDirectory, ClusterError, LocalCluster, LocalDaemon, default_socket
from transis.cli.options import PROBLEM, UNABLE, EngineOption, complain, nodes_of, one_of, say, stdout, wrong
from transis.cli.panels import DaemonWatch, SeenView, daemon_table, view_lines, warning_lines
from transis.types.config import ENGINES
from transis.types.errors import ConfigError
from transis.types.paths import socket_candidates

# --- up ---------------------------------------------------------------------------------------------------------------

UP_EXAMPLES = """Examples:
  transis up [dim]# three daemons on loopback; Ctrl-C stops them[/dim]
  transis up --nodes 5 --dir ~/cluster [dim]# state, logs and settings stay there[/dim]
  transis up --nodes 3 --dir ~/cluster --trace [dim]# for transis audit[/dim]
  transis up --faults [dim]# to be broken by hand: transis kill n2, transis cut n1 from n2,n3, transis heal[/dim]
  transis up --engine lansis [dim]# ordered by acknowledgements, without a token[/dim]
  transis up --nodes 3 --exit-after 60 --json > up.jsonl &
Then, in other terminals:
  transis recv orders
  transis send orders "new order"
"""

LOOK_S: Final = 0.5
STEP_S: Final = 0.1
"""How often dead daemons are looked for."""


def up(
    nodes: Annotated[int, typer.Option(help="Number of daemons.")] = 3,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Keep state, logs and settings in DIR; by default they are temporary."),
    ] = None,
    exit_after: Annotated[
        float | None, typer.Option(metavar="S", min=0, help="Stop after S seconds; by default run until Ctrl-C.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Record traces in DIR/trace; needs --dir.")] = False,
    faults: Annotated[
        bool, typer.Option("--faults", help="Allow `transis kill`, `pause`, `restart`, `cut` and their kin to break it.")
    ] = False,
    engine: EngineOption = ENGINES[0],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line: what starts, changes and ends.")
    ] = False,
) -> None:
    """Run a cluster of daemons on this machine, on loopback, and show its state. Ctrl-C stops all of them gracefully.

    These daemons have no quorum: after a partition both sides go on.
    """
    count = nodes_of(nodes)
    assert count is not None
    one_of("--engine", engine, ENGINES)
    if trace and directory is None:
        raise wrong("--trace", "without --dir", "temporary traces would be deleted with the cluster: give --dir DIR too")
    try:
        home = ClusterDirectory(directory)
        cluster = _cluster(home.path, count, engine, trace, faults)
        watch = DaemonWatch([(daemon.name, daemon.admin) for daemon in cluster.daemons], LOOK_S)
        control = ClusterControl(cluster, allowed=faults, takes_default=_is_found_by_default(cluster))
        runner = ClusterRunner(cluster, watch, control, display_for(cluster, watch, as_json), exit_after)
        code = runner.run()
        home.leave(keep=code != 0)
        if code:
            complain("up", f"logs and settings stay in {home.path}")
    except (ClusterError, ConfigError, OSError) as error:
        complain("up", error)
        raise typer.Exit(UNABLE) from None
    raise typer.Exit(code)


def _cluster(place: Path, count: int, engine: str, trace: bool, faults: bool) -> LocalCluster:
    settings: dict[str, dict[str, object]] = {"node": {"engine": engine}, "admin": {"allow_faults": faults}}
    if trace:
        settings["trace"] = {"directory": str(place / "trace")}
    names = [f"n{number}" for number in range(1, count + 1)]
    return LocalCluster(place, names, settings, default_socket(os.environ))


def _is_found_by_default(cluster: LocalCluster) -> bool:
    return str(cluster.daemons[0].clients) in socket_candidates(os.environ)


class ClusterRunner:
    """Starts the daemons, watches them, breaks them when it is asked to, reports what happens to them, and stops them."""

    def __init__(
        self,
        cluster: LocalCluster,
        watch: DaemonWatch,
        control: ClusterControl,
        display: Display,
        exit_after: float | None,
    ) -> None:
        self._cluster = cluster
        self._watch = watch
        self._control = control
        self._display = display
        self._exit_after = exit_after
        self._reported: set[str] = set()
        self._was_whole = False

    def run(self) -> int:
        with _signals_as_ctrl_c():
            try:
                self._cluster.start()
                with self._watch, self._display:
                    self._keep()
            except KeyboardInterrupt:
                pass
            finally:
                self._stop()
        if not self._reported:
            return 0
        return PROBLEM if self._was_whole else UNABLE

    def _keep(self) -> None:
        """Until the time is over or all daemons have ended by themselves. One that dies before the first view ends them all."""
        started = monotonic()
        while self._exit_after is None or monotonic() - started < self._exit_after:
            self._report_crashes()
            if all(daemon.crashed for daemon in self._cluster.daemons) or (self._reported and not self._was_whole):
                return
            if not self._was_whole and self._watch.is_whole():
                self._was_whole = True
                self._display.whole(monotonic() - started)
            self._display.tick()
            self._break(STEP_S)

    def _break(self, patience_s: float) -> None:
        """Wait this long for somebody who wants to break the cluster."""
        done = self._control.serve(patience_s)
        for watched in self._watch.all:
            watched.note(self._control.states())
        if done is not None:
            self._display.broken(done)

    def _report_crashes(self) -> None:
        for daemon in self._cluster.daemons:
            if daemon.crashed and daemon.name not in self._reported:
                self._reported.add(daemon.name)
                self._display.crashed(daemon)

    def _stop(self) -> None:
        """Bounded in time; a second Ctrl-C kills the daemons at once."""
        self._control.close()
        self._display.stopping()
        try:
            killed = self._cluster.stop()
        except KeyboardInterrupt:
            killed = [daemon.name for daemon in self._cluster.daemons if daemon.exit_code == -signal.SIGKILL]
        self._display.stopped(killed)


@contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP stop the cluster gracefully, like Ctrl-C."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


# --- display ----------------------------------------------------------------------------------------------------------

REFRESHES_PER_S: Final = 4


class Display(Protocol):
    """Shows what happens; a context around the life of the cluster."""

    def __enter__(self) -> Display: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
    def tick(self) -> None: ...
    def whole(self, seconds: float) -> None: ...
    def crashed(self, daemon: LocalDaemon) -> None: ...
    def broken(self, done: str) -> None: ...
    def stopping(self) -> None: ...
    def stopped(self, killed: list[str]) -> None: ...


def display_for(cluster: LocalCluster, watch: DaemonWatch, as_json: bool) -> Display:
    if as_json:
        return JsonDisplay(cluster, watch)
    console = stdout()
    return LiveDisplay(cluster, watch, console) if console.is_terminal else LineDisplay(cluster, watch, console)


def connecting(cluster: LocalCluster, environment: dict[str, str]) -> list[str]:
    """Command lines for clients of this cluster, ready to paste."""
    first, *others = cluster.daemons
    lines = ["transis recv orders", 'transis send orders "new order"']
    if str(first.clients) not in socket_candidates(environment):
        usual = socket_candidates(environment)[0]
        lines.insert(0, f"export TRANSIS_SOCKET={first.clients}  # {usual}, where clients look, was not free")
    if others:
        lines.append(f'TRANSIS_SOCKET={others[0].clients} transis send orders "by way of {others[0].name}"')
    return [*lines, f"transis monitor --admin {cluster.directory}"]


class LiveDisplay:
    """A table of the daemons that is redrawn; messages that must stay are printed above it."""

    def __init__(self, cluster: LocalCluster, watch: DaemonWatch, console: Console) -> None:
        self._cluster = cluster
        self._watch = watch
        self._console = console
        self._live = Live(console=console, refresh_per_second=REFRESHES_PER_S, get_renderable=self._render, transient=True)

    def __enter__(self) -> LiveDisplay:
        _print_beginning(self._console, self._cluster)
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.__exit__(kind, error, trace)

    def _render(self) -> Group:
        reports = self._watch.reports()
        table = daemon_table(self._watch.all, self._console.width, never_seen="not there yet")
        foot = Text("Ctrl-C stops the cluster.", style="dim")
        return Group(Text(), table, Text(), *view_lines(reports), *warning_lines(reports), Text(), foot)

    def tick(self) -> None:
        """Nothing to do: the screen redraws itself."""

    def whole(self, seconds: float) -> None:
        _print_whole(self._console, self._cluster, seconds)

    def crashed(self, daemon: LocalDaemon) -> None:
        _print_crash(self._console, daemon)

    def broken(self, done: str) -> None:
        say(self._console, f"By hand: {done}.", "bold yellow")

    def stopping(self) -> None:
        say(self._console, "Stopping: every daemon leaves its view, then ends. Ctrl-C again kills them.", "dim")

    def stopped(self, killed: list[str]) -> None:
        _print_end(self._console, self._cluster, killed)


class LineDisplay:
    """A line for each change."""

    def __init__(self, cluster: LocalCluster, watch: DaemonWatch, console: Console) -> None:
        self._cluster = cluster
        self._watch = watch
        self._console = console
        self._shown: dict[str, str] = {}

    def __enter__(self) -> LineDisplay:
        _print_beginning(self._console, self._cluster)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tick(self) -> None:
        for seen in _new_views(self._watch, self._shown):
            self._print(f"{seen.node}: view {seen.id}: {' '.join(seen.members)} ({seen.cause})")

    def whole(self, seconds: float) -> None:
        self.tick()
        _print_whole(self._console, self._cluster, seconds)
        sys.stdout.flush()

    def crashed(self, daemon: LocalDaemon) -> None:
        _print_crash(self._console, daemon)
        sys.stdout.flush()

    def broken(self, done: str) -> None:
        self._print(f"by hand: {done}")

    def stopping(self) -> None:
        self._print("stopping")

    def stopped(self, killed: list[str]) -> None:
        _print_end(self._console, self._cluster, killed)

    def _print(self, words: str) -> None:
        say(self._console, words)
        sys.stdout.flush()


class JsonDisplay:
    """JSON lines, each with an `event`: started, view, whole, broken, crashed, stopping, stopped."""

    def __init__(self, cluster: LocalCluster, watch: DaemonWatch) -> None:
        self._cluster = cluster
        self._watch = watch
        self._shown: dict[str, str] = {}

    def __enter__(self) -> JsonDisplay:
        daemons = [
            {"node": one.name, "pid": one.pid, "socket": str(one.clients), "admin": str(one.admin), "log": str(one.log)}
            for one in self._cluster.daemons
        ]
        _write("started", directory=str(self._cluster.directory), daemons=daemons)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tick(self) -> None:
        for seen in _new_views(self._watch, self._shown):
            _write("view", node=seen.node, view=seen.id, members=list(seen.members), cause=seen.cause)

    def whole(self, seconds: float) -> None:
        self.tick()
        _write("whole", seconds=round(seconds, 3), socket=str(self._cluster.daemons[0].clients))

    def crashed(self, daemon: LocalDaemon) -> None:
        _write("crashed", node=daemon.name, exit_code=daemon.exit_code, why=daemon.last_words(), log=daemon.tail().splitlines())

    def broken(self, done: str) -> None:
        _write("broken", done=done)

    def stopping(self) -> None:
        _write("stopping")

    def stopped(self, killed: list[str]) -> None:
        _write("stopped", killed=killed, exit_codes={one.name: one.exit_code for one in self._cluster.daemons})


def _write(event: str, **parts: object) -> None:
    print(json.dumps({"event": event, **parts}), flush=True)


def _new_views(watch: DaemonWatch, shown: dict[str, str]) -> list[SeenView]:
    """Views that came since the last call; `shown` holds the last one by node."""
    found = []
    for watched in watch.all:
        views = list(watched.views)
        known = [index for index, seen in enumerate(views) if seen.id == shown.get(seen.node)]
        for seen in views[known[-1] + 1 :] if known else views:
            found.append(seen)
            shown[seen.node] = seen.id
    return found


def _print_beginning(console: Console, cluster: LocalCluster) -> None:
    count = len(cluster.daemons)
    say(console, f"{count} daemon{'s' if count > 1 else ''} on loopback, files in {cluster.directory}", "bold")


def _print_whole(console: Console, cluster: LocalCluster, seconds: float) -> None:
    say(console, f"All are in one view after {seconds:.1f} s. In other terminals:", "green")
    for line in connecting(cluster, dict(os.environ)):
        say(console, f"    {line}")


def _print_crash(console: Console, daemon: LocalDaemon) -> None:
    say(console, f"{daemon.name} is gone: {daemon.last_words()}. The end of {daemon.log}:", "bold red")
    for line in daemon.tail().splitlines():
        say(console, f"    {line}", "dim")


def _print_end(console: Console, cluster: LocalCluster, killed: list[str]) -> None:
    if killed:
        say(console, f"{' '.join(killed)} did not leave in time and had to be killed.", "yellow")
    say(console, f"All {len(cluster.daemons)} daemons have ended.")
