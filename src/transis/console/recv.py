"""`transis recv`: join groups and show what comes, messages and views in their one order."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from transis.client.events import Batch, Message, View
from transis.client.group import Group
from transis.client.session import Session
from transis.console.completing import complete_group
from transis.console.payloads import SHOWN_MAX, as_json, shown
from transis.console.printing import stdout
from transis.console.talking import Failed, HostOption, KeyOption, SocketOption, run_client
from transis.types.ids import ProcessId

RECV_EXAMPLES = """Examples:

transis recv orders

transis recv orders audit --no-views [dim]# two groups, one order[/dim]

transis recv orders --count 1 --timeout 10 --json | jq .text

TRANSIS_SOCKET=/tmp/two.sock transis recv orders
"""

MEMBERS_SHOWN: Final = 12


def recv(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", autocompletion=complete_group, help="Groups to join.")],
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after so many messages.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="S", help="Stop after so many seconds; with --count, exit code 1 if too few came."),
    ] = None,
    views: Annotated[
        bool, typer.Option("--views/--no-views", help="Also show who is in the group, and why that changed.")
    ] = True,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    socket: SocketOption = None,
    host: HostOption = None,
    key_file: KeyOption = None,
) -> None:
    """Join groups and show their messages and views as they come. Ctrl-C leaves.

    What is no plain text is shown with escapes; with --json it is `base64` in place of `text`.
    """
    wish = Wish(tuple(groups), count, timeout, views)
    console = stdout()
    show: Show = (
        JsonLines() if json_lines else Coloured(console, len(groups) > 1) if console.is_terminal else Plain(len(groups) > 1)
    )

    async def work(session: Session[bytes]) -> int:
        async with session.join(*wish.groups) as group:
            return await _listen(group, wish, show)

    raise typer.Exit(run_client("recv", (socket, host, key_file), work))


class Wish(NamedTuple):
    groups: tuple[str, ...]
    count: int | None  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a wish
    timeout: float | None
    views: bool


async def _listen(group: Group[bytes], wish: Wish, show: Show) -> int:
    left = wish.count
    try:
        async with asyncio.timeout(wish.timeout):
            async for event in group.batches():
                if not isinstance(event, Batch):
                    if wish.views:
                        show.view(event)
                    continue
                messages = list(event)[:left]
                show.messages(messages)
                if left is not None:
                    left -= len(messages)
                    if not left:
                        return 0
    except TimeoutError:
        if left:
            raise Failed(f"{(wish.count or 0) - left} of {wish.count} messages came within {wish.timeout:g} s") from None
    return 0


# --- showing --------------------------------------------------------------------------------------------------------


class Show:
    """One line for each thing, written at once: whoever reads may be another program."""

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


class Plain(Show):
    def __init__(self, several: bool) -> None:
        self._several = several

    def _message(self, message: Message[bytes]) -> str:
        return f"{self._where(message)}{message.sender}: {shown(message.data)}"

    def _where(self, message: Message[bytes]) -> str:
        return f"{' '.join(message.groups)} " if self._several else ""

    def _view(self, view: View) -> str:
        return f"-- {view_words(view)}"


class Coloured(Show):
    """For eyes: senders stand out, views stand back, and a long message does not fill the screen."""

    def __init__(self, console: Console, several: bool) -> None:
        self._console = console
        self._several = several

    def messages(self, messages: list[Message[bytes]]) -> None:
        for message in messages:
            line = Text(f"{' '.join(message.groups)} " if self._several else "", style="dim")
            line.append(f"{message.sender}: ", style="bold cyan").append(shown(message.data, SHOWN_MAX), style="not dim")
            self._console.print(line, soft_wrap=True)

    def view(self, view: View) -> None:
        self._console.print(
            Text(f"-- {view_words(view)}", style="dim" if view.id.configuration.is_regular else "yellow"), soft_wrap=True
        )


class JsonLines(Show):
    def _message(self, message: Message[bytes]) -> str:
        value: dict[str, Any] = {"type": "message", "groups": list(message.groups), "sender": str(message.sender)}
        value |= {"counter": message.counter, "service": message.service.name.lower(), **as_json(message.data)}
        return json.dumps(value | {"view": str(message.view), "place": list(message.place)}, ensure_ascii=False)

    def _view(self, view: View) -> str:
        value: dict[str, Any] = {"type": "view", "group": view.name, "id": str(view.id), "kind": view.kind.name.lower()}
        for name in ("members", "joined", "left"):
            value[name] = [str(process) for process in getattr(view, name)]
        merged = [{"view": str(origin.view), "members": [str(one) for one in origin.members]} for origin in view.merged_from]
        return json.dumps(value | {"merged_from": merged, "cause": str(view.cause), "primary": view.primary}, ensure_ascii=False)


def view_words(view: View) -> str:
    """A view in a line: who is in the group now, who came and went, and why."""
    if not view.id.configuration.is_regular:
        return f"{view.name}: transitional, what comes now is certain only among {_names(view.members)} ({view.cause})"
    count = len(view.members)
    words = f"{view.name}: {count} member{'s' if count != 1 else ''}: {_names(view.members)}"
    for what, processes in (("joined", view.joined), ("left", view.left)):
        words += f"; {what}: {_names(processes)}" if processes else ""
    primary = {True: "; primary", False: "; not primary", None: ""}[view.primary]
    return f"{words}{primary} ({view.cause})"


def _names(processes: tuple[ProcessId, ...]) -> str:
    names = " ".join(map(str, processes[:MEMBERS_SHOWN]))
    return names if len(processes) <= MEMBERS_SHOWN else f"{names} and {len(processes) - MEMBERS_SHOWN} more"
