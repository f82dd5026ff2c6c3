"""What a daemon says to its operator: state changes with their reasons, views, clients, and warnings; never a line per message.

1. A line is a sentence; with `json` it is an object with the same sentence and its parts.
2. What can happen often is logged at once the first time, then at most once a minute, with a count.
3. Ids and causes are written as everywhere (types/ids.py, types/views.py).
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from transis.types.ids import listed
from transis.types.outputs import Configure, NodeOutput, Note, Observer
from transis.types.views import View

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LOGGER: Final = logging.getLogger("transis")
AGAIN_US: Final = 60_000_000
"""How long something that happens often is not logged again."""
STRANGERS_MAX: Final = 256
"""Refused nodes that are remembered: more than a cluster has, fewer than somebody could invent."""

SHOWN_NOTES: Final = {
    "failed to receive": "{accused} does not receive what is sent (it has everything up to {aru} of {seq}), and is left out",
    "blamed": "{node} is left out: every ring with it failed to form",
    "impossible token": "a token from {node} is ignored: {why}; {node} or a member before it in the ring breaks the protocol",
    "number used twice": "two members sent under one number of the order ({seq}): this node keeps what {kept} sent and drops "
    "what {dropped} sent, and other members may do the opposite; some member breaks the protocol",
    "join names too many nodes": "the join of {node} names more nodes than a ring can have, and is ignored",
    "quorum lists differ": "{why}: no view is primary before they agree (docs/operating.md, The quorum)",
    "without_quorum differs": "node.without_quorum differs: {why}: without a quorum these nodes all stop while they are together",
    "quorum is missing": "{why}: nothing that applications send is sent or delivered before there is a quorum",
    "quorum is back": "there is a quorum again: applications go on",
    "rejected": "a datagram was rejected ({field}): {why}; more of this kind are counted and logged once a minute",
}
"""Notes that an operator should read, as warnings."""


def start_logging(level: str, *, json: bool, stream: TextIO | None = None) -> None:
    """All lines of this process go to stderr, where an operator's service manager collects them."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if json else TextLines())
    LOGGER.handlers[:] = [handler]
    LOGGER.propagate = False
    set_level(level)


def adopt(logger: logging.Logger) -> None:
    """Lines that others log in this process, asyncio for one, come out like our own: JSON stays JSON."""
    logger.handlers[:] = LOGGER.handlers
    logger.propagate = False


def set_level(level: str) -> None:
    LOGGER.setLevel(LEVELS[level])


def level_name() -> str:
    return next(name for name, number in LEVELS.items() if number == LOGGER.level)


