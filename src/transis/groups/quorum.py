"""Whose quorum lists count, and whether a configuration is primary by them.

1. Every node says its list when members of several configurations come together, so it is known before any view rests on it.
2. No configuration is primary while lists differ. Who met a different list remembers it when its node is gone: the other side of
   a cut could have a majority of its own. When all lists fit, remembered ones too, they are forgotten. A node that is back with
   a list that fits replaces what was remembered of it.
3. A list is changed in two steps. A node that has the new list and says which one was *before* needs a majority of both. It fits
   nodes that still have the list before, and nodes that have only the new one; together they need both majorities too. So two
   components that are primary in one step share a node: first the list before agrees, then the new one.
4. What is remembered is the same at all members that come from one configuration, as all heard the same.
5. Members say, too, whether applications go on without a quorum. If one of the last configuration that exchanged lists does not,
   none of its members does: they must all stop or none, or messages would reach some and not others. That settings differ here is
   told, but does not keep a view from being primary, as it puts no majority in two places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from transis.groups.messages import KNOWN_LISTS_MAX, KnownList, QuorumLists, WaitingQuorumLists
from transis.types.ids import NodeId, ViewId
from transis.types.views import is_primary


class QuorumList(NamedTuple):
    """The list of a node's settings, and the one before it while it is being changed; sorted.

    `holds`: without a quorum, applications send and receive nothing.
    """

    names: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    holds: bool = False

    @classmethod
    def of(cls, names: Iterable[str], before: Iterable[str] = (), *, holds: bool = False) -> QuorumList:
        return cls(tuple(sorted(names)), tuple(sorted(before)), holds)


NO_LIST: Final = QuorumList()

SHOWN_NAMES_MAX: Final = 16
"""Names of a list that a sentence has."""


class QuorumVerdict(NamedTuple):
    """`primary` is None if nobody has a list; `doubt` says how lists differ, if they do, and `lacks` how many nodes are needed,
    who of them is here, and who is missing, if the view is not primary. `mixed` says who goes on without a quorum and who does
    not, if not all are alike, and `holds` whether nothing goes on without one."""

    primary: bool | None
    doubt: str = ""
    lacks: str = ""
    mixed: str = ""
    holds: bool = False

    @property
    def held(self) -> bool:
        """Whether applications send and receive nothing."""
        return self.holds and bool(self.lacks)


def fit(lists: Iterable[QuorumList]) -> bool:
    """Whether these are one list, or the two of one change."""
    found = set(lists)
    wanted = {names for one in found for names in (one.names, one.before or one.names)}
    return len(wanted) == 1 or any(one.before and wanted == {one.names, one.before} for one in found)


def judge(lists: Iterable[QuorumList], nodes: tuple[NodeId, ...]) -> bool | None:
    """Whether these nodes are primary by these lists, which fit."""
    wanted = _wanted(lists)
    return all(is_primary(frozenset(names), nodes) for names in wanted) if wanted else None


def _wanted(lists: Iterable[QuorumList]) -> list[tuple[str, ...]]:
    """The lists that a majority is needed of."""
    return sorted({names for one in lists for names in (one.names, one.before) if names})


def lacking(lists: Iterable[QuorumList], nodes: tuple[NodeId, ...]) -> str:
    """What these nodes lack to be primary."""
    present = {node.name for node in nodes}
    return "; ".join(_lacking(names, present) for names in _wanted(lists) if not is_primary(frozenset(names), nodes))


def _lacking(names: tuple[str, ...], present: set[str]) -> str:
    here, missing = ([name for name in names if (name in present) is wanted] for wanted in (True, False))
    needed = f"no quorum: {len(names) // 2 + 1} of {len(names)} nodes are needed"
    return f"{needed}, {shown_names(here) or 'none'} here, {shown_names(missing)} missing"


class KnownLists:
    """`_members` are the lists of the last regular configuration, `_strange` those remembered (rule 2), by name."""

    def __init__(self, me: NodeId, own: QuorumList) -> None:
        self._me = me
        self._own = own
        self._members: dict[NodeId, QuorumList] = {me: own}
        self._strange: dict[str, tuple[int, QuorumList]] = {}
        self._heard: dict[NodeId, QuorumLists] = {}

    # --- in an exchange ---------------------------------------------------------------------------------------------

    def statement(self, view: ViewId) -> QuorumLists | None:
        """What to say in a new configuration; nothing without a list."""
        if self._own == NO_LIST and not self._strange:
            return None
        known = tuple(KnownList(name, life, one.names, one.before) for name, (life, one) in sorted(self._strange.items()))
        kind = WaitingQuorumLists if self._own.holds else QuorumLists
        return kind(view.seq, view.rep, self._own.names, self._own.before, known)

    def begin(self) -> None:
        self._heard = {}

    def hear(self, node: NodeId, lists: QuorumLists) -> None:
        self._heard[node] = lists

    def complete(self, nodes: Sequence[NodeId]) -> None:
        """All have spoken; who said nothing has no list."""
        heard = {node: self._heard[node] for node in nodes if node in self._heard}
        self._members = {node: _said(heard[node]) if node in heard else NO_LIST for node in nodes}
        strange = _latest(one for said in heard.values() for one in said.known)
        present = {node.name for node in nodes}
        self._strange = {name: one for name, one in strange.items() if name not in present}
        if self._differ():
            met = {node.name: (node.incarnation, one) for node, one in self._members.items()}
            self._strange = dict(sorted((self._strange | met).items())[:KNOWN_LISTS_MAX])
        else:
            self._strange = {}

    # --- judging ----------------------------------------------------------------------------------------------------

    def judge(self, nodes: tuple[NodeId, ...]) -> QuorumVerdict:
        """Of members whose lists are known; with one whose list is not, none is primary."""
        lists = self._all(nodes)
        primary = judge(lists, nodes)
        if primary is None:
            return QuorumVerdict(None)
        mixed, holds = self._mixed(), any(one.holds for one in self._members.values())
        if any(node not in self._members for node in nodes):
            return QuorumVerdict(False, "", "no quorum: not all nodes have told their quorum lists", mixed, holds)
        if self._differ():
            doubt = self._told(nodes)
            return QuorumVerdict(False, doubt, doubt, mixed, holds)
        return QuorumVerdict(primary, "", lacking(lists, nodes), mixed, holds)

    def _differ(self) -> bool:
        return not fit(self._all(tuple(self._members)))

    def _all(self, nodes: tuple[NodeId, ...]) -> list[QuorumList]:
        present = [self._members.get(node, NO_LIST) for node in nodes]
        return [*present, *(one for _, one in self._strange.values())]

    def _told(self, nodes: tuple[NodeId, ...]) -> str:
        """The lists, each with its nodes."""
        owners: dict[QuorumList, set[str]] = {}
        for node in nodes:
            owners.setdefault(self._members.get(node, NO_LIST)._replace(holds=False), set()).add(node.name)
        for name, (_, one) in self._strange.items():
            owners.setdefault(one._replace(holds=False), set()).add(name)
        parts = [f"{_words(one)} at {' '.join(sorted(names))}" for one, names in sorted(owners.items())]
        return f"quorum lists differ: {'; '.join(parts)}"

    def _mixed(self) -> str:
        """Who stops without a quorum, and who would go on by its own settings."""
        stop, go_on = (
            [node.name for node, one in sorted(self._members.items()) if one.holds is holds] for holds in (True, False)
        )
        return f"wait or raise at {shown_names(stop)}; continue at {shown_names(go_on)}" if stop and go_on else ""


def _said(lists: QuorumLists) -> QuorumList:
    return QuorumList(lists.names, lists.before, isinstance(lists, WaitingQuorumLists))


def _latest(known: Iterable[KnownList]) -> dict[str, tuple[int, QuorumList]]:
    """What is remembered of each name: of its latest life."""
    found: dict[str, tuple[int, QuorumList]] = {}
    for one in known:
        entry = (one.life, QuorumList(one.names, one.before))
        found[one.node] = max(found.get(one.node, entry), entry)
    return found


def shown_names(names: list[str]) -> str:
    """A few of them: who has hundreds of nodes does not read the rest."""
    more = len(names) - SHOWN_NAMES_MAX
    return " ".join(names[:SHOWN_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _words(one: QuorumList) -> str:
    before = f" (before: {' '.join(one.before)})" if one.before else ""
    return (" ".join(one.names) or "none") + before
