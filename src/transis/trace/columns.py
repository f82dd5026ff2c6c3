"""A segment's events as columns: one pass over its rows, Arrow batches of each kind (tables.py).

1. Two columns need the pass: `conf_no`, the number of configurations in this segment so far, and, for a SEND, `before`, how many
   ordered messages its node had delivered in that configuration.
2. The pass also finds where events are missing or the clock went back, but only inside the segment. What reaches beyond it is
   left to audit/plans/lay.py, which knows all segments.

`python -m transis.trace.columns SEGMENT DIRECTORY` turns one segment into Parquet, in a process beside the daemon. The tables
are written aside and moved in place when all are there, `segments` last, so that a reader never meets half a table and the daemon
knows by that one whether a segment was converted.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transis.trace.events import (
    CheckpointEvent,
    ClientDelivery,
    ClientLeft,
    ClientLife,
    Conf,
    Delivery,
    End,
    Event,
    Fault,
    Gap,
    GroupConf,
    NoteEvent,
    Prefix,
    Refuse,
    ReplicaStep,
    Sent,
    Submit,
)
from transis.trace.files import rename
from transis.trace.reader import ACCEPTED, Frames, decode_at, read_address, read_frames, unknown_version
from transis.trace.segment import CONVERTED, NUMBERS, Header, decode_row, split_rows
from transis.trace.tables import COLUMNS, KIND_OF, KINDS, SCHEMAS, Array, DeliveryColumns, Lookup, RunKeys, key_of
from transis.types.errors import TraceCutOff, TraceError, TransisError
from transis.types.ids import NodeId, ProcessId
from transis.types.views import GroupView

CHUNK: Final = 16_384
"""Rows that become Arrow arrays together: enough to make the cost of a call small, few enough to hold in memory."""

Values = tuple[Any, ...]
Row = tuple[int, msgspec.Raw]


_CONF, _DELIVERY, _END, _HANDED = (NUMBERS[kind] for kind in (Conf, Delivery, End, ClientDelivery))


class SegmentColumns:
    """What a segment holds, as narrow Arrow batches of each kind; rows on their way there are tuples in the order of KINDS."""

    def __init__(self, header: Header) -> None:
        self.keys = RunKeys(header.cluster, header.run)
        self.node = header.node
        self._node = self.keys.node(header.node)
        self._lookup = Lookup(self.keys)
        self.origin: Final = (self.keys.run, self._node, header.number)
        self._own: dict[int, int] = {}
        self._conf_no = 0
        self._position: int | None = None
        self._ended = False
        self._extents: dict[int, list[int]] = {}
        self._expected: int | None = 1 if header.number == 1 else None
        self.first_lseq: int | None = None
        self.last_lseq: int | None = None
        self.first_us: int | None = None
        self.last_us: int | None = None
        self.events = 0
        self.rows: dict[str, list[Values]] = {kind: [] for kind in KINDS}
        self._batches: dict[str, list[pa.RecordBatch]] = {kind: [] for kind in KINDS}

    def add(self, rows: Sequence[Row]) -> None:
        """The next events, as rows of trace/segment.py; best a CHUNK of them."""
        if not rows:
            return
        numbers = np.fromiter((number for number, _ in rows), np.int8, len(rows))
        ends = np.flatnonzero(numbers == _END)
        live = 0 if self._ended else ends[0] + 1 if len(ends) else len(rows)
        self._add_living(numbers[:live], rows[:live])
        self._add_afterwards(rows[live:])
        self.events += len(rows)
        for kind, found in self.rows.items():
            if len(found) >= CHUNK:
                self._pack(kind)

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Every kind that has rows, in batches of bounded size, names at the end: they are complete only when all was read."""
        self._name_everything()
        for kind, batches in self._batches.items():
            self._pack(kind)
            yield from ((kind, batch) for batch in batches)

    def _add_living(self, numbers: Array, rows: Sequence[Row]) -> None:
        is_conf, is_delivery = numbers == _CONF, numbers == _DELIVERY
        conf_no = self._conf_no + np.cumsum(is_conf, dtype=np.int32)
        run = DeliveryColumns([row for number, row in rows if number == _DELIVERY], self._lookup)
        others = [(place, decode_row(*rows[place])) for place in np.flatnonzero(~is_delivery).tolist()]
        lseqs, times = (_beside(is_delivery, run.columns[name], others, name) for name in ("lseq", "time_us"))
        self._look_for_gaps(lseqs, times, conf_no - is_conf, dict(others))
        self._look_for_steps(lseqs, times, conf_no, numbers != _HANDED)
        positions = self._positions(is_delivery, run, others)
        for place, event in others:
            self._conf_no, self._position = int(conf_no[place]), positions[place]
            row = (*self.origin, self._conf_no, event.lseq, event.time_us, *_ROW_OF[type(event)](self, event))
            self.rows[KIND_OF[type(event)]].append(row)
        self._add_deliveries(run, conf_no[is_delivery])
        if len(rows):
            self._conf_no, self._position = int(conf_no[-1]), positions[len(rows) - 1]
            self._ended = numbers[-1] == _END

    def _add_deliveries(self, run: DeliveryColumns, conf_no: Array) -> None:
        if not len(conf_no):
            return
        for stretch, first, end, ordered in run.extents(conf_no):
            known = self._extents.setdefault(stretch, [first, end, 0])
            known[1] = end
            known[2] += ordered
        given = dict(zip(("run", "node", "segment"), self.origin, strict=True))
        arrays = {name: pa.repeat(pa.scalar(value, COLUMNS[name]), len(conf_no)) for name, value in given.items()}
        arrays |= {name: pa.array(column) for name, column in run.columns.items()} | {"conf_no": pa.array(conf_no)}
        arrays["address"] = pa.array(run.columns["address"], mask=run.columns["address"] == 0)
        self._batches["deliveries"].append(
            pa.record_batch([arrays[field.name] for field in SCHEMAS["deliveries"]], SCHEMAS["deliveries"])
        )

    def _add_afterwards(self, rows: Sequence[Row]) -> None:
        """Events after the end of a life. There should be none, so they are only counted."""
        events = [decode_row(*row) for row in rows]
        lseqs, times = (np.array([getattr(event, name) for event in events], np.int64) for name in ("lseq", "time_us"))
        self._look_for_gaps(lseqs, times, np.full(len(rows), self._conf_no), dict(enumerate(events)))
        self.rows["afterwards"] += [(*self.origin, self._conf_no, event.lseq, event.time_us) for event in events]

    def _positions(self, is_delivery: Array, run: DeliveryColumns, others: Sequence[tuple[int, Event]]) -> dict[int, int | None]:
        """How many ordered messages this stay had delivered up to each event that is not a delivery, and up to the last event."""
        known = np.full(len(is_delivery), -1, np.int64)
        known[is_delivery] = np.where(run.columns["tpos"] >= 0, run.columns["tpos"] + run.columns["count"], -1)
        known[[place for place, event in others if isinstance(event, Conf) and event.view.id.is_regular]] = 0
        latest = np.maximum.accumulate(np.where(known >= 0, np.arange(len(known)), -1))
        asked = [*(place for place, _ in others), len(known) - 1] if len(known) else []
        return {place: int(known[latest[place]]) if latest[place] >= 0 else self._position for place in asked}

    def _look_for_gaps(self, lseqs: Array, times: Array, conf_no: Array, events: Mapping[int, Event]) -> None:
        """Find events that are missing within the segment without a recorded Gap. lay.py looks between segments."""
        if not len(lseqs):
            return
        if self.first_lseq is None:
            self.first_lseq = int(lseqs[0])
        expected = np.concatenate([[lseqs[0] if self._expected is None else self._expected], lseqs[:-1] + 1])
        for place in np.flatnonzero(lseqs != expected).tolist():
            wanted, found, event = int(expected[place]), int(lseqs[place]), events.get(place)
            if not (isinstance(event, Gap) and (event.first_lseq, event.last_lseq) == (wanted, found - 1)):
                last = max(wanted, found - 1)
                self.rows["gaps"].append((*self.origin, int(conf_no[place]), wanted, int(times[place]), wanted, last))
        self.last_lseq = int(lseqs[-1])
        self._expected = self.last_lseq + 1

    def _look_for_steps(self, lseqs: Array, times: Array, conf_no: Array, timely: Array) -> None:
        """Find where the clock went back. Client deliveries do not count: they are recorded late, with the time they happened."""
        lseqs, times, conf_no = lseqs[timely], times[timely], conf_no[timely]
        if not len(times):
            return
        if self.first_us is None:
            self.first_us = self.last_us = int(times[0])
        before = np.concatenate([[self.last_us], times[:-1]])
        for place in np.flatnonzero(times < before).tolist():
            stepped = (int(conf_no[place]), int(lseqs[place]), int(times[place]), int(before[place]))
            self.rows["clock_steps"].append((*self.origin, *stepped))
        self.last_us = int(times[-1])

    def _pack(self, kind: str) -> None:
        rows = self.rows[kind]
        if rows:
            columns = [pa.array(values, field.type) for field, values in zip(SCHEMAS[kind], zip(*rows, strict=True), strict=True)]
            self._batches[kind].append(pa.record_batch(columns, SCHEMAS[kind]))
            rows.clear()

    def _own_process(self, number: int) -> int:
        found = self._own.get(number)
        if found is None:
            found = self._own[number] = self.keys.process(ProcessId(self.node, number))
        return found

    # -- rows of events ------------------------------------------------------------------------------------------

    def _sent(self, event: Sent) -> Values:
        run = (self._own_process(event.process), event.first, event.count, event.service.value, self.keys.address(event.address))
        placed = (event.place.seq, event.place.index, self._position, event.timestamp)
        return (self.keys.view(event.conf), *run, *placed)

    def _submit(self, event: Submit) -> Values:
        address = self.keys.address(event.address)
        return (self._own_process(event.process), event.first, event.count, event.service.value, address)

    def _refuse(self, event: Refuse) -> Values:
        return (self._own_process(event.process), event.first, event.count, event.why)

    def _conf(self, event: Conf) -> Values:
        view, keys = event.view, self.keys
        if view.id.is_regular:
            self._position = 0
        members = [keys.node(member.node) for member in view.members]
        previous = [None if member.previous is None else keys.view(member.previous) for member in view.members]
        named = (keys.view(view.id), int(view.id.kind), view.id.seq, keys.node(view.id.rep))
        cause = (str(view.cause), view.cause.what, [keys.node(node) for node in view.cause.accused])
        equal_everywhere = key_of(view.members, view.regular, view.cause)
        is_sorted = list(view.nodes) == sorted(set(view.nodes))
        regular = keys.view(view.regular)
        return (regular, view.timestamp, *named, members, previous, is_sorted, *cause, equal_everywhere)

    def _end(self, event: End) -> Values:
        return (event.how,)

    def _fault(self, event: Fault) -> Values:
        return (event.what,)

    def _note(self, event: NoteEvent) -> Values:
        return (event.what, [{"key": key, "value": str(value)} for key, value in event.detail])

    def _gap(self, event: Gap) -> Values:
        return (event.first_lseq, event.last_lseq)

    def _group_conf(self, event: GroupConf) -> Values:
        view, keys = event.view, self.keys
        configuration, place = view.id
        group = keys.group(view.group)
        named = (group, keys.group_view(view.group, view.id), view.name, keys.view(configuration), place.seq, place.index)
        process = keys.process
        origins = [
            {"view": keys.group_view(view.group, origin.view), "members": [process(member) for member in origin.members]}
            for origin in view.merged_from
        ]
        cause = view.cause
        why = None if cause.configuration is None else str(cause.configuration)
        caused = (str(cause), cause.what, None if cause.process is None else process(cause.process), why)
        who = ([process(member) for member in members] for members in (view.members, view.joined, view.left))
        shown = [self._own_process(number) for number in event.processes]
        return (*named, *who, origins, _in_order(view), *caused, view.primary, shown, list(view.names), view.held)

    def _client_delivery(self, event: ClientDelivery) -> Values:
        handed = [
            {
                "groups": [self.keys.group(group) for group in groups],
                "processes": [self._own_process(number) for number in processes],
                "runs": list(runs),
            }
            for groups, processes, runs in event.handed
        ]
        waited = [
            {
                "groups": [self.keys.group(group) for group in one.groups],
                "processes": [self._own_process(number) for number in one.processes],
                "sender": self.keys.process(one.sender),
                "first": one.first,
                "count": one.count,
            }
            for one in event.waited
        ]
        return (handed, waited)

    def _client_left(self, event: ClientLeft) -> Values:
        return (self._own_process(event.process), self.keys.group(event.group), event.name, event.why, event.refused)

    def _client_life(self, event: ClientLife) -> Values:
        return (self._own_process(event.process), event.connected)

    def _prefix(self, event: Prefix) -> Values:
        return (self.keys.view(event.conf), self.keys.view(event.regular), event.count, event.a, event.b, event.last)

    def _checkpoint(self, event: CheckpointEvent) -> Values:
        where = (self.keys.group(event.group), self.keys.group_view(event.group, event.view), event.name, event.count)
        behind = (None if event.sender is None else self.keys.process(event.sender), event.counter, *event.place)
        return (self._own_process(event.process), *where, *behind, event.digest.hex())

    def _replica_step(self, event: ReplicaStep) -> Values:
        action = (event.creator, event.lane, event.number, event.count)
        placed = (event.place if event.place >= 0 else None, event.offset if event.offset >= 0 else None, event.effect)
        seen = [{"creator": creator, "number": number} for creator, number in event.seen]
        rest = (event.key.hex() or None, seen, list(event.members), event.tag, event.state.hex())
        return (event.group, event.replica, event.directory.hex(), event.what, *action, *placed, *rest)

    # -- the segment itself, and names --------------------------------------------------------------------------------

    def finish(self, segment: Frames, file: str, size: int) -> None:
        """Add the row of the segment itself, after all its events."""
        header, footer = segment.header, segment.footer
        read = (file, size, segment.torn_bytes, self.events, header.schema, header.previous, segment.digest)
        seal = (None, None, False) if footer is None else (footer.digest, footer.events, footer.closed)
        made = (header.engine, header.mode, header.build, None, self.first_lseq, self.last_lseq, self.first_us, self.last_us)
        self.rows["segments"].append((*self.origin, header.cluster, header.run, *read, *seal, *made))

    def _name_everything(self) -> None:
        keys, run = self.keys, self.keys.run
        self.rows["extents"] += [(*self.origin, conf_no, *extent) for conf_no, extent in self._extents.items()]
        for address, key in keys.addresses.items():
            to = read_address(address)
            processes = [_private(run, boot, number) for boot, number in to.processes]
            self.rows["addresses"].append((run, key, [keys.group(group) for group in to.groups], processes))
        for (group, view), key in keys.group_views.items():
            place = (view.place.seq, view.place.index)
            self.rows["group_view_names"].append((run, key, keys.group(group), keys.view(view.configuration), *place))
        for named, key in keys.views.items():
            self.rows["view_names"].append((run, key, int(named.kind), named.seq, keys.node(named.rep)))
        for process, key in keys.processes.items():
            private = _private(run, process.node.boot, process.number)
            self.rows["process_names"].append((run, key, keys.node(process.node), process.number, private))
        self.rows["nodes"] += [(run, key, *_node_columns(node)) for node, key in keys.nodes.items()]


