"""`transis leave`: tell a daemon to leave its cluster gracefully and end."""

from __future__ import annotations

from typing import Final

import typer

from transis.console.asking import AdminConnection, AdminOption, SocketOption, unable
from transis.types.errors import TransisError

LEAVE_EXAMPLES = """Examples:

transis leave

transis leave --admin /run/transis/second-admin.sock
"""

LEAVE_PATIENCE_S: Final = 60.0
"""A leave is bounded by the daemon itself, well below this."""
STILL_THERE: Final = 1


def leave(admin: AdminOption = None, socket: SocketOption = None) -> None:
    """Leave the cluster: what was taken is sent first, the others are told, and the daemon ends."""
    try:
        with AdminConnection(admin, socket) as connection:
            name = connection.ask("status")["node"]
            connection.ask("leave")
            is_gone = connection.wait_until_gone(LEAVE_PATIENCE_S)
    except TransisError as error:
        raise unable("leave", error) from None
    if not is_gone:
        print(f"{name} was told to leave and is still there after {LEAVE_PATIENCE_S:.0f} s: look at its log")
        raise typer.Exit(STILL_THERE)
    print(f"{name} has left")
