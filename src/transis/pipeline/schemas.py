"""Schemas of what the pipeline reads and writes; the only place where columns are declared. docs/pipeline.md explains them.

`EVENTS` is one wide table: a row is an event, or something that a segment names, and `kind` says which columns it has; files
are partitioned by it, so a reader of one kind never sees the others. All ids are keys (keys.py); names are rows too.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

LONG: Final = LongType()
INT: Final = IntegerType()
BYTE: Final = ByteType()
TEXT: Final = StringType()
FLAG: Final = BooleanType()
LONGS: Final = ArrayType(LONG)


def columns(**types: DataType) -> StructType:
    """A schema; all columns may be null, as the Parquet and Arrow readers want it."""
    return StructType([StructField(name, kind) for name, kind in types.items()])


HANDED: Final = ArrayType(columns(groups=LONGS, processes=LONGS, runs=LONGS))
WAITED: Final = ArrayType(columns(groups=LONGS, processes=LONGS, sender=LONG, first=LONG, count=INT))
ORIGINS: Final = ArrayType(columns(view=LONG, members=LONGS))
DETAIL: Final = ArrayType(columns(key=TEXT, value=TEXT))

_OF_EVERY_EVENT: Final = {
    "run": LONG,
    "node": LONG,
    "segment": INT,  # number of the segment in its life
    "conf_no": INT,  # CONF events of this segment up to here; with `segment` it finds the stay (audit/lay.py)
    "lseq": LONG,
    "time_us": LONG,
}

_OF_RUNS: Final = {
    "conf": LONG,  # claimed: the configuration in force
    "regular": LONG,  # claimed: the regular configuration it belongs to
    "sender": LONG,  # node of the process
    "process": LONG,
    "first": LONG,
    "count": INT,
    "service": BYTE,  # model.service.Service
    "address": LONG,
    "place_seq": LONG,
    "place_index": INT,
    "tpos": LONG,  # -1 for basic
    "before": LONG,  # of a SEND: ordered messages that its node had delivered in this stay; null if the segment does not tell
    "origin_us": LONG,
    "timestamp": LONG,
    "size": LONG,
    "why": TEXT,
}

_OF_VIEWS: Final = {
    "view": LONG,
    "view_kind": BYTE,  # 0 regular, 1 transitional
    "view_seq": LONG,
    "view_rep": LONG,
    "members": LONGS,
    "previous": LONGS,  # beside `members`: the regular view each comes from, null for none
    "is_sorted": FLAG,  # members are in order of their ids, each once
    "cause": TEXT,
    "cause_what": TEXT,
    "accused": LONGS,
    "digest": LONG,  # of everything that equal views have equal
}

_OF_GROUPS: Final = {
    "group": LONG,
    "group_view": LONG,
    "cause_index": LONG,  # of its place; wider than that of messages, for a fingerprint stands there after some mergers
    "name": TEXT,
    "processes": LONGS,  # of a GVIEW: who was shown it; of an address: whom it names, by private keys
    "joined": LONGS,
    "left": LONGS,
    "origins": ORIGINS,
    "cause_process": LONG,
    "cause_conf": TEXT,  # the configuration's cause, in words; null if the cause is not a configuration
    "primary": FLAG,
    "handed": HANDED,
    "waited": WAITED,
    "refused": FLAG,
    "connected": FLAG,
    "groups": LONGS,
}

_OF_DIGESTS: Final = {
    "position": LONG,  # ordered messages so far, in the configuration or in the group's view
    "sum_a": LONG,  # the two sums of trace/tape.py
    "sum_b": LONG,
    "last": FLAG,  # there were no more in this configuration
    "last_process": LONG,  # the message behind which an application told of its state
    "last_counter": LONG,
    "state": TEXT,  # its digest, in hexadecimal digits
}

_OF_OTHERS: Final = {
    "what": TEXT,
    "detail": DETAIL,
    "first_lseq": LONG,
    "last_lseq": LONG,
    "first_tpos": LONG,
    "end_tpos": LONG,
    "ordered": LONG,
    "from_us": LONG,  # of a clock that stepped back: from where
    "first_us": LONG,
    "last_us": LONG,
}

_OF_NAMES: Final = {
    "incarnation": LONG,
    "boot": TEXT,  # 16 hexadecimal digits
    "number": LONG,  # of a process in its node
    "private": LONG,  # the process as addresses name it
}

_OF_SEGMENTS: Final = {
    "cluster": TEXT,
    "run_name": TEXT,
    "file": TEXT,
    "bytes": LONG,
    "torn_bytes": LONG,
    "events": LONG,
    "schema": INT,
    "previous_digest": TEXT,
    "content_digest": TEXT,
    "seal_digest": TEXT,  # null while it is open
    "sealed_events": LONG,
    "closed": FLAG,
    "engine": TEXT,
    "mode": TEXT,
    "build": TEXT,
    "trouble": TEXT,  # why nothing could be read of it (it was cut off, if torn_bytes says how much); null if all is well
}

EVENTS: Final = columns(
    kind=TEXT,
    **_OF_EVERY_EVENT,
    **_OF_RUNS,
    **_OF_VIEWS,
    **_OF_GROUPS,
    **_OF_DIGESTS,
    **_OF_OTHERS,
    **_OF_NAMES,
    **_OF_SEGMENTS,
)

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
        *("cause", "cause_what", "cause_process", "cause_conf", "primary", "processes"),
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
"""The columns of each kind. Names (nodes, processes, views, addresses) repeat in every segment that uses them."""


LARGE: Final = ("submits", "refusals", "sends", "deliveries", "client_deliveries")
"""Kinds that grow with every message; the others grow with what happens to nodes and groups."""


def schema_of(kind: str) -> StructType:
    return StructType([EVENTS[name] for name in KINDS[kind]])


CHECKED: Final = columns(run=LONG, ring=LONG, property=TEXT, checked=LONG, pending=LONG)
"""What a property had to look at, summed: several rows a run are added up. `ring` is null where it is not about one."""

MESSAGE: Final = columns(process=LONG, counter=LONG)
WITNESS: Final = columns(node=LONG, lseq=LONG)

VIOLATIONS: Final = columns(
    run=LONG,
    ring=LONG,
    property=TEXT,
    explanation=TEXT,
    nodes=LONGS,
    views=LONGS,
    messages=ArrayType(MESSAGE),
    witness=ArrayType(WITNESS),
    position=LONG,
)
"""One broken promise: in words, with the events that show it."""
