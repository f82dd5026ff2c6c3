"""The fold: what all nodes report, compared as it arrives. Pure: rows in, verdicts and divergences out, and a state to keep.

1. A difference is broken at once; what is missing is pending and never broken: a node may be slow, cut off or killed.
2. Everything is bounded: positions of a configuration (thinned out), configurations of a cluster, views of replicas. What is
   dropped before it was compared counts as pending.
3. The order of rows does not matter, nor does a row that comes twice.
4. Configurations know the lives of a cluster's nodes by small numbers. A life is forgotten when no configuration in memory
   names it and it ended, its node began another, or it is gone; then its number is used again.
5. A life that was silent for a day, and is a member of no configuration of that day, is gone for good: nobody waits for its
   evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from transis.audit.follow.divergence import (
    AGREEMENT,
    ATOMICITY,
    JUDGED,
    ONE_SEQUENCE,
    REPLICAS,
    Amount,
    ComparedConfiguration,
    DigestFile,
    Divergence,
    FollowVerdict,
    ReplicaFold,
    Replicas,
    named,
)
from transis.audit.guarantees import UNPROMISED
from transis.audit.guarantees.property import BROKEN, HELD, NOT_EXERCISED, NOT_PROMISED, PENDING
from transis.trace.events import CheckpointEvent, Conf, End, Prefix
from transis.types.ids import NodeId, ViewId
from transis.types.views import View

# --- lives ------------------------------------------------------------------------------------------------------------

LIVES_MAX: Final = 1024
"""Beyond this many, lives that nobody needs are forgotten."""
GONE_US: Final = 24 * 3600 * 1_000_000


class Lives:
    """The lives of a cluster's nodes, kept in the three containers given."""

    def __init__(self, nodes: list[NodeId | None], heard_us: dict[int, int], ended: set[int]) -> None:
        self._nodes = nodes
        self._heard_us = heard_us
        self.ended = ended
        self._numbers = {node: number for number, node in enumerate(nodes) if node is not None}
        self._free = [number for number, node in enumerate(nodes) if node is None]
        self.newest_us = max(heard_us.values(), default=0)
        """When anybody last sealed a file."""

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, node: NodeId) -> int:
        if node not in self._numbers:
            if not self._free:
                self._free.append(len(self._nodes))
                self._nodes.append(None)
            self._numbers[node] = self._free.pop()
            self._nodes[self._numbers[node]] = node
        return self._numbers[node]

    def name(self, life: int) -> str:
        return str(self._nodes[life])

    def heard(self, life: int, at_us: int) -> None:
        self._heard_us[life] = max(at_us, self._heard_us.get(life, 0))
        self.newest_us = max(at_us, self.newest_us)

    def heard_us(self, life: int) -> int:
        return self._heard_us.get(life, 0)

    def living(self, members: Collection[NodeId]) -> Iterator[tuple[str, int]]:
        """Nodes whose newest life did not end and is not gone, and when it last sealed a file. `members` are today's."""
        for life in self._newest():
            if life in self._heard_us and life not in self.ended and not self._is_gone(life, members):
                yield self.name(life), self._heard_us[life]

    def forget_all_but(self, needed: set[int], members: Collection[NodeId]) -> None:
        stays = needed | {life for life in self._newest() if life not in self.ended and not self._is_gone(life, members)}
        for node, life in sorted(self._numbers.items()):
            if life not in stays:
                del self._numbers[node]
                self._nodes[life] = None
                self._heard_us.pop(life, None)
                self.ended.discard(life)
                self._free.append(life)

    def _newest(self) -> list[int]:
        """The newest life of each name."""
        newest = {node.name: life for node, life in sorted(self._numbers.items(), key=lambda one: one[0][1:])}
        return [life for _, life in sorted(newest.items())]

    def _is_gone(self, life: int, members: Collection[NodeId]) -> bool:
        return self.newest_us - self.heard_us(life) > GONE_US and self._nodes[life] not in members


# --- folding ----------------------------------------------------------------------------------------------------------

