"""The one schema of traces as tables: kinds of events and names, and the columns of each.

1. One kind of event, one table; KINDS has the columns of each, COLUMNS their types. docs/pipeline.md explains every column.
2. Ids are 64-bit keys, and names are tables, too: nodes, process_names, view_names, group_view_names, addresses. A name is
   repeated in every segment that uses it.
3. `transis daemon` converts segments into these tables, audits read them, and Spark's types are derived from them.
4. A key is the same in every process, so that no table must be read to assign it. Two ids get one key with a probability of about
   2^-64 a pair; the tables of names would show it, for a key then has two names. A key has the run in it: nothing of two runs can
   be joined by mistake.
5. Most events are deliveries, so they become columns thousands at a time, without an object each. Ids are looked up by their
   bytes as they stand in the trace: the same few views and processes come again and again, and a look into a dictionary costs a
   tenth of decoding an id.

pyarrow and numpy come with the extra `trace`; neither is needed to run or to check a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise
from struct import Struct
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transis.trace.events import (
    CheckpointEvent,
    ClientDelivery,
    ClientLeft,
    ClientLife,
    Conf,
    Delivery,
    End,
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
from transis.types.errors import TraceError
from transis.types.ids import NodeId, ProcessId, Service, ViewId
from transis.types.views import GroupId, GroupViewId

_LONG, _INT, _BYTE, _TEXT, _FLAG = pa.int64(), pa.int32(), pa.int8(), pa.string(), pa.bool_()


def _list(kind: pa.DataType) -> pa.DataType:
    """As Spark names it, so that its type is exactly this one."""
    return pa.list_(pa.field("element", kind))


def _struct(**types: pa.DataType) -> pa.DataType:
    return pa.struct(list(types.items()))


_LONGS: Final = _list(_LONG)
_TEXTS: Final = _list(_TEXT)
_HANDED_RUNS: Final = _list(_struct(groups=_LONGS, processes=_LONGS, runs=_LONGS))
_LATE_RUNS: Final = _list(_struct(groups=_LONGS, processes=_LONGS, sender=_LONG, first=_LONG, count=_INT))
_ORIGINS: Final = _list(_struct(view=_LONG, members=_LONGS))
_SEEN: Final = _list(_struct(creator=_LONG, number=_LONG))
_DETAIL: Final = _list(_struct(key=_TEXT, value=_TEXT))

_OF_EVERY_EVENT: Final = {
    "run": _LONG,
    "node": _LONG,
    "segment": _INT,  # number of the segment in its life
    "conf_no": _INT,  # CONF events of this segment up to here; with `segment` it finds the stay (audit/plans/lay.py)
    "lseq": _LONG,
    "time_us": _LONG,
}

_OF_RUNS: Final = {
    "conf": _LONG,  # claimed: the configuration in force
    "regular": _LONG,  # claimed: the regular configuration it belongs to
    "sender": _LONG,  # node of the process
    "process": _LONG,
    "first": _LONG,
    "count": _INT,
    "service": _BYTE,  # types.ids.Service
    "address": _LONG,
    "place_seq": _LONG,
    "place_index": _INT,
    "tpos": _LONG,  # -1 for basic
    "before": _LONG,  # SEND only: ordered messages that its node had delivered in this stay; null if unknown
    "origin_us": _LONG,
    "timestamp": _LONG,
    "size": _LONG,
    "why": _TEXT,
}

_OF_VIEWS: Final = {
    "view": _LONG,
    "view_kind": _BYTE,  # 0 regular, 1 transitional
    "view_seq": _LONG,
    "view_rep": _LONG,
    "members": _LONGS,
    "previous": _LONGS,  # beside `members`: the regular view each comes from, null for none
    "is_sorted": _FLAG,  # members are in order of their ids, each once
    "cause": _TEXT,
    "cause_what": _TEXT,
    "accused": _LONGS,
    "digest": _LONG,  # of everything that equal views have equal
}

_OF_GROUPS: Final = {
    "group": _LONG,
    "group_view": _LONG,
    "cause_index": _LONG,  # of its place; wider than that of messages, for a fingerprint stands there after some mergers
    "name": _TEXT,
    "processes": _LONGS,  # GVIEW: the processes that were shown it; address: those it names, by private keys
    "joined": _LONGS,
    "left": _LONGS,
    "origins": _ORIGINS,
    "cause_process": _LONG,
    "cause_conf": _TEXT,  # the configuration's cause, in words; null if the cause is not a configuration
    "primary": _FLAG,
    "called": _TEXTS,  # beside `members`: their names, "" for none; empty if none has one
    "held": _FLAG,
    "handed": _HANDED_RUNS,
    "waited": _LATE_RUNS,
    "refused": _FLAG,
    "connected": _FLAG,
    "groups": _LONGS,
}

_OF_DIGESTS: Final = {
    "position": _LONG,  # ordered messages so far, in the configuration or in the group's view
    "sum_a": _LONG,  # the two sums of trace/tape.py
    "sum_b": _LONG,
    "last": _FLAG,  # there were no more in this configuration
    "last_process": _LONG,  # the message after which an application reported its state
    "last_counter": _LONG,
    "state": _TEXT,  # its digest, in hexadecimal digits
}

_OF_REPLICAS: Final = {
    "replica": _TEXT,
    "directory": _TEXT,  # its identity, in hexadecimal digits
    "creator": _LONG,  # of an action: the number of the replica that posted it
    "lane": _BYTE,  # 0 messages, 1 changes of membership
    "place": _LONG,  # in the order of actions; null if the step has none
    "offset": _LONG,  # of its first message
    "effect": _TEXT,
    "client_key": _TEXT,  # in hexadecimal digits; null for none
    "seen": _SEEN,
    "replicas": _LONGS,  # numbers of members
    "tag": _LONG,  # of a view of replicas
}

_OF_OTHERS: Final = {
    "what": _TEXT,
    "detail": _DETAIL,
    "first_lseq": _LONG,
    "last_lseq": _LONG,
    "first_tpos": _LONG,
    "end_tpos": _LONG,
    "ordered": _LONG,
    "from_us": _LONG,  # of a clock that stepped back: from where
    "first_us": _LONG,
    "last_us": _LONG,
}

_OF_NAMES: Final = {
    "incarnation": _LONG,
    "boot": _TEXT,  # 16 hexadecimal digits
    "number": _LONG,  # of a process in its node
    "private": _LONG,  # the process as addresses name it
}

_OF_SEGMENTS: Final = {
    "cluster": _TEXT,
    "run_name": _TEXT,
    "file": _TEXT,
    "bytes": _LONG,
    "torn_bytes": _LONG,
    "events": _LONG,
    "schema": _INT,
    "previous_digest": _TEXT,
    "content_digest": _TEXT,
    "seal_digest": _TEXT,  # null while it is open
    "sealed_events": _LONG,
    "closed": _FLAG,
    "engine": _TEXT,
    "mode": _TEXT,
    "build": _TEXT,
    "trouble": _TEXT,  # why nothing could be read of it (it was cut off, if torn_bytes says how much); null if all is well
}

COLUMNS: Final[dict[str, pa.DataType]] = {
    **_OF_EVERY_EVENT,
    **_OF_RUNS,
    **_OF_VIEWS,
    **_OF_GROUPS,
    **_OF_DIGESTS,
    **_OF_REPLICAS,
    **_OF_OTHERS,
    **_OF_NAMES,
    **_OF_SEGMENTS,
}
"""The type of every column. A column has the same type in all kinds that have it, and may be null."""

_RUN: Final = ["process", "first", "count", "service", "address"]

KINDS: Final[dict[str, list[str]]] = {
    "submits": [*_OF_EVERY_EVENT, *_RUN],
    "refusals": [*_OF_EVERY_EVENT, "process", "first", "count", "why"],
    "sends": [*_OF_EVERY_EVENT, "conf", *_RUN, "place_seq", "place_index", "before", "timestamp"],
    "deliveries": [*_OF_EVERY_EVENT, *(name for name in _OF_RUNS if name not in ("before", "why"))],
    "confs": [*_OF_EVERY_EVENT, "regular", "timestamp", *_OF_VIEWS],
    "ends": [*_OF_EVERY_EVENT, "what"],
    "afterwards": [*_OF_EVERY_EVENT],  # events behind the end of a life
    "faults": [*_OF_EVERY_EVENT, "what"],
    "notes": [*_OF_EVERY_EVENT, "what", "detail"],
    "gaps": [*_OF_EVERY_EVENT, "first_lseq", "last_lseq"],
    "group_views": [
        *_OF_EVERY_EVENT,
        *("group", "group_view", "name", "view", "place_seq", "cause_index", "members", "joined", "left", "origins", "is_sorted"),
        *("cause", "cause_what", "cause_process", "cause_conf", "primary", "processes", "called", "held"),
    ],
    "client_deliveries": [*_OF_EVERY_EVENT, "handed", "waited"],
    "client_leaves": [*_OF_EVERY_EVENT, "process", "group", "name", "why", "refused"],
    "clients": [*_OF_EVERY_EVENT, "process", "connected"],
    "prefixes": [*_OF_EVERY_EVENT, "conf", "regular", "position", "sum_a", "sum_b", "last"],
    "checkpoints": [
        *_OF_EVERY_EVENT,
        *("process", "group", "group_view", "name", "position", "last_process", "last_counter", "place_seq", "place_index"),
        "state",
    ],
    "replica_steps": [
        *_OF_EVERY_EVENT,
        *("name", "replica", "directory", "what", "creator", "lane", "number", "count", "place", "offset", "effect"),
        *("client_key", "seen", "replicas", "tag", "state"),
    ],
    "clock_steps": [*_OF_EVERY_EVENT, "from_us"],  # events with an earlier time than the event before
    "extents": ["run", "node", "segment", "conf_no", "first_tpos", "end_tpos", "ordered"],  # of the order, by stretch
    "addresses": ["run", "address", "groups", "processes"],
    "nodes": ["run", "node", "name", "incarnation", "boot"],
    "process_names": ["run", "process", "node", "number", "private"],
    "view_names": ["run", "view", "view_kind", "view_seq", "view_rep"],
    "group_view_names": ["run", "group_view", "group", "view", "place_seq", "cause_index"],
    "segments": ["run", "node", "segment", *_OF_SEGMENTS, "first_lseq", "last_lseq", "first_us", "last_us"],
}

SCHEMAS: Final = {kind: pa.schema([(name, COLUMNS[name]) for name in names]) for kind, names in KINDS.items()}

KIND_OF: Final[dict[type[Any], str]] = {
    Submit: "submits",
    Refuse: "refusals",
    Sent: "sends",
    Delivery: "deliveries",
    Conf: "confs",
    End: "ends",
    Fault: "faults",
    NoteEvent: "notes",
    Gap: "gaps",
    GroupConf: "group_views",
    ClientDelivery: "client_deliveries",
    ClientLeft: "client_leaves",
    ClientLife: "clients",
    Prefix: "prefixes",
    CheckpointEvent: "checkpoints",
    ReplicaStep: "replica_steps",
}
"""The table of each class of events. The other kinds are what the pass over a segment finds, and names."""


# --- keys -------------------------------------------------------------------------------------------------------------

_SIGNED: Final = Struct(">q")


def key_of(*parts: object) -> int:
    """A signed 64-bit number, as Spark's BIGINT."""
    return int(_SIGNED.unpack(blake2b(msgspec.msgpack.encode(parts), digest_size=8).digest())[0])


