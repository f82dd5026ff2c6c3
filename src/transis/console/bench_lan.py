"""A LAN of network namespaces for a benchmark: a switch and some machines, none of them the machine we run on.

Needs root and iproute2. Addresses are from the block for benchmarks (198.18.0.0/15). Everything goes with `close`;
names hold the process's number, so that what a killed benchmark left behind can be told apart.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final

from transis.types.errors import UsageError

NETWORK: Final = "198.18.0.0/15"
MACHINES_MAX: Final = 250


def why_no_lan() -> str:
    """Why there can be no such LAN here; the empty string if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (iproute2)"
    return ""


class BenchLan:
    """Use it as a context. `prefix(machine)` is the beginning of a command that runs there."""

    def __init__(self, machines: Sequence[str]) -> None:
        if reason := why_no_lan():
            raise UsageError(f"--lan: {reason}")
        assert len(machines) <= MACHINES_MAX
        self._machines = machines
        self._name = f"transis-bench-{os.getpid()}-"
        self._spaces: list[str] = []

    def __enter__(self) -> BenchLan:
        try:
            self._add("switch")
            self._inside("switch", "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
            self._inside("switch", "link", "set", "bridge", "up")
            for number, machine in enumerate(self._machines, 1):
                self._plug_in(machine, number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Deleting a namespace deletes its interfaces. An interrupt in the middle must not leave the rest behind."""
        while self._spaces:
            with suppress(KeyboardInterrupt):
                subprocess.run(["ip", "netns", "delete", self._spaces[-1]], check=False, capture_output=True)
                self._spaces.pop()

    def prefix(self, machine: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._name + machine)

    @staticmethod
    def address(number: int) -> str:
        """Of the machine with this number, from 1 on."""
        return f"198.18.0.{number}"

    def _plug_in(self, machine: str, number: int) -> None:
        self._add(machine)
        wire = ("type", "veth", "peer", "name", "lan0", "netns", self._name + machine)
        self._inside("switch", "link", "add", machine, *wire)
        self._inside("switch", "link", "set", machine, "master", "bridge", "up")
        self._inside(machine, "address", "add", f"{self.address(number)}/15", "dev", "lan0")
        self._inside(machine, "link", "set", "lan0", "up")
        self._inside(machine, "link", "set", "lo", "up")

    def _add(self, machine: str) -> None:
        self._spaces.append(self._name + machine)
        self._run("ip", "netns", "add", self._name + machine)

    def _inside(self, machine: str, *words: str) -> None:
        self._run("ip", "-n", self._name + machine, *words)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise UsageError(f"--lan: `{' '.join(command)}` failed: {done.stderr.strip()}")
