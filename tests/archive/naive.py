"""Rows of a stream one by one, as its documentation says them: slow, and nothing shared with what writes archives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from transis.archive.rows import STREAM, RowPosition
from transis.client.events import Batch, Configuration, View
from transis.types.ids import NodeId, ProcessId, Service, ViewId
from transis.types.views import GroupViewId

Row = dict[str, Any]
Event = Batch[bytes] | View | Configuration


def node(one: NodeId) -> str:
    return f"{one.name}/{one.incarnation}/{one.boot:016x}"


def process(one: ProcessId) -> str:
    return f"{node(one.node)}#{one.number}"


def conf(view: ViewId) -> str:
    return ("R" if view.is_regular else "T") + f"{view.seq}@{node(view.rep)}"


def group_view(view: GroupViewId) -> str:
    return f"{conf(view.configuration)}+{view.place.seq}.{view.place.index}"


def rows_of(events: list[Event], engine: str, guarantees: str, last: RowPosition | None, times_us: list[int]) -> list[Row]:
    """With the row of the beginning first, told at the time 0."""
    since = dict(zip(("since_ring_seq", "since_ring_rep", "since_place_seq", "since_place_index"), last or (), strict=False))
    rows: list[Row] = [{"kind": "begin", "why": "test", "time": 0, "transitional": False} | since]
    ring: ViewId | None = None
    position: tuple[int, str, int, int] | None = None
    for event, time_us in zip(events, times_us, strict=True):
        if isinstance(event, Configuration):
            ring = event.regular
            made = [_configuration(event)]
            if event.id.is_regular and position is not None:
                position = (ring.seq, node(ring.rep), 0, 0)
        elif isinstance(event, View):
            made = [_view(event)]
            if event.id.configuration.is_regular:
                at = event.id.configuration
                position = (at.seq, node(at.rep), *event.id.place)
                for early in rows:
                    early.setdefault("position", position)
        else:
            made = [_message(event, rank) for rank in range(len(event))]
        for row in made:
            row["time"] = time_us
            if row["kind"] == "message":
                assert ring is not None
                is_placed = row["service"] in ("agreed", "safe") or (row["service"] == "causal" and engine == "totem")
                row["ordered"] = is_placed and guarantees == "evs"
                if row["ordered"]:
                    position = (ring.seq, node(ring.rep), *row.pop("place"))
            else:
                row["ordered"] = guarantees == "evs" and position is not None and not row["transitional"]
            if position is not None:
                row["position"] = position
            rows.append(row)
    return [_whole(row, number) for number, row in enumerate(rows, 1)]


def _message(batch: Batch[bytes], rank: int) -> Row:
    message = batch[rank]
    return {
        "kind": "message",
        "conf": conf(batch.view),
        "transitional": not batch.view.is_regular,
        "sender": str(message.sender),
        "process": process(message.sender),
        "counter": message.counter,
        "service": Service(message.service).name.lower(),
        "sent_us": batch.sent_us,
        "event_time": message.time,
        "key": message.key,
        "headers": list(message.headers.items()) or None,
        "value": message.data,
        "place": tuple(message.place),
    }


def _view(view: View) -> Row:
    return {
        "kind": "view",
        "conf": conf(view.id.configuration),
        "transitional": not view.id.configuration.is_regular,
        "view": group_view(view.id),
        "members": [process(one) for one in view.members],
        "names": list(view.names) or None,
        "joined": [process(one) for one in view.joined],
        "left": [process(one) for one in view.left],
        "cause": str(view.cause),
        "primary": view.primary,
        "merged_from": [
            {"view": group_view(origin.view), "members": [process(one) for one in origin.members]} for origin in view.merged_from
        ],
    }


def _configuration(view: Configuration) -> Row:
    return {
        "kind": "configuration",
        "conf": conf(view.id),
        "transitional": not view.id.is_regular,
        "members": [node(member.node) for member in view.members],
        "previous": [None if member.previous is None else conf(member.previous) for member in view.members],
        "cause": str(view.cause),
    }


def _whole(row: Row, number: int) -> Row:
    """All columns, null where nothing was said."""
    row.pop("place", None)
    position = dict(zip(("ring_seq", "ring_rep", "place_seq", "place_index"), row.pop("position"), strict=True))
    received = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row.pop("time"))
    said = row | position | {"group": "g", "archiver": "ann", "life": 3, "row": number, "received_at": received}
    return dict.fromkeys(STREAM.names) | {"ordered": False} | said
