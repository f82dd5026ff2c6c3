"""Where a node keeps its state, its sockets and its user's key: one rule for clients, daemons and their administrators.

TRANSIS_SOCKET names the one place where a node listens for local clients. Without it a daemon of this user is preferred to the
machine's: first comes `$XDG_RUNTIME_DIR/transis/transis.sock`, then `/run/transis/transis.sock`. The environment and the look at
the disk are arguments: this room does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

# --- places -----------------------------------------------------------------------------------------------------------

SOCKET_VARIABLE: Final = "TRANSIS_SOCKET"
RUNTIME_VARIABLE: Final = "XDG_RUNTIME_DIR"
MACHINE_SOCKET: Final = "/run/transis/transis.sock"
SOCKET_IN_RUNTIME: Final = "transis/transis.sock"


def socket_candidates(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The places to look at, in order. An empty variable counts as none."""
    given = environment.get(SOCKET_VARIABLE, "")
    if given:
        return (given,)
    runtime = environment.get(RUNTIME_VARIABLE, "")
    return (f"{runtime.rstrip('/')}/{SOCKET_IN_RUNTIME}", MACHINE_SOCKET) if runtime else (MACHINE_SOCKET,)


def socket_to_listen_at(environment: Mapping[str, str]) -> str:
    """Where a daemon listens by default: where its clients look first."""
    return socket_candidates(environment)[0]


def find_socket(environment: Mapping[str, str], exists: Callable[[str], bool]) -> str | None:
    """Where a client finds a node by default: the first candidate that exists."""
    return next(filter(exists, socket_candidates(environment)), None)


# --- paths ------------------------------------------------------------------------------------------------------------

STATE_VARIABLE: Final = "XDG_STATE_HOME"
SYSTEM_STATE: Final = Path("/var/lib")
USER_KEY: Final = "@loopback.key"
"""No directory of a node or of a cluster beside it has this name: in theirs, an `@` is quoted."""

ADMIN_VARIABLE: Final = "TRANSIS_ADMIN"
"""The environment variable that names the admin socket, for administrators of several daemons on one host."""


def default_state(name: str, environment: Mapping[str, str], *, root: bool) -> Path:
    """The service manager's directory; else a directory per node, by its name, below the system's for root or the user's."""
    managed = _managed(environment)
    return managed or (SYSTEM_STATE if root else _user_state(environment)) / "transis" / quote(name, safe="")


def user_key_file(environment: Mapping[str, str], *, root: bool) -> Path:
    """Where the nodes of this user on loopback find their key: one place, wherever each of them has its state.

    It is in the parent of the default state directories. A service may be able to write nowhere but in the service manager's.
    """
    is_system = root and not environment.get(STATE_VARIABLE)
    return (_managed(environment) or (SYSTEM_STATE if is_system else _user_state(environment)) / "transis") / USER_KEY


def _managed(environment: Mapping[str, str]) -> Path | None:
    given = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(given) if given else None


def _user_state(environment: Mapping[str, str]) -> Path:
    return Path(environment.get(STATE_VARIABLE) or Path(environment.get("HOME") or "/") / ".local" / "state")


def admin_beside(clients: Path) -> Path:
    """The admin socket beside `transis.sock` is `transis-admin.sock`."""
    return clients.with_name(f"{clients.stem}-admin{clients.suffix}")


CLUSTER_SOCKET: Final = "cluster.sock"
"""Where the owner of a cluster of `transis up` listens, in the directory of the cluster."""


def cluster_beside(clients: Path) -> Path:
    """`transis.sock` of a cluster of `transis up` has the socket of the cluster's owner in `transis-cluster.sock`."""
    return clients.with_name(f"{clients.stem}-cluster{clients.suffix}")
