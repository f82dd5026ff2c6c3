"""Real daemons as processes of their own on loopback, for the tests of this room: started, asked, awaited, always cleaned up."""

from __future__ import annotations

import itertools
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.house.sources import ROOT
from transis.cli.admin import AdminConnection

PATIENCE_S = 60.0
"""Longer than anything takes here, even on a machine that does a lot besides."""

DAEMON = ("-m", "transis", "daemon")

PATIENT = "token_loss_ms = 1000\ntoken_retransmit_ms = 100\nconsensus_ms = 1200\nfail_to_receive_ms = 2000\n"
"""Nobody is suspected because this machine does a lot besides."""

_ports = itertools.count(5610, 2)


class Lines:
    """The lines of a pipe, waited for without polling; what was read is kept."""

    def __init__(self, pipe: IO[bytes], patience_s: float = PATIENCE_S) -> None:
        self._pipe = pipe
        self._patience_s = patience_s
        self._pending = b""
        self.read: list[str] = []
        self._looked = 0

    def until(self, pattern: str) -> str:
        """The next line that matches, not looked at before."""
        while True:
            while self._looked < len(self.read):
                self._looked += 1
                if re.search(pattern, self.read[self._looked - 1]):
                    return self.read[self._looked - 1]
            self._more(pattern)

    def _more(self, pattern: str) -> None:
        said = "\n".join(self.read)
        assert select.select([self._pipe], [], [], self._patience_s)[0], f"nothing came that matches {pattern!r}; so far:\n{said}"
        data = os.read(self._pipe.fileno(), 65_536)
        assert data, f"it ended before anything matched {pattern!r}; it said:\n{said}"
        *whole, self._pending = (self._pending + data).split(b"\n")
        self.read += [line.decode() for line in whole]


class RunningDaemon:
    """`out` has its readiness, `log` what it says to its operator."""

    def __init__(
        self, directory: Path, name: str, settings: str, environment: dict[str, str], program: Sequence[str] = DAEMON
    ) -> None:
        self.name = name
        self.admin = directory / f"{name}-admin.sock"
        self.clients = directory / f"{name}.sock"
        self.config = directory / f"{name}.toml"
        self.config.write_text(settings)
        self.process = subprocess.Popen(
            [sys.executable, *program, "--config", str(self.config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.out, self.log = Lines(self.process.stdout), Lines(self.process.stderr)

    def ready(self) -> RunningDaemon:
        try:
            self.out.until("^ready: ")
        except AssertionError as error:
            self.process.kill()
            raise AssertionError(f"{self.name} did not get ready; it said:\n{self.ended()[1]}") from error
        return self

    def ask(self, what: str, **more: object) -> dict[str, Any]:
        with AdminConnection(self.admin, None) as connection:
            return connection.ask(what, **more)

    def sees(self, *names: str) -> str:
        """Wait for a view of exactly these; its line in the log."""
        members = " ".join(rf"{name}/\d+" for name in sorted(names))
        return self.log.until(rf"view R\d+@\w+/\d+: {members}; ")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """The exit code, and everything said on stderr."""
        _, rest = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, "\n".join([*self.log.read, rest.decode()])

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)


class Site:
    """Daemons that meet on one multicast group of loopback, each with a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        port, process = next(_ports), os.getpid()
        self._network = f'group = "239.193.{process >> 8 & 255}.{process & 255}"\ndata_port = {port}\ncontrol_port = {port + 1}\n'
        self.daemons: list[RunningDaemon] = []

    def settings(self, name: str, **sections: str) -> str:
        """The file of a daemon; more lines by section."""
        own = {
            "node": f'name = "{name}"\nstate = "{self.directory / name}"\n',
            "network": self._network,
            "sessions": f'socket = "{self.directory / name}.sock"\n',
            "timing": "" if "timing" in sections else PATIENT,
        }
        merged = {
            section: own.get(section, "") + sections.get(section, "") for section in [*own, *(sections.keys() - own.keys())]
        }
        return "\n".join(f"[{section}]\n{lines}" for section, lines in merged.items())

    def environment(self, **more: str) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(ROOT / "src")} | more

    def start(
        self, name: str, text: str = "", env: dict[str, str] | None = None, program: Sequence[str] = DAEMON, **sections: str
    ) -> RunningDaemon:
        settings, environment = text or self.settings(name, **sections), self.environment(**(env or {}))
        daemon = RunningDaemon(self.directory, name, settings, environment, program)
        self.daemons.append(daemon)
        return daemon

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "transis", *arguments]
        env = self.environment(COLUMNS="160")
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=env)


@contextmanager
def opened_site() -> Iterator[Site]:
    """In a directory with a short name, for a socket's path has little room."""
    with tempfile.TemporaryDirectory(prefix="transis-") as directory:
        site = Site(Path(directory))
        try:
            yield site
        finally:
            for daemon in site.daemons:
                daemon.clean_up()
