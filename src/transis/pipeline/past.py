"""The past of runs that grow: what was judged and found good is kept in short, and not read again.

1. A run that is still open and in which nothing is broken has a past: the rows of its large kinds in all segments that are
   sealed by now, coalesced where they are proven (shortened.py). The next audit judges it together with the segments behind it.
2. A past is thrown away, and the run judged whole from its raw rows, when a segment of it changed or came late, when somebody
   else turns out to have been in a ring that was shortened, when another version of this package made it, and when anything is
   broken: what is told of a violation is always told from the raw events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transis import __version__
from transis.pipeline.audit.judging import Judged
from transis.pipeline.audit.lay import Laid, placed_messages
from transis.pipeline.audit.settling import settled
from transis.pipeline.schemas import EVENTS, INT, LARGE, LONG, TEXT, columns
from transis.pipeline.shortened import shortened
from transis.pipeline.store import Store, above
from transis.pipeline.tables import Tables

PAST: Final = "past"
CUTS: Final = "past_cuts"
RINGS: Final = "past_rings"

PAST_CUTS: Final = columns(run=LONG, node=LONG, upto=INT, inputs=TEXT, made_by=TEXT)
"""A life of which the segments up to this one are past; the digest of their digests, and the version that made it."""
PAST_RINGS: Final = columns(run=LONG, ring=LONG, below=LONG)
"""A ring of which something was coalesced, below this position."""
TABLES: Final = {PAST: EVENTS, CUTS: PAST_CUTS, RINGS: PAST_RINGS}


class Past:
    """What a store has of the past of its runs, as far as that is still true."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_kept = set(TABLES) <= set(store.tables())
        self.runs = self._valid() if self._is_kept else []
        """Runs that have one."""

    def _valid(self) -> list[int]:
        cuts, events = self._store.table(CUTS), self._store.events()
        now = cut_digests(events.where("kind = 'segments'"), cuts.select("run", "node", "upto"))
        both = cuts.join(now.withColumnRenamed("inputs", "inputs_now"), ["run", "node"], "left")
        changed = both.where((F.col("made_by") != __version__) | ~F.col("inputs").eqNullSafe(F.col("inputs_now"))).select("run")
        confs = events.where("kind = 'confs'").select("run", "node", "segment", F.col("view").alias("ring"))
        entered = above(confs, cuts.select("node", "upto")).join(self._store.table(RINGS), ["run", "ring"]).select("run")
        found = cuts.select("run").distinct().join(changed.unionByName(entered).distinct(), "run", "left_anti")
        return sorted(row.run for row in found.collect())

    def events(self) -> DataFrame:
        """All events; of runs with a past, that in place of the rows that it is made of."""
        if not self.runs:
            return self._store.events()
        ours = F.col("run").isin(self.runs)
        is_large = F.col("kind").isin(*LARGE)
        newer = self._store.events_above(self._store.table(CUTS).where(ours).select("node", "upto"))
        small = self._store.events().where(~is_large)
        return small.unionByName(newer.where(is_large)).unionByName(self._store.table(PAST).where(ours))

    def relapsed(self, judged: Judged) -> list[int]:
        """Runs with a past in which something is broken now."""
        if not self.runs:
            return []
        broken = judged.verdicts.where("violations > 0").select("run").distinct().collect()
        return sorted({row.run for row in broken} & set(self.runs))

    def next(self, laid: Laid, judged: Judged, unchanged: Iterable[int]) -> dict[str, DataFrame]:
        """The tables of the past after an audit, by name, if there is any. Of `unchanged` runs they are as they were."""
        kept = F.col("run").isin(sorted(set(unchanged) & set(self.runs)))
        before = {name: self._store.table(name).where(kept) for name in TABLES} if self._is_kept else {}
        cuts = settled(healthy_cuts(self._store.inputs(), laid, judged))
        if cuts.isEmpty():
            return before
        assert judged.rings is not None, "what is shortened was judged as a whole"
        made = shortened(laid, judged.rings, cuts.select("run", "node", "upto"), settled)
        fresh = {PAST: made.rows.to(EVENTS), CUTS: cuts, RINGS: made.rings.to(PAST_RINGS)}
        return {name: rows.unionByName(before[name]) if before else rows for name, rows in fresh.items()}


def healthy_cuts(inputs: DataFrame, laid: Laid, judged: Judged) -> DataFrame:
    """Lives of runs that are open and good, up to the last segment that is kept. A run that came to rest will not grow."""
    good = judged.verdicts.groupBy("run").agg(F.sum("violations").alias("violations")).where("violations = 0")
    runs = laid.runs.where("not closed").join(good, "run", "left_semi").select("run")
    kept = inputs.where("batch is not null").join(runs, "run", "left_semi")
    cuts = kept.groupBy("run", "node").agg(F.max("segment").alias("upto"))
    made = cut_digests(laid.tables["segments"], cuts).join(cuts, ["run", "node"])
    return made.withColumn("made_by", F.lit(__version__)).to(PAST_CUTS)


def cut_digests(segments: DataFrame, cuts: DataFrame) -> DataFrame:
    """run, node, inputs: one digest of all the segments of a life that are past."""
    told = F.sort_array(F.collect_list(F.concat_ws(" ", "segment", "content_digest", "trouble")))
    past = segments.join(F.broadcast(cuts), ["run", "node"]).where("segment <= upto")
    return past.groupBy("run", "node").agg(F.sha2(F.concat_ws(",", told), 256).alias("inputs"))


def over_raw_rows(laid: Laid, tables: Tables) -> Laid:
    """The same lives and stays over other rows of messages: measures want every single one."""
    deliveries, sends = placed_messages(tables, laid.stretches, laid.runs, laid.causal_apart)
    return replace(laid, tables=tables, deliveries=deliveries, sends=sends)