class RunKeys:
    """Keys of one run; each id is hashed once, then remembered."""

    def __init__(self, cluster: str, run: str) -> None:
        self.run = key_of("run", cluster, run)
        self.nodes: dict[NodeId, int] = {}
        self.processes: dict[ProcessId, int] = {}
        self.views: dict[ViewId, int] = {}
        self.addresses: dict[bytes, int] = {}
        self.group_views: dict[tuple[GroupId, GroupViewId], int] = {}

    def node(self, node: NodeId) -> int:
        found = self.nodes.get(node)
        if found is None:
            found = self.nodes[node] = key_of(self.run, "node", node)
        return found

    def process(self, process: ProcessId) -> int:
        found = self.processes.get(process)
        if found is None:
            self.node(process.node)
            found = self.processes[process] = key_of(self.run, "process", process)
        return found

    def view(self, view: ViewId) -> int:
        found = self.views.get(view)
        if found is None:
            self.node(view.rep)
            found = self.views[view] = key_of(self.run, "view", view)
        return found

    def address(self, address: bytes) -> int | None:
        """None for messages that are addressed to nobody in particular: the ring's own."""
        if not address:
            return None
        found = self.addresses.get(address)
        if found is None:
            found = self.addresses[address] = key_of(self.run, "address", address)
        return found

    def group(self, group: GroupId) -> int:
        """A group's id is a hash already; return it as a signed number."""
        return group - (1 << 64) if group >= 1 << 63 else int(group)

    def group_view(self, group: GroupId, view: GroupViewId) -> int:
        named = (group, view)
        found = self.group_views.get(named)
        if found is None:
            self.view(view.configuration)
            found = self.group_views[named] = key_of(self.run, "group view", group, view)
        return found


