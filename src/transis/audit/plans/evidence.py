"""The evidence is judged first, or a recorder's bug would look like a protocol's.

There are six verdicts, like those of properties. *Broken* is what no crash and no rotation of files explains; *pending* is
evidence that is missing or still to come, so that nobody knows what it would show. `reasons` says in words why something is
pending.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.finding import Pair, Result, counts, merge, name_nodes, violations, words
from transis.audit.plans.lay import HistoryTables

READABLE: Final = "quality_readable"
CHAIN: Final = "quality_chain"
DENSITY: Final = "quality_density"
CLOCKS: Final = "quality_clocks"
MEMBERS: Final = "quality_members"
MIXED: Final = "quality_mixed"

SIMULATED: Final = "simulated"
"""A simulator records true time, but its nodes stamp messages by clocks that are wrong on purpose: these cannot be compared."""


@dataclass(frozen=True)
class EvidenceVerdict:
    """One verdict in the making: what was looked at (CHECKED), what is broken, and what is pending (both as VIOLATIONS)."""

    looked_at: DataFrame
    broken: DataFrame
    pending: DataFrame


def check(laid: HistoryTables) -> Result:
    parts = {name: part(laid) for name, part in PARTS.items()}
    pending = [counts(part.pending, name, count="0", pending="1") for name, part in parts.items()]
    return merge([*(part.looked_at for part in parts.values()), *pending], [part.broken for part in parts.values()])


def reasons(laid: HistoryTables, names: Collection[str] | None = None) -> DataFrame:
    """Why something is pending, with the columns of VIOLATIONS; only for some of the six verdicts if `names` has some."""
    wanted = [part for name, part in PARTS.items() if names is None or name in names]
    return reduce(DataFrame.unionByName, [part(laid).pending for part in wanted])


# -- the six ---------------------------------------------------------------------------------------------------------


def readable(laid: HistoryTables) -> EvidenceVerdict:
    """Can every file be read to its end?"""
    files = files_of_runs(laid.tables["segments"]).withColumn("name", _file_name())
    said = {
        "trouble is not null and torn_bytes is null": (True, words("{trouble}")),
        "trouble is not null": (False, words("{trouble}: its node was killed when it began to write, or begins")),
        "torn_bytes > 0 and seal_digest is not null": (True, words("{name}: {torn_bytes} bytes stand behind its seal")),
        "torn_bytes > 0": (
            False,
            words("{name}: its last {torn_bytes} bytes are no whole batch: its node was cut off, or writes"),
        ),
    }
    return _judged(files, READABLE, said, nodes=["node"])


def chain(laid: HistoryTables) -> EvidenceVerdict:
    """Does each segment follow the one before it, and is it what its seal says?"""
    life = Window.partitionBy("node").orderBy("segment", "file")
    before = {
        "number_before": F.lag("segment", 1, 0).over(life),
        "digest_before": F.lag("content_digest", 1, "").over(life),
        "is_last": F.lead("segment").over(life).isNull(),
        "name": _file_name(),
    }
    segments = _read(laid).withColumns(before).withColumn("missing_to", F.col("segment") - 1)
    linked = segments.withColumn("missing_from", F.col("number_before") + 1)
    gone = words("{name}: segments {missing_from} to {missing_to} of {node_name} are not there")
    said = {
        "segment = number_before": (True, words("{name}: segment {segment} of {node_name} is there twice, and they differ")),
        "segment > missing_from and number_before > 0": (True, gone),
        "segment = missing_from and previous_digest <> digest_before": (
            True,
            words("{name}: it does not follow the segment of {node_name} that stands before it"),
        ),
        "seal_digest <> content_digest or sealed_events <> events": (
            True,
            words("{name}: its content is not what its seal says"),
        ),
        "segment > missing_from": (False, gone),
        "seal_digest is null and is_last": (False, words("{name}: not sealed: {node_name} still writes, or was cut off")),
    }
    return _judged(linked, CHAIN, said, nodes=["node"])


def density(laid: HistoryTables) -> EvidenceVerdict:
    """Are all events there? What the recorder says it dropped, or a missing file had, is pending; the rest is lost unseen."""
    lost = name_nodes(_lost_events(laid), laid.node_names, "node")
    said = {
        "recorded": (False, words("the recorder of {node_name} dropped events {first_lseq} to {last_lseq}")),
        "file_missing": (False, words("events {first_lseq} to {last_lseq} of {node_name} were in a segment that is not there")),
        "true": (True, words("event {first_lseq} of {node_name} is not there, though the events around it are")),
    }
    events = _judged(lost, DENSITY, said, witness=[("node", "lseq")], nodes=["node"], count="0")
    positions = {
        "whole and ordered <> n": (
            True,
            words("{node_name} delivered {ordered} ordered messages in {ring_name}, but its positions end at {n}"),
        ),
    }
    stays = _judged(laid.stays, DENSITY, positions, witness=[("node", "conf_lseq")], nodes=["node"], views=["ring"])
    looked_at = counts(_read(laid), DENSITY, "events").unionByName(stays.looked_at)
    return EvidenceVerdict(looked_at, events.broken.unionByName(stays.broken), events.pending)


def clocks(laid: HistoryTables) -> EvidenceVerdict:
    """Does time go on at every node, and is nothing delivered at its sender before it was sent?"""
    life = Window.partitionBy("node").orderBy("segment")
    within = laid.tables["clock_steps"].select("run", "node", "lseq", "time_us", "from_us")
    between = _read(laid).select(
        "run", "node", F.col("first_lseq").alias("lseq"), F.col("first_us").alias("time_us"),
        F.last("last_us", ignorenulls=True).over(life.rowsBetween(Window.unboundedPreceding, -1)).alias("from_us"),
    )  # fmt: skip
    steps = name_nodes(within.unionByName(between.where("time_us < from_us")), laid.node_names, "node")
    back = {"true": (True, words("the clock of {node_name} went back from {from_us} to {time_us} µs"))}
    stepped = _judged(steps, CLOCKS, back, witness=[("node", "lseq")], nodes=["node"], count="0")
    early = {"true": (True, words("{node_name} delivered its own message at {time_us} µs, which it sent at {origin_us} µs"))}
    untimely = name_nodes(_too_early(laid), laid.node_names, "node")
    own = _judged(untimely, CLOCKS, early, witness=[("node", "lseq")], nodes=["node"], messages=[("process", "first")], count="0")
    return EvidenceVerdict(counts(_read(laid), CLOCKS, "events"), stepped.broken.unionByName(own.broken), stepped.pending)


def members(laid: HistoryTables) -> EvidenceVerdict:
    """Is there a trace of everybody who was a member or sent something?"""
    lives = laid.lives.select("node", F.lit(True).alias("is_traced"))
    named = laid.confs.select("run", F.explode("members").alias("node"), F.col("view_name").alias("seen"))
    senders = laid.process_names.select("run", "node", F.lit(None).cast("string").alias("seen"))
    known = named.unionByName(senders).groupBy("run", "node").agg(F.min("seen").alias("seen")).join(lives, "node", "left")
    said = {
        "is_traced is null and seen is not null": (
            False,
            words("{node_name} is a member of {seen}, and there is no trace of it"),
        ),
        "is_traced is null": (False, words("{node_name} is named in traces of others, and there is no trace of it")),
    }
    return _judged(name_nodes(known, laid.node_names, "node"), MEMBERS, said, nodes=["node"])


def mixed(laid: HistoryTables) -> EvidenceVerdict:
    """Is each run in directories of its own, and in one mode?"""
    segments = laid.tables["segments"].where("run is not null").withColumn("folder", folder())
    runs_of = segments.where("file <> ''").groupBy("folder").agg(F.countDistinct("run").alias("runs"))
    modes_of = segments.groupBy("run").agg(F.countDistinct("mode").alias("modes"), F.min("run_name").alias("run_name"))
    runs = segments.select("run", "folder").distinct().join(runs_of, "folder", "left").join(modes_of, "run")
    worst = runs.groupBy("run").agg(*(F.max(name).alias(name) for name in ("runs", "modes", "run_name")))
    said = {
        "modes > 1": (True, words("the run {run_name} has traces of {modes} modes")),
        "runs > 1": (True, words("the run {run_name} is in one directory with traces of other runs, {runs} in all")),
    }
    return _judged(worst, MIXED, said)


PARTS: Final[dict[str, Callable[[HistoryTables], EvidenceVerdict]]] = {
    READABLE: readable,
    CHAIN: chain,
    DENSITY: density,
    CLOCKS: clocks,
    MEMBERS: members,
    MIXED: mixed,
}

# -- what they are made of -------------------------------------------------------------------------------------------


def _judged(
    rows: DataFrame,
    name: str,
    said: dict[str, tuple[bool, Column]],
    witness: Sequence[Pair] = (),
    nodes: Sequence[str] = (),
    views: Sequence[str] = (),
    messages: Sequence[Pair] = (),
    count: str = "1",
) -> EvidenceVerdict:
    """For each row the first true condition counts: it says whether the row is broken or pending, and in which words."""
    is_broken, sentence = F.lit(None).cast("boolean"), F.lit(None).cast("string")
    for condition, (breaks, text) in reversed(said.items()):
        holds = F.coalesce(F.expr(condition), F.lit(False))
        is_broken, sentence = F.when(holds, F.lit(breaks)).otherwise(is_broken), F.when(holds, text).otherwise(sentence)
    judged = rows.withColumns({"is_broken": is_broken, "sentence": sentence})

    def violations_where(condition: str) -> DataFrame:
        return violations(judged.where(condition), name, F.col("sentence"), witness, messages, nodes, views)

    return EvidenceVerdict(counts(rows, name, count), violations_where("is_broken"), violations_where("not is_broken"))


def _read(laid: HistoryTables) -> DataFrame:
    """Segments of which something could be read, with the name of their node."""
    return name_nodes(laid.tables["segments"].where("trouble is null"), laid.node_names, "node")


def files_of_runs(segments: DataFrame) -> DataFrame:
    """Every file with the run that it counts for."""
    return segments.where("run is not null").unionByName(_of_its_neighbours(segments))


def _of_its_neighbours(segments: DataFrame) -> DataFrame:
    """A file that does not even say whose it is counts for the runs in its directory, or for all if there are none."""
    lost = segments.where("run is null").drop("run").withColumn("folder", folder())
    homes = segments.where("run is not null").select("run", folder().alias("home")).distinct()
    at_home = lost.join(homes, F.col("folder") == F.col("home"))
    alone = lost.join(homes.select(F.col("home").alias("folder")), "folder", "left_anti").crossJoin(
        homes.select("run").distinct()
    )
    return at_home.drop("folder", "home").unionByName(alone.drop("folder"))


def _lost_events(laid: HistoryTables) -> DataFrame:
    """Where numbers of events are missing: run, node, lseq of the event behind, first_lseq, last_lseq, recorded, file_missing."""
    gaps = laid.tables["gaps"].withColumn("recorded", F.expr("lseq > last_lseq"))
    behind = F.when(F.col("recorded"), F.col("lseq")).otherwise(F.col("last_lseq") + 1)
    within = gaps.select(
        "run", "node", behind.alias("lseq"), "first_lseq", "last_lseq", "recorded", F.lit(False).alias("file_missing")
    )
    life = Window.partitionBy("node").orderBy("segment")
    before = life.rowsBetween(Window.unboundedPreceding, -1)
    expected = F.coalesce(F.last("last_lseq", ignorenulls=True).over(before), F.lit(0)) + 1
    followed = F.lag("segment", 1, 0).over(life) + 1
    segments = laid.tables["segments"].where("trouble is null").withColumns({"expected": expected, "followed": followed})
    between = segments.where("segment > 1 and first_lseq <> expected").select(
        "run", "node", F.col("first_lseq").alias("lseq"), F.col("expected").alias("first_lseq"),
        (F.col("first_lseq") - 1).alias("last_lseq"), F.lit(False).alias("recorded"),
        (F.col("segment") > F.col("followed")).alias("file_missing"),
    )  # fmt: skip
    recorded = gaps.where("recorded").select("node", "lseq", "first_lseq")
    return within.unionByName(between.join(recorded, ["node", "lseq", "first_lseq"], "left_anti"))


def _too_early(laid: HistoryTables) -> DataFrame:
    real = laid.tables["segments"].where(F.col("cluster") != SIMULATED).select("run").distinct()
    own = laid.tables["deliveries"].where("sender = node and origin_us > time_us")
    return own.join(F.broadcast(real), "run", "left_semi")


def folder() -> Column:
    return F.regexp_replace("file", "/?[^/]*$", "")


def _file_name() -> Column:
    return F.regexp_extract("file", "[^/]*$", 0)
