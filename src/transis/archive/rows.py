"""From frames of a group's stream to rows of the archive's one table, `stream`: schema, columns, and the rows of one life.

docs/archive.md explains the columns. Rows are of four kinds: `begin` (an archiver is present from here on), `message`, `view` and
`configuration`. The position of an ordered row (`ring_*`, `place_*`) is the key of the message in the total order, the same at
every archiver.

1. A RowBuilder is one life of an archiver. Its rows are numbered from 1 without gaps, and so is what it saw.
2. An ordered message has its own place in its *regular* configuration, even if it is delivered in a transitional one. A regular
   view or configuration has the place of its cause. A row without a place of its own stands at the last ordered row before it.
3. The `begin` row, and the configuration in force when an archiver comes, wait for its first view and stand where that view does:
   they say where, not since when, and are not ordered.
4. Where places are not promised (`guarantees` other than "evs") no row is ordered, and messages stand where the last view does.

No clock, no file. Building rows costs one step per frame and no object per message. `Portion.table` builds the columns with numpy
and may run in another thread; because a table has a fixed cost of a few hundred microseconds, a portion holds many frames.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transis.client.events import Batch, Configuration, View
from transis.trace.reader import group_view_name, node_name, process_name, view_name
from transis.types.ids import NodeId, ProcessId, Service, ViewId

# --- schema -----------------------------------------------------------------------------------------------------------

FORMAT: Final = 1
"""The format of the directory and of the table, recorded in `archive.json`."""

KINDS: Final = ("begin", "message", "view", "configuration")
BEGIN, MESSAGE, VIEW, CONFIGURATION = range(len(KINDS))

SERVICES: Final = ("basic", "causal", "agreed", "safe")
"""Names by the number of the service."""

WORD: Final = pa.dictionary(pa.int32(), pa.string())
"""A repeating string: one integer per row in memory, a dictionary-encoded string in Parquet."""

_STRINGS: Final = pa.list_(pa.string())
_ORIGIN: Final = pa.struct([("view", pa.string()), ("members", _STRINGS)])

COMMON: Final[list[tuple[str, pa.DataType]]] = [
    ("kind", WORD),
    ("group", WORD),
    ("archiver", WORD),
    ("life", pa.int32()),
    ("row", pa.int64()),
    ("ring_seq", pa.int64()),
    ("ring_rep", WORD),
    ("place_seq", pa.int64()),
    ("place_index", pa.int32()),
    ("ordered", pa.bool_()),
    ("conf", WORD),
    ("transitional", pa.bool_()),
    ("sender", WORD),
    ("process", WORD),
    ("counter", pa.int64()),
    ("service", WORD),
    ("sent_us", pa.int64()),
    ("event_time", pa.timestamp("us", "UTC")),
    ("received_at", pa.timestamp("us", "UTC")),
    ("value", pa.binary()),
]

ATTRIBUTES: Final[list[tuple[str, pa.DataType]]] = [
    ("key", pa.binary()),
    ("headers", pa.map_(pa.string(), pa.binary())),
]
"""What only some senders attach to their messages."""

RARE: Final[list[tuple[str, pa.DataType]]] = [
    # In rows of views and configurations.
    ("view", pa.string()),
    ("members", _STRINGS),
    ("names", _STRINGS),
    ("joined", _STRINGS),
    ("left", _STRINGS),
    ("cause", pa.string()),
    ("primary", pa.bool_()),
    ("merged_from", pa.list_(_ORIGIN)),
    ("previous", _STRINGS),
    # In `begin` rows: where this archiver stood before.
    ("since_ring_seq", pa.int64()),
    ("since_ring_rep", pa.string()),
    ("since_place_seq", pa.int64()),
    ("since_place_index", pa.int32()),
    ("why", pa.string()),
]
"""Null in every message."""

SELDOM: Final = [*ATTRIBUTES, *RARE]
"""Null in most portions: a journal leaves out those that are null in all rows of a frame."""

STREAM: Final = pa.schema([*COMMON, *SELDOM])

LATER: Final = frozenset({"event_time", "names", *(name for name, _ in ATTRIBUTES)})
"""Columns that archives of earlier releases do not have: there they are null."""

REPEATING: Final = tuple(name for name, kind in COMMON if kind == WORD)
"""Columns that are dictionary-encoded in Parquet."""


class RowPosition(NamedTuple):
    """A place in the total order of a regular configuration. Positions compare as tuples: at one node, later ones are higher."""

    ring_seq: int
    ring_rep: str
    place_seq: int
    place_index: int

    def __str__(self) -> str:
        representative = self.ring_rep.rpartition("/")[0]
        return f"R{self.ring_seq}@{representative} {self.place_seq}.{self.place_index}"


# --- columns ----------------------------------------------------------------------------------------------------------

Rare = dict[str, Any]
"""Values of the columns that are null in every message."""

Numbers = npt.NDArray[np.int64]

NOTHING: Final = -1
"""The code of a null."""


class WordCodes:
    """The strings of one column, numbered in the order of their first use. Each is made from its key only once."""

    def __init__(self, make: Callable[[Any], str]) -> None:
        self._make = make
        self._by_key: dict[Hashable, int] = {}
        self._by_word: dict[str, int] = {}

    def code(self, key: Hashable) -> int:
        code = self._by_key.get(key)
        if code is None:
            code = self._by_key[key] = self._by_word.setdefault(self._make(key), len(self._by_word))
        return code

    @property
    def words(self) -> list[str]:
        return list(self._by_word)


class RowRun(NamedTuple):
    """Consecutive rows that differ only in place, counter and value. Strings are codes, so that all fields are numbers."""

    kind: int
    rows: int
    ordered: int
    ring_seq: int
    ring_rep: int
    conf: int
    transitional: int
    process: int
    sender: int
    first: int
    service: int
    sent_us: int
    received_us: int


class PlaceRange(NamedTuple):
    """Rows with the places (seq, index), (seq, index + step) and so on; `step` is 0 for rows without a place of their own."""

    seq: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody wants of a place
    rows: int
    step: int


Headers = list[tuple[str, bytes]]


class Portion:
    """Consecutive rows of one life, on their way to disk.

    `times` has (event_us, rows), 0 for unknown. `keys` and `headers` stay empty until a row has any, and then have one for each.
    """

    def __init__(self, group: str, archiver: str, life: int, first_row: int) -> None:
        self.rows = 0
        self.end: RowPosition | None = None
        """The position of the last row."""
        self.runs: list[RowRun] = []
        self.ranges: list[PlaceRange] = []
        self.values: list[bytes | None] = []
        self.times: list[tuple[int, int]] = []
        self.keys: list[bytes | None] = []
        self.headers: list[Headers | None] = []
        self.rare: list[Rare] = []
        self._group, self._archiver, self._life, self._first_row = group, archiver, life, first_row
        self._nodes = WordCodes(node_name)
        self._confs = WordCodes(view_name)
        self._processes = WordCodes(process_name)
        self._senders = WordCodes(str)

    # --- codes ------------------------------------------------------------------------------------------------------

    def node(self, node: NodeId) -> int:
        return self._nodes.code(node)

    def conf(self, view: ViewId) -> int:
        return self._confs.code(view)

    def process(self, process: ProcessId) -> tuple[int, int]:
        """The code of the process and the code of its name as a sender."""
        return self._processes.code(process), self._senders.code(process)

    def attach(self, batch: Batch[bytes]) -> None:
        """Keys and headers of the messages that come next; the rows before them have none."""
        missing = self.rows - len(self.keys)
        self.keys += [None] * missing
        self.headers += [None] * missing
        self.keys += batch.keys
        self.headers += [list(headers.items()) or None for headers in batch.headers]

    # --- columns ----------------------------------------------------------------------------------------------------

    def table(self) -> pa.Table:
        runs = _RowRuns(self.runs, self.rows)
        columns = self._columns_of_life(runs) | self._columns_of_places(runs) | self._columns_of_messages(runs)
        return pa.table(columns | self._rare_columns(runs), schema=STREAM)

    def _columns_of_life(self, runs: _RowRuns) -> dict[str, pa.Array]:
        zeros = pa.array(np.zeros(self.rows, dtype=np.int32))
        return {
            "kind": runs.words("kind", list(KINDS)),
            "group": pa.DictionaryArray.from_arrays(zeros, pa.array([self._group])),
            "archiver": pa.DictionaryArray.from_arrays(zeros, pa.array([self._archiver])),
            "life": pa.array(np.full(self.rows, self._life, dtype=np.int32)),
            "row": pa.array(runs.rank + self._first_row),
            "received_at": pa.array(runs.repeated("received_us")).view(pa.timestamp("us", "UTC")),
        }

    def _columns_of_places(self, runs: _RowRuns) -> dict[str, pa.Array]:
        ranges: Numbers = np.array(self.ranges, dtype=np.int64).reshape(-1, len(PlaceRange._fields))
        seq, index, counts, step = ranges.T
        steps = (runs.rank - np.repeat(np.cumsum(counts) - counts, counts)) * np.repeat(step, counts)
        return {
            "ring_seq": pa.array(runs.repeated("ring_seq")),
            "ring_rep": runs.words("ring_rep", self._nodes.words),
            "place_seq": pa.array(np.repeat(seq, counts)),
            "place_index": pa.array((np.repeat(index, counts) + steps).astype(np.int32)),
            "ordered": pa.array(runs.repeated("ordered").astype(np.bool_)),
            "conf": runs.words("conf", self._confs.words),
            "transitional": pa.array(runs.repeated("transitional").astype(np.bool_)),
        }

    def _columns_of_messages(self, runs: _RowRuns) -> dict[str, pa.Array]:
        return {
            "sender": runs.words("sender", self._senders.words),
            "process": runs.words("process", self._processes.words),
            "counter": pa.array(runs.rank + runs.repeated_less_start("first"), mask=runs.is_rare),
            "service": runs.words("service", list(SERVICES)),
            "sent_us": pa.array(runs.repeated("sent_us"), mask=runs.is_rare),
            "event_time": self._event_times(),
            "value": pa.array(self.values, pa.binary()),
            **{name: self._attached(name, kind) for name, kind in ATTRIBUTES},
        }

    def _event_times(self) -> pa.Array:
        times: Numbers = np.array(self.times, dtype=np.int64).reshape(-1, 2)
        event_us = np.repeat(times[:, 0], times[:, 1])
        return pa.array(event_us, mask=event_us == 0).view(pa.timestamp("us", "UTC"))

    def _attached(self, name: str, kind: pa.DataType) -> pa.Array:
        known = self.keys if name == "key" else self.headers
        return pa.array([*known, *[None] * (self.rows - len(known))], kind) if known else pa.nulls(self.rows, kind)

    def _rare_columns(self, runs: _RowRuns) -> dict[str, pa.Array]:
        """The few rows with such values are built one by one, then placed among nulls."""
        if runs.is_rare is None:
            return {name: pa.nulls(self.rows, kind) for name, kind in RARE}
        which = pa.array(np.cumsum(runs.is_rare) - 1, mask=~runs.is_rare)
        return {name: pa.array([one.get(name) for one in self.rare], kind).take(which) for name, kind in RARE}


class _RowRuns:
    """The fields of runs as columns of rows. `rank` counts the rows; `is_rare` marks those that are no messages, if any are."""

    def __init__(self, runs: list[RowRun], rows: int) -> None:
        numbers: Numbers = np.array(runs, dtype=np.int64).reshape(-1, len(RowRun._fields))
        self._fields = dict(zip(RowRun._fields, numbers.T, strict=True))
        self._counts = self._fields["rows"]
        self.rank: Numbers = np.arange(rows, dtype=np.int64)
        is_rare = self._fields["kind"] != MESSAGE
        self.is_rare = np.repeat(is_rare, self._counts) if is_rare.any() else None

    def repeated(self, name: str) -> Numbers:
        return np.repeat(self._fields[name], self._counts)

    def repeated_less_start(self, name: str) -> Numbers:
        """Repeated such that adding the rank counts upwards from the field within each run."""
        starts = np.cumsum(self._counts) - self._counts
        return np.repeat(self._fields[name] - starts, self._counts)

    def words(self, name: str, known: list[str]) -> pa.Array:
        codes = self.repeated(name).astype(np.int32)
        indices = pa.array(codes) if self.is_rare is None else pa.array(codes, mask=codes == NOTHING)
        return pa.DictionaryArray.from_arrays(indices, pa.array(known, pa.string()))


# --- rows -------------------------------------------------------------------------------------------------------------

ROW_BYTES: Final = 64
"""About what a row takes in memory beside its value, and a string beside its characters."""


class _RowPlace(NamedTuple):
    """A position before it is formatted."""

    ring: ViewId
    seq: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody wants of a place


class _EarlyRow(NamedTuple):
    """A row that waits for the first view."""

    kind: int
    conf: ViewId | None
    now_us: int
    rare: Rare


class RowBuilder:
    """`rows` counts the rows of this life; `bytes` is about the size of those not taken yet."""

    def __init__(
        self, group: str, archiver: str, life: int, engine: str, guarantees: str, last: RowPosition | None = None
    ) -> None:
        """`last` is the archiver's position before this life."""
        self.rows = 0
        self.bytes = 0
        self._group, self._archiver, self._life = group, archiver, life
        self._last = last
        self._has_places = guarantees == "evs"
        self._ordered_from = Service.CAUSAL if engine == "totem" else Service.AGREED
        self._early: list[_EarlyRow] | None = []
        self._ring: ViewId | None = None
        self._at: _RowPlace | None = None
        self._portion = Portion(group, archiver, life, 1)

    @property
    def position(self) -> RowPosition | None:
        """The position of the last row; None before the first view."""
        at = self._at
        return None if at is None else RowPosition(at.ring.seq, node_name(at.ring.rep), at.seq, at.index)

    def take(self) -> Portion:
        """The rows since the last call."""
        portion, self.bytes = self._portion, 0
        portion.end = self.position
        self._portion = Portion(self._group, self._archiver, self._life, self.rows + 1)
        return portion

    # --- events -----------------------------------------------------------------------------------------------------

    def begin(self, why: str, now_us: int) -> None:
        """The first row of a life."""
        since = {} if self._last is None else {f"since_{name}": value for name, value in self._last._asdict().items()}
        self._add_rare(BEGIN, None, now_us, since | {"why": why})

    def configuration(self, view: Configuration, now_us: int) -> None:
        """From here on, messages belong to the regular configuration `view.regular`."""
        self._ring = view.regular
        if view.id.is_regular and self._early is None:
            self._at = _RowPlace(view.id, 0, 0)
        rare: Rare = {
            "members": [node_name(member.node) for member in view.members],
            "previous": [None if member.previous is None else view_name(member.previous) for member in view.members],
            "cause": str(view.cause),
        }
        self._add_rare(CONFIGURATION, view.id, now_us, rare)

    def view(self, view: View, now_us: int) -> None:
        configuration, place = view.id
        if configuration.is_regular:
            self._at = _RowPlace(configuration, place.seq, place.index)
        self._place_early()
        rare: Rare = {
            "view": group_view_name(view.id),
            "members": list(map(process_name, view.members)),
            "names": list(view.names) or None,
            "joined": list(map(process_name, view.joined)),
            "left": list(map(process_name, view.left)),
            "cause": str(view.cause),
            "primary": view.primary,
            "merged_from": [
                {"view": group_view_name(origin.view), "members": list(map(process_name, origin.members))}
                for origin in view.merged_from
            ],
        }
        self._add_rare(VIEW, configuration, now_us, rare)

    def messages(self, batch: Batch[bytes], now_us: int) -> None:
        at, portion, service = self._at, self._portion, batch.service
        assert at is not None, "a stream begins with a view"
        payloads = batch.payloads
        is_ordered = self._has_places and service >= self._ordered_from
        if is_ordered:
            at = self._ordered(batch)
        else:
            portion.ranges.append(PlaceRange(at.seq, at.index, len(payloads), 0))
        portion.values += payloads
        portion.times += batch.event_us
        if batch.has_attributes:
            portion.attach(batch)
            self.bytes += sum(map(_size_of_attributes, portion.keys[-len(batch) :], portion.headers[-len(batch) :]))
        process, sender = portion.process(batch.sender)
        words = (process, sender, batch.first, int(service), batch.sent_us, now_us)
        self._add(MESSAGE, len(payloads), is_ordered, at.ring, batch.view, *words)
        self.bytes += sum(map(len, payloads))

    def _ordered(self, batch: Batch[bytes]) -> _RowPlace:
        """The places of ordered messages, in their regular configuration."""
        stretches = batch.stretches
        self._portion.ranges += [PlaceRange(seq, index, count, 1) for seq, index, count in stretches]
        seq, index, count = stretches[-1]
        ring = batch.view if batch.view.is_regular else self._ring
        assert ring is not None, "a stream with configurations begins with the one in force"
        self._at = _RowPlace(ring, seq, index + count - 1)
        return self._at

    # --- rows other than messages -----------------------------------------------------------------------------------

    def _add_rare(self, kind: int, conf: ViewId | None, now_us: int, rare: Rare) -> None:
        if self._early is not None:
            self._early.append(_EarlyRow(kind, conf, now_us, rare))
        else:
            self._put(_EarlyRow(kind, conf, now_us, rare), self._has_places and conf is not None and conf.is_regular)

    def _place_early(self) -> None:
        early, self._early = self._early, None
        if early and early[0].kind == BEGIN:
            early[0].rare["why"] += self._below()
        for one in early or ():
            self._put(one, is_ordered=False)

    def _below(self) -> str:
        """Ring numbers only grow along the life of a node, so a life that begins below the last position is noted."""
        at, last = self.position, self._last
        if at is None or last is None or at.ring_seq >= last.ring_seq:
            return ""
        return f"; this is below {last}: it is another component, or a cluster that was begun anew"

    def _put(self, one: _EarlyRow, is_ordered: bool) -> None:
        at, portion = self._at, self._portion
        assert at is not None, "the first view of a member is a regular one"
        portion.ranges.append(PlaceRange(at.seq, at.index, 1, 0))
        portion.values.append(None)
        portion.times.append((0, 1))
        portion.rare.append(one.rare)
        self.bytes += _size_of(one.rare)
        self._add(one.kind, 1, is_ordered, at.ring, one.conf, NOTHING, NOTHING, 0, NOTHING, 0, one.now_us)

    def _add(
        self,
        kind: int,
        rows: int,
        is_ordered: bool,
        ring: ViewId,
        conf: ViewId | None,
        process: int,
        sender: int,
        first: int,
        service: int,
        sent_us: int,
        now_us: int,
    ) -> None:
        portion = self._portion
        conf_code, is_transitional = (NOTHING, False) if conf is None else (portion.conf(conf), not conf.is_regular)
        where = (ring.seq, portion.node(ring.rep), conf_code, is_transitional)
        portion.runs.append(RowRun(kind, rows, is_ordered, *where, process, sender, first, service, sent_us, now_us))
        portion.rows += rows
        self.rows += rows
        self.bytes += ROW_BYTES * rows


def _size_of_attributes(key: bytes | None, headers: Headers | None) -> int:
    return len(key or b"") + sum(ROW_BYTES + len(name) + len(value) for name, value in headers or ())


def _size_of(value: Any) -> int:
    """About the size in memory: a view with many members is large."""
    if isinstance(value, str):
        return ROW_BYTES + len(value)
    if isinstance(value, dict):
        return sum(map(_size_of, value.values()))
    return sum(map(_size_of, value)) if isinstance(value, list) else 0
