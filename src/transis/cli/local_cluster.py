"""A cluster on this machine: daemons as processes on loopback, files in one directory, owned by the process that starts them.

1. The files of daemon n1 are n1.toml (settings), n1/ (state), n1.log, n1.sock and n1-admin.sock. The daemons use a random
   multicast group and random ports, so that two clusters on one machine do not hear each other.
2. Daemons are in process groups of their own: Ctrl-C reaches only their owner, which then tells each of them to leave.
3. Only children of the owner are ever signalled, by process id, and every wait is bounded.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from transis.net.listeners import UNIX_PATH_MAX, bind_unix
from transis.settings.schema import as_toml
from transis.trace.files import take_lock
from transis.types.errors import ConfigError, TransisError
from transis.types.paths import admin_beside, socket_to_listen_at

# --- daemons ----------------------------------------------------------------------------------------------------------

STOP_S: Final = 10.0
"""The daemon itself limits a graceful leave to well below this; daemons that still run then are killed."""
TAIL_LINES: Final = 12
TAIL_BYTES: Final = 16_384
FIRST_PORT: Final = 20_000
PORTS: Final = 10_000
"""Below the ephemeral ports of common systems."""

SectionTables = Mapping[str, Mapping[str, object]]
"""Fields by section, overriding the defaults of this file."""


class ClusterError(TransisError):
    """The cluster did not start, or one of its daemons died."""


@dataclass(frozen=True)
class MeetingPoint:
    """The multicast group and port on which the daemons of one cluster meet."""

    group: str
    port: int

    @staticmethod
    def drawn() -> MeetingPoint:
        draw = random.SystemRandom()
        return MeetingPoint(
            f"239.{draw.randrange(192, 196)}.{draw.randrange(256)}.{draw.randrange(1, 255)}",
            draw.randrange(FIRST_PORT, FIRST_PORT + PORTS, 2),
        )


class LocalDaemon:
    """One daemon: its files, and its process if it runs."""

    def __init__(self, directory: Path, name: str, clients: Path | None = None) -> None:
        self.name = name
        self.config = directory / f"{name}.toml"
        self.log = directory / f"{name}.log"
        self.clients = clients or directory / f"{name}.sock"
        self.admin = admin_beside(self.clients)
        self.is_paused = False
        self._process: subprocess.Popen[bytes] | None = None
        self._was_ended = False

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process is not None else None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def crashed(self) -> bool:
        """It ended, and not because its owner told it to."""
        return self._process is not None and not self.runs and not self._was_ended

    @property
    def state(self) -> str:
        """In a word, for those who break it by hand."""
        if self.runs:
            return "paused" if self.is_paused else "running"
        return "killed" if self._was_ended else "not running"

    def start(self) -> None:
        assert not self.runs, "it runs already"
        command = [sys.executable, "-m", "transis.cli.main", str(os.getpid()), "daemon", "--config", str(self.config)]
        self._was_ended = self.is_paused = False
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)

    def end(self, number: signal.Signals) -> None:
        """Tell it to leave, or kill it. One that is paused would not hear it, so it goes on first."""
        if self._process is not None:
            self._was_ended = True
            self._process.send_signal(number)
            self.resume()

    def pause(self) -> None:
        assert self._process is not None, "it was never started"
        self._process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        assert self._process is not None, "it was never started"
        self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def wait(self, patience_s: float) -> bool:
        """Wait for its end; False if it still runs after `patience_s`."""
        try:
            assert self._process is not None, "it was never started"
            self._process.wait(max(0.0, patience_s))
        except subprocess.TimeoutExpired:
            return False
        return True

    def tail(self) -> str:
        """The last lines of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-TAIL_LINES:])

    def last_words(self) -> str:
        """How it ended, in words."""
        code = self.exit_code
        assert code is not None, "it still runs"
        return f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"


# --- all of them ------------------------------------------------------------------------------------------------------