def trouble_batch(why: TraceError, file: str, size: int, header: Header | None = None) -> pa.RecordBatch:
    """The row of a file of which nothing can be read; it names the writer if the header is whole."""
    known: dict[str, Any] = {"file": file, "bytes": size, "trouble": str(why)}
    if isinstance(why, TraceCutOff):
        known["torn_bytes"] = size
    if header is not None:
        keys = RunKeys(header.cluster, header.run)
        known |= {"run": keys.run, "node": keys.node(header.node), "segment": header.number, "cluster": header.cluster}
        known |= {
            "run_name": header.run,
            "schema": header.schema,
            "engine": header.engine,
            "mode": header.mode,
            "build": header.build,
        }
    return pa.RecordBatch.from_pylist([known], SCHEMAS["segments"])


def columns_of(name: str, frames: Frames) -> SegmentColumns:
    """All events of a segment whose frames were read; one that cannot be decoded is a TraceError with its offset."""
    if frames.header.schema not in ACCEPTED:
        raise TraceError(f"{name}: {unknown_version(frames.header)}")
    columns = SegmentColumns(frames.header)
    for place, rows in _chunks(name, frames.batches):
        decode_at(name, place, columns.add, rows)
    return columns


def _chunks(name: str, batches: Iterable[tuple[int, memoryview]]) -> Iterator[tuple[int, list[Row]]]:
    """Rows of several small batches together, and where the first stands; live nodes write a batch for every turn."""
    start, rows = 0, list[Row]()
    for place, body in batches:
        start = place if not rows else start
        rows += decode_at(name, place, split_rows, body)
        if len(rows) >= CHUNK:
            yield start, rows
            rows = []
    yield start, rows


