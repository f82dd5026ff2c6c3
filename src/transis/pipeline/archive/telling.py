"""What `transis reconcile` found, in words that both its tables and its JSON use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from transis.pipeline.archive.job import Reconciled, plain
from transis.pipeline.archive.lineage import Parting, Side
from transis.pipeline.archive.reading import ABSENT, BEFORE, OPEN, UNSEEN
from transis.pipeline.archive.rings import Ring


def short(node: str) -> str:
    """`n1/1` of `n1/1/00ab...`: the boot id tells lives apart and nothing to a reader."""
    return node.rpartition("/")[0] or node


def ring_word(ring: Ring) -> str:
    return f"R{ring.seq}@{short(ring.rep)}"


def view_word(view: str) -> str:
    """The configuration of a group view, for a reader: `R12@n1/1`."""
    return short(view.partition("+")[0])


def position_word(place: Row | None, end: str) -> str:
    return end if place is None else f"{place.place_seq}.{place.place_index}"


def gap_sentence(row: Row) -> str:
    if row.kind == UNSEEN:
        return f"a component in {view_word(row.view)} was archived by nobody, says the merge that {row.archiver} saw"
    where = f"{row.ring_seq}@{short(row.ring_rep)}"
    after, before = position_word(row.after, "its beginning"), position_word(row.before, "its end")
    why = f"; {row.archiver}: {row.why}" if row.why and row.kind == ABSENT else ""
    words = {
        ABSENT: f"nobody archived R{where} between {after} and {before}{why}",
        BEFORE: f"the archive begins in R{where} at {before}",
        OPEN: f"the archive ends in R{where} at {after}",
    }
    return words[row.kind]


def waiting_sentence(archive: str, archiver: str, journals: int) -> str:
    wait = f"{journals} journal of {archiver} waits" if journals == 1 else f"{journals} journals of {archiver} wait"
    return f"{wait} unpublished in {archive}/open: start that archiver or run transis archive --publish {archive}"


def side_word(side: Side) -> str:
    return " ".join(map(short, side.nodes))


def parting_sentence(parting: Parting) -> str:
    sides = " | ".join(side_word(side) for side in parting.sides)
    met = "and did not meet again" if parting.merged is None else f"and met in {ring_word(parting.merged)}"
    rest = "" if parting.rest is None else f"; all that was left of them is in {ring_word(parting.rest)}"
    return f"{ring_word(parting.ring)} parted into {sides} {met}{rest}"


def apart_sentence(parting: Parting, label: str, messages: str) -> str:
    """What a side, or several together, saw alone."""
    sides = [side for side in parting.sides if str(side.number) in label.split("+")]
    who = " and ".join(map(side_word, sides))
    if all(side.archived for side in sides):
        return f"only {who} saw {messages}"
    return f"only {who} saw what nobody archived; of it the archive has {messages}"


def labels_of(parting: Parting) -> Iterator[str]:
    """All sides, and what several of them saw together."""
    yield from (str(side.number) for side in parting.sides)
    yield from sorted({label for _, label in parting.between if "+" in label})


def written(found: Reconciled) -> str:
    return json.dumps(as_dict(found), indent=2, ensure_ascii=False, default=str)


def as_dict(found: Reconciled) -> dict[str, Any]:
    return {
        "archive": found.wish.archive,
        "group": found.group,
        "archivers": list(found.archivers),
        "lives": found.lives,
        "waiting": found.waiting,
        "messages": found.messages,
        "views": found.views,
        "configurations": len(found.lineage.known),
        "gaps_total": found.gaps.total,
        "gaps": plain(found.gaps.rows),
        "contradictions_total": found.contradictions.total,
        "contradictions": plain(found.contradictions.rows),
        "partings": [_parting(one, found) for one in found.lineage.partings],
        "policy": found.wish.policy,
        "keys": dict(found.wish.keys or {}),
        "not_json": found.not_json,
        "conflicts_total": found.conflicts.total,
        "conflicts": plain(found.conflicts.rows),
        "out": found.wish.out,
    }


def _parting(parting: Parting, found: Reconciled) -> dict[str, Any]:
    return {
        "number": parting.number,
        "ring": str(parting.ring),
        "merged": None if parting.merged is None else str(parting.merged),
        "rest": None if parting.rest is None else str(parting.rest),
        "sides": [_side(side) for side in parting.sides],
        "messages": {side: count for (number, side), count in sorted(found.apart.items()) if number == parting.number},
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "number": side.number,
        "nodes": list(side.nodes),
        "rings": [str(ring) for ring in side.rings],
        "primary": side.primary,
        "archived": side.archived,
    }
