"""Addresses as they travel: `192.0.2.1:5405` or `[2001:db8::1]:5405`, always numeric.

1. An address is that of a node's token socket. Peers say it in their packets, so reading one never raises and never asks
   a name server: what is not an address is None.
2. A scope (`fe80::1%eth0`) means something on one machine only, so it is not advertised; whoever sends to a link-local
   address adds the scope of its own interface.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from transis.types.errors import ConfigError
from transis.types.limits import NETWORK_ADDRESS_MAX

IPAddress = IPv4Address | IPv6Address
SocketAddress = tuple[str, int] | tuple[str, int, int, int]

PORT_MAX = 65_535


class Endpoint(NamedTuple):
    host: IPAddress
    port: int

    def __str__(self) -> str:
        if self.host.version == 6:
            return f"[{str(self.host).partition('%')[0]}]:{self.port}"
        return f"{self.host}:{self.port}"

    def shifted(self, by: int) -> Endpoint:
        return Endpoint(self.host, self.port + by)

    def for_socket(self, scope: int = 0) -> SocketAddress:
        """What the socket calls want; the scope is used where the address needs one."""
        if isinstance(self.host, IPv4Address):
            return (str(self.host), self.port)
        needed = self.host.is_link_local or self.host.is_multicast
        return (str(self.host).partition("%")[0], self.port, 0, scope if needed else 0)


def read_endpoint(text: str) -> Endpoint | None:
    """The endpoint that a peer's text names, or None: never an exception, never a lookup."""
    host, colon, port = text.rpartition(":")
    if not colon or len(text) > NETWORK_ADDRESS_MAX or not (port.isascii() and port.isdigit() and len(port) <= 5):
        return None
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return None
    if bracketed != (address.version == 6) or not 1 <= int(port) <= PORT_MAX:
        return None
    return Endpoint(address, int(port))


def configured_endpoint(field: str, text: str) -> Endpoint:
    """The same for an operator's text, who is told what is wrong with it."""
    endpoint = read_endpoint(text)
    if endpoint is None:
        raise ConfigError(field, text, "must be a numeric address and a port, like 192.0.2.1:5405 or [2001:db8::1]:5405")
    return endpoint