class LocalCluster:
    def __init__(self, directory: Path, names: Sequence[str], settings: SectionTables, first_clients: Path | None = None) -> None:
        """Writes the settings files. `settings` apply to all daemons; `first_clients` is the client socket of the first one."""
        meeting = MeetingPoint.drawn()
        self.directory = directory
        self.daemons = [LocalDaemon(directory, name, first_clients if name == names[0] else None) for name in names]
        for daemon in self.daemons:
            _check_path(daemon)
            daemon.config.write_text(_settings_text(_settings(directory, meeting, daemon, settings)), encoding="utf-8")
            _link_sockets(directory, daemon)

    def __getitem__(self, name: str) -> LocalDaemon:
        return next(daemon for daemon in self.daemons if daemon.name == name)

    def start(self) -> None:
        for daemon in self.daemons:
            daemon.start()

    def stop(self, patience_s: float = STOP_S) -> list[str]:
        """Tell all daemons to leave, wait, and kill those that do not; returns the names of the killed ones."""
        for daemon in self._running():
            daemon.end(signal.SIGTERM)
        latest = monotonic() + patience_s
        try:
            for daemon in self._running():
                daemon.wait(latest - monotonic())
        finally:  # Also on a second Ctrl-C.
            stubborn = self.kill()
        return stubborn

    def kill(self) -> list[str]:
        stubborn = list(self._running())
        for daemon in stubborn:
            daemon.end(signal.SIGKILL)
        for daemon in stubborn:
            daemon.wait(STOP_S)
        return [daemon.name for daemon in stubborn]

    def _running(self) -> Iterator[LocalDaemon]:
        return (daemon for daemon in self.daemons if daemon.runs)


def default_socket(environment: Mapping[str, str]) -> Path | None:
    """The socket where clients look first, if this user can listen there and no daemon does."""
    path = Path(socket_to_listen_at(environment))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        bind_unix(str(path), 0o600).close()
        path.unlink()
    except (OSError, TransisError):
        return None
    return path


def _check_path(daemon: LocalDaemon) -> None:
    size = len(os.fsencode(daemon.admin))
    if size > UNIX_PATH_MAX:
        raise ClusterError(
            f"{daemon.admin} is too long for a socket ({size} bytes, at most {UNIX_PATH_MAX}): choose a shorter --dir"
        )


def _link_sockets(directory: Path, daemon: LocalDaemon) -> None:
    """Symlinks, so that the directory shows the sockets of all daemons, even of one that listens elsewhere."""
    for path, name in ((daemon.clients, f"{daemon.name}.sock"), (daemon.admin, f"{daemon.name}-admin.sock")):
        link = directory / name
        if link.is_symlink():
            link.unlink()
        if path != link:
            link.unlink(missing_ok=True)
            link.symlink_to(path)


def _settings(directory: Path, meeting: MeetingPoint, daemon: LocalDaemon, more: SectionTables) -> dict[str, dict[str, object]]:
    own: dict[str, dict[str, object]] = {
        "node": {"name": daemon.name, "state": str(directory / daemon.name)},
        "network": {
            "interface": "127.0.0.1",
            "group": meeting.group,
            "data_port": meeting.port,
            "control_port": meeting.port + 1,
        },
        "sessions": {"socket": str(daemon.clients)},
    }
    for section, fields in more.items():
        own[section] = own.get(section, {}) | dict(fields)
    return own


def _settings_text(settings: SectionTables) -> str:
    sections = ((name, (f"{field} = {as_toml(value)}" for field, value in fields.items())) for name, fields in settings.items())
    return "\n".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections)


# --- directory --------------------------------------------------------------------------------------------------------

LOCK: Final = "transis.lock"


class ClusterDirectory:
    """A directory given by the user, or a temporary one that is removed at the end unless the run failed."""

    def __init__(self, wanted: Path | None) -> None:
        self._is_temporary = wanted is None
        if wanted is not None:
            self._lock = _taken(wanted)
        self.path = Path(tempfile.mkdtemp(prefix="transis-")) if wanted is None else wanted.resolve()

    def leave(self, *, keep: bool) -> None:
        if self._is_temporary and not keep:
            shutil.rmtree(self.path, ignore_errors=True)


def _taken(wanted: Path) -> int:
    """Create and lock the directory for the life of this process: a second cluster there would confuse the two."""
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        return take_lock(wanted / LOCK, 0o600)
    except BlockingIOError as error:
        raise ConfigError("--dir", str(wanted), "another cluster runs there: stop it, or choose another directory") from error
    except OSError as error:
        raise ConfigError("--dir", str(wanted), f"cannot be used ({error.strerror})") from error
