"""Asking a daemon over its admin socket, and saying in one sentence that there is none.

A daemon that is named is asked; otherwise the one that clients find, by the same rule (types/paths.py). If it left its socket
behind and does not answer, no other is asked in its place: somebody would stop a daemon that was not meant.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console

from transis.types.errors import ConnectError
from transis.types.paths import ADMIN_VARIABLE, admin_beside, find_socket, socket_candidates

UNABLE: Final = 2
INTERRUPTED: Final = 130
"""Exit codes."""
ANSWER_PATIENCE_S: Final = 10.0
"""A daemon answers at once; one that does not for so long is stuck or stopped."""
ANSWER_MAX: Final = 64 * 1024 * 1024

AdminOption = Annotated[
    Path | None, typer.Option("--admin", metavar="PATH", help="Admin socket of the daemon, when there are several on this host.")
]
SocketOption = Annotated[
    Path | None, typer.Option("--socket", metavar="PATH", help="Clients' socket of the daemon; its admin socket lies beside it.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")]


class AdminConnection:
    """One connection to a daemon; one line out, one line in."""

    def __init__(self, path: Path | None, clients: Path | None, environment: Mapping[str, str] = os.environ) -> None:
        named = path is not None or clients is not None
        self.path, self._socket = _connect(places(path, clients, environment), named=named)
        self._pending = b""

    def ask(self, what: str, **more: object) -> dict[str, Any]:
        """The daemon's answer. Raises ConnectError with its reason when it declines."""
        try:
            self._socket.sendall(msgspec.json.encode({"do": what, **more}) + b"\n")
            answer: dict[str, Any] = msgspec.json.decode(self._line())
        except TimeoutError:
            raise ConnectError(
                f"the daemon at {self.path} did not answer within {ANSWER_PATIENCE_S:.0f} s: is it stopped?"
            ) from None
        except (OSError, msgspec.DecodeError) as error:
            raise ConnectError(f"the daemon at {self.path} ended while it was asked ({error})") from error
        if not answer.get("ok"):
            raise ConnectError(f"the daemon at {self.path} declines: {answer.get('why', 'no reason given')}")
        return answer

    def wait_until_gone(self, patience_s: float) -> bool:
        """Whether the daemon closed the connection, as it does when it ends."""
        self._socket.settimeout(patience_s)
        try:
            return self._socket.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def __enter__(self) -> AdminConnection:
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
                raise ConnectionError("no whole answer")
            pieces.append(piece)
        line, _, self._pending = b"".join(pieces).partition(b"\n")
        return line


def places(path: Path | None, clients: Path | None, environment: Mapping[str, str]) -> list[Path]:
    """Where the daemon may be, in the order in which to look."""
    if path is not None:
        return [path]
    if clients is not None:
        return [admin_beside(clients)]
    if told := environment.get(ADMIN_VARIABLE):
        return [Path(told)]
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


def unable(command: str, error: Exception) -> typer.Exit:
    """The one sentence on stderr, and how the command ends."""
    Console(stderr=True, soft_wrap=True).print(f"transis {command}: {error}", style="red", markup=False, highlight=False)
    return typer.Exit(UNABLE)
