"""What nodes and applications report about one stream, and where their reports first differ: configurations and replicas.

**Positions**, at which several parties reported digests:

1. A digest covers everything up to its position. Parties that are equal at one position were equal at all before it: digests of
   prefixes never become equal again once they differ.
2. Memory is bounded, and both ends stay in sight. When there are too many positions, the newest half stays, for parties that
   are a little late. The older ones are thinned out to multiples of a higher power of two, at which others will report, too
   (trace/tape.py). So a day of one party that comes before a day of the next is still compared from end to end, at fewer
   places.
3. The highest position of every party stays, and the lowest at which they differ: they say how far anything is known.
4. What all agreed on is forgotten, except for a few places at which a party that reports much later is still compared.

**Configurations**: digests at positions, how each member left, and whom each counted as a member.

1. Rows may come in any order and any number of times: what is known already changes nothing.
2. Digests cover whole prefixes. Where all living members have reported the same, everything before is the same, too, and is
   forgotten, except for a few places: files of a life may arrive after the news that it ended. A member that reports only what
   is forgotten was not compared, and is pending. While its members are not known, a configuration is not settled: later reports
   are compared.
3. A number here stands for a life of a node; `ClusterFold` knows which.

**Replicas**: digests of states behind the same messages of a group must be the same.

1. Counts of ordered messages within one view of a group are compared, because all its members count alike. One of the messages
   between the last count at which two sides were equal and the first at which they were not is to blame.
2. Digests do not say who is a member of a group, so nothing is settled: later reports are compared with what is left of the
   earlier ones.
3. If a process reports several times behind one count, its last report counts, as in the audit of traces: at the beginning of a
   view it may report before and after it receives its state. A difference that an earlier report made stays reported.

Rows are plain values: comparing needs neither Spark nor files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from transis.trace.events import CheckpointEvent, Event
from transis.types.ids import NodeId, ViewId
from transis.types.views import GroupId, GroupViewId

# --- divergences ------------------------------------------------------------------------------------------------------

ONE_SEQUENCE: Final = "one_sequence"
ATOMICITY: Final = "failure_atomicity_4"
AGREEMENT: Final = "agreement_on_views"
REPLICAS: Final = "replicas_agree"
JUDGED: Final = (ONE_SEQUENCE, ATOMICITY, AGREEMENT, REPLICAS)
"""The guarantees that digests can judge; the audit of traces judges these and all the others."""


class DigestFile(NamedTuple):
    """The events of one file of digests."""

    cluster: str
    mode: str
    node: NodeId
    modified_us: int
    """When the file was sealed, by the clock of its file system."""
    events: Sequence[Event]


class Trouble(NamedTuple):
    """A file that cannot be read, or not to its end, and why."""

    path: str
    why: str
    may_pass: bool = False
    """Whether another try is worth it, because the disk, the network or a permission refused the file."""


class Divergence(NamedTuple):
    """A guarantee is broken: the sides report different things about one configuration."""

    cluster: str
    property: str
    conf: ViewId
    regular: ViewId
    """Its regular configuration, under which flight recorders find it."""
    equal_at: int
    """Behind this many messages all sides still reported the same; where replicas are compared, messages of the group's view."""
    differs_at: int
    sides: tuple[tuple[str, ...], ...]
    """The largest side first."""
    explanation: str
    before: int = 0
    """Messages of the regular configuration, if this is its transitional successor, which counts from 0 again."""


class FollowVerdict(NamedTuple):
    cluster: str
    property: str
    verdict: str
    """One of the words of audit/guarantees/property.py."""
    checked: int
    violations: int
    pending: int


def named(lives: Sequence[str]) -> str:
    """Several names as a person lists them: a, b and c."""
    return lives[0] if len(lives) == 1 else f"{', '.join(lives[:-1])} and {lives[-1]}"


# --- positions --------------------------------------------------------------------------------------------------------

Party = TypeVar("Party")
Value = TypeVar("Value")