CONFIGURATIONS_MAX: Final = 64
"""Configurations of a cluster that are remembered; beyond that the one reported least recently goes."""
FORGOTTEN_MAX: Final = 4096
"""Forgotten configurations that were broken: this is not reported again."""
SILENT_US: Final = 60_000_000
"""A node that is this far behind the others of its cluster is silent: what it owes is pending."""


class ClusterState(msgspec.Struct):
    name: str
    modes: list[str] = []
    lives: list[NodeId | None] = []
    heard_us: dict[int, int] = {}
    """When each life last sealed a file."""
    ended: set[int] = set()
    configurations: list[ComparedConfiguration] = []
    forgotten: dict[bytes, list[str]] = {}
    """What was broken in forgotten configurations, the oldest first."""
    violations: dict[str, int] = {}
    checked: dict[str, int] = {}
    """Checks in forgotten configurations."""
    lost: int = 0
    replicas: Replicas = msgspec.field(default_factory=Replicas)


class Fold:
    """All clusters."""

    def __init__(self, states: Iterable[ClusterState] = ()) -> None:
        self.clusters = {state.name: ClusterFold(state) for state in states}

    def add(self, files: Iterable[DigestFile]) -> list[Divergence]:
        """Take the events of many files; returns what is broken and was not reported before."""
        for one in files:
            if one.cluster not in self.clusters:
                self.clusters[one.cluster] = ClusterFold(ClusterState(one.cluster))
            self.clusters[one.cluster].take(one)
        return [divergence for cluster in self.clusters.values() for divergence in cluster.judge()]

    def verdicts(self) -> list[FollowVerdict]:
        return [verdict for _, cluster in sorted(self.clusters.items()) for verdict in cluster.verdicts()]

    def heard_us(self) -> dict[tuple[str, str], int]:
        """By cluster and living node, when it last sealed a file."""
        return {(name, node): at for name, cluster in sorted(self.clusters.items()) for node, at in cluster.heard_us().items()}

    def state(self) -> bytes:
        return msgspec.msgpack.encode([cluster.state for _, cluster in sorted(self.clusters.items())])

    @classmethod
    def restored(cls, state: bytes) -> Fold:
        return cls(msgspec.msgpack.decode(state, type=list[ClusterState]))


