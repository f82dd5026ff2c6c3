"""How wild the weather really was: what was reached, counted, and what never was.

"0 violations" means nothing without it. Counters are keyed by plain tuples of strings, merge by addition, and print in
sorted order, so that two sweeps of the same seeds print the same table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from transis.types.outputs import Note

Pair = tuple[str, str]

_LIFE: Final = re.compile(r"\S+/\d+")
"""Why a node stopped may name another. A table of many runs says it once, not for every name."""


class Coverage:
    """Transitions and events by protocol state, faults by the state they met, traps, other notes, and what client processes of
    nodes with groups went through."""

    def __init__(self) -> None:
        self.events: Counter[Pair] = Counter()
        self.transitions: Counter[tuple[str, str, str]] = Counter()
        self.faults: Counter[Pair] = Counter()
        self.traps: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.groups: Counter[str] = Counter()

    def note(self, note: Note) -> None:
        """A node said something: a transition, a trap's trigger, or something else worth counting."""
        detail = dict(note.detail)
        if note.what == "state":
            event = _LIFE.sub("another", str(detail["event"]))
            self.transitions[(str(detail["from"]), event, str(detail["to"]))] += 1
        elif note.what == "trap":
            self.traps[str(detail["number"])] += 1
        else:
            self.notes[note.what] += 1

    def node(self, events: Mapping[Pair, int]) -> None:
        """What one node met in its life: (state, event) and how often."""
        self.events.update(events)

    def fault(self, kind: str, states: Iterable[str]) -> None:
        for state in states:
            self.faults[(kind, state)] += 1

    def merge(self, other: Coverage) -> None:
        self.events.update(other.events)
        self.transitions.update(other.transitions)
        self.faults.update(other.faults)
        self.traps.update(other.traps)
        self.notes.update(other.notes)
        self.groups.update(other.groups)

    def never_reached(
        self, events: Iterable[Pair] = (), faults: Iterable[Pair] = (), traps: Iterable[str] = ()
    ) -> dict[str, list[str]]:
        """Which of the expected pairs and traps were never seen, by table."""
        return {
            "events": [f"{state} x {event}" for state, event in sorted(set(events) - set(self.events))],
            "faults": [f"{kind} x {state}" for kind, state in sorted(set(faults) - set(self.faults))],
            "traps": sorted(set(traps) - set(self.traps)),
        }

    def as_dict(self) -> dict[str, dict[str, int]]:
        """For JSON: readable keys, sorted."""
        return {
            "events": {f"{state} x {event}": n for (state, event), n in sorted(self.events.items())},
            "transitions": {f"{old} -{event}-> {new}": n for (old, event, new), n in sorted(self.transitions.items())},
            "faults": {f"{kind} x {state}": n for (kind, state), n in sorted(self.faults.items())},
            "traps": dict(sorted(self.traps.items())),
            "notes": dict(sorted(self.notes.items())),
            "groups": dict(sorted(self.groups.items())),
        }
