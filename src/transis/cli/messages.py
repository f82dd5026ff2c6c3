"""`transis send` and `transis recv`: multicast to a group, and show what comes out of one.

`send` takes messages from the command line or from stdin and waits for their outcome; `recv` shows messages and views in order.
Exit codes: 0 if all went well, also after Ctrl-C; 1 if something that was asked for did not happen; 2 if there was no session.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from transis.cli.admin import complete_destination, complete_group, complete_service
from transis.cli.options import PROBLEM, SERVICES, SHOWN_MAX, UNABLE, as_json, choice, complain, one_of, shown, stdout, wrong
from transis.client.attributes import Attached, AttachedToMany, event_us_of
from transis.client.connection import WINDOW, Connection, connect
from transis.client.events import Batch, Message, View
from transis.client.sending import Receipt
from transis.client.session import Session
from transis.client.stream import MessageStream
from transis.net.state import read_key
from transis.types.errors import (
    ConfigError,
    ConnectError,
    InDoubt,
    MessageTooLarge,
    NoQuorum,
    SendRefused,
    SessionLost,
    TransisError,
    UsageError,
)
from transis.types.ids import Service
from transis.types.limits import MESSAGE_MAX

# --- session ----------------------------------------------------------------------------------------------------------


Work = Callable[[Session[bytes]], Coroutine[Any, Any, int]]

SocketOption = Annotated[
    Path | None,
    typer.Option("--socket", metavar="PATH", help="Socket of the daemon; by default TRANSIS_SOCKET, or the usual place."),
]
HostOption = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST:PORT", help="A daemon on another host that listens on TCP; needs --key-file."),
]
KeyOption = Annotated[Path | None, typer.Option("--key-file", metavar="FILE", help="The cluster's key, for --host.")]


class CommandFailed(Exception):
    """An error sentence for exit code 1."""


def connection_to(
    label: str, socket: Path | None, host: str | None, key_file: Path | None, window: int = WINDOW, name: str | None = None
) -> Connection[bytes]:
    if host is not None and key_file is None:
        raise UsageError("--host needs --key-file: a session over a network is sealed with the cluster's key")
    key = read_key(key_file, "--key-file") if key_file is not None else None
    return connect(None if socket is None else str(socket), host=host, key=key, name=name, label=label, window=window)


def run_client(command: str, where: tuple[Path | None, str | None, Path | None], work: Work, name: str | None = None) -> int:
    """Do the work in a session. Returns the exit code, and prints errors as one sentence on stderr."""
    try:
        return asyncio.run(_in_session(connection_to(f"transis {command}", *where, name=name), work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0
    except BrokenPipeError:  # Nobody reads any more, as with `| head`: a normal end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ConfigError, ConnectError, UsageError) as error:
        complain(command, error)
        return UNABLE
    except (TransisError, CommandFailed) as error:
        complain(command, error)
        return PROBLEM


async def _in_session(connection: Connection[bytes], work: Work) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with connection as session:
        return await work(session)


# --- send -------------------------------------------------------------------------------------------------------------

SEND_EXAMPLES = """Examples:
  transis send orders "new order"
  transis send orders "close of business" --service safe
  transis send orders --lines first second third [dim]# three messages[/dim]
  seq 1000 | transis send orders [dim]# each line is a message[/dim]
  transis send orders --also audit "in both groups, once"
  transis send billing@n1 "to one process, by its name"
  transis send seats sold --key seat-12 --header source=web
