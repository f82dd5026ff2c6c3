"""A LAN of network namespaces: a switch and some machines, each a namespace of its own, none of them the machine we run on.

Needs root and iproute2. Addresses are from the blocks for benchmarks and documentation. Everything goes with `close`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache

NETWORK = "198.18.0.0/15"
NETWORK_IPV6 = "2001:db8:7::/64"


@cache
def why_not() -> str:
    """Why there can be no LAN here; the empty string if there can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "a LAN of namespaces needs root"
    if shutil.which("ip") is None:
        return "a LAN of namespaces needs the command ip (iproute2)"
    name = f"transis-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return "this kernel or container allows no network namespaces"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return ""


class LanOfNamespaces:
    def __init__(self, machines: Sequence[str]) -> None:
        self._prefix = f"transis-{os.getpid()}-"
        self._spaces: list[str] = []
        try:
            self._add("switch")
            self._inside("switch", "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
            self._inside("switch", "link", "set", "bridge", "up")
            for number, machine in enumerate(machines, 1):
                self._plug_in(machine, number)
        except BaseException:
            self.close()
            raise

    def space(self, machine: str) -> str:
        return self._prefix + machine

    def unplug(self, machine: str) -> None:
        self._inside("switch", "link", "set", machine, "down")

    def plug(self, machine: str) -> None:
        self._inside("switch", "link", "set", machine, "up")

    def close(self) -> None:
        for space in self._spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False)

    def _plug_in(self, machine: str, number: int) -> None:
        self._add(machine)
        self._inside("switch", "link", "add", machine, "type", "veth", "peer", "name", "lan0", "netns", self.space(machine))
        self._inside("switch", "link", "set", machine, "master", "bridge", "up")
        self._inside(machine, "address", "add", f"198.18.0.{number}/15", "dev", "lan0")
        self._inside(machine, "address", "add", f"2001:db8:7::{number}/64", "dev", "lan0", "nodad")
        self._inside(machine, "link", "set", "lan0", "up")
        self._inside(machine, "link", "set", "lo", "up")

    def _add(self, machine: str) -> None:
        subprocess.run(["ip", "netns", "add", self.space(machine)], check=True)
        self._spaces.append(self.space(machine))

    def _inside(self, machine: str, *words: str) -> None:
        subprocess.run(["ip", "-n", self.space(machine), *words], check=True)
