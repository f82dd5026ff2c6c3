"""A transport around another one, for whoever changes one thing about it and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from transis.net.transport import StatisticsDict, Transport
from transis.types.outputs import Audience, Port
from transis.wire.envelope import Arrival


class PassingTransport:
    """Passes everything on to the transport inside."""

    def __init__(self, inside: Transport) -> None:
        self._inside = inside

    @property
    def address(self) -> str:
        return self._inside.address

    @property
    def warnings(self) -> Sequence[str]:
        return self._inside.warnings

    def files(self) -> Mapping[Port, int]:
        return self._inside.files()

    def send(self, to: str | Audience, port: Port, datagrams: Sequence[bytes]) -> None:
        self._inside.send(to, port, datagrams)

    def receive(self, port: Port) -> Sequence[Arrival]:
        return self._inside.receive(port)

    def install(self, addresses: Iterable[str]) -> None:
        self._inside.install(addresses)

    def statistics(self) -> StatisticsDict:
        return self._inside.statistics()

    def close(self) -> None:
        self._inside.close()
