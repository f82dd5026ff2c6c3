"""What comes while an exchange is under way waits for its end, within limits that all daemons count alike (traps 40)."""

from __future__ import annotations

from typing import Final, NamedTuple

from transis.groups.encoding import JoinRequest, Request
from transis.types.ids import ProcessId
from transis.types.outputs import Delivered

WAITING_BYTES_MAX: Final = 1 << 20
"""Bytes of basic messages that wait for the end of an exchange; more are dropped, as basic messages may be."""

WAITING_JOINS_MAX: Final = 65_536
"""Joins that wait for the end of an exchange; more are refused, by all daemons alike, as all count the same ones."""


class WaitingRequest(NamedTuple):
    process: ProcessId
    request: Request


class Waiting:
    """Requests, in their order, and basic messages, which come early, even before their sender's group views are known here."""

    def __init__(self) -> None:
        self._requests: list[WaitingRequest] = []
        self._joins = 0
        self._basics: list[Delivered] = []
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._requests or self._basics)

    def keep(self, process: ProcessId, request: Request) -> bool:
        """False for a join that is one too many."""
        if isinstance(request, JoinRequest):
            if self._joins >= WAITING_JOINS_MAX:
                return False
            self._joins += 1
        self._requests.append(WaitingRequest(process, request))
        return True

    def keep_basic(self, run: Delivered) -> bool:
        """False if it is beyond the limit. What is kept no longer holds the burst that it came in."""
        size = sum(map(len, run.payloads))
        if self._bytes + size > WAITING_BYTES_MAX:
            return False
        self._bytes += size
        self._basics.append(run._replace(payloads=[bytes(payload) for payload in run.payloads]))
        return True

    def take_requests(self) -> list[WaitingRequest]:
        requests, self._requests, self._joins = self._requests, [], 0
        return requests

    def take_basics(self) -> list[Delivered]:
        basics, self._basics, self._bytes = self._basics, [], 0
        return basics