# --- deliveries -------------------------------------------------------------------------------------------------------

Array = NDArray[Any]

Raw = msgspec.Raw
Fields = tuple[int, int, Raw, Raw, Raw, int, int, int, bytes, tuple[int, int], int, int, int, int]
"""The fields of trace.events.Delivery; ids are left as they are."""
_DECODER: Final = msgspec.msgpack.Decoder(list[Fields])
_ARRAY: Final = Struct(">BI")
_SERVICES: Final = frozenset(int(service) for service in Service)


class DeliveryColumns:
    """The columns of some deliveries, in order. Bytes that are not deliveries raise TraceError."""

    def __init__(self, rows: Sequence[Raw], lookup: Lookup) -> None:
        try:
            decoded = _DECODER.decode(_ARRAY.pack(0xDD, len(rows)) + b"".join(rows))
            self.columns = lookup.columns(decoded)
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:
            raise TraceError(f"no batch of events: {error}") from error

    def extents(self, conf_no: Array) -> Iterable[tuple[int, int, int, int]]:
        """How far the order reaches in each stretch: its number, first position, end, and how many are in it."""
        ordered = self.columns["tpos"] >= 0
        tpos, count, stretch = self.columns["tpos"][ordered], self.columns["count"][ordered], conf_no[ordered]
        bounds = [*np.flatnonzero(np.diff(stretch, prepend=-1)), len(stretch)]
        for start, end in pairwise(bounds):
            last = end - 1
            yield int(stretch[start]), int(tpos[start]), int(tpos[last] + count[last]), int(count[start:end].sum())


