"""The streams of a session that shall have the node's configurations, each from the one in force on."""

from __future__ import annotations

from collections.abc import Callable

from transis.client.inlet import Inlet, Parcel
from transis.sessions.frames import ClientFrame, Configured, Follow, cost


class Followers:
    """The node is asked once, by the first stream; those that come later get the last configuration from here."""

    def __init__(self, post: Callable[[ClientFrame], None]) -> None:
        self._post = post
        self._asked = False
        self._last: Configured | None = None
        self._inlets: list[Inlet] = []

    def add(self, inlet: Inlet) -> None:
        if not self._asked:
            self._asked = True
            self._post(Follow())
        elif self._last is not None:
            inlet.put(self._last, ())
        self._inlets.append(inlet)

    def remove(self, inlet: Inlet) -> None:
        self._inlets = [one for one in self._inlets if one is not inlet]

    def configured(self, frame: Configured, give_back: Callable[[int], None]) -> None:
        self._last = frame
        parcel = Parcel(cost(frame), give_back)
        parcel.holders = 1 + len(self._inlets)
        for inlet in self._inlets:
            inlet.put(frame, (), parcel)
        parcel.let_go()
