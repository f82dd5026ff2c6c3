"""The owner's side of a cluster that is broken by hand: what `transis kill` and its kin ask of `transis up --faults`.

1. It listens in the cluster's directory and, for the cluster that clients find by default, beside the clients' socket. A line of
   JSON each way, one request a connection; whoever may open the socket may break the cluster.
2. All nodes of a request are checked before anything is done to any of them.
3. A cut parts two sets of nodes and is made at both ends. Cuts add up until `heal`. A node that is restarted is a new process
   at a new address, so its links are whole again.
"""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Annotated, Any, Final, get_args

import msgspec

from transis.cli.admin import AdminConnection
from transis.cli.local_cluster import STOP_S, LocalCluster, LocalDaemon
from transis.net.listeners import bind_unix
from transis.types.errors import ConnectError, TransisError, UsageError
from transis.types.paths import CLUSTER_SOCKET, cluster_beside

# --- requests ---------------------------------------------------------------------------------------------------------

OWNER_ONLY: Final = 0o600
LINE_MAX: Final = 65_536
LINE_S: Final = 1.0
"""A request is one line, written at once; `transis up` does not wait longer for it."""

LOOK_S: Final = 0.05
"""How often a daemon that starts is looked at."""

Names = Annotated[list[str], msgspec.Meta(max_length=1_024)]


def _asked_as(name: str) -> str:
    return name.removesuffix("Request").lower()


class FaultRequest(msgspec.Struct, frozen=True, tag_field="do", tag=_asked_as, forbid_unknown_fields=True):
    """A request. Its name on the socket is that of the class, in lower case and without `Request`."""


class NodesRequest(FaultRequest, frozen=True):
    pass


class KillRequest(FaultRequest, frozen=True):
    nodes: Names


class PauseRequest(FaultRequest, frozen=True):
    nodes: Names


class ResumeRequest(FaultRequest, frozen=True):
    nodes: Names


class RestartRequest(FaultRequest, frozen=True):
    nodes: Names


class CutRequest(FaultRequest, frozen=True):
    """`others` empty: from all nodes that are not in `nodes`."""

    nodes: Names
    others: Names = []


class HealRequest(FaultRequest, frozen=True):
    pass


AnyRequest = NodesRequest | KillRequest | PauseRequest | ResumeRequest | RestartRequest | CutRequest | HealRequest
_DECODER: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(AnyRequest)
_KNOWN: Final = ", ".join(_asked_as(one.__name__) for one in get_args(AnyRequest))

# --- faults -----------------------------------------------------------------------------------------------------------

Link = frozenset[str]
"""The names of two nodes."""


