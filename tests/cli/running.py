"""Commands as a person runs them: processes of their own, in an environment where nobody else's daemon is in sight."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.daemon.running import PATIENCE_S, Lines
from tests.house.sources import ROOT


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRANSIS_", "COMP_"))}
    return kept | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", "COLUMNS": "160", "NO_COLOR": "1"} | more


class Command:
    """One process; what it says on stdout is waited for line by line, stderr is read at the end."""

    def __init__(
        self, arguments: list[str], env: Mapping[str, str], stdin: bytes | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self._patience_s = patience_s
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
        )
        assert self.process.stdout is not None
        self.out = Lines(self.process.stdout, patience_s)
        if stdin is not None:
            assert self.process.stdin is not None
            self.process.stdin.write(stdin)
            self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str, str]:
        """Exit code, everything said on stdout, and on stderr."""
        rest, errors = self.process.communicate(timeout=self._patience_s)
        return self.process.returncode, "\n".join([*self.out.read, rest.decode()]), errors.decode()

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)


class Up:
    """`transis up --json`, and other commands that use its cluster."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.env = environment(TRANSIS_SOCKET=str(directory / "usual.sock"), TMPDIR=str(directory))
        self._commands: list[Command] = []
        self.command = self.start("up", "--json", *arguments)

    def start(self, *arguments: str, stdin: bytes | None = None, **env: str) -> Command:
        command = Command([sys.executable, "-m", "transis", *arguments], self.env | env, stdin)
        self._commands.append(command)
        return command

    def run(self, *arguments: str, stdin: bytes | None = None, **env: str) -> tuple[int, str, str]:
        return self.start(*arguments, stdin=stdin, **env).ended()

    def until(self, event: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.command.out.until(f'"event": "{event}"'))
        return found

    def clean_up(self) -> None:
        """`up` first and politely: it takes its daemons with it."""
        if self.command.process.poll() is None:
            self.command.signal(signal.SIGTERM)
        self.command.ended()
        for command in self._commands[1:]:
            command.clean_up()


@contextmanager
def brought_up(*arguments: str) -> Iterator[Up]:
    """In a directory with a short name, for a socket's path has little room."""
    with tempfile.TemporaryDirectory(prefix="transis-") as directory:
        up = Up(Path(directory), *arguments)
        try:
            yield up
        finally:
            up.clean_up()
