"""An archive as tables: which files it has of a group, what each archiver saw of the group, and what nobody saw.

1. `STREAM` is what the archivers write (archive/rows.py), column by column, in their `FORMAT`.
2. Ordered deliveries of a ring are one sequence, and every member has a part of it without a hole. So a life of an archiver is an
   interval on the line of each ring that it was in, and what no interval covers is a gap.
3. Rows of a life are numbered: where a number is missing, a file is missing, and the interval ends before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, TimestampType

from transis.archive.rows import LATER
from transis.spark.inputs import FLAG, INT, LONG, TEXT, columns, is_local, literally, local_path
from transis.types.errors import PipelineError, UsageError
from transis.types.views import group_id

# --- columns ----------------------------------------------------------------------------------------------------------

FORMAT: Final = 1
TEXTS: Final = ArrayType(TEXT)

STREAM: Final = columns(
    kind=TEXT,
    group=TEXT,
    archiver=TEXT,
    life=INT,
    row=LONG,
    ring_seq=LONG,
    ring_rep=TEXT,
    place_seq=LONG,
    place_index=INT,
    ordered=FLAG,
    conf=TEXT,
    transitional=FLAG,
    sender=TEXT,
    process=TEXT,
    counter=LONG,
    service=TEXT,
    sent_us=LONG,
    event_time=TimestampType(),
    received_at=TimestampType(),
    value=BinaryType(),
    key=BinaryType(),
    headers=MapType(TEXT, BinaryType()),
    view=TEXT,
    members=TEXTS,
    names=TEXTS,
    joined=TEXTS,
    left=TEXTS,
    cause=TEXT,
    primary=FLAG,
    merged_from=ArrayType(columns(view=TEXT, members=TEXTS)),
    previous=TEXTS,
    since_ring_seq=LONG,
    since_ring_rep=TEXT,
    since_place_seq=LONG,
    since_place_index=INT,
    why=TEXT,
)

MESSAGE: Final = "message"
VIEW: Final = "view"
CONFIGURATION: Final = "configuration"
BEGIN: Final = "begin"

RING: Final = ("ring_seq", "ring_rep")
PLACE: Final = ("place_seq", "place_index")
LIFE: Final = ("group", "archiver", "life")
"""The key of one stay of one archiver in a group: what it saw has no hole."""
MESSAGE_ID: Final = ("group", "process", "counter")

MESSAGES: Final = (
    "group",
    *RING,
    *PLACE,
    "ordered",
    "conf",
    "transitional",
    "sender",
    "process",
    "counter",
    "service",
    "sent_us",
    "event_time",
    "received_at",
    "value",
    "key",
    "headers",
    "archiver",
    "life",
    "row",
)
"""Columns of a message without its copies; the last three say whose copy this is."""

VIEWS: Final = (
    "group",
    "view",
    *RING,
    *PLACE,
    "ordered",
    "conf",
    "transitional",
    "members",
    "names",
    "cause",
    "primary",
    "merged_from",
    "received_at",
    "archiver",
    "life",
    "row",
)
"""Columns of a group view without its copies. Who joined and left differs by side, and stays in the stream."""

SIDE: Final = ("parting", "side")
"""The number of a parting, and which of its sides: `2`, or `1+2` for what two of three saw."""


def is_message() -> Column:
    return F.col("kind") == MESSAGE


def is_regular_line() -> Column:
    """What all of a ring deliver in one sequence, of which each has a beginning: what is ordered, and not transitional."""
    return F.col("ordered") & ~F.col("transitional")


def place() -> Column:
    return F.struct(*PLACE)


def ring_in(configuration: Column) -> dict[str, Column]:
    """The columns of a ring, parsed from `R12@n1/1/...`."""
    seq = F.substring_index(F.substring(configuration, 2, 20), "@", 1).cast(LONG)
    return {"ring_seq": seq, "ring_rep": F.regexp_extract(configuration, "@(.*)", 1)}


def history_order() -> list[Column]:
    """The order of rows in one history: by position; at equal positions the ordered row first, then what was seen after it."""
    return [*map(F.col, (*RING, *PLACE)), F.col("ordered").desc(), *map(F.col, ("archiver", "life", "row"))]


# --- reading ----------------------------------------------------------------------------------------------------------

STREAM_PART: Final = "stream"
DESCRIPTION: Final = "archive.json"
SUFFIX: Final = ".parquet"

ABSENT: Final = "absent"
"""Nobody archived this, although the archive has what came before."""
BEFORE: Final = "before"
"""This was before anybody archived."""
OPEN: Final = "open"
"""The archive ends here; it may go on."""
UNSEEN: Final = "unseen"
"""A component that nobody archived came to a merge."""
MISSING: Final = (ABSENT, UNSEEN)
"""The gaps in which something is certainly missing."""

ROW_BYTES: Final = 100
"""Bytes that each row is taken for, however well it was encoded."""

BLOCK: Final = 1 << 16
"""Rows of one life that are put in order by one task."""

PUT_TOGETHER: Final = {
    "lo": F.min,
    "hi": F.max,
    "why": F.max,
    "first_row": F.min,
    "last_row": F.max,
    "messages": F.sum,
    "views": F.sum,
    "expected": F.min,
}
"""How the columns of pieces are combined into those of the whole."""

BEGINNING: Final = "struct(0L as place_seq, 0 as place_index)"
"""Where a ring begins. An archiver that has an ordered row there was in it from its start, whatever came first: the
configuration, or the view of an archiver that joined while the ring formed."""

BEHIND_ALL: Final = "struct(9223372036854775807L as place_seq, 2147483647 as place_index)"


def find_files(archive: str, groups: Sequence[str] = ()) -> list[Path]:
    """The files of these groups, or of all. A group that is not there is a UsageError that names those that are."""
    if not is_local(archive):
        raise PipelineError(f"{archive}: only a local or mounted archive can be read: copy it, or mount it")
    _require_format(Path(local_path(archive)))
    directory = Path(local_path(archive)) / STREAM_PART
    found = sorted(path for path in directory.glob(f"*{SUFFIX}") if not path.name.startswith((".", "_")))
    if not found:
        raise PipelineError(f"{archive}: holds no archive yet: name a directory that `transis archive --to` has written to")
    by_group: dict[str, list[Path]] = {}
    for path in found:
        by_group.setdefault(path.name.partition("-")[0], []).append(path)
    wanted = {name: f"{group_id(name):016x}" for name in groups}
    for name, digits in wanted.items():
        if digits not in by_group:
            raise UsageError(f"there is no group {name!r} in {archive}: it holds {', '.join(group_names(archive))}")
    return [path for digits, paths in sorted(by_group.items()) if not groups or digits in wanted.values() for path in paths]


def _require_format(directory: Path) -> None:
    """Checked by the description that archivers put there, which files copied elsewhere may lack."""
    target = directory / DESCRIPTION
    try:
        its_format = json.loads(target.read_bytes())["format"]
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{target} is not the description of an archive: put it back as it was written") from error
    if its_format != FORMAT:
        text = f"{directory} holds an archive of format {its_format}, this release reads {FORMAT}"
        raise PipelineError(f"{text}: install the release that wrote it")


def plain_size(files: Sequence[Path]) -> int:
    """The input size by which Spark is sized: rows of an archive are small on disk, but each costs as much as a large one."""
    return sum(map(_plain_size, files))


def group_names(archive: str) -> list[str]:
    """The groups of a local archive, in order; their names are in the files, and the first row of one is enough."""
    directory = Path(local_path(archive)) / STREAM_PART
    first = {path.name.partition("-")[0]: path for path in sorted(directory.glob(f"[!._]*{SUFFIX}"), reverse=True)}
    return sorted(_name_in(path) for path in first.values())


def _name_in(path: Path) -> str:
    with _naming_the_path(path), pq.ParquetFile(path) as file:
        return str(next(file.iter_batches(batch_size=1, columns=["group"])).column(0)[0].as_py())


def _plain_size(path: Path) -> int:
    with _naming_the_path(path):
        metadata = pq.read_metadata(path)
        if not set(STREAM.names) - LATER <= set(metadata.schema.to_arrow_schema().names):
            raise LookupError("columns are missing")
    plain = sum(int(metadata.row_group(number).total_byte_size) for number in range(metadata.num_row_groups))
    return max(plain, ROW_BYTES * int(metadata.num_rows))


@contextmanager
def _naming_the_path(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, StopIteration, LookupError, pa.ArrowException) as error:
        raise PipelineError(f"{path} is not a file of an archive, or only a part of one: move it away") from error


def read_stream(spark: SparkSession, archive: str, groups: Sequence[str] = ()) -> DataFrame:
    """All rows of these groups as they were written, with the columns of STREAM; of all groups if none is named."""
    files = find_files(archive, groups)
    return spark.read.schema(STREAM).parquet(*(literally(f"file://{path}") for path in files))


# -- what each archiver saw ------------------------------------------------------------------------------------------


def spans(stream: DataFrame) -> DataFrame:
    """A row for each life and ring, or for each part of it if rows are missing: `lo` and `hi` are the ends of its interval,
    `next_*` is the ring that it went on to, `why` the reason that it gave when it began there, or which rows are missing before
    it; `lost` counts these."""
    onward = Window.partitionBy(*LIFE).orderBy("first_row")
    expected = F.coalesce(F.lag("last_row").over(onward), F.lit(0)) + 1
    is_torn = F.col("first_row") > F.col("expected")
    parts = _pieces(stream).withColumn("expected", expected).withColumn("part", F.sum(is_torn.cast("int")).over(onward))
    found = parts.groupBy(*LIFE, *RING, "part").agg(*(how(name).alias(name) for name, how in PUT_TOGETHER.items()))
    is_next = F.lead("first_row").over(onward) == F.col("last_row") + 1
    following = [F.when(is_next, F.lead(name).over(onward)).alias(f"next_{name}") for name in RING]
    lost = F.format_string("rows %d to %d of life %d are missing", F.col("expected"), F.col("first_row") - 1, F.col("life"))
    reported = {
        "why": F.when(is_torn, lost).otherwise(F.col("why")),
        "lost": F.col("first_row") - F.col("expected"),
        "from_start": F.col("lo") == F.expr(BEGINNING),
    }
    return found.withColumns(reported).select("*", *following).drop("expected", "part")


def _pieces(stream: DataFrame) -> DataFrame:
    """Consecutive rows of a life in a ring, block by block, so that no task has to sort a whole life."""
    counted = {"messages": is_message(), "views": F.col("kind") == VIEW}
    in_block = Window.partitionBy(*LIFE, "block").orderBy("row")
    placed = stream.where("ring_seq is not null").withColumn("block", F.floor(F.col("row") / BLOCK))
    rows = placed.withColumn("piece", F.col("row") - F.dense_rank().over(in_block))
    return rows.groupBy(*LIFE, *RING, "block", "piece").agg(
        F.min(F.when(is_regular_line(), place())).alias("lo"),
        F.max(F.when(is_regular_line(), place())).alias("hi"),
        F.max(F.when(F.col("kind") == BEGIN, F.col("why"))).alias("why"),
        F.min("row").alias("first_row"),
        F.max("row").alias("last_row"),
        *(F.count(F.when(condition, 1)).alias(name) for name, condition in counted.items()),
    )


# -- what nobody saw -------------------------------------------------------------------------------------------------


def gaps(stream: DataFrame, spans: DataFrame) -> DataFrame:
    """What is missing, between `after` and `before`, which are null at an end of a ring; a row `unseen` has the group view that
    its component was in."""
    holes = _holes(spans.where("lo is not null"))
    return holes.unionByName(_ends(spans, _followed(stream))).unionByName(_unseen(stream, spans))


def _holes(line: DataFrame) -> DataFrame:
    """Before and between the intervals of a ring."""
    in_ring = Window.partitionBy("group", *RING).orderBy("lo", "hi").rowsBetween(Window.unboundedPreceding, -1)
    whole = Window.partitionBy("group")
    found = line.withColumns({"reach": F.max(_end()).over(in_ring), "oldest": F.min("ring_seq").over(whole)})
    is_first = F.col("reach").isNull() & (F.col("ring_seq") == F.col("oldest"))
    missing = found.where(F.when(F.col("reach").isNull(), ~F.col("from_start")).otherwise(F.col("lo") > F.col("reach")))
    return missing.select(*_gap(F.when(is_first, BEFORE).otherwise(ABSENT), F.col("reach"), F.col("lo")))


def _ends(spans: DataFrame, followed: DataFrame) -> DataFrame:
    """Behind the last interval of a ring. Something is certainly missing if another ring followed this one, or if one of its
    archivers was seen elsewhere later: there it said why."""
    later = Window.partitionBy("group", "archiver").orderBy("life", "first_row")
    is_elsewhere = F.struct(*RING) != F.lead(F.struct(*RING)).over(later)
    onward = {"elsewhere": F.coalesce(is_elsewhere, F.lit(False)), "why": F.lead("why").over(later)}
    line = spans.withColumns(onward).where("lo is not null")
    last = F.max(F.struct(_end().alias("reach"), "why", "archiver"))
    ends = line.groupBy("group", *RING).agg(last.alias("last"), F.max("elsewhere").alias("elsewhere"))
    ends = ends.select("group", *RING, "last.*", "elsewhere").where(F.col("reach") != F.expr(BEHIND_ALL))
    kind = F.when(F.col("elsewhere") | F.col("followed"), ABSENT).otherwise(OPEN)
    nothing = F.lit(None).cast(_PLACE_TYPE)
    return ends.join(F.broadcast(followed), list(RING), "left").select(*_gap(kind, F.col("reach"), nothing))


def _followed(stream: DataFrame) -> DataFrame:
    """Rings that were followed by another."""
    said = stream.where(F.col("kind") == CONFIGURATION).where("not transitional").select(F.explode("previous").alias("ring"))
    split = said.where("ring is not null").select(*(column.alias(name) for name, column in ring_in(F.col("ring")).items()))
    return split.distinct().withColumn("followed", F.lit(True))


def _unseen(stream: DataFrame, spans: DataFrame) -> DataFrame:
    """Of merged views, those of configurations of which nobody has a row. Every view names the views that its members come from;
    it is a merge if these are several. The first view of a life names what was before it, and the first one behind lost rows may
    name what was in them."""
    shown = stream.where(F.col("kind") == VIEW)
    later = shown.withColumn("before", F.lag("row").over(Window.partitionBy(*LIFE).orderBy("row"))).where("before is not null")
    of_life = {name: f"torn_{name}" for name in LIFE}
    torn = spans.where("lost > 0").select(*LIFE, "first_row").withColumnsRenamed(of_life)
    is_torn = [
        *(F.col(name) == F.col(other) for name, other in of_life.items()),
        F.col("first_row").between(F.col("before"), F.col("row")),
    ]
    merges = later.where(F.size("merged_from") > 1).join(F.broadcast(torn), is_torn, "left_anti")
    reported = merges.select("group", "archiver", F.explode("merged_from.view").alias("view"))
    reported = reported.groupBy("group", "view").agg(F.min("archiver").alias("archiver"))
    reported = reported.withColumn("conf", F.regexp_extract("view", r"(.*)\+", 1))
    nowhere = reported.join(stream.select("group", "conf").distinct(), ["group", "conf"], "left_anti")
    empty = {name: F.lit(None).cast(STREAM[name].dataType) for name in (*RING, "why")}
    nothing = F.lit(None).cast(_PLACE_TYPE)
    return nowhere.withColumns(empty).select(*_gap(F.lit(UNSEEN), nothing, nothing, F.col("view")))


_PLACE_TYPE: Final = "struct<place_seq: bigint, place_index: int>"


def _end() -> Column:
    """How far an interval reaches: to the end of the ring if its archiver went on from there."""
    return F.when(F.col("next_ring_seq").isNotNull(), F.expr(BEHIND_ALL)).otherwise(F.col("hi"))


def _gap(kind: Column, after: Column, before: Column, view: Column | None = None) -> list[Column]:
    """The columns of a gap."""
    named = (F.lit(None).cast("string") if view is None else view).alias("view")
    ring = [F.col(name) for name in ("group", *RING)]
    return [*ring, kind.alias("kind"), after.alias("after"), before.alias("before"), F.col("archiver"), F.col("why"), named]
