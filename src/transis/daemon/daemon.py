"""The daemon: one node and everything around it, from opening to the last line of the log.

1. Opened in this order: state directory (its lock keeps a second daemon out), sockets of the network, the node, sockets of
   clients and administrators. Whatever cannot be opened is one sentence and exit code 2, and nothing stays behind.
2. The daemon is ready when its node owns its name and has its first view. It then tells the service manager and stdout.
3. A first SIGTERM, SIGINT or SIGHUP leaves gracefully, a second one ends at once.
4. Exit code 0 after leaving; 1 if the node failed, was told twice to end, or lost its name while running; 2 if it never ran.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

from transis import __version__
from transis.daemon.admin import Admin, LinkCuts, Reports
from transis.daemon.logs import LOGGER, NodeLog, adopt, say, start_logging
from transis.daemon.metrics import Figures, Metrics
from transis.net.host import NodeHost, Opening, complain
from transis.net.runtime import boottime_us, calm_the_collector, fast_loop
from transis.settings.load import renamed
from transis.settings.resolve import describe
from transis.settings.schema import Settings
from transis.types.errors import ConfigError, UsageError, plainly
from transis.types.outputs import Configure, NodeOutput, Observer
from transis.types.views import View

# --- the service manager ----------------------------------------------------------------------------------------------


class ServiceManager:
    """systemd's sd_notify protocol. Silent without a manager; one that does not listen never disturbs the daemon."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        self._watched = "WATCHDOG_USEC" in os.environ

    def ready(self, status: str) -> None:
        self._tell(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        self._tell(f"STATUS={status}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """Called from the event loop itself, so that a loop that hangs goes silent."""
        if self._watched:
            self._tell("WATCHDOG=1")

    def _tell(self, message: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
            notifying.setblocking(False)
            notifying.sendto(message.encode(), self._address)
            LOGGER.debug("told the service manager: %s", message)


# --- daemon -----------------------------------------------------------------------------------------------------------

LOOK_S: Final = 1.0
"""Seconds between two looks at the figures."""
LEFT, FAILED, UNABLE = 0, 1, 2
DESCRIPTORS_MIN: Final = 64
"""What a daemon has open without clients is less than half of it."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FIELDS: Final = {"state directory": "node.state"} | {
    name: f"network.{name}" for name in ("group", "port", "data_port", "control_port")
}
"""What a node cannot open, and what the settings file calls it."""


def run_daemon(settings: Settings, opening: Opening) -> int:
    """Run until the node ends; returns the exit code. Raises ConfigError or IdentityError if something cannot be opened."""
    _require_descriptors()
    start_logging(settings.log.level, json=settings.log.json)
    adopt(logging.getLogger("asyncio"))
    calm_the_collector()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        return runner.run(Daemon(settings, opening).run())


def _require_descriptors() -> None:
    """An event loop that finds none left while it starts cannot even say so."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed < DESCRIPTORS_MIN:
        raise UsageError(
            f"this process may have {allowed} open files: a daemon needs {DESCRIPTORS_MIN}, and one more for each client "
            f"(ulimit -n, or LimitNOFILE in the unit)"
        )


class Daemon(Observer):
    kinds = frozenset({Configure})

    def __init__(self, settings: Settings, opening: Opening) -> None:
        self._settings = settings
        self._opening = opening
        self._manager = ServiceManager()
        self._log = NodeLog()
        self._faults: LinkCuts | None = None
        self._is_ready = False
        self._hurried = False
        self._leaving: asyncio.Task[bool] | None = None

    # --- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        async with AsyncExitStack() as opened:
            await self._open(opened)
            self._follow_signals()
            self._tell_beginning()
            self.host.start()
            looking = asyncio.create_task(self._look_now_and_then(), name="looking at the figures")
            looking.add_done_callback(complain)
            try:
                return await self._until_the_end()
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    async def _until_the_end(self) -> int:
        try:
            why = await self.host.ended()
        except OSError as error:
            say(
                logging.ERROR,
                "failed",
                f"the node failed, and its clients are disconnected: {plainly(error)}, then start it again",
            )
            return FAILED
        except Exception:
            LOGGER.exception("the node failed because of a bug in transis %s: please report it with these lines", __version__)
            return FAILED
        self._manager.stopping()
        left = self._leaving is not None and await self._leaving and not self._hurried
        say(logging.INFO if left else logging.ERROR, "ended", f"ended: {why}", why=why)
        if left:
            return LEFT
        return FAILED if self._is_ready else UNABLE

    def leave(self) -> None:
        """End the node: gracefully the first time, at once the second."""
        if self._leaving is not None:
            self._hurried = True
            self.host.driver.close("told twice to end: it left without telling the other nodes")
            return
        say(logging.INFO, "leaving", "leaving gracefully; ask again to end at once")
        self._manager.stopping()
        self._leaving = self.host.leave()

    def _follow_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.leave)

    # --- opening ----------------------------------------------------------------------------------------------------

    async def _open(self, opened: AsyncExitStack) -> None:
        opening = self._opening
        self.host = self._open_node()
        opened.push_async_callback(self.host.close, "the daemon ends")
        if self._settings.admin.allow_faults:
            self._faults = LinkCuts(self.host.transport.sever)
        self._reports = Reports(self.host, self._log.strangers)
        self._figures = self._reports.figures = Figures([self.host.statistics, self._reports.statistics])
        self.host.driver.observers += [self._log, self._reports, self]
        if self._faults is not None:
            self.host.driver.observers.append(self._faults)
        assert opening.clients is not None, "a daemon has a socket for clients"
        assert opening.admin is not None, "a daemon has a socket for administrators"
        for name, path in (("sessions.socket", opening.clients), ("admin.socket", opening.admin)):
            _make_directory(name, path.parent)
        admin = Admin(self._reports, self.leave, self._faults)
        await admin.listen(opening.admin)
        opened.callback(admin.close)
        await self.host.listen()
        if opening.metrics is not None:
            metrics = Metrics(opening.metrics, opening.config.name, opening.config.cluster, lambda: self._figures.latest)
            opened.callback(metrics.close)

    def _open_node(self) -> NodeHost:
        opening = self._opening
        if opening.trace is not None:
            _make_directory("trace.directory", opening.trace.directory)
        if self._settings.flight.directory and opening.flight is not None:
            _make_directory("flight.directory", opening.flight.directory)
        try:
            return NodeHost(opening, statistics=self._statistics)
        except ConfigError as error:
            raise renamed(error, FIELDS.get(error.field, error.field)) from error

    # --- observing --------------------------------------------------------------------------------------------------

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            if type(output) is Configure and output.view.id.is_regular:
                self._installed(now_us, output.view)

    def _installed(self, now_us: int, view: View) -> None:
        status = f"{len(view.members)} members: {' '.join(node.name for node in view.nodes)}"
        if self._is_ready:
            self._manager.status(status)
            return
        self._is_ready = True
        self._figures.look(now_us)
        self._manager.ready(status)
        _announce(f"ready: {self.host.id.name}, clients at {self._opening.clients}, admin at {self._opening.admin}")

    async def _look_now_and_then(self) -> None:
        while True:
            now = boottime_us()
            self._log.look(now, self._figures.look(now))
            self._manager.alive()
            await asyncio.sleep(LOOK_S)

    def _statistics(self) -> dict[str, int | str]:
        return self._figures.statistics()

    def _tell_beginning(self) -> None:
        opening, node = self._opening, self.host.id
        cluster = opening.config.cluster
        say(logging.INFO, "starting", f"transis {__version__}: {node} of cluster {cluster} starts", node=str(node))
        for what, sentence in describe(self._settings, opening):
            say(logging.INFO, "settings", f"{what}: {sentence}", what=what)
        for warning in self.host.transport.warnings:
            say(logging.WARNING, "warning", warning)
        if opening.config.plaintext and not opening.interface.address.is_loopback:
            say(logging.WARNING, "plaintext", "there is no key: anybody on this network can read and write everything")


def _announce(line: str) -> None:
    """On stdout, for the person or script that started this; the daemon goes on even if nobody reads it."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _make_directory(field: str, path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(field, str(path), f"the directory cannot be made: {plainly(error)}") from error
