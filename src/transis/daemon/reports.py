"""What an administrator can ask: the state of a daemon as plain values, ready for JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from transis import __version__
from transis.daemon.figures import Figures
from transis.daemon.logs import Strangers, cause_in_words, level_name, view_name
from transis.net.driver import Driver, Event
from transis.net.runtime import boottime_us
from transis.net.transport import StatisticsDict
from transis.sessions.host import SessionHost
from transis.settings.resolve import Plan
from transis.types.outputs import Configure
from transis.types.views import View, is_primary

Report = dict[str, Any]

BEHIND: Final = 4
"""A client is called slow when more than this part of what may wait for it does wait."""


class Reports:
    """Looks into the parts of a running daemon; changes nothing."""

    def __init__(
        self, plan: Plan, driver: Driver, host: SessionHost, cut_off: Callable[[], Sequence[str]], strangers: Strangers
    ) -> None:
        self._plan = plan
        self._driver = driver
        self._host = host
        self._cut_off = cut_off
        self._strangers = strangers
        self.figures: Figures | None = None
        self.views = 0
        self.view: View | None = None
        """The last regular view."""
        self._view_us = self._started_us = boottime_us()

    def hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if type(event) is Configure and event.view.id.is_regular:
                self.view = event.view
                self.views += 1
                self._view_us = boottime_us()

    # --- answers ----------------------------------------------------------------------------------------------------

    def status(self) -> Report:
        node, figures = self._driver.node, self._all_figures()
        return {
            "node": node.id.name,
            "incarnation": node.id.incarnation,
            "cluster": self._plan.config.cluster,
            "engine": self._plan.config.engine,
            "state": node.state,
            "view": self._view_report(),
            "address": figures.get("address", ""),
            "transport": figures.get("transport", ""),
            "sealed": self._plan.key is not None,
            "sessions": len(self._host.sessions()),
            "groups": figures.get("groups", 0),
            "rates": self.figures.rates() if self.figures is not None else {},
            "warnings": self.warnings(),
            "cut_off": list(self._cut_off()),
            "log_level": level_name(),
            "socket": str(self._plan.clients),
            "admin": str(self._plan.admin),
            "pid": os.getpid(),
            "version": __version__,
            "up_s": (boottime_us() - self._started_us) // 1_000_000,
        }

    def _view_report(self) -> Report | None:
        view = self.view
        if view is None:
            return None
        seconds = (boottime_us() - self._view_us) // 1_000_000
        since = datetime.fromtimestamp(datetime.now(UTC).timestamp() - seconds, UTC).isoformat(timespec="seconds")
        return {
            "id": view_name(view.id),
            "members": [node.name for node in view.nodes],
            "primary": self.primary,
            "cause": cause_in_words(view.cause),
            "since": since,
            "since_s": seconds,
        }

    @property
    def primary(self) -> bool | None:
        return is_primary(frozenset(self._plan.config.quorum), self.view.nodes) if self.view is not None else None

    def members(self) -> Report:
        members = self.view.members if self.view is not None else ()
        rows = [
            {
                "name": member.node.name,
                "incarnation": member.node.incarnation,
                "address": member.address,
                "info": member.info.decode(errors="replace"),
                "previous": view_name(member.previous) if member.previous is not None else None,
                "me": member.node == self._driver.node.id,
            }
            for member in members
        ]
        return {"members": rows}

    def groups(self, limit: int) -> Report:
        """By name, at most so many; the count is of all."""
        rows = [{"name": name, "members": members, "here": here} for name, members, here in self._driver.node.groups(limit)]
        return {"groups": rows, "count": self._driver.node.statistics()["groups"]}

    def sessions(self, limit: int) -> Report:
        now = self._driver.now()
        found = self._host.sessions()
        rows = [one._asdict() | {"up_s": (now - one.connected_us) // 1_000_000} for one in found[:limit]]
        return {"sessions": rows, "count": len(found)}

    def statistics(self) -> Report:
        rates = self.figures.rates() if self.figures is not None else {}
        return {"statistics": self._all_figures(), "rates": rates}

    def _all_figures(self) -> StatisticsDict:
        return self.figures.now() if self.figures is not None else {}

    # --- what figures.py and the status have in common --------------------------------------------------------------

    def own_figures(self) -> StatisticsDict:
        sessions = self._host.sessions()
        figures: StatisticsDict = {"views": self.views, "sessions": len(sessions)}
        figures |= {"members": len(self.view.members) if self.view is not None else 0}
        figures |= {"operational": int(self._driver.node.state == "Operational")}
        figures |= {"session_queue_bytes": sum(one.queue_bytes for one in sessions)}
        return figures if self.primary is None else figures | {"primary": int(self.primary)}

    def warnings(self) -> list[str]:
        """What an operator should do something about, as it is now."""
        figures, plan = self._all_figures(), self._plan
        told = list(self._driver.warnings)
        if plan.key is None and not plan.interface.address.is_loopback:
            told.append("there is no key: anybody on this network may read and write")
        if self._cut_off():
            told.append(f"links are cut on purpose: {' '.join(self._cut_off())}")
        if refused := self._strangers.lately(boottime_us()):
            told.append(f"cannot be members, because engine, order, mode, datagram or version is another: {' '.join(refused)}")
        if self.primary is False:
            told.append("this side has no majority of the quorum")
        if str(figures.get("trace", "recording")) != "recording":
            told.append(f"traces are not recorded: {figures['trace']}")
        if str(figures.get("flight", "recording")) != "recording":
            told.append(f"the flight recorder pauses: {figures['flight']}")
        if int(figures.get("overflows", 0)):
            told.append(f"the kernel dropped {figures['overflows']} datagrams because a receive buffer was full")
        slow = [one for one in self._host.sessions() if one.queue_bytes * BEHIND > plan.policy.queue_max]
        return told + [f"client {one.process} ({one.label or 'no label'}) is {one.queue_bytes} bytes behind" for one in slow]
