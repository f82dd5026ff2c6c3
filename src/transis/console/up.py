"""`transis up`: a cluster on this machine in one command, for as long as the command runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Annotated, Final, NoReturn

import typer

from transis.console.arguments import complete_engine, nodes_of, one_of, wrong
from transis.console.localcluster import ClusterError, LocalCluster, default_place
from transis.console.printing import complain
from transis.console.showing import Showing, showing_for
from transis.console.watching import Watch
from transis.console.workplace import Workplace
from transis.types.config import ENGINES
from transis.types.errors import ConfigError

UP_EXAMPLES = """Examples:

transis up [dim]# three daemons on loopback; Ctrl-C stops them[/dim]

transis up --nodes 5 --dir ~/cluster [dim]# state, logs and settings stay there[/dim]

transis up --nodes 3 --dir ~/cluster --trace [dim]# for transis audit[/dim]

transis up --engine lansis [dim]# ordered by acknowledgements, without a token[/dim]

transis up --nodes 3 --exit-after 60 --json > up.jsonl &

Then, in other terminals:

transis recv orders

transis send orders "new order"
"""

LOOK_S: Final = 0.5
STEP_S: Final = 0.1
"""How soon a daemon that ended is noticed."""
PROBLEM: Final = 1
UNABLE: Final = 2


def up(
    nodes: Annotated[int, typer.Option(help="How many daemons.")] = 3,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Keep state, logs and settings here; otherwise they are temporary."),
    ] = None,
    exit_after: Annotated[
        float | None, typer.Option(metavar="S", min=0, help="Stop after so many seconds; otherwise run until Ctrl-C.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Record what happens, into DIR/trace; needs --dir.")] = False,
    faults: Annotated[
        bool, typer.Option("--faults", help="Let administrators cut links between the daemons, for tests.")
    ] = False,
    engine: Annotated[str, typer.Option(autocompletion=complete_engine, help=f"Who orders: {', '.join(ENGINES)}.")] = ENGINES[0],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line: what begins, changes and ends.")] = False,
) -> None:
    """Run a cluster of daemons on this machine, on loopback, and show how it is. Ctrl-C stops all of them gracefully.

    Without a quorum both sides of a partition go on; these daemons have none.
    """
    count = nodes_of(nodes)
    assert count is not None
    one_of("--engine", engine, ENGINES)
    if trace and directory is None:
        raise wrong("--trace", "without --dir", "what is temporary goes when the cluster goes, so give --dir DIR too")
    try:
        place = Workplace(directory)
        cluster = _cluster(place.path, count, engine, trace, faults)
        watch = Watch([(daemon.name, daemon.admin) for daemon in cluster.daemons], LOOK_S)
        keeper = Keeper(cluster, watch, showing_for(cluster, watch, as_json), exit_after)
        code = keeper.run()
        place.leave(keep=code != 0)
        if code:
            complain("up", f"logs and settings stay in {place.path}")
    except (ClusterError, ConfigError, OSError) as error:
        complain("up", error)
        raise typer.Exit(UNABLE) from None
    raise typer.Exit(code)


def _cluster(place: Path, count: int, engine: str, trace: bool, faults: bool) -> LocalCluster:
    settings: dict[str, dict[str, object]] = {"node": {"engine": engine}, "admin": {"allow_faults": faults}}
    if trace:
        settings["trace"] = {"directory": str(place / "trace")}
    names = [f"n{number}" for number in range(1, count + 1)]
    return LocalCluster(place, names, settings, default_place(os.environ))


class Keeper:
    """Starts the daemons, looks after them, tells what becomes of them, and stops them."""

    def __init__(self, cluster: LocalCluster, watch: Watch, showing: Showing, exit_after: float | None) -> None:
        self._cluster = cluster
        self._watch = watch
        self._showing = showing
        self._exit_after = exit_after
        self._reported: set[str] = set()
        self._was_whole = False

    def run(self) -> int:
        with _signals_as_ctrl_c():
            try:
                self._cluster.start()
                with self._watch, self._showing:
                    self._keep()
            except KeyboardInterrupt:
                pass
            finally:
                self._stop()
        if not self._reported:
            return 0
        return PROBLEM if self._was_whole else UNABLE

    def _keep(self) -> None:
        """Until the time is over, or nobody is left; a daemon that does not even come up ends all."""
        started = monotonic()
        pause = Event()
        while self._exit_after is None or monotonic() - started < self._exit_after:
            self._report_crashes()
            if not any(daemon.runs for daemon in self._cluster.daemons) or (self._reported and not self._was_whole):
                return
            if not self._was_whole and self._watch.is_whole():
                self._was_whole = True
                self._showing.whole(monotonic() - started)
            self._showing.tick()
            pause.wait(STEP_S)

    def _report_crashes(self) -> None:
        for daemon in self._cluster.daemons:
            if daemon.crashed and daemon.name not in self._reported:
                self._reported.add(daemon.name)
                self._showing.crashed(daemon)

    def _stop(self) -> None:
        """Bounded, and quicker for who asks a second time."""
        self._showing.stopping()
        try:
            killed = self._cluster.stop()
        except KeyboardInterrupt:
            killed = [daemon.name for daemon in self._cluster.daemons if daemon.exit_code == -signal.SIGKILL]
        self._showing.stopped(killed)


@contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """Who ends this command politely ends the cluster politely, whichever way."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
