"""Dynamic linear voting: which view may install the next primary, and what nobody can know yet. Pure functions.

    last primary → attempt (everybody of the view writes down that it is *vulnerable*) → next primary, or doubt

1. A view may go on from the last primary if it holds a majority of its servers, or half of them with the lowest number. So two
   views never go on from one primary, and a primary may shrink with each view down to one replica.
2. An attempt that was cut short may have been completed by some. Who took part is in doubt, and its record says with whom. It is
   free when one of them tells that nothing was installed, or when all of them are found to be in doubt alike (F14, R13).
   So a quorum is not enough: it needs nobody in doubt (R14).
3. Yellow is what was delivered behind the end of a primary's regular view: it may be green elsewhere, so it becomes green first.
4. Who left counts no more from where that is green in the primary; until then each shrunken set needs its quorum too (R27).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple

import msgspec

from transis.prsl.actions import Action, ActionId, Counter
from transis.prsl.prefix import Numbers
from transis.prsl.record import Members, Record, configurations
from transis.types.limits import REDS_MAX


class Primary(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last primary that is known of. The founders' list is number 1; 0 is that of a newcomer, who knows of none.

    `members` are those who installed it, and never change; `servers` are those of them that have not left since (R31).
    """

    index: Counter
    attempt: Counter
    members: Members
    servers: Members

    @property
    def rank(self) -> tuple[int, int]:
        return self.index, self.attempt


class Vulnerable(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An attempt of these members behind the primary `index`. `asked` are those that are known to be in doubt about it too."""

    index: Counter
    attempt: Counter
    members: Members
    asked: Members = ()

    def is_same(self, other: Vulnerable | None) -> bool:
        """The set belongs to it: two attempts behind one primary may have one number (R13)."""
        mine = (self.index, self.attempt, self.members)
        return other is not None and mine == (other.index, other.attempt, other.members)


class Voting(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a replica must remember to vote. `yellow` is None if it saw no end of the last primary."""

    primary: Primary
    attempt: Counter = 0
    vulnerable: Vulnerable | None = None
    yellow: Annotated[tuple[ActionId, ...], msgspec.Meta(max_length=REDS_MAX)] | None = None


def first_voting(record: Record) -> Voting:
    """That of a new directory: founders begin with their list, a newcomer knows of no primary."""
    return Voting(Primary(1 if record.members else 0, 0, record.members, record.members))


class Knowledge(NamedTuple):
    """What the members of a view know together."""

    primary: Primary
    attempt: int
    yellow: tuple[ActionId, ...] | None
    vulnerable: dict[int, Vulnerable | None]


def knowledge_of(votings: Mapping[int, Voting], green: Numbers) -> Knowledge:
    """The same at all members of the view; `green` is what all of them have in their order by then."""
    rank = max(voting.primary.rank for voting in votings.values())
    updated = [voting for _, voting in sorted(votings.items()) if voting.primary.rank == rank]
    servers = set(updated[0].primary.servers).intersection(*(voting.primary.servers for voting in updated))
    primary = msgspec.structs.replace(updated[0].primary, servers=tuple(sorted(servers)))
    yellows = [voting.yellow for voting in updated if voting.yellow is not None]
    attempt = max(voting.attempt for voting in updated)
    vulnerable = {number: voting.vulnerable for number, voting in votings.items()}
    return Knowledge(primary, attempt, _common(yellows, green), _cleared(vulnerable, primary))


def _common(yellows: Sequence[tuple[ActionId, ...]], green: Numbers) -> tuple[ActionId, ...] | None:
    """What all who saw the end of the primary have, in its order: what one of them lacks cannot be green anywhere."""
    if not yellows:
        return None
    shared = set(yellows[0]).intersection(*yellows)
    return tuple(action for action in yellows[0] if action in shared and action not in green)


def _cleared(found: dict[int, Vulnerable | None], primary: Primary) -> dict[int, Vulnerable | None]:
    """Until nothing changes: what frees one may free the next (R13)."""
    while True:
        before = dict(found)
        for number in [number for number, one in found.items() if one is not None and _is_void(found, number, one, primary)]:
            found[number] = None
        for number, one in found.items():
            if one is not None:
                found[number] = _asked(found, one)
        for number in [number for number, one in found.items() if one is not None and set(one.members) <= set(one.asked)]:
            found[number] = None
        if found == before:
            return found


def _is_void(found: Mapping[int, Vulnerable | None], number: int, one: Vulnerable, primary: Primary) -> bool:
    """Whether a later primary is known, to which this replica did not belong, or somebody who took part knows that none came of
    it. Asked of the primary as it was installed: its servers may have shrunk since (R31). Behind the last primary itself the
    doubt of a replica counts though it did not belong to that one (R34)."""
    is_past = one.index < primary.index and number not in primary.members
    return is_past or any(other in found and not one.is_same(found[other]) for other in one.members)


def _asked(found: Mapping[int, Vulnerable | None], one: Vulnerable) -> Vulnerable:
    asked = set(one.asked)
    for number, other in found.items():
        if other is not None and one.is_same(other):
            asked |= {number, *other.asked}
    return msgspec.structs.replace(one, asked=tuple(sorted(asked)))


class Verdict(NamedTuple):
    """Whether a view may attempt the next primary; or else why not, and which replicas would help."""

    may_attempt: bool
    why: str = ""
    waits_for: frozenset[int] = frozenset()


def judge(known: Knowledge, here: frozenset[int], record: Record, yellow: Sequence[Action], needed: int) -> Verdict:
    """`here` are the members of the view that are replicas by the green record; `needed` of the last servers must be there."""
    doubts = {number: one for number, one in known.vulnerable.items() if one is not None}
    if doubts:
        return _in_doubt(doubts, set(known.vulnerable), record)
    if not record.is_founded:
        away = frozenset(record.members) - here
        return Verdict(not away, f"the group is founded when all its founders are together: {_named(away, record)}", away)
    for servers in bases(known.primary, record, yellow):
        present = servers & here
        if len(present) < min(needed, len(servers)) or not is_quorum(servers, here):
            away = servers - here
            why = f"of the last primary ({_named(servers, record)}) only {_named(present, record) or 'nobody'} is here"
            return Verdict(False, why, away)
    return Verdict(True)


def _in_doubt(doubts: Mapping[int, Vulnerable], here: set[int], record: Record) -> Verdict:
    away = frozenset(number for one in doubts.values() for number in one.members) - here
    names = _named(frozenset(doubts), record)
    return Verdict(False, f"{names} cannot know whether {_named(away, record)} went on without it", away)


def bases(primary: Primary, record: Record, yellow: Sequence[Action]) -> Iterator[frozenset[int]]:
    """The servers, and the servers without the first of those that left, without the first two, and so on: some of the last
    primary may have gone on with each of these (R27)."""
    servers = frozenset(primary.servers)
    yield servers
    left = [number for number in record.left if number in servers]
    made = configurations(record, yellow)
    for before, after in pairwise(made):
        left += sorted(servers.intersection(before.members).difference(after.members))
    for number in left:
        servers -= {number}
        yield servers


def is_quorum(servers: frozenset[int], here: frozenset[int]) -> bool:
    """More than half, or half with the distinguished one: the lowest number."""
    present = servers & here
    return 2 * len(present) > len(servers) or (bool(present) and 2 * len(present) == len(servers) and min(servers) in present)


def _named(numbers: frozenset[int], record: Record) -> str:
    entries = [record.entry(number) for number in sorted(numbers)]
    return ", ".join(entry.name for entry in entries if entry is not None)
