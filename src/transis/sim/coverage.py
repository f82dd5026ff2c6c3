"""Coverage of simulated runs: what was reached, counted, and what ought to be reached.

"0 violations" means nothing beside a long list of what was never reached. Counters are keyed by plain tuples of strings, merge by
addition, and print in sorted order, so that two sweeps of the same seeds print the same table. Pairs of the state table that do
nothing are not expected: most of them are timers that do not run in that state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from transis.engine.base import IGNORED, Handlers
from transis.lansis import engine as lansis
from transis.lansis import states as lansis_states
from transis.lansis.states import Trap as LansisTrap
from transis.sim.faults import WEATHERS
from transis.totem import engine as totem
from transis.totem import states as totem_states
from transis.totem.states import Trap as TotemTrap
from transis.trace.events import ClientDelivery, ClientLeft, ClientLife, Conf, Delivery, End, Event, GroupConf, History
from transis.trace.reader import read_address
from transis.types.ids import ViewId
from transis.types.outputs import NodeOutput, Note, Observer
from transis.types.views import GroupView

# --- coverage ---------------------------------------------------------------------------------------------------------

Pair = tuple[str, str]

_LIFE: Final = re.compile(r"\S+/\d+")
"""The reason why a node stopped may name another node. A table of many runs shows the reason once, not once per name."""


class Coverage(Observer):
    """Transitions and events by protocol state, faults by the state they met, traps, other notes, and what client processes of
    nodes with groups, and replicas, went through."""

    kinds = frozenset({Note})

    def __init__(self) -> None:
        self.events: Counter[Pair] = Counter()
        self.transitions: Counter[tuple[str, str, str]] = Counter()
        self.faults: Counter[Pair] = Counter()
        self.traps: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.groups: Counter[str] = Counter()
        self.replicas: Counter[str] = Counter()

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            if isinstance(output, Note):
                self.note(output)

    def note(self, note: Note) -> None:
        """A node noted something: a transition, a trap's trigger, or something else worth counting."""
        detail = dict(note.detail)
        if note.what == "state":
            event = _LIFE.sub("another", str(detail["event"]))
            self.transitions[(str(detail["from"]), event, str(detail["to"]))] += 1
        elif note.what == "trap":
            self.traps[str(detail["number"])] += 1
        else:
            self.notes[note.what] += 1

    def node(self, events: Mapping[Pair, int]) -> None:
        """Add what one node met in its life: how often each (state, event)."""
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
        self.replicas.update(other.replicas)

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
            **({"replicas": dict(sorted(self.replicas.items()))} if self.replicas else {}),
        }


# --- group coverage ---------------------------------------------------------------------------------------------------

GROUPS_EXPECTED: Final = (
    "process connected",
    "process gone",
    "view by join",
    "view by leave",
    "view by disconnect",
    "view by joins and leaves",
    "view by configuration",
    "transitional view",
    "regular view in a transitional configuration",
    "views merged",
    "members with names",
    "member that went and came back",
    "last word",
    "run handed over",
    "run for several groups",
    "run for private names",
    "run that waited",
)
"""What a sweep ought to reach. Refused joins are left out: no simulation comes near the limits."""


# --- replica coverage -------------------------------------------------------------------------------------------------

REPLICA_STATES: Final = ("none", "STATES", "CONTENT", "MINORITY", "ATTEMPT", "PRIMARY")
"""How far a replica's view has come; `none` while it is in no view."""
COLOURS: Final = ("green", "yellow", "red", "behind")
"""What a replica may hold when it settles in a primary or in a minority; and whether it lacks much of the order."""
AT_REPLICAS: Final = ("kill", "drop", "hang", "crash", "leave", "partition", "heal")

REPLICAS_EXPECTED: Final = (
    *(f"state {state}" for state in REPLICA_STATES),
    *(f"{colour} in {state}" for colour in COLOURS for state in ("MINORITY", "PRIMARY")),
    *(f"{fault} met {state}" for fault in AT_REPLICAS for state in REPLICA_STATES),
    *(f"delivered to {effect}" for effect in ("run", "again", "too_late", "void")),
    *(f"{change} asked for" for change in ("join", "leave", "replace")),
    "posted",
    "bulk message",
    "snapshot taken",
    "snapshot sent",
    "snapshot loaded",
    "session lost",
    "silent process",
    "disk hangs",
    "disk goes on",
    "directory lost",
    "record torn",
    "power cut",
    "replica started again",
    "replica stopped",
    "ended with a bare majority",
)
"""What a sweep with replicas ought to reach. In a primary nothing is red but what is held back."""