class ClusterFold:
    """One cluster."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._configurations = {one.id: one for one in state.configurations}
        self._lives = Lives(state.lives, state.heard_us, state.ended)
        self._touched: dict[ViewId, ComparedConfiguration] = {}
        self._replicas = ReplicaFold(state.replicas)

    # -- taking reports --------------------------------------------------------------------------------------------------

    def take(self, file: DigestFile) -> None:
        state, life = self.state, self._lives.number(file.node)
        if file.mode not in state.modes:
            state.modes.append(file.mode)
        self._lives.heard(life, file.modified_us)
        for event in file.events:
            if isinstance(event, Prefix):
                self._configuration(event.conf, event.regular, file).reported(life, (event.count, event.a, event.b), event.last)
            elif isinstance(event, Conf):
                self._installed(life, event.view, file)
            elif isinstance(event, CheckpointEvent):
                self._replicas.take(f"{file.node}#{event.process}", event, file.modified_us)
            elif isinstance(event, End):
                state.ended.add(life)

    def heard_us(self) -> dict[str, int]:
        """When the newest life of each name last sealed a file, unless it ended or is gone."""
        return dict(self._lives.living(self._members_today()))

    def _members_today(self) -> set[NodeId]:
        today = [one for one in self.state.configurations if self._lives.newest_us - one.touched_us <= GONE_US]
        return {node for one in today for each in one.lists for node in each.members}

    def _configuration(self, conf: ViewId, regular: ViewId, file: DigestFile) -> ComparedConfiguration:
        found = self._configurations.get(conf)
        if found is None:
            broken = self.state.forgotten.pop(msgspec.msgpack.encode(conf), [])
            found = self._configurations[conf] = ComparedConfiguration(conf, regular, file.mode, file.modified_us, broken=broken)
            self.state.configurations.append(found)
        found.touched_us = max(found.touched_us, file.modified_us)
        self._touched[conf] = found
        return found

    def _installed(self, life: int, view: View, file: DigestFile) -> None:
        """It follows the same life's transitional configuration, or the regular one before that; whichever is reported first
        waits for the other."""
        installed = self._configuration(view.id, view.regular, file)
        installed.members_by(life, view.nodes)
        if not view.id.is_regular:
            regular = self._configuration(view.regular, view.regular, file)
            regular.onward[life] = view.id
            if life in regular.after:
                installed.onward[life] = regular.after[life]
            return
        previous = next((member.previous for member in view.members if member.node == file.node), None)
        if previous is not None:
            regular = self._configuration(previous, previous, file)
            regular.after[life] = view.id
            if life in regular.onward:
                self._configuration(regular.onward[life], previous, file).onward[life] = view.id

    # -- judging ---------------------------------------------------------------------------------------------------------

    def judge(self) -> list[Divergence]:
        """What is newly broken, once for every configuration and property."""
        found: list[Divergence] = []
        for one in self._touched.values():
            for divergence in (self._apart(one), self._moved_apart(one), self._disagreed(one)):
                if (
                    divergence is not None
                    and divergence.property not in one.broken
                    and self._is_promised(divergence.property, one)
                ):
                    one.broken.append(divergence.property)
                    found.append(divergence)
            one.settle(self._members(one), self.state.ended)
            one.bound()
        self._touched = {}
        found += [one._replace(cluster=self.state.name) for one in self._replicas.judge()]
        for divergence in found:
            self.state.violations[divergence.property] = self.state.violations.get(divergence.property, 0) + 1
        self._bound()
        return found

    def _is_promised(self, name: str, one: ComparedConfiguration) -> bool:
        return name not in UNPROMISED.get(one.mode, frozenset())

    def _apart(self, one: ComparedConfiguration) -> Divergence | None:
        parting = one.parting()
        if parting is None:
            return None
        equal_at, differs_at, lives = parting
        sides = self._sides(lives)
        against = " against ".join(map(named, sides))
        parting_words = f"the same up to message {equal_at:,}, not the same up to {differs_at:,}"
        words = f"in {one.id} nodes delivered different messages: {parting_words}: {against}"
        return self._divergence(ONE_SEQUENCE, one, equal_at, differs_at, sides, words)

    def _moved_apart(self, one: ComparedConfiguration) -> Divergence | None:
        parted = one.went_apart()
        if parted is None:
            return None
        target, ends = parted
        sides = self._sides([lives for _, lives in ends])
        delivered = "; ".join(f"{named(self._names(lives))} had delivered {_amount(amount, ends)}" for amount, lives in ends)
        words = f"who went from {one.id} to {target} together had not delivered the same: {delivered}"
        counts = [amount[0] for amount, _ in ends]
        return self._divergence(ATOMICITY, one, min(one.settled, *counts), max(counts), sides, words)

    def _disagreed(self, one: ComparedConfiguration) -> Divergence | None:
        if len(one.lists) < 2:
            return None
        sides = self._sides([each.lives for each in one.lists])
        lists = "; ".join(
            f"for {named(self._names(each.lives))} {named([str(node) for node in each.members])}" for each in one.lists
        )
        return self._divergence(AGREEMENT, one, 0, 0, sides, f"the members of {one.id} are not the same for all: {lists}")

    def _divergence(
        self,
        name: str,
        one: ComparedConfiguration,
        equal_at: int,
        differs_at: int,
        sides: tuple[tuple[str, ...], ...],
        words: str,
    ) -> Divergence:
        return Divergence(self.state.name, name, one.id, one.regular, equal_at, differs_at, sides, words, self._before(one))

    def _before(self, one: ComparedConfiguration) -> int:
        """Messages of the regular configuration that this one follows; the smallest of several answers, to miss nothing."""
        if one.id == one.regular or one.regular not in self._configurations:
            return 0
        return min((sums[0] for sums in self._configurations[one.regular].ends.values()), default=0)

    def _sides(self, lives: list[list[int]]) -> tuple[tuple[str, ...], ...]:
        return tuple(sorted((tuple(self._names(side)) for side in lives), key=lambda side: (-len(side), side)))

    def _names(self, lives: Iterable[int]) -> list[str]:
        return sorted(self._lives.name(life) for life in lives)

    def _members(self, one: ComparedConfiguration) -> list[int]:
        return [self._lives.number(node) for each in one.lists[:1] for node in each.members]

    # -- bounds and verdicts ---------------------------------------------------------------------------------------------

    def _bound(self) -> None:
        """Forget the configurations reported least recently, and with them what they owed; then the lives that only they
        named."""
        configurations = self.state.configurations
        excess = max(0, len(configurations) - CONFIGURATIONS_MAX)
        for one in sorted(configurations, key=lambda one: (one.touched_us, one.id))[:excess]:
            self._forget(one)
        if len(self._lives) > LIVES_MAX:
            named_there = {life for one in configurations for life in (*one.lives(), *self._members(one))}
            self._lives.forget_all_but(named_there, self._members_today())

    def _forget(self, one: ComparedConfiguration) -> None:
        state = self.state
        for name, count in self._checked_in(one).items():
            state.checked[name] = state.checked.get(name, 0) + count
        state.lost += self._owing(one)
        state.configurations.remove(one)
        del self._configurations[one.id]
        if one.broken:
            state.forgotten[msgspec.msgpack.encode(one.id)] = one.broken
            for oldest in list(state.forgotten)[:-FORGOTTEN_MAX]:
                del state.forgotten[oldest]

    def _checked_in(self, one: ComparedConfiguration) -> dict[str, int]:
        agreed = sum(len(each.lives) for each in one.lists) - 1
        return {ONE_SEQUENCE: one.checked, ATOMICITY: one.moves_compared(), AGREEMENT: max(0, agreed)}

    def _owing(self, one: ComparedConfiguration) -> int:
        """How many reports are missing. Living members that are silent where others reported something owe one: all of them while
        somebody goes on in the configuration, afterwards only those that left nothing to compare, for a member that is gone for
        good cannot owe its last deliveries for ever. Members whose reports came too late to be compared count, too."""
        if not one.positions.at and not one.settled:
            return 0
        members = [life for life in self._members(one) if life not in self.state.ended]
        silent = [life for life in members if self._is_silent(life, one)]
        goes_on = any(life not in one.ends for life in members if life not in silent)
        owing = [life for life in silent if life not in one.compared or (goes_on and life not in one.ends)]
        return len(owing) + one.never_compared()

    def _is_silent(self, life: int, one: ComparedConfiguration) -> bool:
        return self._lives.newest_us - max(one.began_us, self._lives.heard_us(life)) > SILENT_US

    def verdicts(self) -> list[FollowVerdict]:
        state = self.state
        checked = dict(state.checked) | {REPLICAS: state.replicas.checked}
        for one in state.configurations:
            for name, count in self._checked_in(one).items():
                checked[name] = checked.get(name, 0) + count
        pending = state.lost + sum(self._owing(one) for one in state.configurations)
        owed = {ONE_SEQUENCE: pending}
        return [self._verdict(name, checked.get(name, 0), state.violations.get(name, 0), owed.get(name, 0)) for name in JUDGED]

    def _verdict(self, name: str, checked: int, violations: int, pending: int) -> FollowVerdict:
        if all(name in UNPROMISED.get(mode, frozenset()) for mode in self.state.modes):
            return FollowVerdict(self.state.name, name, NOT_PROMISED, 0, 0, 0)
        word = BROKEN if violations else PENDING if pending else HELD if checked else NOT_EXERCISED
        return FollowVerdict(self.state.name, name, word, checked, violations, pending)


def _amount(amount: Amount, ends: list[tuple[Amount, list[int]]]) -> str:
    """How many messages; with their sum, if others had as many."""
    same = [one for one, _ in ends if one[0] == amount[0]]
    return f"{amount[0]:,} messages" if len(same) == 1 else f"{amount[0]:,} messages of sum {amount[1]:x}"
