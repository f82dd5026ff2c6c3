"""`transis send`: multicast to a group what stands on the command line or comes in on stdin, and wait for what becomes of it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import typer

from transis.client.sending import Receipt
from transis.client.session import Session
from transis.console.arguments import wrong
from transis.console.completing import complete_group, complete_service
from transis.console.talking import PROBLEM, Failed, HostOption, KeyOption, SocketOption, run_client
from transis.types.errors import InDoubt, MessageTooLarge, SendRefused, SessionLost
from transis.types.ids import Service
from transis.types.limits import MESSAGE_MAX

SEND_EXAMPLES = """Examples:

transis send orders "new order"

transis send orders "close of business" --service safe

transis send orders --lines first second third [dim]# three messages[/dim]

seq 1000 | transis send orders [dim]# each line is a message[/dim]

transis send orders --also audit "in both groups, once"
"""

READ_BYTES: Final = 65_536
OPEN_MAX: Final = 64
"""Receipts that may be open at a time: then the oldest is waited for, so memory stays flat whatever comes in."""


def send(
    group: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_group, help="The group to send to.")],
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="The message; without it, lines from stdin.")] = None,
    service: Annotated[str, typer.Option(help="basic, causal, agreed or safe.", autocompletion=complete_service)] = "agreed",
    lines: Annotated[bool, typer.Option("--lines", help="Every TEXT is a message, as every line of stdin is anyway.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="All of stdin is one message, up to 16 MiB.")] = False,
    also: Annotated[
        list[str] | None,
        typer.Option("--also", metavar="GROUP", autocompletion=complete_group, help="One more group; repeatable."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the messages are delivered at this node.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with what became of the messages.")] = False,
    socket: SocketOption = None,
    host: HostOption = None,
    key_file: KeyOption = None,
) -> None:
    """Send messages to a group; being a member is not needed.

    Exit code 1 when messages were refused, or when nobody knows whether they were sent because the daemon was lost.
    """
    sending = Sending([group, *(also or ())], _service_of(service), wait)
    payloads = _messages(text or [], lines, whole)

    async def work(session: Session[bytes]) -> int:
        try:
            await sending.send_all(session, payloads)
        finally:
            sending.look_through()
        return 0

    code = run_client("send", (socket, host, key_file), work)
    sending.report(as_json)
    raise typer.Exit(code or (PROBLEM if sending.failed else 0))


def _service_of(name: str) -> Service:
    if name.upper() not in Service.__members__:
        raise wrong("--service", repr(name), f"must be one of {', '.join(service.name.lower() for service in Service)}")
    return Service[name.upper()]


class Sending:
    """What was sent and what became of it."""

    def __init__(self, groups: list[str], service: Service, wait: bool) -> None:
        self._groups = groups
        self._service = service
        self._wait = wait
        self._open: deque[Receipt] = deque()
        self._counts: Counter[str] = Counter()
        self._first = ""
        self._why = ""

    async def send_all(self, session: Session[bytes], payloads: AsyncIterator[list[bytes]]) -> None:
        try:
            async for some in payloads:
                receipt = await session.send_many(self._groups, some, self._service)
                self._first = self._first or str(receipt.id)
                self._open.append(receipt)
                while len(self._open) > OPEN_MAX:
                    await self._settle()
            while self._open and self._wait:
                await self._settle()
        except SessionLost as error:
            self._why = self._why or str(error)

    async def _settle(self) -> None:
        receipt = self._open[0]
        try:
            await receipt
        except (SendRefused, InDoubt) as error:
            self._why = self._why or str(error)
        self._open.popleft()
        self._counts[receipt.outcome] += receipt.count

    def look_through(self) -> None:
        """What is still open now stays so."""
        for receipt in self._open:
            self._counts[receipt.outcome] += receipt.count
        self._open.clear()

    @property
    def failed(self) -> bool:
        unknown = self._counts["pending"] if self._wait else 0
        return bool(self._counts["refused"] or self._counts["in doubt"] or unknown or self._why)

    def report(self, as_json: bool) -> None:
        if as_json:
            value: dict[str, Any] = {
                "groups": self._groups,
                "service": self._service.name.lower(),
                "messages": self._counts.total(),
            }
            value |= {outcome: self._counts[outcome] for outcome in ("delivered", "pending", "refused", "in doubt")}
            print(json.dumps(value | {"first": self._first or None, "why": self._why or None}))
        elif self._counts or self._why:
            stream = sys.stderr if self.failed else sys.stdout
            print(self._words(), file=stream)

    def _words(self) -> str:
        names = {"delivered": "delivered", "pending": "sent, not confirmed", "refused": "refused", "in doubt": "in doubt"}
        found = {words: self._counts[outcome] for outcome, words in names.items() if self._counts[outcome]}
        total = self._counts.total()
        what = f"{total:,} {self._service.name.lower()} message{'s' if total != 1 else ''} to {' and '.join(self._groups)}"
        became = (
            next(iter(found), "not sent") if len(found) < 2 else ", ".join(f"{count:,} {words}" for words, count in found.items())
        )
        first = f" ({self._first}{' and on' if total > 1 else ''})" if self._first else ""
        return f"{what}: {became}{first}" + (f". {self._why}" if self._why else "")


# --- where messages come from ---------------------------------------------------------------------------------------


async def _messages(text: list[str], lines: bool, whole: bool) -> AsyncIterator[list[bytes]]:
    """Messages in portions, as they come."""
    encoded = [one.encode("utf-8", "surrogateescape") for one in text]
    if encoded:
        yield encoded if lines else [b" ".join(encoded)]
        return
    pending = b""
    async for piece in _Input().pieces():
        pending += piece
        if not whole:
            *found, pending = pending.split(b"\n")
            if found:
                yield found
        if len(pending) > MESSAGE_MAX:
            raise MessageTooLarge(f"what came in has {len(pending)} bytes without an end: a message has at most {MESSAGE_MAX}")
    if pending or whole:
        yield [pending]


class _Input:
    """stdin, read by a thread, so that Ctrl-C need not wait for a line that never comes; no more than a few pieces ahead."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue(4)

    async def pieces(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()
        while piece := await self._pieces.get():
            if isinstance(piece, OSError):
                raise Failed(f"stdin cannot be read: {piece.strerror}")
            yield piece

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        piece: bytes | OSError = b"begin"
        while piece and not isinstance(piece, OSError):
            try:
                piece = os.read(sys.stdin.fileno(), READ_BYTES)
            except OSError as error:
                piece = error
            try:
                asyncio.run_coroutine_threadsafe(self._pieces.put(piece), loop).result()
            except (RuntimeError, asyncio.CancelledError):  # The command has ended meanwhile.
                return
