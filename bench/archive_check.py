"""Checks an archive against what was sent, from its Parquet files alone, with numpy: nothing here knows how they were written.

Messages are numbered by their sender, from 0, in their first eight bytes, and were sent by one process, agreed: so numbers,
counters and places must all grow together.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COLUMNS = ["kind", "archiver", "life", "row", "ring_seq", "ring_rep", "place_seq", "place_index", "ordered", "counter", "value"]
RARE = ["view", "members", "since_ring_seq", "since_place_seq", "since_place_index"]

Numbers = npt.NDArray[np.int64]


class Life(NamedTuple):
    """What one life of an archiver saw: the numbers of messages, and their positions as one number each, both in its order."""

    archiver: str
    life: int
    rows: int
    numbers: Numbers
    positions: Numbers
    first: int
    """The position where it begins."""
    last: int
    """And that of its last row."""
    since: int | None
    """What it says that the life before it ended with."""
    views: dict[str, tuple[int, tuple[str, ...]]]


class WrongArchive(AssertionError):
    """The archive is not what was sent."""


def require(what: object, otherwise: str) -> None:
    if not what:
        raise WrongArchive(otherwise)


def position(ring_seq: Numbers, place_seq: Numbers, place_index: Numbers) -> Numbers:
    """One number that orders as (ring, place) does: all rings of these runs follow each other."""
    return (ring_seq << 48) + (place_seq << 16) + place_index


def read_lives(directory: Path) -> list[Life]:
    """By archiver and number."""
    by_life: dict[tuple[str, int], list[pa.Table]] = {}
    for path in sorted((directory / "stream").glob("*.parquet")):
        table = pq.read_table(path, columns=COLUMNS + RARE, page_checksum_verification=True)
        by_life.setdefault((table["archiver"][0].as_py(), table["life"][0].as_py()), []).append(table)
    return [_life(*key, pa.concat_tables(tables)) for key, tables in sorted(by_life.items(), key=lambda item: item[0])]


def _life(archiver: str, life: int, table: pa.Table) -> Life:
    rows = _numbers(table["row"])
    require(
        (rows == np.arange(1, len(rows) + 1)).all(), f"rows of {archiver} {life} are not dense from 1 in the order of its files"
    )
    positions = position(*(_numbers(table[name]) for name in ("ring_seq", "place_seq", "place_index")))
    is_message = pc.equal(table["kind"], "message").combine_chunks().to_numpy(zero_copy_only=False)
    ordered = table["ordered"].combine_chunks().to_numpy(zero_copy_only=False)
    require((np.diff(positions[ordered]) >= 0).all(), f"places of {archiver} {life} do not grow")
    of_messages = positions[is_message]
    require((np.diff(of_messages) > 0).all(), f"two messages of {archiver} {life} share a place, or go back")
    begin = table.slice(0, 1).to_pylist()[0]
    require(begin["kind"] == "begin", f"{archiver} {life} does not begin with its beginning")
    since = None
    if begin["since_ring_seq"] is not None:
        since = (begin["since_ring_seq"] << 48) + (begin["since_place_seq"] << 16) + begin["since_place_index"]
    numbers = _first_eight(table.filter(pa.array(is_message))["value"].combine_chunks())
    views = _views(table, positions)
    return Life(archiver, life, len(rows), numbers, of_messages, int(positions[0]), int(positions[-1]), since, views)


def _numbers(column: pa.ChunkedArray) -> Numbers:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), dtype=np.int64)


def _first_eight(values: pa.Array) -> Numbers:
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    head = pc.binary_slice(values, 0, 8)
    return np.frombuffer(b"".join(head.to_pylist()), dtype=">i8").astype(np.int64)


def _views(table: pa.Table, positions: Numbers) -> dict[str, tuple[int, tuple[str, ...]]]:
    is_view = pc.equal(table["kind"], "view").combine_chunks().to_numpy(zero_copy_only=False)
    rows = table.filter(pa.array(is_view)).select(["view", "members"]).to_pylist()
    return {row["view"]: (int(at), tuple(row["members"])) for row, at in zip(rows, positions[is_view], strict=True)}


def check(directory: Path, sent: int, size: int, acknowledged: Iterable[tuple[str, int, int]]) -> dict[str, Any]:
    """What it holds; raises WrongArchive if that is not what was sent. `acknowledged` are archiver, life and row."""
    lives = read_lives(directory)
    for life in lives:
        numbers = life.numbers
        require((np.diff(numbers) == 1).all(), f"{life.archiver} {life.life} has a hole, or a message twice, within a life")
    told = _follow_each_other(lives)
    once = np.unique(np.concatenate([life.numbers for life in lives]))
    places = np.unique(np.concatenate([life.positions for life in lives]))
    pairs = np.unique(np.concatenate([np.stack([life.numbers, life.positions]) for life in lives], axis=1), axis=1)
    require(len(once) == len(places) == pairs.shape[1], "a message has two places, or a place two messages")
    require(not len(once) or (once[0] >= 0 and once[-1] < sent), "there are messages that nobody sent")
    require(pairs.shape[1] < 2 or (np.diff(pairs[1]) > 0).all(), "the order of the places is not the order of sending")
    _views_agree(lives)
    rows = {(life.archiver, life.life): life.rows for life in lives}
    lost = [one for one in acknowledged if rows.get(one[:2], 0) < one[2]]
    require(not lost, f"acknowledged, and not there: {lost[:3]}")
    _sizes(directory, size)
    return {
        "rows": sum(life.rows for life in lives),
        "once": len(once),
        "missing": sent - len(once),
        "lives": len(lives),
        "gaps_told": told,
        "views": len({view for life in lives for view in life.views}),
        "acknowledged_checked": len(set(acknowledged)),
    }


def _follow_each_other(lives: list[Life]) -> int:
    """Each life says where the one of the same archiver before it ended; returns the number of such gaps."""
    told = 0
    for before, after in zip([None, *lives], lives, strict=False):
        if before is None or before.archiver != after.archiver:
            require(after.since is None, f"the first life of {after.archiver} was somewhere before")
            continue
        require(after.since == before.last, f"{after.archiver} {after.life} does not say where {before.life} ended")
        require(after.first > before.last, f"{after.archiver} {after.life} begins before the end of the life before it")
        told += 1
    return told


def _views_agree(lives: list[Life]) -> None:
    """One view has one place and one list of members, whoever saw it."""
    seen: dict[str, tuple[int, tuple[str, ...]]] = {}
    for life in lives:
        for view, what in life.views.items():
            require(seen.setdefault(view, what) == what, f"{view} is not the same at all archivers")


def _sizes(directory: Path, size: int) -> None:
    for path in (directory / "stream").glob("*.parquet"):
        values = pq.read_table(path, columns=["value"], page_checksum_verification=True)["value"]
        found = pc.unique(pc.binary_length(values)).drop_null().to_pylist()
        require(set(found) <= {size}, f"messages of {found} bytes in {path.name}, {size} were sent")


def missing_is_told(lives: list[Life], sent: int) -> None:
    """With one archiver: what it lacks lies between two of its lives, before the first or behind the last."""
    for before, after in pairwise(lives):
        if len(before.numbers) and len(after.numbers):
            require(after.numbers[0] > before.numbers[-1], "a life goes back behind the one before it")
    inside = sum(int(life.numbers[-1] - life.numbers[0]) + 1 for life in lives if len(life.numbers))
    have = sum(len(life.numbers) for life in lives)
    require(have == inside <= sent, "messages are missing within a life")
