"""Frames of an archiver's stream -> Arrow columns: repeated by numpy, so that the cost of a message is that of its bytes.

A batch of columns has a fixed cost of a few hundred microseconds: a portion is many frames, however small these are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transis.archive.schema import KINDS, MESSAGE, RARE, SERVICES, STREAM, Position
from transis.trace.reader import node_name, process_name, view_name
from transis.types.ids import NodeId, ProcessId, ViewId

Rare = dict[str, Any]
"""Values of the columns that no message has."""

Numbers = npt.NDArray[np.int64]

NOTHING: Final = -1
"""The code of a word that is null."""


class Words:
    """The words of one column and their numbers, in the order in which they came. Made of keys, each once."""

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


class Frame(NamedTuple):
    """Rows that differ in place, counter and value only. Words by their codes, everything a number."""

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


class Stretch(NamedTuple):
    """Rows with the places (seq, index), (seq, index + step) and so on; what has no place of its own does not step."""

    seq: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody wants of a place
    rows: int
    step: int


class Portion:
    """Consecutive rows of one life, on their way to disk."""

    def __init__(self, group: str, archiver: str, life: int, first_row: int) -> None:
        self.rows = 0
        self.end: Position | None = None
        """Of the last row, when it was taken."""
        self.frames: list[Frame] = []
        self.stretches: list[Stretch] = []
        self.values: list[bytes | None] = []
        self.rare: list[Rare] = []
        self._group, self._archiver, self._life, self._first_row = group, archiver, life, first_row
        self._nodes = Words(node_name)
        self._confs = Words(view_name)
        self._processes = Words(process_name)
        self._senders = Words(str)

    # --- words ------------------------------------------------------------------------------------------------------

    def node(self, node: NodeId) -> int:
        return self._nodes.code(node)

    def conf(self, view: ViewId) -> int:
        return self._confs.code(view)

    def process(self, process: ProcessId) -> tuple[int, int]:
        """Its code as a process and as a sender."""
        return self._processes.code(process), self._senders.code(process)

    # --- columns ----------------------------------------------------------------------------------------------------

    def table(self) -> pa.Table:
        frames = _Frames(self.frames, self.rows)
        columns = self._columns_of_life(frames) | self._columns_of_places(frames) | self._columns_of_messages(frames)
        return pa.table(columns | self._rare_columns(frames), schema=STREAM)

    def _columns_of_life(self, frames: _Frames) -> dict[str, pa.Array]:
        zeros = pa.array(np.zeros(self.rows, dtype=np.int32))
        return {
            "kind": frames.words("kind", list(KINDS)),
            "group": pa.DictionaryArray.from_arrays(zeros, pa.array([self._group])),
            "archiver": pa.DictionaryArray.from_arrays(zeros, pa.array([self._archiver])),
            "life": pa.array(np.full(self.rows, self._life, dtype=np.int32)),
            "row": pa.array(frames.rank + self._first_row),
            "received_at": pa.array(frames.repeated("received_us")).view(pa.timestamp("us", "UTC")),
        }

    def _columns_of_places(self, frames: _Frames) -> dict[str, pa.Array]:
        stretches: Numbers = np.array(self.stretches, dtype=np.int64).reshape(-1, len(Stretch._fields))
        seq, index, counts, step = stretches.T
        steps = (frames.rank - np.repeat(np.cumsum(counts) - counts, counts)) * np.repeat(step, counts)
        return {
            "ring_seq": pa.array(frames.repeated("ring_seq")),
            "ring_rep": frames.words("ring_rep", self._nodes.words),
            "place_seq": pa.array(np.repeat(seq, counts)),
            "place_index": pa.array((np.repeat(index, counts) + steps).astype(np.int32)),
            "ordered": pa.array(frames.repeated("ordered").astype(np.bool_)),
            "conf": frames.words("conf", self._confs.words),
            "transitional": pa.array(frames.repeated("transitional").astype(np.bool_)),
        }

    def _columns_of_messages(self, frames: _Frames) -> dict[str, pa.Array]:
        return {
            "sender": frames.words("sender", self._senders.words),
            "process": frames.words("process", self._processes.words),
            "counter": pa.array(frames.rank + frames.repeated_less_start("first"), mask=frames.is_rare),
            "service": frames.words("service", list(SERVICES)),
            "sent_us": pa.array(frames.repeated("sent_us"), mask=frames.is_rare),
            "value": pa.array(self.values, pa.binary()),
        }

    def _rare_columns(self, frames: _Frames) -> dict[str, pa.Array]:
        """The few rows that have these values are made one by one, and then put into their places among nulls."""
        if frames.is_rare is None:
            return {name: pa.nulls(self.rows, kind) for name, kind in RARE}
        which = pa.array(np.cumsum(frames.is_rare) - 1, mask=~frames.is_rare)
        return {name: pa.array([one.get(name) for one in self.rare], kind).take(which) for name, kind in RARE}


class _Frames:
    """The fields of frames as columns of rows. `rank` counts the rows; `is_rare` marks those that are no messages, if any are."""

    def __init__(self, frames: list[Frame], rows: int) -> None:
        numbers: Numbers = np.array(frames, dtype=np.int64).reshape(-1, len(Frame._fields))
        self._fields = dict(zip(Frame._fields, numbers.T, strict=True))
        self._counts = self._fields["rows"]
        self.rank: Numbers = np.arange(rows, dtype=np.int64)
        is_rare = self._fields["kind"] != MESSAGE
        self.is_rare = np.repeat(is_rare, self._counts) if is_rare.any() else None

    def repeated(self, name: str) -> Numbers:
        return np.repeat(self._fields[name], self._counts)

    def repeated_less_start(self, name: str) -> Numbers:
        """So that adding the rank counts on from the field within each frame."""
        starts = np.cumsum(self._counts) - self._counts
        return np.repeat(self._fields[name] - starts, self._counts)

    def words(self, name: str, known: list[str]) -> pa.Array:
        codes = self.repeated(name).astype(np.int32)
        indices = pa.array(codes) if self.is_rare is None else pa.array(codes, mask=codes == NOTHING)
        return pa.DictionaryArray.from_arrays(indices, pa.array(known, pa.string()))