def say(level: int, event: str, sentence: str, **parts: object) -> None:
    """One line: the sentence for people, and its parts for machines."""
    LOGGER.log(level, "%s", sentence, extra={"event": event, "parts": parts})


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname.lower():7} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _time(record), "level": record.levelname.lower()}
        line |= {"event": getattr(record, "event", record.name), "text": record.getMessage()}
        line |= {key: value for key, value in getattr(record, "parts", {}).items() if key not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- words ----------------------------------------------------------------------------------------------------------


def view_in_words(view: View, before: View | None) -> str:
    """`view R12@ann/1: ann/1 bob/1 cid/1; left: dan/1 (token loss noticed by bob/1)`."""
    now, then = set(view.nodes), set(before.nodes if before is not None else ())
    reborn = {node.name for node in now - then} & {node.name for node in then - now}
    changes = {
        "joined": sorted(node for node in now - then if node.name not in reborn),
        "left": sorted(node for node in then - now if node.name not in reborn),
        "born again": sorted(node for node in now - then if node.name in reborn),
    }
    shown = [f"{what}: {listed(nodes)}" for what, nodes in changes.items() if nodes and before is not None]
    shown = shown or ["nobody changed"] if before is not None else ["the first"]
    return f"view {view.id}: {listed(view.nodes)}; {', '.join(shown)} ({view.cause})"


# --- what a node does -----------------------------------------------------------------------------------------------


class Often:
    """Rule 2, for counters that somebody else keeps and that only grow."""

    def __init__(self) -> None:
        self._logged: Counter[str] = Counter()
        self._at: dict[str, int] = {}

    def due(self, now: int, what: str, count: int) -> int:
        """How many new ones to log now: 0 if this was logged a short while ago."""
        new = count - self._logged[what]
        if new <= 0 or (what in self._at and now - self._at[what] < AGAIN_US):
            return 0
        self._logged[what], self._at[what] = count, now
        return new

    def logged(self, now: int, what: str, count: int) -> None:
        """So many were logged already, by another line."""
        self._logged[what], self._at[what] = count, now

    def forget(self, what: str) -> None:
        del self._logged[what]
        self._at.pop(what, None)


class Strangers:
    """Nodes that were refused as members, for rule 2 and for operators who ask. When there are too many, the one that was silent
    longest is forgotten."""

    def __init__(self) -> None:
        self._tries: Counter[str] = Counter()
        self._often = Often()
        self._heard_at: dict[str, int] = {}

    def refused(self, now: int, node: str) -> int:
        """How many of its attempts to log now."""
        self._heard_at.pop(node, None)
        self._heard_at[node] = now
        self._tries[node] += 1
        if len(self._heard_at) > STRANGERS_MAX:
            self._forget(next(iter(self._heard_at)))
        return self._often.due(now, node, self._tries[node])

    def lately(self, now: int) -> list[str]:
        return sorted(node for node, at in self._heard_at.items() if now - at < AGAIN_US)

    def _forget(self, node: str) -> None:
        del self._heard_at[node], self._tries[node]
        self._often.forget(node)


class NodeLog(Observer):
    """Logs the node's news, and looks at its figures now and then."""

    kinds = frozenset({Configure, Note})

    def __init__(self) -> None:
        self._view: View | None = None
        self._often = Often()
        self.strangers = Strangers()

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            if type(output) is Configure:
                self.view(output.view)
            elif type(output) is Note:
                self.note(now_us, output)

    def view(self, view: View) -> None:
        parts = {"view": str(view.id), "members": [str(node) for node in view.nodes], "cause": str(view.cause)}
        if not view.id.is_regular:
            say(logging.DEBUG, "transitional view", f"transitional view {view.id}: {listed(view.nodes)}", **parts)
            return
        say(logging.INFO, "view", view_in_words(view, self._view), **parts)
        self._view = view

    def note(self, now: int, note: Note) -> None:
        detail = dict(note.detail)
        if note.what == "state":
            self._state(str(detail["from"]), str(detail["to"]), str(detail["event"]))
        elif note.what == "refused":
            self._refused(now, str(detail["node"]), str(detail["why"]))
        elif note.what in SHOWN_NOTES:
            kind = note.what if note.what != "rejected" else f"rejected_{str(detail['field']).replace(' ', '_')}"
            self._often.logged(now, kind, 1)
            say(logging.WARNING, note.what, SHOWN_NOTES[note.what].format(**detail), **detail)

    def _refused(self, now: int, node: str, why: str) -> None:
        """A stranger introduces itself several times a second."""
        if tries := self.strangers.refused(now, node):
            again = f" (tried {tries} times since the last such line)" if tries > 1 else ""
            say(logging.WARNING, "refused", f"{node} cannot be a member: {why}{again}", node=node, why=why, count=tries)

    def _state(self, before: str, after: str, why: str) -> None:
        """Leaving the ring and stopping are news; the steps in between are logged at level debug."""
        level = logging.INFO if before == "Operational" or after == "Stopped" else logging.DEBUG
        say(level, "state", f"{before} -> {after}: {why}", **{"from": before, "to": after, "why": why})

    def look(self, now: int, figures: Mapping[str, int | str]) -> None:
        """Log what shows only in the counters."""
        for what, value in figures.items():
            if what.startswith("rejected_") and isinstance(value, int) and (new := self._often.due(now, what, value)):
                kind = what.removeprefix("rejected_")
                say(logging.WARNING, "rejected", f"{new} more datagrams were rejected ({kind})", kind=kind, count=new)
        if new := self._often.due(now, "pauses", int(figures["pauses"])):
            longest_ms = int(figures["longest_pause_us"]) // 1000
            sentence = (
                f"this process did not run for a while ({new} times, longest so far {longest_ms} ms): is the machine overloaded?"
            )
            say(logging.WARNING, "paused", sentence, count=new, longest_ms=longest_ms)
        if new := self._often.due(now, "overflows", int(figures["overflows"])):
            sentence = f"the kernel dropped {new} datagrams for want of buffer space: raise net.core.rmem_max (docs/operating.md)"
            say(logging.WARNING, "overflow", sentence, count=new)
