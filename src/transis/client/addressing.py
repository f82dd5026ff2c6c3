"""Where applications send: names of groups and processes -> addresses; and the names that are not theirs to use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from transis.client.transfer import COMPANION_SUFFIX
from transis.types.errors import UsageError
from transis.types.ids import ProcessId
from transis.types.views import Address, PrivateName, group_id, private_name, require_group_name
from transis.wire.items import encode_address

Destination = str | ProcessId | PrivateName

REMEMBERED_MAX: Final = 4096
"""Destinations whose addresses are remembered; beyond it they are made again."""


def require_application_name(name: str) -> str:
    if name.endswith(COMPANION_SUFFIX):
        raise UsageError(f"{name!r}: names that end in {COMPANION_SUFFIX!r} belong to state transfer")
    return require_group_name(name)


def address_of(destinations: Iterable[Destination]) -> Address:
    """Each destination once, whatever the order."""
    groups, processes = [], []
    for one in destinations:
        if isinstance(one, str):
            groups.append(group_id(require_application_name(one)))
        elif isinstance(one, ProcessId):
            processes.append(private_name(one))
        elif isinstance(one, PrivateName):
            processes.append(one)
        else:
            raise UsageError(f"{one!r} is neither the name of a group nor a process")
    return Address(tuple(groups), tuple(processes))


class AddressBook:
    """Remembers single destinations: programs send to few of them, many times."""

    def __init__(self) -> None:
        self._known: dict[Destination, bytes] = {}

    def look_up(self, to: Destination | Iterable[Destination]) -> bytes:
        if not isinstance(to, str | ProcessId | PrivateName):
            return encode_address(address_of(to))
        address = self._known.get(to)
        if address is None:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            address = self._known[to] = encode_address(address_of([to]))
        return address
