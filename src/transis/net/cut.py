"""A transport with links that can be cut and healed, for tests of a running cluster. It is there only where faults are allowed.

1. A cut works by advertised address: what comes from it is dropped unread, and nothing is sent to it.
2. A multicast cannot leave out one receiver: the other side still hears it. To part two nodes, cut on both.
3. A cut replaces the one before it; healing is a cut of nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from transis.net.addresses import Endpoint, configured_endpoint
from transis.net.passing import PassingTransport
from transis.net.transport import StatisticsDict, Transport


class Severable(Transport, Protocol):
    """A transport that can be told whom neither to hear nor to send to."""

    def sever(self, endpoints: Iterable[Endpoint]) -> None: ...


class CuttableTransport(PassingTransport):
    def __init__(self, inner: Severable) -> None:
        super().__init__(inner)
        self._inner = inner
        self.cut_off: tuple[str, ...] = ()

    def cut(self, addresses: Iterable[str]) -> None:
        endpoints = {address: configured_endpoint("peers", address) for address in sorted(set(addresses))}
        self._inner.sever(endpoints.values())
        self.cut_off = tuple(endpoints)

    def heal(self) -> None:
        self.cut(())

    def statistics(self) -> StatisticsDict:
        figures: StatisticsDict = {"cut_links": len(self.cut_off)}
        return super().statistics() | figures
