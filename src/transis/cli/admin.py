"""`transis status` and `leave`: asking a daemon over its admin socket; also what tab completion offers.

1. A daemon that is named is asked; otherwise the one that clients would find, by the same rule (types/paths.py). If that daemon
   left its socket behind and does not answer, no other is asked instead, or `transis leave` might stop the wrong daemon.
2. Tab completion never waits: if the daemon does not answer at once, nothing is offered.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transis.cli.options import PROBLEM, counted, plain_table, stdout, unable
from transis.types.errors import ConnectError, TransisError
from transis.types.ids import Service
from transis.types.paths import ADMIN_VARIABLE, admin_beside, find_socket, socket_candidates

# --- asking -----------------------------------------------------------------------------------------------------------

ANSWER_PATIENCE_S: Final = 10.0
"""A healthy daemon answers at once; after this long it is stuck or stopped."""
ANSWER_MAX: Final = 64 * 1024 * 1024

AdminOption = Annotated[
    Path | None, typer.Option("--admin", metavar="PATH", help="Admin socket of the daemon, if several run on this host.")
]
SocketOption = Annotated[
    Path | None, typer.Option("--socket", metavar="PATH", help="Client socket of the daemon; its admin socket is beside it.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]


class LineConnection:
    """One JSON object a line out, one a line in, over a Unix socket."""

    def __init__(self, connected: socket.socket, whom: str) -> None:
        self._socket = connected
        self._whom = whom
        self._pending = b""

    def ask(self, what: str, **more: object) -> dict[str, Any]:
        """The answer. Raises ConnectError with the reason if the other side declines."""
        try:
            self._socket.sendall(msgspec.json.encode({"do": what, **more}) + b"\n")
            answer: dict[str, Any] = msgspec.json.decode(self._line())
        except TimeoutError:
            raise ConnectError(f"{self._whom} did not answer within {ANSWER_PATIENCE_S:.0f} s: is it stopped?") from None
        except (OSError, msgspec.DecodeError) as error:
            raise ConnectError(f"{self._whom} ended before it answered ({error})") from error
        if not answer.get("ok"):
            raise ConnectError(f"{self._whom} declines: {answer.get('why', 'no reason given')}")
        return answer

    def wait_until_gone(self, patience_s: float) -> bool:
        """Wait for the other side to close the connection, as it does when it ends; False if it did not in time."""
        self._socket.settimeout(patience_s)
        try:
            return self._socket.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _line(self) -> bytes:
        pieces = [self._pending]
        size = 0
        while b"\n" not in pieces[-1]:
            piece = self._socket.recv(65_536)
            size += len(piece)
            if not piece or size > ANSWER_MAX:
                raise ConnectionError("the answer is incomplete")
            pieces.append(piece)
        line, _, self._pending = b"".join(pieces).partition(b"\n")
        return line


class AdminConnection(LineConnection):
    """A connection to the admin socket of a daemon."""

    def __init__(self, path: Path | None, clients: Path | None, environment: Mapping[str, str] = os.environ) -> None:
        named = path is not None or clients is not None
        self.path, connected = _connect(places(path, clients, environment), named=named)
        super().__init__(connected, f"the daemon at {self.path}")


def places(path: Path | None, clients: Path | None, environment: Mapping[str, str]) -> list[Path]:
    """The admin sockets to try, in order."""
    if path is not None:
        return [path]
    if clients is not None:
        return [admin_beside(clients)]
    if given := environment.get(ADMIN_VARIABLE):
        return [Path(given)]
    found = find_socket(environment, os.path.exists)
    return [admin_beside(Path(one)) for one in ([found] if found is not None else socket_candidates(environment))]


def _connect(tried: list[Path], *, named: bool) -> tuple[Path, socket.socket]:
    forbidden = False
    for path in tried:
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asking.settimeout(ANSWER_PATIENCE_S)
        try:
            asking.connect(str(path))
        except OSError as error:
            asking.close()
            forbidden = forbidden or isinstance(error, PermissionError)
            continue
        return path, asking
    remedy = "start one with `transis up` or `transis daemon`" + ("" if named else ", or name it with --admin")
    if forbidden:
        remedy = "run this as the user of the daemon, or as root"
    raise ConnectError(f"no daemon answers at {', '.join(map(str, tried))}: {remedy}")


# --- status -----------------------------------------------------------------------------------------------------------

STATUS_EXAMPLES = """Examples:
  transis status
  transis status --json | jq .view.members
  transis status --admin /run/transis/second-admin.sock
