"""What `transis send` and `transis recv` have in common: the session, how they are ended, and what their exit codes say.

0 when all went well, also when somebody ended it with Ctrl-C; 1 when something that was asked for did not happen; 2 when there
was no session to begin with.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from transis.client.connection import WINDOW, Connection, connect
from transis.client.session import Session
from transis.console.printing import complain
from transis.net.state import read_key
from transis.types.errors import ConfigError, ConnectError, TransisError, UsageError

PROBLEM: Final = 1
UNABLE: Final = 2

Work = Callable[[Session[bytes]], Coroutine[Any, Any, int]]

SocketOption = Annotated[
    Path | None,
    typer.Option("--socket", metavar="PATH", help="Socket of the daemon; otherwise TRANSIS_SOCKET, or the usual place."),
]
HostOption = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST:PORT", help="A daemon on another host, which listens for TCP; needs --key-file."),
]
KeyOption = Annotated[Path | None, typer.Option("--key-file", metavar="FILE", help="The cluster's key, for --host.")]


class Failed(Exception):
    """One sentence, and exit code 1."""


def connection_to(
    label: str, socket: Path | None, host: str | None, key_file: Path | None, window: int = WINDOW
) -> Connection[bytes]:
    if host is not None and key_file is None:
        raise UsageError("--host needs --key-file: a session over a network is sealed with the cluster's key")
    key = read_key(key_file, "--key-file") if key_file is not None else None
    return connect(None if socket is None else str(socket), host=host, key=key, label=label, window=window)


def run_client(command: str, where: tuple[Path | None, str | None, Path | None], work: Work) -> int:
    """Do the work in a session; the exit code, with the sentence that goes with it on stderr."""
    try:
        return asyncio.run(_in_session(connection_to(f"transis {command}", *where), work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0
    except BrokenPipeError:  # Nobody reads any more, as behind `| head`: that is how it was meant to end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ConfigError, ConnectError, UsageError) as error:
        complain(command, error)
        return UNABLE
    except (TransisError, Failed) as error:
        complain(command, error)
        return PROBLEM


async def _in_session(connection: Connection[bytes], work: Work) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with connection as session:
        return await work(session)
