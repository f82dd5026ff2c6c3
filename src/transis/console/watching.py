"""Looking at daemons now and then, each in a thread of its own, so that one that is stopped or gone holds up nobody's screen.

A look is kept until the next one; readers take what is there. Views are remembered as they were seen to change: one that lasted
less than the time between two looks may be missed, which the daemon's own count of views shows.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from transis.console.asking import AdminConnection
from transis.types.errors import ConnectError

Values = Mapping[str, Any]

VIEWS_KEPT: Final = 32
STALE_S: Final = 3.0
"""Beyond the time between two looks, an answer that is older than this is no news of a daemon that is well."""


class Look(NamedTuple):
    """What a daemon said of itself."""

    status: Values
    figures: Values
    taken_s: float

    @property
    def node(self) -> str:
        return str(self.status["node"])

    @property
    def view(self) -> Values | None:
        return self.status["view"]  # type: ignore[no-any-return]  # JSON's

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self.view["members"]) if self.view is not None else ()


class SeenView(NamedTuple):
    node: str
    id: str
    members: tuple[str, ...]
    cause: str
    began_s: float


class Watched:
    """One daemon."""

    def __init__(self, label: str, path: Path | None, every_s: float) -> None:
        self.label = label
        self.latest: Look | None = None
        self.silence = "not asked yet"
        """Why there is no answer now; empty while there is one."""
        self.views: deque[SeenView] = deque(maxlen=VIEWS_KEPT)
        self._path = path
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {label}", daemon=True)

    @property
    def hung_s(self) -> int:
        """For how long a daemon with which we are connected has not answered; 0 if all is well."""
        if self.latest is None or self.silence:
            return 0
        age_s = monotonic() - self.latest.taken_s
        return int(age_s) if age_s > STALE_S + self._every_s else 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with AdminConnection(self._path, None) as connection:
                    while not self._over.is_set():
                        self.take(_look(connection))
                        self._over.wait(self._every_s)
            except ConnectError as error:
                self.silence = str(error)
            self._over.wait(self._every_s)

    def take(self, look: Look) -> None:
        self.label = look.node
        view = look.view
        if view is not None and (not self.views or self.views[-1].id != view["id"]):
            began_s = look.taken_s - view["since_s"]
            self.views.append(SeenView(look.node, view["id"], look.members, view["cause"], began_s))
        self.latest, self.silence = look, ""


class Watch:
    """Several daemons. Without a path it is the one at the usual place."""

    def __init__(self, paths: Sequence[tuple[str, Path | None]], every_s: float) -> None:
        self.all = [Watched(label, path, every_s) for label, path in paths]

    def __enter__(self) -> Watch:
        for watched in self.all:
            watched.start()
        return self

    def __exit__(self, *_: object) -> None:
        for watched in self.all:
            watched.stop()

    def looks(self) -> list[Look]:
        """Of those that answer."""
        return [one.latest for one in self.all if one.latest is not None and not one.silence and not one.hung_s]

    def is_whole(self) -> bool:
        """All answer, and all are in the one view that has them all."""
        looks = self.looks()
        views = {look.view["id"] for look in looks if look.view is not None and look.status["state"] == "Operational"}
        return len(looks) == len(self.all) == len(looks[0].members) and len(views) == 1 if looks else False


def look_once(path: Path | None, socket: Path | None = None) -> Look:
    """Raises ConnectError if the daemon does not answer."""
    with AdminConnection(path, socket) as connection:
        return _look(connection)


def _look(connection: AdminConnection) -> Look:
    status = connection.ask("status")
    return Look(status, connection.ask("statistics")["statistics"], monotonic())
