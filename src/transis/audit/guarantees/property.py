"""What a guarantee is: its words, the checker and the query that hold a history against it, and examples; and what they find.

1. A property has two witnesses: a checker in Python over one history, and SQL over the tables of any number of runs. They share
   the words, the sentences of what is broken and the examples, and nothing else. This room knows no Spark: SQL is text.
2. A verdict is broken before pending before held; with nothing checked it is `not exercised` (docs/traces.md). Violations are
   capped so that one bug does not fill a page, but `count` is the true number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from string import Formatter
from typing import Final, Generic, NamedTuple, TypeVar

from transis.types.ids import MessageId, NodeId

# --- words of verdicts ------------------------------------------------------------------------------------------------

HELD: Final = "held"
BROKEN: Final = "broken"
PENDING: Final = "pending"
NOT_EXERCISED: Final = "not exercised"
NOT_PROMISED: Final = "not promised"

WEIGHT: Final = (NOT_PROMISED, NOT_EXERCISED, HELD, PENDING, BROKEN)
"""Verdicts by weight. The verdict of several runs together is the heaviest, which comes last here."""

MODES: Final = ("evs", "transis", "toto", "toto one component")
"""What views may promise; the last is ToTo in a run without partitions, where there is one order, though not by places that were
known at sending."""


# --- properties -------------------------------------------------------------------------------------------------------


class Reads(Enum):
    """What a property is about, which is what its two witnesses read."""

    VIEWS = "views"
    """Events as they stand in the lives of nodes: a LaidHistory, and the tables of lives, configurations and events."""
    ORDER = "order"
    """Messages as a sequence: the same LaidHistory, and tables of how far the order of each ring is proven, with the rest of it
    message by message."""
    GROUPS = "groups"
    """Client processes: a ClientHistory, and their tables. Judged only if a history has client processes."""
    REPLICAS = "replicas"
    """Lives of replicas' directories: a ReplicaHistory, and the table of their steps. Judged only if a history has any."""


class Example(NamedTuple):
    """A history of a few events in the language of tests/guarantees/toy.py, lives separated by ` / `, and what to say of it."""

    text: str
    verdict: str = HELD
    says: str = ""
    """The whole explanation, if it is broken."""
    closed: bool = True
    """Did the run come to rest, so that nothing can still come?"""
    engine: str = "totem"


def kept(text: str, closed: bool = True, engine: str = "totem") -> Example:
    return Example(text, HELD, "", closed, engine)


def breaks(text: str, says: str, closed: bool = True, engine: str = "totem") -> Example:
    return Example(text, BROKEN, says, closed, engine)


def left_open(text: str, closed: bool = False) -> Example:
    """Pending: what is missing may still come, or was lost with a part of a trace."""
    return Example(text, PENDING, "", closed)


History = TypeVar("History")


@dataclass(frozen=True)
class Property(Generic[History]):
    name: str
    """The name in reports and `--only`; its number is that of the specification of extended virtual synchrony."""
    meaning: str
    """One line, for a table."""
    predicate: str
    """The whole guarantee."""
    broken: Mapping[str, str]
    """A sentence for each kind of violation. `{name}` is what the checker passes by this name, and a column of the SQL; of a list
    the first few are named."""
    reads: Reads
    check: Callable[[History, Findings], None]
    sql: str
    """One query, or several, with a semicolon on a line of its own between them. A row a violation: `run`, `kind` if there are
    several sentences, and the columns that the sentence names; as far as they are known `ring`, and the evidence as keys:
    `nodes`, `views`, `messages` (pairs of process and counter), `witness` (pairs of node and lseq; one with a null is left out),
    `position`. A row with `is_pending` is no violation, but something that cannot be judged yet."""
    counts: str
    """How much there was to check, as one or several queries: rows of `run`, `checked` and, if known, `ring`, which are added up;
    `pending` counts what cannot be judged yet and is no row of `sql`."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Queries that several of `sql` and `counts` read, by the names that they have there in braces: each is laid out once."""
    paper: str = ""
    """The source of the predicate."""
    promised_in: frozenset[str] = frozenset(MODES)
    examples: tuple[Example, ...] = ()


