"""A segment as Parquet tables (traces 3): runs stay runs, one table per kind of event, one file each.

Nothing here is needed to run or to check a node; pyarrow is asked for only when a conversion is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

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
    Sent,
    Submit,
)
from transis.trace.reader import NOBODY, Segment, read_address, read_segment
from transis.trace.reader import group_view_name as _group_view_id
from transis.trace.reader import node_name as _node
from transis.trace.reader import process_name as _process
from transis.trace.reader import view_name as _view
from transis.types.errors import MissingExtra
from transis.types.views import GroupId

Row = dict[str, Any]


def convert(path: Path, directory: Path) -> dict[str, Path]:
    """Write the tables of one segment into a directory; the file of each table that has rows."""
    arrow, parquet = _pyarrow()
    segment = read_segment(path)
    directory.mkdir(parents=True, exist_ok=True)
    written: dict[str, Path] = {}
    for name, rows in tables(segment).items():
        target = directory / f"{name}-{path.stem}.parquet"
        parquet.write_table(arrow.Table.from_pylist(rows), target)
        written[name] = target
    return written


def tables(segment: Segment) -> dict[str, list[Row]]:
    """Rows of each table, without the tables that would be empty."""
    found: dict[str, list[Row]] = {"segments": [_segment_row(segment)]}
    node = _node(segment.header.node)
    for event in segment.events:
        name, columns = TABLES[type(event)]
        common = {"node": node, "lseq": event.lseq, "time_us": event.time_us}
        found.setdefault(name, []).append(common | columns(event))
    addresses = _address_rows(segment.events)
    return found | {"addresses": addresses} if addresses else found


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("converting traces to Parquet", "trace") from error
    return pyarrow, pyarrow.parquet


def _segment_row(segment: Segment) -> Row:
    header, footer = segment.header, segment.footer
    return {
        "schema": header.schema,
        "cluster": header.cluster,
        "run": header.run,
        "node": _node(header.node),
        "boot": f"{header.node.boot:016x}",
        "number": header.number,
        "previous": header.previous,
        "digest": segment.digest,
        "first_lseq": footer.first_lseq if footer else None,
        "last_lseq": footer.last_lseq if footer else None,
        "sealed": footer is not None,
        "engine": header.engine,
        "mode": header.mode,
        "build": header.build,
    }


def _address_rows(events: list[Event]) -> list[Row]:
    """Each address of the segment once, with the groups and processes that it names."""
    used = {event.address for event in events if isinstance(event, Sent | Delivery)}
    read = [(address, read_address(address)) for address in sorted(used)]
    return [
        {
            "address": address,
            "groups": [_group(group) for group in to.groups],
            "processes": [{"boot": f"{boot:016x}", "process": number} for boot, number in to.processes],
        }
        for address, to in read
        if to != NOBODY
    ]


def _run(event: Submit | Sent | Delivery) -> Row:
    return {"first": event.first, "count": event.count, "service": event.service.name.lower(), "address": event.address}


def _placed(event: Sent | Delivery) -> Row:
    return {"place_seq": event.place.seq, "place_index": event.place.index, "timestamp": event.timestamp}


def _submit(event: Submit) -> Row:
    return {"process": event.process} | _run(event)


def _refuse(event: Refuse) -> Row:
    return {"process": event.process, "first": event.first, "count": event.count, "why": event.why}


def _sent(event: Sent) -> Row:
    return {"conf": _view(event.conf), "process": event.process} | _run(event) | _placed(event)


def _delivery(event: Delivery) -> Row:
    who = {"sender": _node(event.process.node), "process": event.process.number}
    where = {"conf": _view(event.conf), "regular": _view(event.regular), "tpos": event.tpos}
    return where | who | _run(event) | _placed(event) | {"origin_us": event.origin_us, "bytes": event.size}


def _conf(event: Conf) -> Row:
    view = event.view
    members = [
        {"node": _node(member.node), "previous": _view(member.previous) if member.previous else None, "address": member.address}
        for member in view.members
    ]
    return {"conf": _view(view.id), "regular": _view(view.regular), "cause": str(view.cause), "members": members}


def _group(group: GroupId) -> str:
    return f"{group:016x}"


def _group_conf(event: GroupConf) -> Row:
    view = event.view
    return {
        "group": _group(view.group),
        "name": view.name,
        "view": _group_view_id(view.id),
        "conf": _view(view.id.configuration),
        "place_seq": view.id.place.seq,
        "place_index": view.id.place.index,
        "members": [_process(member) for member in view.members],
        "joined": [_process(member) for member in view.joined],
        "left": [_process(member) for member in view.left],
        "merged_from": [
            {"view": _group_view_id(origin.view), "members": [_process(member) for member in origin.members]}
            for origin in view.merged_from
        ],
        "cause": str(view.cause),
        "primary": view.primary,
        "processes": list(event.processes),
    }


def _client_delivery(event: ClientDelivery) -> Row:
    handed = [
        {"groups": [_group(group) for group in groups], "processes": list(processes), "runs": list(runs)}
        for groups, processes, runs in event.handed
    ]
    waited = [
        {
            "groups": [_group(group) for group in one.groups],
            "processes": list(one.processes),
            "sender": _node(one.sender.node),
            "process": one.sender.number,
            "first": one.first,
            "count": one.count,
        }
        for one in event.waited
    ]
    return {"handed": handed, "waited": waited}


def _client_left(event: ClientLeft) -> Row:
    why = {"why": event.why, "refused": event.refused}
    return {"process": event.process, "group": _group(event.group), "name": event.name} | why


def _client_life(event: ClientLife) -> Row:
    return {"process": event.process, "connected": event.connected}


def _prefix(event: Prefix) -> Row:
    where = {"conf": _view(event.conf), "regular": _view(event.regular), "position": event.count}
    return where | {"sum_a": event.a, "sum_b": event.b, "last": event.last}


def _checkpoint(event: CheckpointEvent) -> Row:
    where = {"group": _group(event.group), "name": event.name, "view": _group_view_id(event.view), "position": event.count}
    behind = {"last_process": _process(event.sender) if event.sender else None, "last_counter": event.counter}
    place = {"place_seq": event.place.seq, "place_index": event.place.index}
    return {"process": event.process} | where | behind | place | {"state": event.digest.hex()}


def _note(event: NoteEvent) -> Row:
    return {"what": event.what, "detail": [{"key": key, "value": str(value)} for key, value in event.detail]}


def _gap(event: Gap) -> Row:
    return {"first_lseq": event.first_lseq, "last_lseq": event.last_lseq}


def _end(event: End) -> Row:
    return {"how": event.how}


def _fault(event: Fault) -> Row:
    return {"what": event.what}


TABLES: Final[dict[type[Any], tuple[str, Callable[[Any], Row]]]] = {
    Submit: ("submits", _submit),
    Refuse: ("refusals", _refuse),
    Sent: ("sends", _sent),
    Delivery: ("deliveries", _delivery),
    Conf: ("confs", _conf),
    End: ("ends", _end),
    Fault: ("faults", _fault),
    NoteEvent: ("notes", _note),
    Gap: ("gaps", _gap),
    GroupConf: ("group_views", _group_conf),
    ClientDelivery: ("client_deliveries", _client_delivery),
    ClientLeft: ("client_leaves", _client_left),
    ClientLife: ("clients", _client_life),
    Prefix: ("prefixes", _prefix),
    CheckpointEvent: ("checkpoints", _checkpoint),
}
"""Which table an event goes to, and its columns beside node, lseq and time."""
