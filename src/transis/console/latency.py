"""How long a message takes, measured where it matters: a client of each daemon sends to itself and waits for the receipt.

Such a message has one reader, and goes around the ring like any other. One message at a time and daemon: what is measured is the
way, not a queue.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from statistics import median
from time import perf_counter
from typing import Final

from transis.client.connection import connect
from transis.client.session import Session
from transis.types.errors import TransisError
from transis.types.ids import Service

KEPT: Final = 20
"""Measurements whose median is shown."""
PATIENCE_S: Final = 5.0

Milliseconds = Mapping[Service, float]


async def measure(session: Session[bytes]) -> dict[Service, float]:
    """Milliseconds from sending to the receipt. The first of each service goes around unmeasured, to warm the way."""
    found = {}
    for service in (Service.AGREED, Service.SAFE):
        for _ in range(2):
            began = perf_counter()
            await (await session.send(session.process, b"", service))
            found[service] = (perf_counter() - began) * 1000
    return found


def measure_once(socket: str) -> dict[Service, float]:
    """Nothing if the daemon has no session for us, or does not answer in time."""

    async def once() -> dict[Service, float]:
        async with asyncio.timeout(PATIENCE_S), connect(socket, label="transis monitor") as session:
            return await measure(session)

    try:
        return asyncio.run(once())
    except (TransisError, TimeoutError):
        return {}


class Probe:
    """Measures one daemon again and again, in a thread of its own."""

    def __init__(self, socket: str, every_s: float) -> None:
        self._socket = socket
        self._every_s = every_s
        self._found: dict[Service, deque[float]] = {}
        self._thread = threading.Thread(target=self._run, name=f"probe {socket}", daemon=True)
        self._thread.start()

    def median_ms(self) -> dict[Service, float]:
        return {service: median(kept) for service, kept in list(self._found.items()) if kept}

    def _run(self) -> None:
        asyncio.run(self._measure_for_ever())

    async def _measure_for_ever(self) -> None:
        while True:
            try:
                async with connect(self._socket, label="transis monitor") as session:
                    while True:
                        async with asyncio.timeout(PATIENCE_S):
                            self._keep(await measure(session))
                        await asyncio.sleep(self._every_s)
            except (TransisError, TimeoutError):
                self._found = {}
            await asyncio.sleep(self._every_s)

    def _keep(self, measured: Mapping[Service, float]) -> None:
        for service, value in measured.items():
            self._found.setdefault(service, deque(maxlen=KEPT)).append(value)


def words(measured: Mapping[Service, float]) -> str:
    return " / ".join(f"{measured[service]:.1f}" for service in (Service.AGREED, Service.SAFE) if service in measured)
