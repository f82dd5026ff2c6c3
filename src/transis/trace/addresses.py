"""Addresses of recorded runs: whom a message was for, read from the bytes that travelled with it.

A second reading, on purpose: a trace is judged without the code that it judges. Bytes that are no address are for nobody, as
they are for the groups. Layout: a byte 1, how many groups, how many processes, then the groups (64-bit hashes) and the processes
(64-bit boot id of the node, 32-bit number), all big-endian.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from transis.types.views import ADDRESSED_GROUPS_MAX, ADDRESSED_PROCESSES_MAX, Address, GroupId, PrivateName

KIND: Final = 1
HEAD: Final = Struct(">BBB")
GROUP: Final = Struct(">Q")
PROCESS: Final = Struct(">QI")
NOBODY: Final = Address()


def read_address(address: bytes) -> Address:
    """The groups and processes that a run is for; nobody if the bytes say nothing of the kind."""
    if len(address) < HEAD.size:
        return NOBODY
    kind, groups, processes = HEAD.unpack_from(address)
    split = HEAD.size + groups * GROUP.size
    if kind != KIND or len(address) != split + processes * PROCESS.size:
        return NOBODY
    if groups > ADDRESSED_GROUPS_MAX or processes > ADDRESSED_PROCESSES_MAX:
        return NOBODY
    named = tuple(GroupId(group) for (group,) in GROUP.iter_unpack(address[HEAD.size : split]))
    private = tuple(PrivateName(*name) for name in PROCESS.iter_unpack(address[split:]))
    if sorted(set(named)) != list(named) or sorted(set(private)) != list(private):
        return NOBODY
    return Address(named, private)