def _beside(is_delivery: Array, delivered: Array, others: Sequence[tuple[int, Event]], name: str) -> Array:
    """One field of all events in their order, of deliveries and of others."""
    values = np.empty(len(is_delivery), np.int64)
    values[is_delivery] = delivered
    values[~is_delivery] = [getattr(event, name) for _, event in others]
    return values


def _private(run: int, boot: int, number: int) -> int:
    """The key of a process as addresses name it."""
    return key_of(run, "private", boot, number)


def _node_columns(node: NodeId) -> Values:
    return (node.name, node.incarnation, f"{node.boot:016x}")


def _in_order(view: GroupView) -> bool:
    """Are members, joined, left and origins sorted and unique? Keys have no order, so a column says it."""
    lists: list[list[Any]] = [list(view.members), list(view.joined), list(view.left), [one.view for one in view.merged_from]]
    return all(found == sorted(set(found)) for found in lists)


_ROW_OF: Final[dict[type[Any], Callable[[SegmentColumns, Any], Values]]] = {
    Submit: SegmentColumns._submit,
    Refuse: SegmentColumns._refuse,
    Sent: SegmentColumns._sent,
    Conf: SegmentColumns._conf,
    End: SegmentColumns._end,
    Fault: SegmentColumns._fault,
    NoteEvent: SegmentColumns._note,
    Gap: SegmentColumns._gap,
    GroupConf: SegmentColumns._group_conf,
    ClientDelivery: SegmentColumns._client_delivery,
    ClientLeft: SegmentColumns._client_left,
    ClientLife: SegmentColumns._client_life,
    Prefix: SegmentColumns._prefix,
    CheckpointEvent: SegmentColumns._checkpoint,
    ReplicaStep: SegmentColumns._replica_step,
}
"""What a row has behind the columns of every event; deliveries become columns at once (tables.py)."""

