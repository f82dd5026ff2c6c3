"""What a person wants to know of a replica, and how it reads."""

from __future__ import annotations

from typing import NamedTuple

from transis.prsl.core import Stage
from transis.prsl.machine import Status


class ReplicaState(NamedTuple):
    """Another replica as this one knows it."""

    name: str
    is_here: bool
    """Whether it is in one view with this replica."""
    away_s: float | None
    """Seconds since it was last here; None if it is here, or was never."""
    lags: int
    """Actions that are ordered here and not known to be on its disk."""


class ReplicaStatus(NamedTuple):
    """A replica at a moment. `print` makes a few lines of it."""

    group: str
    me: str
    is_primary: bool
    why: str
    """Why it is not in a primary, or empty."""
    here: tuple[str, ...]
    needed: int
    """How many of the replicas must be together."""
    others: tuple[ReplicaState, ...]
    accepted: int
    """Own actions that wait to be delivered back."""
    red: int
    """Actions without a place."""
    yellow: int
    """Actions with a place that is not final yet."""
    green: int
    """Actions with their place for all time."""
    stable: int
    """Actions that are on the disk of every replica."""
    offset: int
    """Messages that were delivered here."""
    kept_from: int
    """Actions that were trimmed here."""
    kept_bytes: int
    """Bytes of the actions with their place for all time that are kept here."""
    trouble: str
    """What is wrong, and what to do; or empty."""

    def __str__(self) -> str:
        lines = [f"{self.group} at {self.me}: {'primary' if self.is_primary else f'not primary, {self.why}'}"]
        lines += [f"  here: {', '.join(self.here)}; {self.needed} of {len(self.others) + 1} needed"] if self.is_primary else []
        lines += [f"  {_of(one)}" for one in self.others if not one.is_here or one.lags]
        lines.append(
            f"  {self.offset} messages delivered; actions: {self.green} green, {self.stable} stable, {self.yellow} yellow, "
            f"{self.red} red, {self.accepted} on their way"
        )
        lines.append(f"  {self.kept_bytes:,} bytes kept, {self.kept_from} actions trimmed")
        lines += [f"  {self.trouble}"] if self.trouble else []
        return "\n".join(lines)


def _of(one: ReplicaState) -> str:
    lags = f", lacks up to {one.lags} actions" if one.lags else ""
    return f"{one.name}: {'here' if one.is_here else last_seen(one)}{lags}"


def last_seen(one: ReplicaState) -> str:
    return "never seen" if one.away_s is None else f"last seen {one.away_s:.0f} s ago"


_STAGES = {
    Stage.STATES: "waiting for what the others tell",
    Stage.CONTENT: "getting what others have",
    Stage.ATTEMPT: "about to be",
}


def describe(group: str, me: str, status: Status, seen: dict[int, float], now: float, trouble: str) -> ReplicaStatus:
    record = status.record
    names = {number: entry.name for number in record.members if (entry := record.entry(number)) is not None}
    lines = dict(status.lines)
    others = tuple(
        ReplicaState(
            name,
            number in status.here,
            None if number in status.here or number not in seen else now - seen[number],
            max(0, status.green - lines.get(number, 0)),
        )
        for number, name in sorted(names.items())
        if number != status.number
    )
    needed = len(names) // 2 + 1 if record.is_founded else len(names)
    here = tuple(name for number, name in sorted(names.items()) if number in status.here)
    return ReplicaStatus(
        group,
        me,
        status.is_primary,
        "" if status.is_primary else _why(status, here, others, needed),
        here,
        needed,
        others,
        status.out,
        status.red,
        status.yellow,
        status.green,
        status.stable,
        status.offset,
        status.trimmed,
        status.size,
        status.trouble or trouble,
    )


def _why(status: Status, here: tuple[str, ...], others: tuple[ReplicaState, ...], needed: int) -> str:
    if status.stopped:
        return "stopped"
    if not status.number:
        return "not a member yet: add it at one of the members"
    if status.stage is None:
        return "in no view"
    if status.stage in _STAGES:
        return _STAGES[status.stage]
    away = ", ".join(f"{one.name} {last_seen(one)}" for one in others if not one.is_here)
    founding = "" if status.record.is_founded else "all founders must meet once: "
    return f"{founding}{needed} of {len(others) + 1} needed, here: {', '.join(here)}; {away}"