def statements(sql: str) -> list[str]:
    """Each of several queries."""
    return re.split(r"^\s*;\s*$", sql, flags=re.MULTILINE)


def fields_of(text: str) -> list[str]:
    """The names in braces, each once, in order."""
    return list(dict.fromkeys(name for _, name, _, _ in Formatter().parse(text) if name))


ORDERED: Final = "select run, ring, ordered as checked from {stays}"
"""What most properties of the order count: the ordered deliveries of all stays."""
RELIABLE: Final = ORDERED + "\n;\nselect run, ring, 1 as checked from {apart}"
"""The same with causal deliveries that are not in the order."""


# --- verdicts ---------------------------------------------------------------------------------------------------------

VIOLATIONS_MAX: Final = 10
"""Violations kept per property: the first few explain, the rest only count."""

Witness = tuple[tuple[NodeId, int], ...]
"""Events that together show a violation, each as (node, lseq)."""


class Violation(NamedTuple):
    property: str
    explanation: str
    witness: Witness
    messages: tuple[MessageId, ...]


class Verdict(NamedTuple):
    property: str
    verdict: str
    checked: int
    violations: tuple[Violation, ...] = ()
    count: int = 0  # type: ignore[assignment]  # A tuple has a method of this name; nobody counts in a verdict.
    pending: int = 0


class Findings:
    """Collects what one checker finds; becomes its verdict."""

    def __init__(self, name: str, keep: int = VIOLATIONS_MAX, sentences: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.keep = keep
        self.checked = 0
        self.pending = 0
        self.count = 0
        self._sentences = sentences or {}
        self._kept: list[Violation] = []

    def violation(self, kind: str, witness: Witness = (), messages: tuple[MessageId, ...] = (), /, **words: object) -> None:
        """A sentence of the property, with these words in it."""
        self.count += 1
        if len(self._kept) < self.keep:
            filled = {name: several(word) if isinstance(word, list) else word for name, word in words.items()}
            self._kept.append(Violation(self.name, self._sentences[kind].format(**filled), witness, messages))

    def broken(self, explanation: str, witness: Witness = (), messages: tuple[MessageId, ...] = ()) -> None:
        """A sentence of its own."""
        self.count += 1
        if len(self._kept) < self.keep:
            self._kept.append(Violation(self.name, explanation, witness, messages))

    def verdict(self) -> Verdict:
        return Verdict(self.name, self._word(), self.checked, self._shortest_first(), self.count, self.pending)

    def _word(self) -> str:
        if self.count:
            return BROKEN
        if self.pending:
            return PENDING
        return HELD if self.checked else NOT_EXERCISED

    def _shortest_first(self) -> tuple[Violation, ...]:
        return tuple(sorted(self._kept, key=lambda violation: len(violation.witness)))


class Report:
    """The verdicts of one history, in the order in which the checkers are listed."""

    def __init__(self, verdicts: list[Verdict]) -> None:
        self.verdicts: dict[str, Verdict] = {verdict.property: verdict for verdict in verdicts}

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(name for name, verdict in self.verdicts.items() if verdict.verdict == BROKEN)

    @property
    def pending(self) -> tuple[str, ...]:
        return tuple(name for name, verdict in self.verdicts.items() if verdict.verdict == PENDING)

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(violation for verdict in self.verdicts.values() for violation in verdict.violations)


# --- words ------------------------------------------------------------------------------------------------------------

NAMED_MAX: Final = 5
"""Things named one by one in a sentence; the rest are counted."""


def several(things: Iterable[object]) -> str:
    """`x`, or `x, y and 3 more`."""
    names = [str(thing) for thing in things]
    if len(names) <= NAMED_MAX:
        return ", ".join(names) if names else "nothing"
    return f"{', '.join(names[:NAMED_MAX])} and {len(names) - NAMED_MAX} more"