"""

Values = Mapping[str, Any]


def status(admin: AdminOption = None, socket: SocketOption = None, as_json: JsonOption = False) -> None:
    """Show a daemon's members, state, view, clients, rates and warnings."""
    try:
        with AdminConnection(admin, socket) as connection:
            found = connection.ask("status")
            members = connection.ask("members")["members"]
            sessions = connection.ask("sessions", limit=20)
            figures = connection.ask("statistics")["statistics"]
    except TransisError as error:
        raise unable("status", error) from None
    if as_json:
        del found["ok"]
        print(json.dumps(found | {"member_list": members, "session_list": sessions["sessions"], "statistics": figures}))
        return
    _show(stdout(), found, members, sessions, figures)


def _show(console: Console, found: Values, members: Sequence[Values], sessions: Values, figures: Values) -> None:
    console.print(_head(found, figures))
    console.print()
    console.print(_member_table(members))
    if sessions["count"]:
        console.print()
        console.print(_session_table(sessions, _node(found)))
    for warning in found["warnings"]:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)


def _head(found: Values, figures: Values) -> Table:
    table = Table.grid(padding=(0, 2))
    for what, words in _facts(found, figures):
        table.add_row(Text(what, style="dim"), words)
    return table


def _node(found: Values) -> str:
    return f"{found['node']}/{found['incarnation']}"


def _not_primary(view: Values) -> Text:
    held = "; nothing is sent or delivered" if view["held"] else ""
    return Text(f"no: {view['lacks']}{held}", style="bold yellow")


def _facts(found: Values, figures: Values) -> list[tuple[str, Text]]:
    state_style = "green" if found["state"] == "Operational" else "bold yellow"
    who = f"{_node(found)} of cluster {found['cluster']}; up {duration(found['up_s'])}"
    engine = found.get("engine", "totem")
    facts = [("node", Text(who)), ("engine", Text(engine)), ("state", Text(found["state"], style=state_style))]
    view, rates = found["view"], found["rates"]
    if view is None:
        facts.append(("view", Text("none yet", style="yellow")))
    else:
        facts.append(("view", Text(f"{view['id']} for {duration(view['since_s'])}: {view['cause']}")))
        if view["primary"] is not None:
            facts.append(("primary", Text("yes") if view["primary"] else _not_primary(view)))
    seal = "sealed" if found["sealed"] else "in plain text"
    how = f"{found['transport']} at {found['address']}, {seal}, GSO {figures.get('gso', '?')}"
    facts.append(("network", Text(how)))
    facts.append(("clients", Text(f"{found['sessions']:,} at {found['socket']}; {counted(found['groups'], 'group')}")))
    if index := synchrony(figures):
        facts.append(("synchrony", Text(index)))
    facts.append(("rates", Text(_rates(rates, engine))))
    facts.append(("trouble", Text(_trouble(figures))))
    return facts


def _rates(rates: Values, engine: str) -> str:
    shown = {"delivered_per_s": "messages", "received_datagrams_per_s": "datagrams in", "sent_datagrams_per_s": "datagrams out"}
    shown |= {"bursts_per_s": "bursts"} if engine == "lansis" else {"rotations_per_s": "rotations"}
    return ", ".join(f"{rates.get(rate, 0):,.0f} {what}" for rate, what in shown.items()) + " a second"


def synchrony(figures: Values) -> str:
    """How many members were known to have a message when it was delivered, by service: the mean and the minimum."""
    parts = []
    for service in ("basic", "causal", "agreed", "safe"):
        mean, least = figures.get(f"synchrony_{service}_milli"), figures.get(f"synchrony_{service}_min")
        if mean is not None:
            parts.append(f"{service} {mean / 1000:.3g} (least {least})")
    return "index " + ", ".join(parts) if parts else ""


