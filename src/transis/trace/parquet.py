"""A segment as Parquet tables (traces 3): runs stay runs, one table per kind of event, one file each.

Nothing here is needed to run or to check a node; pyarrow is asked for only when a conversion is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from transis.model.errors import MissingExtra
from transis.model.ids import NodeId, ViewId
from transis.trace.events import Conf, Delivery, End, Fault, Gap, NoteEvent, Refuse, Sent, Submit
from transis.trace.reader import Segment, read_segment

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
    return found


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


def _node(node: NodeId) -> str:
    """Name, incarnation and boot id: two lives never share it, also not those of a copied directory."""
    return f"{node.name}/{node.incarnation}/{node.boot:016x}"


def _view(view: ViewId) -> str:
    return f"{'R' if view.is_regular else 'T'}{view.seq}@{_node(view.rep)}"


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
}
"""Which table an event goes to, and its columns beside node, lseq and time."""
