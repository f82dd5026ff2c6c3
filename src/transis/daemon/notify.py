"""Telling the service manager how the daemon is (systemd's sd_notify protocol), when there is one."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from transis.daemon.logs import LOGGER


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