"""

READ_BYTES: Final = 65_536
OPEN_MAX: Final = 64
"""Receipts that may be open at a time; then the oldest is awaited, so that memory stays flat."""


def send(
    group: Annotated[
        str,
        typer.Argument(
            metavar="GROUP", autocompletion=complete_destination, help="The group to send to, or a process as billing@n1."
        ),
    ],
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="The message; without it, lines from stdin.")] = None,
    service: Annotated[str, choice(SERVICES, "Which order and delivery to guarantee.", complete_service)] = "agreed",
    lines: Annotated[
        bool, typer.Option("--lines", help="Send every TEXT as a message of its own. Lines of stdin always are.")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="Send all of stdin as one message, up to 16 MiB.")] = False,
    also: Annotated[
        list[str] | None,
        typer.Option("--also", metavar="GROUP", autocompletion=complete_destination, help="Another one to send to; repeatable."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The key of the messages: carried, not interpreted.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header of the messages; repeatable."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="TIME", help="When it happened, if not now, as 2026-11-19T12:30:00Z."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the messages are delivered at this node.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with the outcome of the messages.")] = False,
    socket: SocketOption = None,
    host: HostOption = None,
    key_file: KeyOption = None,
) -> None:
    """Send messages to a group. You need not be a member.

    Exit code 1 if messages were refused, or if their outcome is unknown because the connection to the daemon was lost.
    """
    attached = Attached(key=_bytes_of(key), headers=_headers_of(header or []), time=_time_of(time))
    sending = SendReport([group, *(also or ())], _service_of(service), wait, attached)
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
    return Service[one_of("--service", name, SERVICES).upper()]


def _bytes_of(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _headers_of(given: list[str]) -> dict[str, bytes] | None:
    headers: dict[str, bytes] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name or name in headers:
            raise wrong("--header", repr(one), "give each name once" if name in headers else "must be NAME=VALUE")
        headers[name] = value.encode("utf-8", "surrogateescape")
    return headers or None


def _time_of(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
        event_us_of(time)
    except ValueError:
        raise wrong("--time", repr(text), "must be like 2026-11-19T12:30:00Z") from None
    except UsageError:
        raise wrong("--time", repr(text), "must have a zone, as in 2026-11-19T12:30:00Z, and be after 1970") from None
    return time


class SendReport:
    """Sends messages, all with the same attached, counts their outcomes and reports them."""

    def __init__(self, groups: list[str], service: Service, wait: bool, attached: Attached) -> None:
        self._groups = groups
        self._service = service
        self._attached = attached
        self._wait = wait
        self._open: deque[Receipt] = deque()
        self._counts: Counter[str] = Counter()
        self._first = ""
        self._why = ""

    async def send_all(self, session: Session[bytes], payloads: AsyncIterator[list[bytes]]) -> None:
        try:
            async for some in payloads:
                receipt = await session.send_many(self._groups, some, self._service, **self._attached_to(len(some)))
                self._first = self._first or str(receipt.id)
                self._open.append(receipt)
                while len(self._open) > OPEN_MAX:
                    await self._settle()
            while self._open and self._wait:
                await self._settle()
        except (SessionLost, NoQuorum) as error:
            self._why = self._why or str(error)

    def _attached_to(self, count: int) -> AttachedToMany:
        key, headers, time = self._attached["key"], self._attached["headers"], self._attached["time"]
        keys = None if key is None else [key] * count
        return AttachedToMany(keys=keys, headers=headers, times=None if time is None else [time] * count)

    async def _settle(self) -> None:
        receipt = self._open[0]
        try:
            await receipt
        except (SendRefused, InDoubt) as error:
            self._why = self._why or str(error)
        self._open.popleft()
        self._counts[receipt.outcome] += receipt.count

    def look_through(self) -> None:
        """Count what is still open as pending."""
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


# --- input ----------------------------------------------------------------------------------------------------------


async def _messages(text: list[str], lines: bool, whole: bool) -> AsyncIterator[list[bytes]]:
    """The messages to send, in portions as they come in."""
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
            raise MessageTooLarge(f"the input has {len(pending)} bytes without a line end: a message has at most {MESSAGE_MAX}")
    if pending or whole:
        yield [pending]


class _Input:
    """stdin, read by a thread, so that Ctrl-C need not wait for a line; reads at most a few pieces ahead."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue(4)

    async def pieces(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()
        while piece := await self._pieces.get():
            if isinstance(piece, OSError):
                raise CommandFailed(f"stdin cannot be read: {piece.strerror}")
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
            except (RuntimeError, asyncio.CancelledError):  # The command has ended already.
                return


# --- recv -------------------------------------------------------------------------------------------------------------

RECV_EXAMPLES = """Examples:
  transis recv orders
  transis recv orders audit --no-views [dim]# two groups, one order[/dim]
  transis recv orders --count 1 --timeout 10 --json | jq .text
  TRANSIS_SOCKET=/tmp/two.sock transis recv orders
"""


def recv(
    groups: Annotated[
        list[str] | None,
        typer.Argument(metavar="GROUP...", autocompletion=complete_group, help="Groups to join; none is needed with --name."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Be NAME@NODE to others, and also show what is sent to that name."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N messages.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="S", help="Stop after S seconds; with --count, exit code 1 if too few came."),
    ] = None,
    views: Annotated[
        bool, typer.Option("--views/--no-views", help="Also show the members of the group, and why they changed.")
    ] = True,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    socket: SocketOption = None,
    host: HostOption = None,
    key_file: KeyOption = None,
) -> None:
    """Join groups and show their messages and views as they come. Ctrl-C leaves.

    Anything but plain text is escaped; with --json it is in `base64` instead of `text`.
    """
    if not groups and name is None:
        raise typer.BadParameter("name a group to join, or give --name")
    options = RecvOptions(tuple(groups or ()), count, timeout, views)
    printer = _printer(several=len(options.groups) > 1, json_lines=json_lines)

    async def work(session: Session[bytes]) -> int:
        if not options.groups:
            return await _listen([session.private], options, printer)
        async with session.join(*options.groups) as group:
            return await _listen([group] if name is None else [group, session.private], options, printer)

    raise typer.Exit(run_client("recv", (socket, host, key_file), work, name))


class RecvOptions(NamedTuple):
    groups: tuple[str, ...]
    count: int | None  # type: ignore[assignment]  # hides tuple.count, which options do not need
    timeout: float | None
    views: bool


async def _listen(streams: Sequence[MessageStream[bytes]], options: RecvOptions, printer: EventPrinter) -> int:
    """Show what comes out of all streams, until there was enough."""
    left = Remaining(options.count)
    tasks = [asyncio.ensure_future(_show(stream, left, options.views, printer)) for stream in streams]
    try:
        async with asyncio.timeout(options.timeout):
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                await task
    except TimeoutError:
        if left.count:
            raise CommandFailed(
                f"{(options.count or 0) - left.count} of {options.count} messages came within {options.timeout:g} s"
            ) from None
    finally:
        for task in tasks:
            task.cancel()
    return 0


class Remaining:
    """How many messages are still to be shown; None for all that come."""

    def __init__(self, count: int | None) -> None:
        self.count = count


async def _show(stream: MessageStream[bytes], left: Remaining, views: bool, printer: EventPrinter) -> None:
    async for event in stream.batches():
        if not isinstance(event, Batch):
            if views:
                printer.view(event)
            continue
        messages = list(event)[: left.count]
        printer.messages(messages)
        if left.count is not None:
            left.count -= len(messages)
            if not left.count:
                return


# --- output ---------------------------------------------------------------------------------------------------------


class EventPrinter:
    """Prints one line per event, flushed at once, because the reader may be another program."""

    def messages(self, messages: list[Message[bytes]]) -> None:
        self._write(map(self._message, messages))

    def view(self, view: View) -> None:
        self._write((self._view(view),))

    def _message(self, message: Message[bytes]) -> str:
        raise NotImplementedError

    def _view(self, view: View) -> str:
        raise NotImplementedError

    def _write(self, lines: Iterator[str] | tuple[str, ...]) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


class PlainPrinter(EventPrinter):
    def __init__(self, several: bool) -> None:
        self._several = several

    def _message(self, message: Message[bytes]) -> str:
        return f"{self._where(message)}{message.sender}: {shown(message.data)}"

    def _where(self, message: Message[bytes]) -> str:
        return f"{' '.join(message.groups)} " if self._several else ""

    def _view(self, view: View) -> str:
        return f"-- {view}"


class ColourPrinter(EventPrinter):
    """For a terminal: senders stand out, views stand back, and a long message does not fill the screen."""

    def __init__(self, console: Console, several: bool) -> None:
        self._console = console
        self._several = several

    def messages(self, messages: list[Message[bytes]]) -> None:
        for message in messages:
            line = Text(f"{' '.join(message.groups)} " if self._several else "", style="dim")
            line.append(f"{message.sender}: ", style="bold cyan").append(shown(message.data, SHOWN_MAX), style="not dim")
            self._console.print(line, soft_wrap=True)

    def view(self, view: View) -> None:
        self._console.print(Text(f"-- {view}", style="dim" if view.id.configuration.is_regular else "yellow"), soft_wrap=True)


class JsonPrinter(EventPrinter):
    def _message(self, message: Message[bytes]) -> str:
        value: dict[str, Any] = {"type": "message", "groups": list(message.groups), "sender": str(message.sender)}
        value |= {"counter": message.counter, "service": message.service.name.lower(), **as_json(message.data)}
        value |= {"time": message.time.isoformat(), "key": None if message.key is None else as_json(message.key)}
        value["headers"] = {name: as_json(one) for name, one in message.headers.items()}
        return json.dumps(value | {"view": str(message.view), "place": list(message.place)}, ensure_ascii=False)

    def _view(self, view: View) -> str:
        value: dict[str, Any] = {"type": "view", "group": view.name, "id": str(view.id), "kind": view.kind.name.lower()}
        for name in ("members", "joined", "left"):
            value[name] = [str(process) for process in getattr(view, name)]
        if view.names:
            value["names"] = {str(one): view.label(one) for one, name in zip(view.members, view.names, strict=True) if name}
        merged = [{"view": str(origin.view), "members": [str(one) for one in origin.members]} for origin in view.merged_from]
        return json.dumps(value | {"merged_from": merged, "cause": str(view.cause), "primary": view.primary}, ensure_ascii=False)


def _printer(*, several: bool, json_lines: bool) -> EventPrinter:
    if json_lines:
        return JsonPrinter()
    console = stdout()
    return ColourPrinter(console, several) if console.is_terminal else PlainPrinter(several)
