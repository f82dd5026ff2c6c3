"""Client processes laid out for the audit: what each was shown and handed, and every group view with what stood before it.

1. All processes of a node that are in a group have the same view of it in force, because it is shown to them together: a *change*
   is a GVIEW at a node, with the view and the regular view that were in force there, if one of its processes goes on from it.
2. A *seat* is a process that was shown a view. It is over when the group has its next view there, when the process leaves or a
   word comes about its life, and at a gap, behind which nothing is known of views in force.
3. What a process *got* are runs of its node's deliveries; only basic ones that waited are known by their messages alone.

Who must get a run, and what became of those that did not go, at once, to exactly them:

4. A run is for the connected processes that are in the view in force of one of its groups, or that it names.
5. Recipients change only at *barriers*: views, leaves, connections, disconnections and configurations. Between two barriers all
   runs of one address have the same recipients, so these are worked out once for a span and an address, not for each run.
6. A run is handed over right behind its delivery: no barrier, and no later run handed over, may stand between. What is not handed
   over by then went to nobody. A basic run may wait instead, until the views of its configuration stand, or be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from transis.audit.plans.lay import HistoryTables, Settle, Tables, as_it_is, latest, next_lseq
from transis.types.ids import Service

NEVER: Final = 2**62
"""An lseq behind all others."""


@dataclass(frozen=True)
class ClientTables:
    """What the properties of groups read. Small, and used by all: lives, people, changes, seats. As large as the trace: handed,
    got."""

    laid: HistoryTables
    lives: DataFrame
    """run, node, node_name, ended, gapped, closed, told (says who connects and goes), gap_lseq (of the first gap): one row a
    trace that has client processes."""
    people: DataFrame
    """run, process, node, number, private, process_name, process_order (a struct): one row a process."""
    changes: DataFrame
    """GVIEW events with node_name, node_order, label (the view's id in words), is_regular, member_nodes (beside `members`),
    next_lseq (of the group's next view at the node), conf_lseq (null before any configuration), own (view, members and cause of
    the configuration it stands in, if that is in force), before and regular (group_view, label, is_regular, members,
    member_nodes), blind (a gap since the group's last view may hide what stood before), adrift (one since the last configuration
    may hide that in force), last_until (when its last seat is over, but for the next view; null if it never had one)."""
    seats: DataFrame
    """run, node, group, group_view, label, name, view, is_regular, place_seq, cause_index, lseq, next_lseq, process, left_lseq,
    life_lseq, gap_lseq (each the first of its kind behind `lseq`), until (the first of the three): one row a process shown."""
    handed: DataFrame
    """run, node, lseq, groups, processes, run_lseq: a row per run and entry of a CDELIVER."""
    got: DataFrame
    """run, node, lseq, process, groups, run_lseq (null if it had waited), sender, first, count, is_ordered, is_basic, regular,
    place_seq, place_index: one row per run and process."""
    keep: Settle


def lay_clients(laid: HistoryTables, keep: Settle = as_it_is) -> ClientTables:
    """Everything that the properties of groups share; unless it is kept, nothing is computed before somebody asks for it."""
    tables = laid.tables
    gaps = laid.gaps.select("node", "lseq")
    people = keep(ordered_processes(laid))
    views = keep(placed_views(laid, people, gaps))
    seats = keep(all_seats(views, tables))
    handed = handed_runs(tables["client_deliveries"])
    got = keep(handed_to_processes(handed, tables).unionByName(waited_for(tables), allowMissingColumns=True))
    lives, changes = keep(lives_with_clients(laid, gaps)), keep(all_changes(views, seats, gaps))
    return ClientTables(laid, lives, people, changes, seats, handed, got, keep)


# -- lives and names -------------------------------------------------------------------------------------------------


def lives_with_clients(laid: HistoryTables, gaps: DataFrame) -> DataFrame:
    tables = laid.tables
    life = tables["clients"].select("node").distinct().withColumn("told", F.lit(True))
    kinds = ("group_views", "client_deliveries", "client_leaves", "checkpoints")
    crowd = reduce(DataFrame.union, [tables[kind].select("node") for kind in kinds], life.select("node")).distinct()
    first_gaps = gaps.groupBy("node").agg(F.min("lseq").alias("gap_lseq"))
    known = laid.lives.select("run", "node", "node_name", "ended", "gapped").join(laid.runs.select("run", "closed"), "run")
    found = known.join(crowd, "node").join(life, "node", "left").join(first_gaps, "node", "left")
    return found.fillna({"told": False})


def ordered_processes(laid: HistoryTables) -> DataFrame:
    """Keys have no order; sentences and "the first who said so" need that of ids."""
    nodes = laid.node_names.select("node", "name", "incarnation", "boot")
    order = F.struct("name", "incarnation", "boot", "number")
    named = laid.process_names.join(nodes, "node").withColumn("process_order", order)
    return named.select("run", "process", "node", "number", "private", "process_name", "process_order")


# -- views -----------------------------------------------------------------------------------------------------------


def placed_views(laid: HistoryTables, people: DataFrame, gaps: DataFrame) -> DataFrame:
    """GVIEW events with names, the nodes of members, what comes next, and the configurations in force."""
    views = laid.tables["group_views"].drop("segment", "conf_no", "time_us")
    names = laid.view_names.select("view", "view_name", (F.col("view_kind") == 0).alias("is_regular"))
    order = F.struct("name", "incarnation", "boot").alias("node_order")
    nodes = laid.node_names.select("node", "node_name", order)
    label = F.concat("view_name", F.lit("+"), "place_seq", F.lit("."), "cause_index")
    named = views.join(F.broadcast(names), "view").join(F.broadcast(nodes), "node").withColumn("label", label).drop("view_name")
    of_group = Window.partitionBy("node", "group").orderBy("lseq")
    followed = named.withColumn("next_lseq", F.lead("lseq").over(of_group))
    return _in_configurations(next_lseq(_with_member_nodes(followed, people), gaps, ["node"], "gap_lseq"), laid.confs)


def _with_member_nodes(views: DataFrame, people: DataFrame) -> DataFrame:
    """`member_nodes` beside `members`: the node of each."""
    single = views.select("node", "lseq", F.posexplode("members").alias("at", "process"))
    placed = single.join(people.select("process", F.col("node").alias("member_node")), "process")
    in_order = F.sort_array(F.collect_list(F.struct("at", "member_node")))["member_node"]
    nodes = placed.groupBy("node", "lseq").agg(in_order.alias("member_nodes"))
    found = views.join(nodes, ["node", "lseq"], "left")
    return found.withColumn("member_nodes", F.coalesce("member_nodes", F.array().cast("array<bigint>")))


def _in_configurations(views: DataFrame, confs: DataFrame) -> DataFrame:
    """A view stands in the configuration in force, or in the last regular one: an exchange may end when somebody is lost."""
    said = confs.select("node", "lseq", "view", "members", "cause", "view_kind")
    placed = latest(views, said.drop("view_kind"), ["node"], "conf")
    placed = latest(placed, said.where("view_kind = 0").drop("view_kind"), ["node"], "base")
    own = F.when(F.col("conf.view") == F.col("view"), F.col("conf")).when(F.col("base.view") == F.col("view"), F.col("base"))
    return placed.withColumn("own", own).withColumn("conf_lseq", F.col("conf.lseq")).drop("conf", "base")


def all_seats(views: DataFrame, tables: Tables) -> DataFrame:
    shown = views.select(
        *("run", "node", "group", "group_view", "label", "name", "view", "is_regular", "place_seq", "cause_index"),
        *("lseq", "next_lseq", "gap_lseq", F.explode("processes").alias("process")),
    )
    leaves = tables["client_leaves"].where("not refused").select("node", "process", "group", "lseq")
    words_of_life = tables["clients"].select("node", "process", "lseq")
    left = next_lseq(shown, leaves, ["node", "process", "group"], "left_lseq")
    found = next_lseq(left, words_of_life, ["node", "process"], "life_lseq")
    return found.withColumn("until", F.least("left_lseq", "life_lseq", "gap_lseq"))


def all_changes(views: DataFrame, seats: DataFrame, gaps: DataFrame) -> DataFrame:
    """What stood before counts only where a process goes on from it: where a seat lasts to the next view and is taken again."""
    of_process = Window.partitionBy("node", "group", "process").orderBy("lseq")
    goes_on = (F.lag("next_lseq").over(of_process) == F.col("lseq")) & (
        F.coalesce(F.lag("until").over(of_process), F.col("lseq")) >= F.col("lseq")
    )
    by_view = seats.withColumn("goes_on", F.coalesce(goes_on, F.lit(False))).groupBy("node", "group", "lseq")
    facts = by_view.agg(F.max("goes_on").alias("goes_on"), F.max(or_never("until")).alias("last_until"))
    views = latest(views, gaps, ["node"], "gap").join(facts, ["node", "group", "lseq"], "left")
    said = F.struct("group_view", "label", "is_regular", "members", "member_nodes")
    of_group = Window.partitionBy("node", "group").orderBy("lseq")
    earlier = of_group.rowsBetween(Window.unboundedPreceding, -1)
    stood = {
        "before": F.lag(said).over(of_group),
        "regular": F.last(F.when(F.col("is_regular"), said), ignorenulls=True).over(earlier),
    }
    blind = F.coalesce(F.col("gap.lseq") > F.lag("lseq", 1, 0).over(of_group), F.lit(False))
    adrift = F.coalesce(F.col("gap.lseq") > F.col("conf_lseq"), F.lit(False))
    stood = {name: F.when(F.col("goes_on"), value) for name, value in stood.items()}
    placed = views.withColumns({**stood, "blind": blind, "adrift": adrift})
    return placed.drop("goes_on", "gap_lseq", "gap")


def or_never(lseq: str) -> Column:
    """What has no end yet ends behind everything."""
    return F.coalesce(lseq, F.lit(NEVER))


# -- messages --------------------------------------------------------------------------------------------------------


def handed_runs(events: DataFrame) -> DataFrame:
    """Of CDELIVER events, a row per run and entry."""
    entries = events.select("run", "node", "lseq", F.explode("handed").alias("one"))
    return entries.select("run", "node", "lseq", "one.groups", "one.processes", F.explode("one.runs").alias("run_lseq"))


def handed_to_processes(handed: DataFrame, tables: Tables) -> DataFrame:
    """Runs that are not there are reported by `group_members_only`. What has a position is in the total order, as group views
    are."""
    runs = tables["deliveries"].select(
        *("node", F.col("lseq").alias("run_lseq"), F.col("process").alias("sender"), "first", "count"),
        *((F.col("tpos") >= 0).alias("is_ordered"), (F.col("service") == Service.BASIC).alias("is_basic")),
        *("regular", "place_seq", "place_index"),
    )
    found = handed.join(runs, ["node", "run_lseq"]).where("run_lseq < lseq")
    return found.withColumn("process", F.explode("processes")).drop("processes")


def waited_for(tables: Tables) -> DataFrame:
    single = tables["client_deliveries"].select("run", "node", "lseq", F.explode("waited").alias("one"))
    found = single.select("run", "node", "lseq", "one.*")
    each = found.withColumn("process", F.explode("processes")).drop("processes")
    return each.withColumns({"is_ordered": F.lit(False), "is_basic": F.lit(True)})


# --- recipients -------------------------------------------------------------------------------------------------------

CHANGES: Final = ("group_views", "client_leaves", "clients")
"""Kinds of events at which recipients may change, besides configurations."""

KEY = ["node", "span", "address"]
"""A node, the last barrier, and an address."""


class Recipients:
    """Runs with those who got them and those who should have; nothing is computed before it is asked for."""

    def __init__(self, clients: ClientTables) -> None:
        self._clients = clients
        self._keep = clients.keep

    @cached_property
    def doubtful_runs(self) -> DataFrame:
        """Runs that did not go, at once, to exactly those who must get them: run, node, node_name, run_lseq, sender, first,
        count, is_basic, address; event (the CDELIVER that hands them over, if any), claim and expected (arrays of process and
        groups), is_fresh (handed over right behind its delivery).

        `fate` of a run that went to nobody: `missed` if something stands behind it by which it must have been handed over, `open`
        while that may still happen, `void` if the node died, or dropped events, before it could.
        """
        handings = handed_over(self._clients, self._runs, self._events).join(self._expected, KEY, "left")
        return self._keep(doubtful(self._clients, handings, self._barriers, self._events))

    @cached_property
    def waited_runs(self) -> DataFrame:
        """What is said to have waited, an entry of a CDELIVER a row: run, node, lseq, groups, processes, sender, first, count;
        the basic run (run_lseq, address) that waited there, null if none did; and expected."""
        return self._keep(self._waited.join(self._expected, KEY, "left"))

    @cached_property
    def heard(self) -> DataFrame:
        """process, met, heard: when a process first and last got something, in lives that do not say who connects. A process that
        is silent after `heard` may be gone; where a life says who connects, `met` and `heard` span all of it."""
        return self._keep(heard_of(self._clients))

    @cached_property
    def _barriers(self) -> DataFrame:
        return self._keep(barriers(self._clients))

    @cached_property
    def _events(self) -> DataFrame:
        return self._keep(numbered_events(self._clients, self._barriers))

    @cached_property
    def _runs(self) -> DataFrame:
        return self._keep(addressed_runs(self._clients, self._barriers))

    @cached_property
    def _waited(self) -> DataFrame:
        entries = in_spans(waiting_entries(self._clients), self._barriers)
        basics = handed_over(self._clients, self._runs.where("is_basic"), self._events).where("is_fresh")
        return self._keep(waiting_runs(entries, basics.select("node", "run_lseq", "event").distinct(), self._runs))

    @cached_property
    def _expected(self) -> DataFrame:
        return self._keep(recipients(self._clients, self._runs.select(*KEY).unionByName(self._waited.select(*KEY))))


# -- spans -----------------------------------------------------------------------------------------------------------


def before_gaps(clients: ClientTables, rows: DataFrame) -> DataFrame:
    """Rows of lives with clients, up to the first gap: behind it nobody knows who is in a group."""
    cuts = clients.lives.select("node", or_never("gap_lseq").alias("cut"))
    return rows.join(F.broadcast(cuts), "node").where("lseq < cut").drop("cut")


def barriers(clients: ClientTables) -> DataFrame:
    tables = clients.laid.tables
    marks = [tables[kind].select("node", "lseq") for kind in (*CHANGES, "confs")]
    return before_gaps(clients, reduce(DataFrame.unionByName, marks))


def in_spans(rows: DataFrame, marks: DataFrame) -> DataFrame:
    """`span`: the last barrier before a row; 0 before any."""
    return latest(rows, marks, ["node"], "barrier").withColumn("span", F.coalesce("barrier.lseq", F.lit(0))).drop("barrier")


# -- recipients ------------------------------------------------------------------------------------------------------


def addressed_runs(clients: ClientTables, marks: DataFrame) -> DataFrame:
    """DELIVER events that are for somebody."""
    runs = clients.laid.tables["deliveries"].where("address is not null").select(
        *("run", "node", "lseq", F.col("process").alias("sender"), "first", "count"),
        *((F.col("service") == 0).alias("is_basic"), "address"),
    )  # fmt: skip
    return in_spans(before_gaps(clients, runs), marks)


def recipients(clients: ClientTables, wanted: DataFrame) -> DataFrame:
    """`expected`, an array of (process, groups) in order of keys, for each (node, span, address) that is wanted and has any."""
    places = wanted.select(*KEY).distinct()
    addresses = clients.laid.tables.names("addresses").select("address", "groups", "processes")
    known = places.join(addresses, "address").withColumn("lseq", F.col("span"))
    both = _by_group(clients, known).unionByName(_by_name(clients, known), allowMissingColumns=True)
    through = F.sort_array(F.collect_list(F.when(F.col("group").isNotNull(), F.struct("at", "group"))))["group"]
    single = both.groupBy(*KEY, "process").agg(through.alias("groups"))
    return single.groupBy(*KEY).agg(F.sort_array(F.collect_list(F.struct("process", "groups"))).alias("expected"))


def _by_group(clients: ClientTables, known: DataFrame) -> DataFrame:
    """Seats that are not over, in the view in force of each group of the address."""
    groups = known.select(*KEY, "lseq", F.posexplode("groups").alias("at", "group"))
    marks = clients.changes.select("node", "group", "lseq")
    placed = latest(groups, marks, ["node", "group"], "view").withColumn("lseq", F.col("view.lseq"))
    seats = clients.seats.select("node", "group", "lseq", "process", or_never("until").alias("until"))
    return placed.join(seats, ["node", "group", "lseq"]).where("until > span").select(*KEY, "process", "at", "group")


def _by_name(clients: ClientTables, known: DataFrame) -> DataFrame:
    """Processes that the address names, if they are connected; where nobody says who connects, they may be."""
    private = known.select(*KEY, "lseq", F.explode("processes").alias("private"))
    placed = private.join(clients.people.select("node", "private", "process"), ["node", "private"])
    marks = clients.laid.tables["clients"].select("node", "process", "lseq", "connected")
    lives = clients.lives.select("node", "told")
    judged = latest(placed, marks, ["node", "process"], "life").join(F.broadcast(lives), "node")
    return judged.where("not told or life.connected").select(*KEY, "process")


def heard_of(clients: ClientTables) -> DataFrame:
    lives = clients.lives.where("not told").select("node")
    signs = [
        clients.seats.select("node", "process", "lseq"),
        clients.laid.tables["client_leaves"].select("node", "process", "lseq"),
        clients.handed.select("node", F.explode("processes").alias("process"), F.col("run_lseq").alias("lseq")),
    ]
    met = before_gaps(clients, signs[0].unionByName(signs[1]).unionByName(signs[2])).join(F.broadcast(lives), "node", "left_semi")
    silent = met.groupBy("process").agg(F.min("lseq").alias("met"), F.max("lseq").alias("heard"))
    everybody = clients.people.join(clients.lives.where("told").select("node"), "node")
    return everybody.select("process", F.lit(0).alias("met"), F.lit(NEVER).alias("heard")).unionByName(silent)


def numbered_events(clients: ClientTables, marks: DataFrame) -> DataFrame:
    """CDELIVER events with `span`, `reach` (the last run that they hand over) and `reached` (by those before them)."""
    runs = F.flatten(F.transform("handed", lambda one: one.runs))
    events = clients.laid.tables["client_deliveries"].select(
        "run", "node", "lseq", F.coalesce(F.array_max(runs), F.lit(0)).alias("reach")
    )
    earlier = Window.partitionBy("node").orderBy("lseq").rowsBetween(Window.unboundedPreceding, -1)
    placed = in_spans(before_gaps(clients, events), marks)
    return placed.withColumn("reached", F.coalesce(F.max("reach").over(earlier), F.lit(0)))


# -- runs and who got them -------------------------------------------------------------------------------------------


def handed_over(clients: ClientTables, runs: DataFrame, events: DataFrame) -> DataFrame:
    """Addressed runs beside the handings that claim them, either without the other too."""
    entry = F.transform("processes", lambda process: F.struct(process.alias("process"), F.col("groups").alias("groups")))
    claims = clients.handed.groupBy("node", "lseq", "run_lseq").agg(F.sort_array(F.flatten(F.collect_list(entry))).alias("claim"))
    placed = claims.join(events, ["node", "lseq"]).select(
        *("node", "run_lseq", F.col("lseq").alias("event"), F.col("run").alias("event_run"), "claim"),
        *(F.col("span").alias("event_span"), "reached"),
    )
    both = runs.withColumnRenamed("lseq", "run_lseq").join(placed, ["node", "run_lseq"], "full_outer")
    return both.withColumn("run", F.coalesce("run", "event_run")).withColumn("is_fresh", _is_fresh()).drop("event_run")


def _is_fresh() -> Column:
    """Handed over right behind its delivery."""
    return F.expr("event is not null and address is not null and run_lseq < event and greatest(event_span, reached) < run_lseq")


def doubtful(clients: ClientTables, handings: DataFrame, marks: DataFrame, events: DataFrame) -> DataFrame:
    ends = (
        marks.unionByName(events.select("node", F.col("reach").alias("lseq")))
        .groupBy("node")
        .agg(F.max("lseq").alias("judged_to"))
    )
    lives = clients.lives.select("node", "node_name", "closed", "ended", "gapped").join(ends, "node", "left")
    fate = F.expr("""case when run_lseq < judged_to then 'missed' when ended <> '' or gapped then 'void'
                          when closed then 'missed' else 'open' end""")
    right = F.expr("coalesce(is_fresh and claim = expected, false) or (event is null and fate = 'void')")
    to_nobody = F.expr("event is null and fate = 'missed' and (is_basic or expected is null)")
    return handings.join(F.broadcast(lives), "node").withColumn("fate", fate).where(~right & ~to_nobody)


# -- basic runs that waited ------------------------------------------------------------------------------------------


def waiting_entries(clients: ClientTables) -> DataFrame:
    """What is said to have waited, an entry a row, with the last regular configuration before it."""
    single = clients.laid.tables["client_deliveries"].select("run", "node", "lseq", F.posexplode("waited").alias("at", "one"))
    entries = before_gaps(clients, single.select("run", "node", "lseq", "at", "one.*"))
    regular = clients.laid.confs.where("view_kind = 0").select("node", "lseq")
    return latest(entries, regular, ["node"], "since").withColumn("since", F.coalesce("since.lseq", F.lit(0)))


def waiting_runs(waited: DataFrame, claimed: DataFrame, runs: DataFrame) -> DataFrame:
    """Entries beside the basic run of the same configuration that they name; `address` is null if none waits."""
    basics = runs.where("is_basic").select(
        *("node", "sender", "first", F.col("lseq").alias("run_lseq"), F.col("count").alias("run_count"), "address")
    )
    candidates = waited.join(basics, ["node", "sender", "first"], "left").join(claimed, ["node", "run_lseq"], "left")
    waits = F.expr("run_lseq < lseq and run_lseq > since and run_count = count and coalesce(event, lseq + 1) > lseq")
    address = F.when(waits, F.col("address"))
    newest = Window.partitionBy("node", "lseq", "at").orderBy(F.desc_nulls_last("run_lseq"))
    numbered = candidates.withColumn("address", address).withColumn("nth", F.row_number().over(newest))
    return numbered.where("nth = 1").drop("nth", "event", "run_count")
