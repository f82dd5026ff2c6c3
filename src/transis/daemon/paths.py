"""Where a daemon keeps its state and its sockets when the settings do not say, and where its administrator looks for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

ADMIN_VARIABLE: Final = "TRANSIS_ADMIN"
"""The environment's word for the admin socket, for who administers several daemons of one host."""


def default_state(name: str, environment: Mapping[str, str], *, root: bool) -> Path:
    """The service manager's word, else the system's directory for root, else the user's. A directory per node, by its name."""
    if given := environment.get("STATE_DIRECTORY"):
        return Path(given.partition(":")[0])
    home = Path(environment.get("HOME") or "/")
    user = Path(environment.get("XDG_STATE_HOME") or home / ".local" / "state")
    return (Path("/var/lib") if root else user) / "transis" / quote(name, safe="")


def admin_beside(clients: Path) -> Path:
    """`transis.sock` has its admin socket in `transis-admin.sock`."""
    return clients.with_name(f"{clients.stem}-admin{clients.suffix}")