class ClusterFaults:
    """Carries out requests on the daemons of a cluster, and says in a sentence what was done."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._names = [daemon.name for daemon in cluster.daemons]
        self._cut: set[Link] = set()

    def states(self) -> dict[str, str]:
        return {daemon.name: daemon.state for daemon in self._cluster.daemons}

    def links(self) -> list[list[str]]:
        """The links that are cut."""
        return sorted(sorted(link) for link in self._cut)

    def do(self, request: AnyRequest) -> str:
        match request:
            case KillRequest(nodes):
                return self._to_each(nodes, ("running", "paused"), self._kill, "killed")
            case PauseRequest(nodes):
                return self._to_each(nodes, ("running",), LocalDaemon.pause, "paused")
            case ResumeRequest(nodes):
                return self._to_each(nodes, ("paused",), LocalDaemon.resume, "running again")
            case RestartRequest(nodes):
                return self._restart(nodes)
            case CutRequest(nodes, others):
                return self._part(nodes, others)
            case HealRequest():
                return self._heal()
        raise AssertionError(f"{request} is no fault")

    # --- processes ----------------------------------------------------------------------------------------------------

    def _to_each(self, names: Sequence[str], states: Sequence[str], act: Callable[[LocalDaemon], object], done: str) -> str:
        chosen = self._chosen(names, states)
        for daemon in chosen:
            act(daemon)
        return f"{_list(daemon.name for daemon in chosen)} {'is' if len(chosen) == 1 else 'are'} {done}"

    @staticmethod
    def _kill(daemon: LocalDaemon) -> None:
        daemon.end(signal.SIGKILL)
        daemon.wait(STOP_S)

    def _restart(self, names: Sequence[str]) -> str:
        chosen = self._chosen(names, ())
        running = [daemon for daemon in chosen if daemon.runs]
        for daemon in running:
            daemon.end(signal.SIGTERM)
        for daemon in running:
            if not daemon.wait(STOP_S):
                self._kill(daemon)
        again = {daemon.name for daemon in chosen}
        healed = {link for link in self._cut if link & again}
        self._cut -= healed
        self._carry_out_cuts({name for link in healed for name in link} - again)
        return self._to_each(names, (), self._start, "started again")

    @staticmethod
    def _start(daemon: LocalDaemon) -> None:
        """Returns once it answers, or has ended: whoever restarts a node may ask for the next fault at once."""
        daemon.start()
        latest = monotonic() + STOP_S
        while monotonic() < latest and not daemon.wait(LOOK_S):
            try:
                AdminConnection(daemon.admin, None).__exit__()
            except ConnectError:
                continue
            return

    def _chosen(self, names: Sequence[str], states: Sequence[str]) -> list[LocalDaemon]:
        """The daemons of these names, each in one of these states; no states: in any."""
        if not names:
            raise UsageError(f"name at least one node: there are {_list(self._names)}")
        if unknown := [name for name in names if name not in self._names]:
            raise UsageError(f"there is no node {unknown[0]!r}: there are {_list(self._names)}")
        if wrong := [name for name in names if states and self._cluster[name].state not in states]:
            raise UsageError(f"{wrong[0]} is {self._cluster[wrong[0]].state}: for that it must be {' or '.join(states)}")
        return [self._cluster[name] for name in dict.fromkeys(names)]

    # --- links --------------------------------------------------------------------------------------------------------

    def _part(self, names: Sequence[str], others: Sequence[str]) -> str:
        left = {daemon.name for daemon in self._chosen(names, ("running",))}
        right = {daemon.name for daemon in self._chosen(others, ("running",))} if others else self._running() - left
        if both := left & right:
            raise UsageError(f"{_list(sorted(both))} cannot be cut off from itself")
        if not right:
            raise UsageError(f"there is nobody to cut {_list(sorted(left))} off from")
        before = set(self._cut)
        self._cut |= {frozenset((one, other)) for one in left for other in right}
        try:
            self._carry_out_cuts(left | right)
        except TransisError:
            self._cut = before
            raise
        return f"{_list(sorted(left))} {'is' if len(left) == 1 else 'are'} cut off from {_list(sorted(right))}"

    def _heal(self) -> str:
        ends = {name for link in self._cut for name in link}
        self._cut.clear()
        self._carry_out_cuts(ends)
        return "every link is whole"

    def _running(self) -> set[str]:
        return {daemon.name for daemon in self._cluster.daemons if daemon.state == "running"}

    def _carry_out_cuts(self, names: set[str]) -> None:
        """Tell each running daemon all the peers that it is cut off from."""
        connections = {name: AdminConnection(self._cluster[name].admin, None) for name in sorted(self._running())}
        try:
            addresses = {name: connection.ask("status")["address"] for name, connection in connections.items()}
            for name in sorted(names & connections.keys()):
                peers = sorted(addresses[other] for other in addresses if frozenset((name, other)) in self._cut)
                connections[name].ask("cut", peers=peers)
        finally:
            for connection in connections.values():
                connection.__exit__()


def _list(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


# --- control ----------------------------------------------------------------------------------------------------------


class ClusterControl:
    """Listens in the process of `transis up`, and answers when that process looks here."""

    def __init__(self, cluster: LocalCluster, *, allowed: bool, takes_default: bool) -> None:
        """`takes_default`: clients find the first daemon by default, so commands find this cluster."""
        self._faults = ClusterFaults(cluster)
        self._allowed = allowed
        self._path = cluster.directory / CLUSTER_SOCKET
        self._link = cluster_beside(cluster.daemons[0].clients) if takes_default else None
        self._listener = bind_unix(str(self._path), OWNER_ONLY)
        self._listener.listen()
        if self._link is not None:
            self._link.unlink(missing_ok=True)
            self._link.symlink_to(self._path)

    def states(self) -> dict[str, str]:
        return self._faults.states()

    def serve(self, patience_s: float) -> str | None:
        """Wait this long for a request, and answer it. Returns what was done to the cluster, in a sentence."""
        if not select.select([self._listener], [], [], patience_s)[0]:
            return None
        connected, _ = self._listener.accept()
        with connected:
            connected.settimeout(LINE_S)
            try:
                answer = self._answer(_line(connected))
                connected.sendall(msgspec.json.encode(answer) + b"\n")
            except OSError:
                return None  # Whoever asked is gone.
        return answer.get("done")

    def close(self) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)
        if self._link is not None:
            self._link.unlink(missing_ok=True)

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = _DECODER.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return {"ok": False, "why": f"{error}; there are {_KNOWN}"}
        if isinstance(request, NodesRequest):
            return {"ok": True, "nodes": self._faults.states(), "cut": self._faults.links()}
        if not self._allowed:
            return {"ok": False, "why": "it was started without --faults: start it again as `transis up --faults`"}
        try:
            return {"ok": True, "done": self._faults.do(request)}
        except TransisError as error:
            return {"ok": False, "why": str(error)}


def _line(connected: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < LINE_MAX and (piece := connected.recv(LINE_MAX)):
        line += piece
    return line