# --- Parquet ------------------------------------------------------------------------------------------------------------


def convert(path: Path, directory: Path) -> dict[str, Path]:
    """Write the tables of one segment into a directory; the file of each table that has rows."""
    content = path.read_bytes()
    frames = read_frames(path.name, content)
    columns = columns_of(path.name, frames)
    columns.finish(frames, str(path), len(content))
    directory.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[pa.RecordBatch]] = {}
    for kind, batch in columns.batches():
        found.setdefault(kind, []).append(batch)
    written = {kind: directory / f"{kind}-{path.stem}.parquet" for kind in found}
    for kind, target in written.items():
        pq.write_table(pa.Table.from_batches(found[kind]), target)
    return written


# --- in a process of its own ------------------------------------------------------------------------------------------


def convert_aside(segment: Path, directory: Path) -> None:
    aside = directory / f".converting-{segment.stem}"
    shutil.rmtree(aside, ignore_errors=True)  # What a conversion left behind that was killed.
    try:
        written = convert(segment, aside)
        for table in sorted(written, key=lambda name: (name == CONVERTED, name)):
            rename(written[table], directory / written[table].name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def main(arguments: list[str]) -> int:
    try:
        convert_aside(Path(arguments[0]), Path(arguments[1]))
    except (TransisError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
