"""Newcomers: a replica that is not yet a member tells the members that it waits, and asks one after the other for the order.

A newcomer is in no group of replicas before a member adds it. It finds the members by the node's directory, tells each its name
and the identity of its directory, and asks one of them for what is ordered, the next one if that one falls silent.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from transis.client.session import Session
from transis.prsl.record import Directory, Name
from transis.types.errors import Rejection
from transis.types.ids import ProcessId

WAITS: Final = b"\x01"
"""In front of what a newcomer says of itself. No message of the machine begins so: they are arrays of msgpack."""


class Newcomer(NamedTuple):
    name: Name
    directory: Directory


_decoder: Final = msgspec.msgpack.Decoder(Newcomer)


def encode(newcomer: Newcomer) -> bytes:
    return WAITS + msgspec.msgpack.encode(newcomer)


def decode(payload: bytes) -> Newcomer | Rejection:
    try:
        return _decoder.decode(payload[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Rejection("newcomer", str(error))


class Search:
    """Of a newcomer: which member it asks next."""

    def __init__(self) -> None:
        self._asked = 0

    async def next_member(self, session: Session[bytes], group: str) -> tuple[list[ProcessId], ProcessId | None]:
        """All members, and the one whose turn it is."""
        members = sorted(await session.members(group))
        if not members:
            return [], None
        self._asked += 1
        return members, members[self._asked % len(members)]
