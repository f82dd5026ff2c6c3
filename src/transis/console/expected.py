"""What a sweep ought to reach. "0 violations" means nothing beside a long list of what was never reached.

Pairs of the state table that do nothing are not expected: most of them are timers that do not run in that state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from transis.engine.base import IGNORED
from transis.lansis import states as lansis_states
from transis.lansis.states import Trap as LansisTrap
from transis.sim.coverage import Coverage, Pair
from transis.sim.faults import WEATHERS
from transis.sim.group_coverage import GROUPS_EXPECTED
from transis.totem import states as totem_states
from transis.totem.states import Trap as TotemTrap

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

OF_RUNNING: Final = ("crash", "copy", "leave", "pause", "slow", "partition", "heal", "cut", "delay")
"""Faults that can meet a node in any state; the ends of faults (resume, mend) and a restart cannot miss theirs."""


class Expected(NamedTuple):
    """States, events, faults and traps of one engine, by the names under which they are counted."""

    states: tuple[str, ...]
    """In which a node lives, in the order of the paper."""
    event_names: tuple[str, ...]
    events: frozenset[Pair]
    traps: frozenset[str]

    @property
    def faults(self) -> frozenset[Pair]:
        kinds = (*OF_RUNNING, *(f"weather {what}" for what in WEATHERS))
        return frozenset((kind, state) for kind in kinds for state in self.states) | {("restart", "down")}

    def never_reached(self, coverage: Coverage) -> dict[str, list[str]]:
        """By table, what was expected and never seen; of groups only if there were any."""
        missing = coverage.never_reached(self.events, self.faults, self.traps)
        return missing | {"groups": sorted(set(GROUPS_EXPECTED) - set(coverage.groups))} if coverage.groups else missing


def _expected(table: Mapping[S, Mapping[E, str]], living: Iterable[S], events: Iterable[E], traps: Iterable[Enum]) -> Expected:
    pairs = {(state.value, event.value) for state in living for event, handler in table[state].items() if handler != IGNORED}
    return Expected(_names(living), _names(events), frozenset(pairs), frozenset(_names(traps)))


def _names(members: Iterable[Enum]) -> tuple[str, ...]:
    return tuple(member.value for member in members)


_TOTEM: Final = totem_states.State
_LANSIS: Final = lansis_states.State

BY_ENGINE: Final = {
    "totem": _expected(
        totem_states.TABLE,
        (_TOTEM.OPERATIONAL, _TOTEM.GATHER, _TOTEM.COMMIT, _TOTEM.RECOVERY),
        totem_states.Event,
        TotemTrap,
    ),
    "lansis": _expected(
        lansis_states.TABLE,
        (_LANSIS.OPERATIONAL, _LANSIS.STAGE_1, _LANSIS.STAGE_2, _LANSIS.FAULTS, _LANSIS.FLUSH),
        lansis_states.Event,
        LansisTrap,
    ),
}


def expected_of(engine: str) -> Expected:
    return BY_ENGINE[engine]