def counted(history: History) -> Counter[str]:
    found: Counter[str] = Counter()
    for trace in history.nodes:
        found.update(_of_life(trace.events))
    return found


def _of_life(events: list[Event]) -> Iterator[str]:
    configuration: ViewId | None = None
    for event in events:
        match event:
            case Conf(view=view):
                configuration = view.id
            case GroupConf(view=group_view):
                yield from _of_view(group_view, configuration)
            case Delivery() if event.address:
                to = read_address(event.address)
                yield from ["run for several groups"] * (len(to.groups) > 1) + ["run for private names"] * bool(to.processes)
            case ClientDelivery(handed=handed, waited=waited):
                yield from ["run handed over"] * sum(len(one.runs) for one in handed) + ["run that waited"] * len(waited)
            case ClientLeft(refused=refused):
                yield "join refused" if refused else "last word"
            case ClientLife(connected=connected):
                yield "process connected" if connected else "process gone"
            case End():
                return
            case _:
                pass


def _of_view(view: GroupView, configuration: ViewId | None) -> Iterator[str]:
    if not view.id.configuration.is_regular:
        yield "transitional view"
        return
    yield f"view by {view.cause.what}"
    if view.id.configuration != configuration:
        yield "regular view in a transitional configuration"
    if view.names:
        yield "members with names"
    if len(view.merged_from) > 1:
        yield "views merged"
    if not set(view.joined).isdisjoint(view.left):
        yield "member that went and came back"


# --- expected ---------------------------------------------------------------------------------------------------------

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

OF_RUNNING: Final = ("crash", "copy", "leave", "pause", "slow", "partition", "heal", "cut", "delay")
"""Faults that ought to strike in every state. A restart, a resume and a mend follow from another fault and are not expected."""


class Expected(NamedTuple):
    """States, events, faults and traps of one engine, by the names under which they are counted."""

    states: tuple[str, ...]
    """The states of a node, in the order of the paper."""
    event_names: tuple[str, ...]
    events: frozenset[Pair]
    traps: frozenset[str]

    @property
    def faults(self) -> frozenset[Pair]:
        kinds = (*OF_RUNNING, *(f"weather {what}" for what in WEATHERS))
        return frozenset((kind, state) for kind in kinds for state in self.states) | {("restart", "down")}

    def never_reached(self, coverage: Coverage) -> dict[str, list[str]]:
        """By table, what was expected and never seen; groups and replicas are included only if the runs had any. With replicas
        all processes are in one group, so that of groups there is less to reach."""
        missing = coverage.never_reached(self.events, self.faults, self.traps)
        if coverage.replicas:
            return missing | {"replicas": sorted(set(REPLICAS_EXPECTED) - set(+coverage.replicas))}
        return missing | {"groups": sorted(set(GROUPS_EXPECTED) - set(coverage.groups))} if coverage.groups else missing


def _expected(table: Handlers[S, E], living: Iterable[S], events: Iterable[E], traps: Iterable[Enum]) -> Expected:
    pairs = {(state.value, event.value) for state in living for event, handler in table[state].items() if handler is not IGNORED}
    return Expected(_names(living), _names(events), frozenset(pairs), frozenset(_names(traps)))


def _names(members: Iterable[Enum]) -> tuple[str, ...]:
    return tuple(member.value for member in members)


_TOTEM: Final = totem_states.State
_LANSIS: Final = lansis_states.State

BY_ENGINE: Final = {
    "totem": _expected(
        totem.HANDLERS,
        (_TOTEM.OPERATIONAL, _TOTEM.GATHER, _TOTEM.COMMIT, _TOTEM.RECOVERY),
        totem_states.Event,
        TotemTrap,
    ),
    "lansis": _expected(
        lansis.HANDLERS,
        (_LANSIS.OPERATIONAL, _LANSIS.STAGE_1, _LANSIS.STAGE_2, _LANSIS.FAULTS, _LANSIS.FLUSH),
        lansis_states.Event,
        LansisTrap,
    ),
}


def expected_of(engine: str) -> Expected:
    return BY_ENGINE[engine]
