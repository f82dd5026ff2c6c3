"""How `transis up` shows its cluster: a live screen on a terminal, lines in a log, objects for a machine."""

from __future__ import annotations

import json
import os
import sys
from types import TracebackType
from typing import Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from transis.console.localcluster import LocalCluster, LocalDaemon
from transis.console.panels import daemon_table, view_lines, warning_lines
from transis.console.printing import say, stdout
from transis.console.watching import SeenView, Watch
from transis.types.paths import socket_candidates

REFRESHES_PER_S: Final = 4


class Showing(Protocol):
    """Told what happens; entered and left around the cluster's life."""

    def __enter__(self) -> Showing: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
    def tick(self) -> None: ...
    def whole(self, seconds: float) -> None: ...
    def crashed(self, daemon: LocalDaemon) -> None: ...
    def stopping(self) -> None: ...
    def stopped(self, killed: list[str]) -> None: ...


def showing_for(cluster: LocalCluster, watch: Watch, as_json: bool) -> Showing:
    if as_json:
        return Objects(cluster, watch)
    console = stdout()
    return Screen(cluster, watch, console) if console.is_terminal else Lines(cluster, watch, console)


def connecting(cluster: LocalCluster, environment: dict[str, str]) -> list[str]:
    """How clients find the cluster, as lines that can be pasted."""
    first, *others = cluster.daemons
    lines = ["transis recv orders", 'transis send orders "new order"']
    if str(first.clients) not in socket_candidates(environment):
        usual = socket_candidates(environment)[0]
        lines.insert(0, f"export TRANSIS_SOCKET={first.clients}  # {usual}, where clients look, was not free")
    if others:
        lines.append(f'TRANSIS_SOCKET={others[0].clients} transis send orders "by way of {others[0].name}"')
    return [*lines, f"transis monitor --admin {cluster.directory}"]


class Screen:
    """The daemons, redrawn; what must not scroll away stands above them."""

    def __init__(self, cluster: LocalCluster, watch: Watch, console: Console) -> None:
        self._cluster = cluster
        self._watch = watch
        self._console = console
        self._live = Live(console=console, refresh_per_second=REFRESHES_PER_S, get_renderable=self._render, transient=True)

    def __enter__(self) -> Screen:
        _tell_beginning(self._console, self._cluster)
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.__exit__(kind, error, trace)

    def _render(self) -> Group:
        looks = self._watch.looks()
        table = daemon_table(self._watch.all, self._console.width, never_seen="not there yet")
        foot = Text("Ctrl-C stops the cluster.", style="dim")
        return Group(Text(), table, Text(), *view_lines(looks), *warning_lines(looks), Text(), foot)

    def tick(self) -> None:
        """The screen redraws itself."""

    def whole(self, seconds: float) -> None:
        _tell_whole(self._console, self._cluster, seconds)

    def crashed(self, daemon: LocalDaemon) -> None:
        _tell_crash(self._console, daemon)

    def stopping(self) -> None:
        say(self._console, "Stopping: every daemon leaves its view, then ends. Ctrl-C again kills them.", "dim")

    def stopped(self, killed: list[str]) -> None:
        _tell_end(self._console, self._cluster, killed)


class Lines:
    """A line for what changed, and none for what stays."""

    def __init__(self, cluster: LocalCluster, watch: Watch, console: Console) -> None:
        self._cluster = cluster
        self._watch = watch
        self._console = console
        self._told: dict[str, str] = {}

    def __enter__(self) -> Lines:
        _tell_beginning(self._console, self._cluster)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tick(self) -> None:
        for seen in _news(self._watch, self._told):
            self._say(f"{seen.node}: view {seen.id}: {' '.join(seen.members)} ({seen.cause})")

    def whole(self, seconds: float) -> None:
        self.tick()
        _tell_whole(self._console, self._cluster, seconds)
        sys.stdout.flush()

    def crashed(self, daemon: LocalDaemon) -> None:
        _tell_crash(self._console, daemon)
        sys.stdout.flush()

    def stopping(self) -> None:
        self._say("stopping")

    def stopped(self, killed: list[str]) -> None:
        _tell_end(self._console, self._cluster, killed)

    def _say(self, words: str) -> None:
        say(self._console, words)
        sys.stdout.flush()


class Objects:
    """JSON lines, each with an `event`: started, view, whole, crashed, stopping, stopped."""

    def __init__(self, cluster: LocalCluster, watch: Watch) -> None:
        self._cluster = cluster
        self._watch = watch
        self._told: dict[str, str] = {}

    def __enter__(self) -> Objects:
        daemons = [
            {"node": one.name, "pid": one.pid, "socket": str(one.clients), "admin": str(one.admin), "log": str(one.log)}
            for one in self._cluster.daemons
        ]
        _write("started", directory=str(self._cluster.directory), daemons=daemons)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tick(self) -> None:
        for seen in _news(self._watch, self._told):
            _write("view", node=seen.node, view=seen.id, members=list(seen.members), cause=seen.cause)

    def whole(self, seconds: float) -> None:
        self.tick()
        _write("whole", seconds=round(seconds, 3), socket=str(self._cluster.daemons[0].clients))

    def crashed(self, daemon: LocalDaemon) -> None:
        _write("crashed", node=daemon.name, exit_code=daemon.exit_code, why=daemon.last_words(), log=daemon.tail().splitlines())

    def stopping(self) -> None:
        _write("stopping")

    def stopped(self, killed: list[str]) -> None:
        _write("stopped", killed=killed, exit_codes={one.name: one.exit_code for one in self._cluster.daemons})


def _write(event: str, **parts: object) -> None:
    print(json.dumps({"event": event, **parts}), flush=True)


def _news(watch: Watch, told: dict[str, str]) -> list[SeenView]:
    """Views that came since they were last told, by node."""
    news = []
    for watched in watch.all:
        views = list(watched.views)
        known = [index for index, seen in enumerate(views) if seen.id == told.get(seen.node)]
        for seen in views[known[-1] + 1 :] if known else views:
            news.append(seen)
            told[seen.node] = seen.id
    return news


def _tell_beginning(console: Console, cluster: LocalCluster) -> None:
    count = len(cluster.daemons)
    say(console, f"{count} daemon{'s' if count > 1 else ''} on loopback, files in {cluster.directory}", "bold")


def _tell_whole(console: Console, cluster: LocalCluster, seconds: float) -> None:
    say(console, f"All are in one view after {seconds:.1f} s. In other terminals:", "green")
    for line in connecting(cluster, dict(os.environ)):
        say(console, f"    {line}")


def _tell_crash(console: Console, daemon: LocalDaemon) -> None:
    say(console, f"{daemon.name} is gone: {daemon.last_words()}. The end of {daemon.log}:", "bold red")
    for line in daemon.tail().splitlines():
        say(console, f"    {line}", "dim")


def _tell_end(console: Console, cluster: LocalCluster, killed: list[str]) -> None:
    if killed:
        say(console, f"{' '.join(killed)} did not leave in time and had to be killed.", "yellow")
    say(console, f"All {len(cluster.daemons)} daemons have ended.")
