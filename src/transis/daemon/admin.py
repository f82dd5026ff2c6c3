"""The admin socket: one JSON object per line in, one per line out, so that `socat - UNIX:PATH` is a client too.

    {"do": "status"}            ->  {"ok": true, "node": "ann", ...}
    {"do": "log", "level": "x"} ->  {"ok": false, "why": "..."}

1. The socket belongs to the daemon's user (mode 0600); whoever can open it may administer.
2. Lines, connections and answers are bounded. A malformed line gets an error; one that is too long ends its connection. With too
   many connections, the one that was idle longest makes room. One line is answered in a turn of the loop.
3. Faults (cut, heal) exist only when the settings allow them.
4. Answers are the daemon's state as plain values, ready for JSON (Reports).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from transis import __version__
from transis.daemon.logs import LOGGER, Strangers, level_name, set_level
from transis.daemon.metrics import Figures
from transis.net.host import NodeHost
from transis.net.listeners import bind_unix
from transis.net.runtime import boottime_us
from transis.net.transport import StatisticsDict
from transis.settings.load import renamed
from transis.types.errors import ConfigError, UsageError
from transis.types.outputs import Configure, NodeOutput, Observer
from transis.types.views import View

# --- reports ----------------------------------------------------------------------------------------------------------

Report = dict[str, Any]

NAMES_IN_STATUS: Final = 8
"""Named processes of the configuration that a status lists."""

BEHIND: Final = 4
"""A client counts as slow when its queue is filled to more than this part."""


class Reports(Observer):
    """Looks into the parts of a running daemon; changes nothing."""

    kinds = frozenset({Configure})

    def __init__(self, host: NodeHost, strangers: Strangers) -> None:
        self._host = host
        self._opening = host.opening
        self._driver = host.driver
        self._strangers = strangers
        self.figures: Figures | None = None
        self.views = 0
        self.view: View | None = None
        """The last regular view."""
        self._view_us = self._started_us = boottime_us()

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            if type(output) is Configure and output.view.id.is_regular:
                self.view = output.view
                self.views += 1
                self._view_us = now_us

    # --- answers ----------------------------------------------------------------------------------------------------

    def status(self) -> Report:
        node, figures = self._driver.node, self._all_figures()
        return {
            "node": node.id.name,
            "incarnation": node.id.incarnation,
            "cluster": self._opening.config.cluster,
            "engine": self._opening.config.engine,
            "state": node.state,
            "view": self._view_report(),
            "address": figures.get("address", ""),
            "transport": figures.get("transport", ""),
            "sealed": not self._opening.config.plaintext,
            "sessions": len(self._host.sessions.sessions()),
            "groups": figures.get("groups", 0),
            "names": self._names(NAMES_IN_STATUS),
            "named": len(node.table.names),
            "rates": self.figures.rates() if self.figures is not None else {},
            "warnings": self.warnings(),
            "cut_off": list(self._host.transport.severed),
            "log_level": level_name(),
            "socket": str(self._opening.clients),
            "admin": str(self._opening.admin),
            "pid": os.getpid(),
            "version": __version__,
            "up_s": (boottime_us() - self._started_us) // 1_000_000,
        }

    def _view_report(self) -> Report | None:
        view = self.view
        if view is None:
            return None
        verdict = self._driver.node.verdict()
        seconds = (boottime_us() - self._view_us) // 1_000_000
        since = datetime.fromtimestamp(datetime.now(UTC).timestamp() - seconds, UTC).isoformat(timespec="seconds")
        return {
            "id": str(view.id),
            "members": [str(node) for node in view.nodes],
            "primary": self.primary,
            "doubt": verdict.doubt,
            "lacks": verdict.lacks,
            "held": verdict.held,
            "cause": str(view.cause),
            "since": since,
            "since_s": seconds,
        }

    @property
    def primary(self) -> bool | None:
        return self._driver.node.verdict().primary

    def members(self) -> Report:
        members = self.view.members if self.view is not None else ()
        rows = [
            {
                "name": member.node.name,
                "incarnation": member.node.incarnation,
                "address": member.address,
                "info": member.info.decode(errors="replace"),
                "previous": str(member.previous) if member.previous is not None else None,
                "me": member.node == self._driver.node.id,
            }
            for member in members
        ]
        return {"members": rows}

    def groups(self, limit: int) -> Report:
        """The first `limit` groups by name, and as many named processes, and the counts of all."""
        rows = [{"name": name, "members": members, "here": here} for name, members, here in self._driver.node.groups(limit)]
        count, named = self._driver.node.statistics()["groups"], len(self._driver.node.table.names)
        return {"groups": rows, "count": count, "names": self._names(limit), "named": named}

    def _names(self, limit: int) -> list[Report]:
        found = self._driver.node.table.names.after("", limit)
        return [{"name": name, "process": str(process)} for name, process in found]

    def sessions(self, limit: int) -> Report:
        now = self._driver.now()
        found = self._host.sessions.sessions()
        rows = [one._asdict() | {"up_s": (now - one.connected_us) // 1_000_000} for one in found[:limit]]
        return {"sessions": rows, "count": len(found)}

    def statistics_report(self) -> Report:
        rates = self.figures.rates() if self.figures is not None else {}
        return {"statistics": self._all_figures(), "rates": rates}

    def _all_figures(self) -> StatisticsDict:
        return self.figures.statistics() if self.figures is not None else {}

    # --- what the figures and the status have in common -------------------------------------------------------------

    def statistics(self) -> StatisticsDict:
        sessions = self._host.sessions.sessions()
        figures: StatisticsDict = {"views": self.views, "sessions": len(sessions)}
        figures |= {"members": len(self.view.members) if self.view is not None else 0}
        figures |= {"operational": int(self._driver.node.state == "Operational")}
        figures |= {"session_queue_bytes": sum(one.queue_bytes for one in sessions)}
        return figures if self.primary is None else figures | {"primary": int(self.primary)}

    def warnings(self) -> list[str]:
        """What an operator should act on now."""
        figures, opening = self._all_figures(), self._opening
        found = list(self._host.transport.warnings)
        if opening.config.plaintext and not opening.interface.address.is_loopback:
            found.append("there is no key: anybody on this network can read and write everything")
        if severed := self._host.transport.severed:
            found.append(f"links are cut on purpose: {' '.join(severed)}")
        if refused := self._strangers.lately(boottime_us()):
            found.append(f"refused as members, because engine, order, mode, datagram or version differs: {' '.join(refused)}")
        verdict = self._driver.node.verdict()
        if verdict.lacks:
            found.append(verdict.lacks + ("; until then nothing is sent or delivered" if verdict.held else ""))
        if verdict.mixed:
            found.append(f"node.without_quorum differs: {verdict.mixed}")
        if str(figures.get("trace", "recording")) != "recording":
            found.append(f"traces are not recorded: {figures['trace']}")
        if str(figures.get("flight", "recording")) != "recording":
            found.append(f"the flight recorder pauses: {figures['flight']}")
        if int(figures.get("overflows", 0)):
            found.append(f"the kernel dropped {figures['overflows']} datagrams because a receive buffer was full")
        slow = [one for one in self._host.sessions.sessions() if one.queue_bytes * BEHIND > opening.policy.queue_max]
        return found + [f"client {one.process} ({one.label or 'no label'}) is {one.queue_bytes} bytes behind" for one in slow]


# --- admin ------------------------------------------------------------------------------------------------------------

OWNER_ONLY: Final = 0o600
LINE_MAX: Final = 65_536
CONNECTIONS_MAX: Final = 64
ROWS: Final = 1_000
"""Groups or sessions in one answer unless more are asked for."""
ADDRESSES_MAX: Final = 1_024
"""Names whose last address is remembered, for cutting links to nodes outside the view."""

Rows = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
"""The node waits while an answer is made: a larger one would delay the ring."""


def _asked_as(name: str) -> str:
    return name.removesuffix("Request").lower()


class AdminRequest(msgspec.Struct, frozen=True, tag_field="do", tag=_asked_as, forbid_unknown_fields=True):
    """A request. Its name on the socket is that of the class, in lower case and without `Request`."""


class HelpRequest(AdminRequest, frozen=True):
    pass


class StatusRequest(AdminRequest, frozen=True):
    pass


class MembersRequest(AdminRequest, frozen=True):
    pass


class GroupsRequest(AdminRequest, frozen=True):
    limit: Rows = ROWS


class SessionsRequest(AdminRequest, frozen=True):
    limit: Rows = ROWS


class StatisticsRequest(AdminRequest, frozen=True):
    pass


class LogRequest(AdminRequest, frozen=True):
    level: Literal["debug", "info", "warning", "error"]


class LeaveRequest(AdminRequest, frozen=True):
    pass


class CutRequest(AdminRequest, frozen=True):
    """Cut the links to these peers, named as in views or by address. Replaces the previous cut."""

    peers: Annotated[list[str], msgspec.Meta(max_length=1_024)]


class HealRequest(AdminRequest, frozen=True):
    pass


AnyRequest = (
    HelpRequest
    | StatusRequest
    | MembersRequest
    | GroupsRequest
    | SessionsRequest
    | StatisticsRequest
    | LogRequest
    | LeaveRequest
    | CutRequest
    | HealRequest
)
REQUESTS: Final = tuple(_asked_as(one.__name__) for one in get_args(AnyRequest))
_DECODER: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(AnyRequest)


class LinkCuts(Observer):
    """Cuts links by the names of nodes. Addresses are remembered, because a node that is cut off leaves the view."""

    kinds = frozenset({Configure})

    def __init__(self, cut: Callable[[Sequence[str]], None]) -> None:
        self._cut = cut
        self._addresses: dict[str, str] = {}

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            if type(output) is Configure and output.view.id.is_regular:
                for member in output.view.members:
                    self._remember(member.node.name, member.address)

    def _remember(self, name: str, address: str) -> None:
        if name in self._addresses or len(self._addresses) < ADDRESSES_MAX:
            self._addresses[name] = address

    def cut(self, peers: Sequence[str]) -> list[str]:
        unknown = [peer for peer in peers if peer not in self._addresses and ":" not in peer]
        if unknown:
            raise UsageError(
                f"no view of this node had a member {unknown[0]!r}: it knows {' '.join(sorted(self._addresses)) or 'none'}"
            )
        addresses = sorted({self._addresses.get(peer, peer) for peer in peers})
        self._cut(addresses)
        return addresses


class Admin:
    def __init__(self, reports: Reports, leave: Callable[[], None], faults: LinkCuts | None) -> None:
        self._reports = reports
        self._leave = leave
        self._faults = faults
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], None] = {}
        """Whoever asked nothing for the longest time comes first."""
        self._answering = asyncio.Lock()
        self._path: Path | None = None

    async def listen(self, path: Path) -> None:
        try:
            listening = bind_unix(str(path), OWNER_ONLY)
        except ConfigError as error:
            raise renamed(error, "admin.socket") from error
        self._path = path
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=LINE_MAX)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    # --- connections ------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._make_room()
        self._serving[task] = None
        try:
            while line := await reader.readline():
                if task in self._serving:
                    self._serving[task] = self._serving.pop(task)
                await self._answer_one(writer, line)
        except ValueError:
            await _answer(writer, _wrong(f"a line has at most {LINE_MAX} bytes"))
        except (OSError, asyncio.CancelledError):
            if task not in self._serving:  # Else the administrator is gone, or the daemon is going: nobody is left to answer.
                writer.write(_line(_wrong(f"there are {CONNECTIONS_MAX} others, and this one was idle longest: connect again")))
        finally:
            self._serving.pop(task, None)
            writer.close()

    def _make_room(self) -> None:
        """Somebody new is served: whoever was idle longest goes."""
        if len(self._serving) >= CONNECTIONS_MAX:
            idle = next(iter(self._serving))
            del self._serving[idle]
            idle.cancel()

    async def _answer_one(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        """All that is asked at once is answered one by one, and in between the node reads its sockets."""
        async with self._answering:
            answer = self.obey(line)
            await asyncio.sleep(0)
        await _answer(writer, answer)

    # --- requests ---------------------------------------------------------------------------------------------------

    def obey(self, line: bytes) -> Report:
        """The answer to a line, whatever is in it."""
        try:
            request = _DECODER.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return _wrong(f'{error}; a request is a line like {{"do": "status"}}, and there are {", ".join(REQUESTS)}')
        try:
            return {"ok": True} | self._do(request)
        except (UsageError, ConfigError) as error:
            return _wrong(str(error))
        except Exception:  # A question must not end the daemon.
            LOGGER.exception("a bug in transis %s kept a request from being answered; the node goes on", __version__)
            return _wrong(f"this is a bug in transis {__version__}: please report it with the lines in the daemon's log")

    def _do(self, request: AnyRequest) -> Report:
        match request:
            case HelpRequest():
                return {"requests": list(REQUESTS)}
            case StatusRequest():
                return self._reports.status()
            case MembersRequest():
                return self._reports.members()
            case GroupsRequest(limit):
                return self._reports.groups(limit)
            case SessionsRequest(limit):
                return self._reports.sessions(limit)
            case StatisticsRequest():
                return self._reports.statistics_report()
            case LogRequest(level):
                LOGGER.info("the administrator sets the log level to %s", level)
                set_level(level)
                return {"level": level}
            case LeaveRequest():
                self._leave()
                return {}
            case CutRequest(peers):
                return {"cut_off": self._allowed_faults().cut(peers)}
            case HealRequest():
                return {"cut_off": self._allowed_faults().cut(())}

    def _allowed_faults(self) -> LinkCuts:
        if self._faults is None:
            raise UsageError("links can be cut only with allow_faults = true in the section [admin] of the settings")
        return self._faults


def _wrong(why: str) -> Report:
    return {"ok": False, "why": why}


async def _answer(writer: asyncio.StreamWriter, report: Report) -> None:
    writer.write(_line(report))
    await writer.drain()


def _line(report: Report) -> bytes:
    return msgspec.json.encode(report) + b"\n"
