"""A transport with links that can be cut and healed, for tests of a running cluster. It is there only where faults are allowed.

1. A cut works by advertised address: what comes from it is dropped unread, and nothing is sent to it.
2. A multicast cannot leave out one receiver: the other side still hears it. To part two nodes, cut on both.
3. A cut replaces the one before it; healing is a cut of nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from transis.model.contract import Audience, Port
from transis.net.addresses import Endpoint, configured_endpoint
from transis.net.transport import Statistics, Transport


class Severable(Transport, Protocol):
    """A transport that can be told whom neither to hear nor to send to."""

    def sever(self, endpoints: Iterable[Endpoint]) -> None: ...


class CuttableTransport:
    """Passes everything on to the transport inside."""

    def __init__(self, inner: Severable) -> None:
        self._inner = inner
        self.cut_off: tuple[str, ...] = ()

    def cut(self, addresses: Iterable[str]) -> None:
        endpoints = {address: configured_endpoint("peers", address) for address in sorted(set(addresses))}
        self._inner.sever(endpoints.values())
        self.cut_off = tuple(endpoints)

    def heal(self) -> None:
        self.cut(())

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def warnings(self) -> Sequence[str]:
        return self._inner.warnings

    def files(self) -> Mapping[Port, int]:
        return self._inner.files()

    def send(self, to: str | Audience, port: Port, datagrams: Sequence[bytes]) -> None:
        self._inner.send(to, port, datagrams)

    def receive(self, port: Port) -> list[bytes]:
        return self._inner.receive(port)

    def install(self, addresses: Iterable[str]) -> None:
        self._inner.install(addresses)

    def statistics(self) -> Statistics:
        figures: Statistics = {"cut_links": len(self.cut_off)}
        return self._inner.statistics() | figures

    def close(self) -> None:
        self._inner.close()
