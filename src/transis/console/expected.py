"""What a sweep ought to reach. "0 violations" means nothing beside a long list of what was never reached.

Pairs of the state table that do nothing are not expected: most of them are timers that do not run in that state.
"""

from __future__ import annotations

from typing import Final

from transis.sim.coverage import Coverage, Pair
from transis.sim.faults import WEATHERS
from transis.sim.group_coverage import EXPECTED as GROUPS
from transis.totem.states import IGNORED, TABLE, Event, State
from transis.totem.traps import Trap

LIVING: Final = (State.OPERATIONAL, State.GATHER, State.COMMIT, State.RECOVERY)

EVENTS: Final[frozenset[Pair]] = frozenset(
    (state.value, event.value) for state in LIVING for event, handler in TABLE[state].items() if handler != IGNORED
)

OF_RUNNING: Final = ("crash", "copy", "leave", "pause", "slow", "partition", "heal", "cut", "delay")
"""Faults that can meet a node in any state; the ends of faults (resume, mend) and a restart cannot miss theirs."""

FAULTS: Final[frozenset[Pair]] = frozenset(
    (kind, state.value) for kind in (*OF_RUNNING, *(f"weather {what}" for what in WEATHERS)) for state in LIVING
) | {("restart", "down")}


TRAPS: Final = frozenset(trap.value for trap in Trap)


def never_reached(coverage: Coverage) -> dict[str, list[str]]:
    """By table, what was expected and never seen; of groups only if there were any."""
    missing = coverage.never_reached(EVENTS, FAULTS, TRAPS)
    return missing | {"groups": sorted(set(GROUPS) - set(coverage.groups))} if coverage.groups else missing


def event_names() -> list[str]:
    """The rows of the table of states and events, in the order of the paper."""
    return [event.value for event in Event]


def state_names() -> list[str]:
    return [state.value for state in LIVING]