def _trouble(figures: Values) -> str:
    lost = sum(value for name, value in figures.items() if name.startswith("tokens_lost_"))
    given_up = sum(value for name, value in figures.items() if name.startswith("breaks_"))
    first = f"{given_up:,} given up" if "breaks_silence" in figures else counted(lost, "token lost", "tokens lost")
    others = (f"{figures.get(what, 0):,} {what}" for what in ("retransmitted", "requested", "rejected"))
    return ", ".join((first, *others, counted(figures.get("pauses", 0), "pause")))


def _member_table(members: Sequence[Values]) -> Table:
    table = plain_table("member", "address", "info")
    for column in table.columns[1:]:
        column.justify = "left"
    for member in members:
        name = Text(f"{member['name']}/{member['incarnation']}", style="bold")
        table.add_row(name + Text(" (this one)" if member["me"] else "", style="dim"), member["address"], member["info"])
    return table


def _session_table(sessions: Values, node: str) -> Table:
    table = plain_table("client", "label", "groups", "sent", "received", "behind", "up")
    table.columns[1].justify = table.columns[2].justify = "left"
    for one in sessions["sessions"]:
        names = " ".join(one["groups"][:5]) + (f" and {len(one['groups']) - 5} more" if len(one["groups"]) > 5 else "")
        counts = (f"{one['sent']:,}", f"{one['received']:,}", f"{one['queue_bytes']:,} B")
        table.add_row(f"{node}#{one['process']}", one["label"], names, *counts, duration(one["up_s"]))
    if sessions["count"] > len(sessions["sessions"]):
        table.caption = f"and {sessions['count'] - len(sessions['sessions']):,} more clients"
    return table


def duration(seconds: int) -> str:
    """`42 s`, `3 min`, `5 h 12 min`, `2 d 4 h`: at most two units."""
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3_600, seconds // 86_400
    if minutes < 60:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{days} d {hours % 24} h"


# --- leave ------------------------------------------------------------------------------------------------------------

LEAVE_EXAMPLES = """Examples:
  transis leave
  transis leave --admin /run/transis/second-admin.sock
"""

LEAVE_PATIENCE_S: Final = 60.0
"""The daemon itself limits a leave to well below this."""


def leave(admin: AdminOption = None, socket: SocketOption = None) -> None:
    """Leave the cluster: the daemon sends what it has accepted, tells the other nodes, and ends."""
    try:
        with AdminConnection(admin, socket) as connection:
            name = connection.ask("status")["node"]
            connection.ask("leave")
            is_gone = connection.wait_until_gone(LEAVE_PATIENCE_S)
    except TransisError as error:
        raise unable("leave", error) from None
    if not is_gone:
        print(f"{name} is still running {LEAVE_PATIENCE_S:.0f} s after it was asked to leave: look at its log")
        raise typer.Exit(PROBLEM)
    print(f"{name} has left")


# --- completing -------------------------------------------------------------------------------------------------------

COMPLETION_PATIENCE_S: Final = 0.5
GROUPS_MAX: Final = 200


def complete_service(incomplete: str) -> list[tuple[str, str]]:
    meanings = {
        Service.BASIC: "on receipt, in no order",
        Service.CAUSAL: "no answer before its question",
        Service.AGREED: "in one order, everywhere",
        Service.SAFE: "when every member has it",
    }
    found = [(service.name.lower(), meaning) for service, meaning in meanings.items()]
    return [(name, meaning) for name, meaning in found if name.startswith(incomplete)]


def complete_group(incomplete: str) -> list[tuple[str, str]]:
    return _complete(incomplete, with_names=False)


def complete_destination(incomplete: str) -> list[tuple[str, str]]:
    return _complete(incomplete, with_names=True)


def _complete(incomplete: str, *, with_names: bool) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    thread = threading.Thread(target=_ask, args=(found, with_names), daemon=True)
    thread.start()
    thread.join(COMPLETION_PATIENCE_S)
    return [(name, members) for name, members in list(found) if name.startswith(incomplete)]


def _ask(found: list[tuple[str, str]], with_names: bool) -> None:
    try:
        with AdminConnection(None, None) as connection:
            answer = connection.ask("groups", limit=GROUPS_MAX)
            groups, names = answer["groups"], answer.get("names", []) if with_names else []
    except TransisError:
        return
    found += [(one["name"], f"process {one['process']}") for one in names]
    found += [(group["name"], f"{group['members']} member{'s' if group['members'] != 1 else ''}") for group in groups]
