"""A run's address <-> bytes: the groups and processes that its messages go to.

1. The first byte says whether it is an application's address or that of the groups' own messages; no bytes are for no group.
2. Encoding is canonical: addresses are sorted and unique, so equal addresses are equal bytes and share a run.
3. Any bytes become an address or a rejection, never an error.
"""

from __future__ import annotations

import struct
from typing import Final

from transis.types.errors import Rejection, UsageError
from transis.types.views import ADDRESSED_GROUPS_MAX, ADDRESSED_PROCESSES_MAX, Address, GroupId, PrivateName

APPLICATION_KIND: Final = 1
CONTROL_ADDRESS: Final = b"\x02"

_HEAD: Final = struct.Struct(">BBB")
_GROUP: Final = struct.Struct(">Q")
_PRIVATE: Final = struct.Struct(">QI")


def encode_address(address: Address) -> bytes:
    groups, processes = sorted(set(address.groups)), sorted(set(address.processes))
    if not groups and not processes:
        raise UsageError("a message for nobody: name a group or a process")
    if len(groups) > ADDRESSED_GROUPS_MAX or len(processes) > ADDRESSED_PROCESSES_MAX:
        raise UsageError(
            f"{len(groups)} groups and {len(processes)} processes in one address; at most {ADDRESSED_GROUPS_MAX} and "
            f"{ADDRESSED_PROCESSES_MAX} are allowed: send to a group that has them all"
        )
    parts = [_HEAD.pack(APPLICATION_KIND, len(groups), len(processes)), *(_GROUP.pack(group) for group in groups)]
    return b"".join(parts + [_PRIVATE.pack(*name) for name in processes])


def decode_address(address: bytes) -> Address | Rejection:
    """The address of an application message; an empty one is for nobody in the groups."""
    if not address:
        return Address()
    if len(address) < _HEAD.size or address[0] != APPLICATION_KIND:
        return Rejection("address", "bytes that are no address")
    _, groups, processes = _HEAD.unpack_from(address)
    split = _HEAD.size + groups * _GROUP.size
    if groups > ADDRESSED_GROUPS_MAX or processes > ADDRESSED_PROCESSES_MAX:
        return Rejection("address", "an address of too many")
    if len(address) != split + processes * _PRIVATE.size:
        return Rejection("address", "an address whose length is not what it says")
    named = tuple(GroupId(group) for (group,) in _GROUP.iter_unpack(address[_HEAD.size : split]))
    private = tuple(PrivateName(*name) for name in _PRIVATE.iter_unpack(address[split:]))
    if list(named) != sorted(set(named)) or list(private) != sorted(set(private)):
        return Rejection("address", "an address that is not sorted and unique")
    return Address(named, private)
