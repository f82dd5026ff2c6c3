"""The one schema of traces as tables: kinds of events and names, and the columns of each.

1. One kind of event, one table; KINDS has the columns of each, COLUMNS their types. docs/pipeline.md explains every column.
2. Ids are keys (keys.py), and names are tables, too: nodes, process_names, view_names, group_view_names, addresses. A name is
   repeated in every segment that uses it.
3. `transis daemon` converts segments into these tables, audits read them, and Spark's types are derived from them.

pyarrow and numpy come with the extra `trace`; neither is needed to run or to check a node.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

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
    Sent,
    Submit,
)

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
        *("cause", "cause_what", "cause_process", "cause_conf", "primary", "processes", "called"),
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
}
"""The table of each class of events. The other kinds are what the pass over a segment finds, and names."""
