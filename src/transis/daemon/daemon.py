"""One node and everything around it, from opening to exit code.

The daemon: one node and everything around it, from opening to the last line of the log.

1. Opened in this order: state directory (its lock keeps a second daemon out), sockets of the network, the node, sockets of
   clients and administrators. Whatever cannot be opened is one sentence and exit code 2, and nothing stays behind.
2. Ready means that the node has its name and its first view: that is when the service manager and stdout are told.
3. A first SIGTERM, SIGINT or SIGHUP leaves gracefully, a second one ends at once.
4. Exit code 0 after leaving; 1 when the node failed, was hurried out, or lost its name while it ran; 2 when it never ran.

Telling the service manager how the daemon is (systemd's sd_notify protocol), when there is one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

from transis import __version__
from transis.daemon.admin import Admin, Faults, Reports
from transis.daemon.logs import LOGGER, NodeLog, adopt, say, start_logging
from transis.daemon.metrics import Figures, Metrics
from transis.net.driver import Driver, Event
from transis.net.evidence import FlightKeeper, KeptSink, Limits, Retention
from transis.net.host import Opening, open_node, open_transport
from transis.net.runtime import boottime_us, calm_the_collector, fast_loop
from transis.net.session_server import SessionServer
from transis.net.transport import Transport
from transis.sessions.host import SessionHost
from transis.settings.load import renamed
from transis.settings.resolve import Plan, describe
from transis.settings.schema import MB
from transis.trace.segment import SegmentWriter, live_header
from transis.types.config import SECOND
from transis.types.errors import ConfigError
from transis.types.ids import NodeId
from transis.types.outputs import Configure, Note

# --- notify -----------------------------------------------------------------------------------------------------------


class ServiceManager:
    """Silent when no manager asked to be told; a manager that does not listen never disturbs the daemon."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        self._watched = "WATCHDOG_USEC" in environment

    def ready(self, status: str) -> None:
        self._tell(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        self._tell(f"STATUS={status}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """From the event loop itself, so that a loop that hangs goes silent."""
        if self._watched:
            self._tell("WATCHDOG=1")

    def _tell(self, message: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
            telling.setblocking(False)
            telling.sendto(message.encode(), self._address)
            LOGGER.debug("told the service manager: %s", message)


# --- daemon -----------------------------------------------------------------------------------------------------------

LOOK_S: Final = 1.0
"""Seconds between two looks at the figures."""
LEFT, FAILED, UNABLE = 0, 1, 2
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MINUTE_US: Final = 60 * SECOND
FIELDS: Final = {"state directory": "node.state"} | {
    name: f"network.{name}" for name in ("group", "port", "data_port", "control_port")
}
"""What a node cannot open, and what the settings file calls it."""


def run_daemon(plan: Plan) -> int:
    """Run until the node ends; the exit code. Raises ConfigError or IdentityError for what could not be opened."""
    log = plan.settings.log
    start_logging(log.level, json=log.json)
    adopt(logging.getLogger("asyncio"))
    calm_the_collector()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        return runner.run(Daemon(plan).run())


class Daemon:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._manager = ServiceManager()
        self._log = NodeLog()
        self._transport: Transport | None = None
        self._sink: KeptSink | None = None
        self._retention: Retention | None = None
        self._flight: FlightKeeper | None = None
        self._faults: Faults | None = None
        self._is_ready = False
        self._hurried = False
        self._leaving: asyncio.Task[bool] | None = None

    # --- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        async with AsyncExitStack() as opened:
            await self._open(opened)
            self._follow_signals()
            self._tell_beginning()
            self.driver.start()
            background = [asyncio.create_task(self._look_now_and_then(), name="looking at the figures")]
            if self._retention is not None:
                background.append(asyncio.create_task(self._retention.run(), name="looking after the traces"))
            if self._flight is not None:
                background.append(asyncio.create_task(self._flight.run(), name="looking after the flight recorder"))
            for task in background:
                task.add_done_callback(_complain)
            try:
                return await self._until_the_end()
            finally:
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)

    async def _until_the_end(self) -> int:
        try:
            why = await self.driver.ended()
        except OSError as error:
            say(logging.ERROR, "failed", f"the node failed: {error}; its clients are disconnected")
            return FAILED
        except Exception:
            LOGGER.exception("the node failed by a bug in transis %s: please report it with these lines", __version__)
            return FAILED
        self._manager.stopping()
        left = self._leaving is not None and await self._leaving and not self._hurried
        say(logging.INFO if left else logging.ERROR, "ended", f"ended: {why}", why=why)
        if left:
            return LEFT
        return FAILED if self._is_ready else UNABLE

    def leave(self) -> None:
        """Asked to go: gracefully the first time, at once the second."""
        if self._leaving is not None:
            self._hurried = True
            self.driver.close("told twice to end, so the others were not told")
            return
        say(logging.INFO, "leaving", "leaving gracefully; ask again to end at once")
        self._manager.stopping()
        self._leaving = asyncio.create_task(self.driver.leave())

    def _follow_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.leave)

    # --- opening ----------------------------------------------------------------------------------------------------

    async def _open(self, opened: AsyncExitStack) -> None:
        plan = self._plan
        self.driver = self._open_node()
        opened.callback(self._close_node)
        self.host = SessionHost(self.driver.node, plan.config.cluster, plan.policy, self._figures_now)
        self.server = SessionServer(self.driver, self.host)
        self._reports = Reports(plan, self.driver, self.host, self._cut_off, self._log.strangers)
        sources = [self.driver.statistics, self._reports.own_figures]
        if self._retention is not None:
            sources.append(self._retention.statistics)
        if self.driver.flight is not None:
            self._flight = FlightKeeper(self.driver.flight)
            sources.append(self._flight.statistics)
        self._figures = self._reports.figures = Figures(sources)
        for name, path in (("sessions.socket", plan.clients), ("admin.socket", plan.admin)):
            _make_directory(name, path.parent)
        admin = Admin(self._reports, self.leave, self._faults)
        await admin.listen(plan.admin)
        opened.callback(admin.close)
        opened.push_async_callback(self.server.close, "the daemon ends")
        await self.server.listen_unix(plan.clients, plan.mode)
        if plan.tcp is not None:
            assert plan.key is not None, "a plan with TCP has a key"
            await self.server.listen_tcp(plan.tcp, plan.key)
        if plan.metrics is not None:
            metrics = Metrics(plan.metrics, plan.config.name, plan.config.cluster, lambda: self._figures.latest)
            opened.callback(metrics.close)

    def _open_node(self) -> Driver:
        plan = self._plan
        make_sink = self._make_sink if plan.trace is not None else None
        if plan.settings.flight.directory and plan.flight is not None:
            _make_directory("flight.directory", plan.flight.directory)
        try:
            return open_node(
                plan.opening, self._hear, make_sink=make_sink, on_note=self._note, transport_for=self._open_transport
            )
        except ConfigError as error:
            raise renamed(error, FIELDS.get(error.field, error.field)) from error

    def _open_transport(self, opening: Opening) -> Transport:
        self._transport = transport = open_transport(opening)
        if self._plan.settings.admin.allow_faults:
            self._faults = Faults(transport.sever)
        return transport

    def _make_sink(self, node: NodeId) -> KeptSink:
        plan, trace = self._plan, self._plan.settings.trace
        assert plan.trace is not None, "a sink is made only for a plan with traces"
        _make_directory("trace.directory", plan.trace)
        header = live_header(plan.config, node)
        writer = SegmentWriter(plan.trace, header, trace.segment_mb * MB)
        self._sink = KeptSink(writer, trace.segment_minutes * MINUTE_US, boottime_us)
        limits = Limits(trace.keep_mb * MB, trace.keep_days * 86_400, trace.free_mb * MB, trace.parquet)
        self._retention = Retention(plan.trace, node.name, self._sink, limits)
        return self._sink

    def _close_node(self) -> None:
        self.driver.close("the daemon ends")
        if self._sink is not None:
            self._sink.close()

    # --- hearing ----------------------------------------------------------------------------------------------------

    def _hear(self, events: Sequence[Event]) -> None:
        self._figures.hear(events)
        self._reports.hear(events)
        for event in events:
            if type(event) is Configure:
                self._configured(event)
        self.server.hear(events)

    def _configured(self, event: Configure) -> None:
        view = event.view
        self._log.view(view)
        if not view.id.is_regular:
            return
        if self._faults is not None:
            for member in view.members:
                self._faults.remember(member.node.name, member.address)
        status = f"{len(view.members)} members: {' '.join(node.name for node in view.nodes)}"
        if self._is_ready:
            self._manager.status(status)
            return
        self._is_ready = True
        self._figures.look(boottime_us())
        self._manager.ready(status)
        _announce(f"ready: {self.driver.node.id.name}, clients at {self._plan.clients}, admin at {self._plan.admin}")

    def _note(self, note: Note) -> None:
        self._log.note(boottime_us(), note)

    async def _look_now_and_then(self) -> None:
        while True:
            now = boottime_us()
            self._log.look(now, self._figures.look(now))
            self._manager.alive()
            await asyncio.sleep(LOOK_S)

    def _figures_now(self) -> dict[str, int | str]:
        return self._figures.now()

    def _cut_off(self) -> Sequence[str]:
        return self._transport.severed if self._transport is not None else ()

    def _tell_beginning(self) -> None:
        plan = self._plan
        node = self.driver.node.id
        say(logging.INFO, "starting", f"transis {__version__}: {node} of cluster {plan.config.cluster} begins", node=str(node))
        for what, sentence in describe(plan):
            say(logging.INFO, "settings", f"{what}: {sentence}", what=what)
        for warning in self.driver.warnings:
            say(logging.WARNING, "warning", warning)
        if plan.key is None and not plan.interface.address.is_loopback:
            say(logging.WARNING, "plaintext", "there is no key: anybody on this network may read and write everything")


def _announce(line: str) -> None:
    """On stdout, for who started this by hand or by a script; nobody there is no reason to end."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _complain(task: asyncio.Task[None]) -> None:
    """Work in the background ends only when it is told to; otherwise it failed, and the node goes on without it."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        LOGGER.error("%s ended by a bug in transis %s, the node goes on", task.get_name(), __version__, exc_info=failure)


def _make_directory(field: str, path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(field, str(path), f"the directory cannot be made ({error.strerror})") from error
