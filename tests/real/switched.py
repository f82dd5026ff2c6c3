"""A LAN of namespaces whose switch can be parted: ports move to a second bridge, and come back."""

from __future__ import annotations

from tests.net.lan import LanOfNamespaces

HECKLER = "heckler"
"""The machine from which junk is thrown."""


class SwitchedLan(LanOfNamespaces):
    def __init__(self, machines: tuple[str, ...]) -> None:
        super().__init__((*machines, HECKLER))
        try:
            self._inside("switch", "link", "add", "other", "type", "bridge", "mcast_snooping", "0")
            self._inside("switch", "link", "set", "other", "up")
        except BaseException:
            self.close()
            raise

    def part(self, *machines: str) -> None:
        """These are on a LAN of their own from now on."""
        for machine in machines:
            self._inside("switch", "link", "set", machine, "master", "other")

    def mend(self, *machines: str) -> None:
        for machine in machines:
            self._inside("switch", "link", "set", machine, "master", "bridge")

    def inside(self, machine: str) -> tuple[str, ...]:
        """What stands before a command that runs on this machine."""
        return ("ip", "netns", "exec", self.space(machine))