class Lookup:
    """Keys of one segment by the bytes of ids."""

    def __init__(self, keys: RunKeys) -> None:
        self._views = _Known(ViewId, keys.view)
        self._processes = _Known(ProcessId, keys.process)
        self._senders = _Known(ProcessId, lambda process: keys.node(process.node))
        self._address = keys.address
        self._addresses: dict[bytes, int] = {}

    def columns(self, rows: list[Fields]) -> dict[str, Array]:
        """Columns named as in tables.KINDS; an address of 0 means none."""
        fields = zip(*rows, strict=True) if rows else iter([()] * 14)
        lseq, time_us, conf, regular, process, first, count, service, address, place, tpos, origin_us, timestamp, size = fields
        if not _SERVICES.issuperset(service):
            raise ValueError("a service that there is not")
        processes = list(map(bytes, process))
        seq, index = zip(*place, strict=True) if place else ((), ())
        longs = {
            "lseq": lseq, "time_us": time_us,
            "conf": map(self._views.__getitem__, map(bytes, conf)), "regular": map(self._views.__getitem__, map(bytes, regular)),
            "sender": map(self._senders.__getitem__, processes), "process": map(self._processes.__getitem__, processes),
            "first": first, "address": map(self._addressed(address).__getitem__, address),
            "place_seq": seq, "tpos": tpos, "origin_us": origin_us, "timestamp": timestamp, "size": size,
        }  # fmt: skip
        found = {name: np.fromiter(values, np.int64, len(rows)) for name, values in longs.items()}
        small = {"count": np.fromiter(count, np.int32, len(rows)), "place_index": np.fromiter(index, np.int32, len(rows))}
        return {**found, **small, "service": np.fromiter(service, np.int8, len(rows))}

    def _addressed(self, addresses: Iterable[bytes]) -> dict[bytes, int]:
        for address in set(addresses).difference(self._addresses):
            self._addresses[address] = self._address(address) or 0
        return self._addresses


class _Known(dict[bytes, int]):
    """Keys by encoded ids; one that is new is decoded, with all its types checked."""

    def __init__(self, kind: type[Any], key: Callable[[Any], int]) -> None:
        super().__init__()
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._key = key

    def __missing__(self, encoded: bytes) -> int:
        found = self[encoded] = self._key(self._decoder.decode(encoded))
        return found
