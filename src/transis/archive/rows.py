"""What an archiver is told -> rows of the stream. One step per frame, no object per message.

1. A `Rows` is one life of an archiver: its rows are numbered from 1 without a hole, and what it saw has none either.
2. An ordered message has its own place in its *regular* configuration, also when it is delivered in a transitional one; a regular
   view or configuration has the place of its cause. What has no place stands where the last ordered row before it stands.
3. The beginning, and what is in force when an archiver comes, stand where its first view does, and wait for it: they say
   where, not since when, and are not ordered.
4. Where places are not promised (`guarantees` other than "evs") no row is ordered, and messages stand where the last view does.

No clock, no file. `take` costs nothing; the columns are built by `Portion.table`, which may run in another thread.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from transis.archive.columns import NOTHING, Frame, Portion, Rare, Stretch
from transis.archive.schema import BEGIN, CONFIGURATION, MESSAGE, VIEW, Position
from transis.client.events import Batch, Configuration, View
from transis.trace.reader import group_view_name, node_name, process_name, view_name
from transis.types.ids import Service, ViewId

ROW_BYTES: Final = 64
"""What a row takes in memory beside its value, about; and what a string does beside its characters."""


class _At(NamedTuple):
    """A position before it is put into words."""

    ring: ViewId
    seq: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody wants of a place


class _Early(NamedTuple):
    """A row that waits for the first view."""

    kind: int
    conf: ViewId | None
    now_us: int
    rare: Rare


class Rows:
    """`rows` is how many were added in this life, `bytes` about the size of those that were not taken yet."""

    def __init__(self, group: str, archiver: str, life: int, engine: str, guarantees: str, last: Position | None = None) -> None:
        """`last` is where the archiver stood before this life."""
        self.rows = 0
        self.bytes = 0
        self._group, self._archiver, self._life = group, archiver, life
        self._last = last
        self._has_places = guarantees == "evs"
        self._ordered_from = Service.CAUSAL if engine == "totem" else Service.AGREED
        self._early: list[_Early] | None = []
        self._ring: ViewId | None = None
        self._at: _At | None = None
        self._portion = Portion(group, archiver, life, 1)

    @property
    def position(self) -> Position | None:
        """Of the last row; None before the first view."""
        at = self._at
        return None if at is None else Position(at.ring.seq, node_name(at.ring.rep), at.seq, at.index)

    def take(self) -> Portion:
        """The rows that came since the last time."""
        portion, self.bytes = self._portion, 0
        portion.end = self.position
        self._portion = Portion(self._group, self._archiver, self._life, self.rows + 1)
        return portion

    # --- what comes -------------------------------------------------------------------------------------------------

    def begin(self, why: str, now_us: int) -> None:
        """The first row of a life."""
        since = {} if self._last is None else {f"since_{name}": value for name, value in self._last._asdict().items()}
        self._tell(BEGIN, None, now_us, since | {"why": why})

    def configuration(self, view: Configuration, now_us: int) -> None:
        """From here on messages are of the regular configuration `view.regular`."""
        self._ring = view.regular
        if view.id.is_regular and self._early is None:
            self._at = _At(view.id, 0, 0)
        rare: Rare = {
            "members": [node_name(member.node) for member in view.members],
            "previous": [None if member.previous is None else view_name(member.previous) for member in view.members],
            "cause": str(view.cause),
        }
        self._tell(CONFIGURATION, view.id, now_us, rare)

    def view(self, view: View, now_us: int) -> None:
        configuration, place = view.id
        if configuration.is_regular:
            self._at = _At(configuration, place.seq, place.index)
        self._place_early()
        rare: Rare = {
            "view": group_view_name(view.id),
            "members": list(map(process_name, view.members)),
            "joined": list(map(process_name, view.joined)),
            "left": list(map(process_name, view.left)),
            "cause": str(view.cause),
            "primary": view.primary,
            "merged_from": [
                {"view": group_view_name(origin.view), "members": list(map(process_name, origin.members))}
                for origin in view.merged_from
            ],
        }
        self._tell(VIEW, configuration, now_us, rare)

    def messages(self, batch: Batch[bytes], now_us: int) -> None:
        at, portion, service = self._at, self._portion, batch.service
        assert at is not None, "a stream begins with a view"
        payloads = batch.payloads
        is_ordered = self._has_places and service >= self._ordered_from
        if is_ordered:
            at = self._ordered(batch)
        else:
            portion.stretches.append(Stretch(at.seq, at.index, len(payloads), 0))
        portion.values += payloads
        process, sender = portion.process(batch.sender)
        words = (process, sender, batch.first, int(service), batch.sent_us, now_us)
        self._add(MESSAGE, len(payloads), is_ordered, at.ring, batch.view, *words)
        self.bytes += sum(map(len, payloads))

    def _ordered(self, batch: Batch[bytes]) -> _At:
        """The places of ordered messages, in their regular configuration."""
        stretches = batch.stretches
        self._portion.stretches += [Stretch(seq, index, count, 1) for seq, index, count in stretches]
        seq, index, count = stretches[-1]
        ring = batch.view if batch.view.is_regular else self._ring
        assert ring is not None, "who follows configurations is told the one in force first"
        self._at = _At(ring, seq, index + count - 1)
        return self._at

    # --- rows that are no messages ----------------------------------------------------------------------------------

    def _tell(self, kind: int, conf: ViewId | None, now_us: int, rare: Rare) -> None:
        if self._early is not None:
            self._early.append(_Early(kind, conf, now_us, rare))
        else:
            self._put(_Early(kind, conf, now_us, rare), self._has_places and conf is not None and conf.is_regular)

    def _place_early(self) -> None:
        early, self._early = self._early, None
        if early and early[0].kind == BEGIN:
            early[0].rare["why"] += self._below()
        for one in early or ():
            self._put(one, is_ordered=False)

    def _below(self) -> str:
        """Rings are numbered upwards along the life of a node: what a life begins below is told."""
        at, last = self.position, self._last
        if at is None or last is None or at.ring_seq >= last.ring_seq:
            return ""
        return f"; this is below {last}: it is another component, or a cluster that was begun anew"

    def _put(self, one: _Early, is_ordered: bool) -> None:
        at, portion = self._at, self._portion
        assert at is not None, "the first view of a member is a regular one"
        portion.stretches.append(Stretch(at.seq, at.index, 1, 0))
        portion.values.append(None)
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
        portion.frames.append(Frame(kind, rows, is_ordered, *where, process, sender, first, service, sent_us, now_us))
        portion.rows += rows
        self.rows += rows
        self.bytes += ROW_BYTES * rows


def _size_of(value: Any) -> int:
    """In memory, about: a view of many members is large."""
    if isinstance(value, str):
        return ROW_BYTES + len(value)
    if isinstance(value, dict):
        return sum(map(_size_of, value.values()))
    return sum(map(_size_of, value)) if isinstance(value, list) else 0
