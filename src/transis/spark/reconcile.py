"""The job behind `transis reconcile`: what an archive lacks, who parted, what only one side saw, what collides; and its words.

The intervals of archivers and the configurations are collected once and used as local tables; each of the other results takes one
pass over the files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from transis.archive.directory import waiting_journals
from transis.spark.archive import (
    ABSENT,
    BEFORE,
    MISSING,
    OPEN,
    RING,
    SIDE,
    UNSEEN,
    VIEW,
    find_files,
    gaps,
    group_names,
    plain_size,
    read_stream,
    spans,
)
from transis.spark.inputs import checkpointed, is_local, local_path
from transis.spark.lineage import Lineage, Policy, RingName, RingParting, Side
from transis.spark.once import configurations, conflicting_keys, in_views, messages, views
from transis.spark.progress import StepTimer
from transis.spark.session import spark_session, ui_address
from transis.spark.sides import conflicts, lineage_of, merged, only_one_side, side_by_side, with_keys
from transis.trace.files import rename
from transis.types.errors import PipelineError, UsageError
from transis.types.views import group_id

# --- job --------------------------------------------------------------------------------------------------------------

LISTED_MAX: Final = 1_000
"""Gaps, contradictions and conflicts that are listed; the totals count all, and the tables have all."""


@dataclass(frozen=True)
class ReconcileRequest:
    """What the command line asked for. Without a group, the archive must have only one."""

    archive: str
    group: str | None = None
    keys: Mapping[str, str] | None = None
    policy: Policy = "primary"
    out: str | None = None
    master: str | None = None
    ui: bool = False


class ListedRows(NamedTuple):
    """The rows that are listed, and how many there are in all."""

    rows: list[Row]
    total: int


NOTHING_LISTED: Final = ListedRows([], 0)


@dataclass(frozen=True)
class Reconciled:
    """What was found: plain values, small whatever the size of the archive."""

    request: ReconcileRequest
    group: str
    archivers: tuple[str, ...]
    lives: int
    messages: int
    views: int
    lineage: Lineage
    gaps: ListedRows
    """Gaps in which something is missing come first."""
    contradictions: ListedRows
    apart: dict[tuple[int, str], int]
    """Messages by parting and side that not all sides saw."""
    not_json: int
    """How many of these messages have a value that is not JSON, and so no key."""
    conflicts: ListedRows
    waiting: dict[str, int] = field(default_factory=dict)
    """By archiver, the journals that wait to be published: their rows are not in the tables yet."""

    @property
    def is_fine(self) -> bool:
        """Whether nothing is missing, nothing contradicts itself and nothing collides."""
        return not (self.contradictions.total or self.conflicts.total or any(row.kind in MISSING for row in self.gaps.rows))


def reconcile(request: ReconcileRequest, steps: StepTimer) -> Reconciled:
    group = request.group if request.group is not None else _only_group(request.archive)
    size = plain_size(find_files(request.archive, [group]))
    out = None if request.out is None else _new_directory(request.out)
    with ExitStack() as stack:
        with steps("starting Spark"):
            spark = stack.enter_context(spark_session(request.master, size=size, ui=request.ui))
        if request.ui:
            steps.say(f"Spark's own page: {ui_address(spark)}")
        return _Reconciliation(spark, request, group, steps).run(out)


def _only_group(archive: str) -> str:
    find_files(archive)
    names = group_names(archive)
    if len(names) > 1:
        raise UsageError(f"{archive} holds {', '.join(names)}: say which one with --group")
    return names[0]


def _new_directory(out: str) -> Path:
    if not is_local(out):
        raise UsageError(f"--out {out!r} is not a local directory: write tables to a local one, and copy them from there")
    path = Path(local_path(out))
    if path.exists():
        raise UsageError(f"{out!r} exists: name a directory that is new")
    return path


class _Reconciliation:
    def __init__(self, spark: SparkSession, request: ReconcileRequest, group: str, steps: StepTimer) -> None:
        self._spark, self._request, self._group, self._steps = spark, request, group, steps
        self._stream = read_stream(spark, request.archive, [group])

    def run(self, out: Path | None) -> Reconciled:
        with self._steps("what each archiver saw"):
            seen = spans(self._stream)
            lives = seen.collect()
            known = self._spark.createDataFrame(lives, seen.schema)
            lineage = lineage_of(configurations(self._stream))
        with self._steps("what is missing"):
            missing = listed(gaps(self._stream, known), ~F.col("kind").isin(*MISSING), *RING, "before")
            broken = listed(conflicting_keys(self._stream), "what", "first", "last")
        with self._steps("each message once"):
            once = messages(self._stream, known)
            counted = once.count()
            shown = self._stream.where(F.col("kind") == VIEW).select("view").distinct().count()
        with self._steps("what only one side saw"):
            apart = only_one_side(self._stream, known, once, lineage) if lineage.partings else None
            found = self._apart(apart)
        if out is not None:
            self._write(out, known, once, lineage, apart, broken.total > 0)
        waiting = waiting_journals(Path(local_path(self._request.archive)), group_id(self._group))
        names = tuple(sorted({row.archiver for row in lives}))
        stays = len({(row.archiver, row.life) for row in lives})
        return Reconciled(self._request, self._group, names, stays, counted, shown, lineage, missing, broken, *found, waiting)

    def _apart(self, apart: DataFrame | None) -> tuple[dict[tuple[int, str], int], int, ListedRows]:
        """How many messages each side had for itself, how many have no key, and the keys that collide."""
        if apart is None:
            return {}, 0, NOTHING_LISTED
        keys = dict(self._request.keys or {})
        rows = checkpointed(with_keys(apart, keys).drop("value"))
        counts = rows.groupBy(*SIDE).agg(F.count("*").alias("messages"), F.count(F.when(~F.col("is_json"), 1)).alias("no"))
        by_side = counts.collect()
        collided = listed(conflicts(rows, list(keys)), "parting", *keys) if keys else NOTHING_LISTED
        not_json = sum(row.no for row in by_side) if keys else 0
        return {(row.parting, row.side): row.messages for row in by_side}, not_json, collided

    def _write(
        self, out: Path, known: DataFrame, once: DataFrame, lineage: Lineage, apart: DataFrame | None, is_broken: bool
    ) -> None:
        keys = dict(self._request.keys or {})
        tables = {
            "messages": in_views(once, self._stream, known),
            "views": views(self._stream),
            "gaps": gaps(self._stream, known),
            "merged": merged(self._stream, known, once, lineage, self._request.policy),
        }
        if is_broken:
            tables["contradictions"] = conflicting_keys(self._stream)
        if apart is not None:
            tables["only_one_side"] = with_keys(apart, keys) if keys else apart
            tables["side_by_side"] = side_by_side(self._stream, known, once, views(self._stream), lineage)
        if apart is not None and keys:
            tables["conflicts"] = conflicts(with_keys(apart, keys), list(keys))
        with self._steps("writing tables"):
            write_tables(tables, out)


def listed(rows: DataFrame, *order: Column | str) -> ListedRows:
    """The first in that order. They are counted only if there are more."""
    found = rows.orderBy(*order).limit(LISTED_MAX + 1).collect()
    return ListedRows(found[:LISTED_MAX], len(found) if len(found) <= LISTED_MAX else rows.count())


def write_tables(tables: Mapping[str, DataFrame], out: Path) -> None:
    """All of them or none: they are written beside their place, and moved there at the end."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise PipelineError(f"tables cannot be written to {out} ({error.strerror})") from error
    try:
        for name, rows in tables.items():
            rows.write.parquet(f"file://{aside / name}")
        aside.chmod(0o755)
        rename(aside, out)
    except OSError as error:
        raise PipelineError(f"tables cannot be written to {out} ({error.strerror})") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def exit_code(found: Reconciled) -> int:
    """0 fine, 1 something is missing or collides."""
    return 0 if found.is_fine else 1


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as values that JSON has."""
    return [row.asDict(recursive=True) for row in rows]


# --- words ------------------------------------------------------------------------------------------------------------


def short(node: str) -> str:
    """`n1/1` of `n1/1/00ab...`: the boot id distinguishes lives and means nothing to a reader."""
    return node.rpartition("/")[0] or node


def ring_word(ring: RingName) -> str:
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


def parting_sentence(parting: RingParting) -> str:
    sides = " | ".join(side_word(side) for side in parting.sides)
    met = "and did not meet again" if parting.merged is None else f"and met in {ring_word(parting.merged)}"
    rest = "" if parting.rest is None else f"; all that was left of them is in {ring_word(parting.rest)}"
    return f"{ring_word(parting.ring)} parted into {sides} {met}{rest}"


def apart_sentence(parting: RingParting, label: str, messages: str) -> str:
    """What a side, or several together, saw alone."""
    sides = [side for side in parting.sides if str(side.number) in label.split("+")]
    who = " and ".join(map(side_word, sides))
    if all(side.archived for side in sides):
        return f"only {who} saw {messages}"
    return f"only {who} saw what nobody archived; of it the archive has {messages}"


def labels_of(parting: RingParting) -> Iterator[str]:
    """All sides, and what several of them saw together."""
    yield from (str(side.number) for side in parting.sides)
    yield from sorted({label for _, label in parting.between if "+" in label})


def json_text(found: Reconciled) -> str:
    return json.dumps(as_dict(found), indent=2, ensure_ascii=False, default=str)


def as_dict(found: Reconciled) -> dict[str, Any]:
    return {
        "archive": found.request.archive,
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
        "policy": found.request.policy,
        "keys": dict(found.request.keys or {}),
        "not_json": found.not_json,
        "conflicts_total": found.conflicts.total,
        "conflicts": plain(found.conflicts.rows),
        "out": found.request.out,
    }


def _parting(parting: RingParting, found: Reconciled) -> dict[str, Any]:
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