class Seen(msgspec.Struct, Generic[Value, Party]):
    """A value that these parties reported at one position."""

    value: Value
    parties: list[Party]


class FirstDifference(NamedTuple, Generic[Value, Party]):
    equal_at: int | None
    """The highest position before the difference at which parties of two sides reported the same; None if there is none."""
    differs_at: int
    sides: list[Seen[Value, Party]]
    """Who reported what there."""


class Positions(msgspec.Struct, Generic[Value, Party]):
    at: dict[int, list[Seen[Value, Party]]] = {}

    def tell(self, position: int, value: Value, party: Party) -> list[Party] | None:
        """Who else reported anything there; None if this party reported the same before."""
        seen = self.at.setdefault(position, [])
        same = next((one for one in seen if one.value == value), None)
        if same is None:
            seen.append(same := Seen(value, []))
        if party in same.parties:
            return None
        same.parties.append(party)
        return [other for one in seen for other in one.parties if other != party]

    def take_back(self, position: int, party: Party, but: Value) -> None:
        """A party has since reported something else there: of its reports only this value counts."""
        seen = self.at.get(position, [])
        for one in seen:
            one.parties = [each for each in one.parties if each != party or one.value == but]
        self.at[position] = [one for one in seen if one.parties]

    def forget(self, before: int, but: int) -> None:
        """Forget reports before a position, except at up to `but` multiples of a power of two."""
        stays, step = [position for position in self.at if position < before], 1
        while len(stays) > but:
            step *= 2
            stays = [position for position in stays if position % step == 0]
        kept = {*stays, *self._differing()[:1]}
        self.at = {position: seen for position, seen in self.at.items() if position >= before or position in kept}

    def parting(self) -> FirstDifference[Value, Party] | None:
        differing = self._differing()
        if not differing:
            return None
        sides = self.at[differing[0]]
        side_of = {party: number for number, side in enumerate(sides) for party in side.parties}
        for position in sorted((at for at in self.at if at < differing[0]), reverse=True):
            here = {side_of[party] for one in self.at[position] for party in one.parties if party in side_of}
            if len(here) > 1:
                return FirstDifference(position, differing[0], sides)
        return FirstDifference(None, differing[0], sides)

    def thin_out(self, most: int) -> None:
        if len(self.at) <= most:
            return
        ordered = sorted(self.at)
        highest = {party: position for position in ordered for one in self.at[position] for party in one.parties}
        stays = {*highest.values(), *ordered[-most // 2 :], *self._differing()[:1]}
        step, enough = 1, max(3 * most // 4, len(stays))
        while len(self.at) > enough:
            step *= 2
            self.at = {position: seen for position, seen in self.at.items() if position % step == 0 or position in stays}

    def _differing(self) -> list[int]:
        return sorted(position for position, seen in self.at.items() if len(seen) > 1)


# --- configurations ---------------------------------------------------------------------------------------------------

POSITIONS_MAX: Final = 4096
"""Positions of one configuration that are remembered; beyond that they are thinned out."""
SETTLED_MAX: Final = 64
"""Settled positions that stay."""

Sums = tuple[int, int, int]
"""A number of messages, and the two sums of trace/tape.py over them."""
Amount = tuple[int, int]
"""A number of messages, and the sum that ignores their order: which messages they were."""


class MemberList(msgspec.Struct):
    """Whom these lives counted as members."""

    members: tuple[NodeId, ...]
    lives: list[int]


class ComparedConfiguration(msgspec.Struct):
    id: ViewId
    regular: ViewId
    mode: str
    began_us: int
    """When it was first reported,"""
    touched_us: int = 0
    """and last."""
    lists: list[MemberList] = []
    positions: Positions[tuple[int, int], int] = msgspec.field(default_factory=Positions)
    ends: dict[int, Sums] = {}
    """Lives that left it, with everything that they delivered in it."""
    onward: dict[int, ViewId] = {}
    """The next configuration of each life."""
    after: dict[int, ViewId] = {}
    """The next regular configuration of each life, if this one is regular."""
    settled: int = 0
    """All living members agree up to here."""
    compared: list[int] = []
    """Lives whose digests were compared with those of another."""
    late: list[int] = []
    """Lives that reported something where everything was already forgotten."""
    checked: int = 0
    """How many digests were compared."""
    broken: list[str] = []
    """Properties that were already reported as broken here."""

    def members_by(self, life: int, members: tuple[NodeId, ...]) -> bool:
        """A life installed it with these members. True if somebody else had a different list."""
        known = next((one for one in self.lists if one.members == members), None)
        if known is None:
            self.lists.append(known := MemberList(members, []))
        if life not in known.lives:
            known.lives.append(life)
        return len(self.lists) > 1

    def reported(self, life: int, sums: Sums, last: bool) -> None:
        """A life reported its digest; `last` if it left the configuration with it."""
        if last:
            self.ends[life] = sums
        position, a, b = sums
        if position <= self.settled and position not in self.positions.at:
            if life not in (*self.compared, *self.late):
                self.late.append(life)
            return
        others = self.positions.tell(position, (a, b), life)
        if others:
            self.checked += 1
            self.compared = sorted({*self.compared, *others, life})

    def settle(self, members: Iterable[int], ended: set[int]) -> None:
        """Forget what all living members agree on. Members that left earlier, or ended, have no part in what came later."""
        living = [life for life in members if life not in ended]
        for position in sorted((at for at in self.positions.at if at > self.settled), reverse=True) if living else ():
            seen = self.positions.at[position]
            needed = {life for life in living if life not in self.ends or self.ends[life][0] >= position}
            if len(seen) == 1 and len(seen[0].parties) > 1 and needed <= set(seen[0].parties):
                self.positions.forget(position, but=SETTLED_MAX)
                self.settled = position
                return

    def bound(self) -> None:
        self.positions.thin_out(POSITIONS_MAX)

    def parting(self) -> tuple[int, int, list[list[int]]] | None:
        """The highest position that is equal, the lowest that is not, and who is on which side there. Transitional
        configurations are compared only at their ends, because the property is about regular ones."""
        parting = self.positions.parting() if self.id.is_regular else None
        if parting is None:
            return None
        return parting.equal_at or 0, parting.differs_at, [side.parties for side in parting.sides]

    def went_apart(self) -> tuple[ViewId, list[tuple[Amount, list[int]]]] | None:
        """The next configuration that lives entered together with different ends of this one, and who ended how."""
        for target, lives in self._together().items():
            ends: dict[Amount, list[int]] = {}
            for life in lives:
                ends.setdefault(self.ends[life][:2], []).append(life)
            if len(ends) > 1:
                return target, sorted(ends.items(), key=lambda one: (-len(one[1]), one[0]))
        return None

    def never_compared(self) -> int:
        """How many lives came too late to be compared with anybody."""
        return sum(life not in self.compared for life in self.late)

    def lives(self) -> set[int]:
        """All lives that are named here."""
        compared = (life for seen in self.positions.at.values() for one in seen for life in one.parties)
        installed = (life for one in self.lists for life in one.lives)
        return {*compared, *installed, *self.ends, *self.onward, *self.after, *self.compared, *self.late}

    def moves_compared(self) -> int:
        """How many lives had their end compared with that of another that went on with them."""
        return sum(len(lives) - 1 for lives in self._together().values())

    def _together(self) -> dict[ViewId, list[int]]:
        found: dict[ViewId, list[int]] = {}
        for life, target in sorted(self.onward.items()):
            if life in self.ends:
                found.setdefault(target, []).append(life)
        return found


# --- replicas ---------------------------------------------------------------------------------------------------------

COUNTS_MAX: Final = 256
"""Counts of one view that are remembered; beyond that they are thinned out."""
ALL_COUNTS_MAX: Final = 65_536
"""The same for all views together; beyond that the views that were reported least recently go."""
REPORTED_MAX: Final = 4096
"""Forgotten views that are remembered because a difference in them was reported: it is not reported again."""


class ReplicaCheckpoints(msgspec.Struct):
    """What was reported of one view of one group."""

    group: GroupId
    name: str
    view: GroupViewId
    touched_us: int = 0
    counts: Positions[bytes, str] = msgspec.field(default_factory=Positions)
    behind: dict[int, str] = {}
    """The last message of each count."""
    spoke: dict[int, dict[str, int]] = {}
    """By count, where the last report of each process stands in the record of its node."""
    told: bool = False
    """Whether a difference was reported."""

    def take(self, process: str, event: CheckpointEvent) -> bool:
        """True if it was compared with what another process reported."""
        spoke = self.spoke.setdefault(event.count, {})
        if event.lseq < spoke.get(process, 0):
            return False
        spoke[process] = event.lseq
        self.counts.take_back(event.count, process, but=event.digest)
        self.behind.setdefault(event.count, "the view" if event.sender is None else f"{event.sender}:{event.counter}")
        return bool(self.counts.tell(event.count, event.digest, process))

    def bound(self) -> None:
        self.counts.thin_out(COUNTS_MAX)
        self.behind = {count: self.behind[count] for count in self.counts.at}
        self.spoke = {count: spoke for count, spoke in self.spoke.items() if count in self.counts.at}


class Replicas(msgspec.Struct):
    """All views of a cluster's groups, by group and view."""

    views: dict[bytes, ReplicaCheckpoints] = {}
    forgotten: list[bytes] = []
    """Forgotten views in which a difference was reported."""
    checked: int = 0


class ReplicaFold:
    def __init__(self, state: Replicas) -> None:
        self._state = state
        self._touched: dict[bytes, ReplicaCheckpoints] = {}

    def take(self, process: str, event: CheckpointEvent, now_us: int) -> None:
        key = msgspec.msgpack.encode((event.group, event.view))
        found = self._state.views.get(key)
        if found is None:
            found = ReplicaCheckpoints(event.group, event.name, event.view, told=key in self._state.forgotten)
            self._state.views[key] = found
        found.touched_us = max(found.touched_us, now_us)
        self._state.checked += found.take(process, event)
        self._touched[key] = found

    def judge(self) -> list[Divergence]:
        """New differences: views in which two sides differ. The caller adds the cluster."""
        found: list[Divergence] = []
        for one in self._touched.values():
            parting = one.counts.parting()
            if parting is not None and not one.told:
                found.append(_divergence(one, parting))
                one.told = True
            one.bound()
        self._touched = {}
        self._bound()
        return found

    def _bound(self) -> None:
        state = self._state
        excess = sum(len(one.counts.at) for one in state.views.values()) - ALL_COUNTS_MAX
        for key, one in sorted(state.views.items(), key=lambda item: (item[1].touched_us, item[0])) if excess > 0 else ():
            if excess <= 0:
                return
            excess -= len(one.counts.at)
            state.forgotten = [*state.forgotten, key][-REPORTED_MAX:] if one.told else state.forgotten
            del state.views[key]


def _divergence(one: ReplicaCheckpoints, parting: FirstDifference[bytes, str]) -> Divergence:
    said = sorted(parting.sides, key=lambda each: (-len(each.parties), each.parties))
    sides = tuple(tuple(sorted(each.parties)) for each in said)
    equal_at, differs_at = parting.equal_at, parting.differs_at
    equal = "never seen equal" if equal_at is None else f"equal up to {one.behind[equal_at]}"
    against = " against ".join(named(side) for side in sides)
    between = differs_at - (equal_at or 0)
    guilty = f"one of the {between} messages between made them so" if between else "no message came between"
    words = f"{equal}, different at {one.behind[differs_at]}: {against}; {guilty}"
    where = f"replicas of {one.name!r} in {one.view} are not the same: {words}"
    conf = one.view.configuration
    return Divergence("", REPLICAS, conf, conf, equal_at or 0, differs_at, sides, where)
