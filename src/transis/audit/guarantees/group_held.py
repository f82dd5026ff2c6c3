"""Only a primary component goes on, where that is wanted: in a configuration that waits for a quorum nobody is handed anything.

What was sent in the configuration before may still come in its transitional one: it belongs to the configuration before.
"""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.clients import Change, ClientHistory
from transis.audit.guarantees.history import Life
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.trace.events import ClientDelivery, Conf, End, Gap
from transis.types.ids import ViewId


def check_group_only_primary(history: ClientHistory, findings: Findings) -> None:
    first: dict[ViewId, Change] = {}
    held: set[ViewId] = set()
    for change in history.changes:
        if change.own is None or not change.view.id.configuration.is_regular:
            continue
        known = first.setdefault(change.view.id.configuration, change)
        if known.view.held != change.view.held:
            words = {"known_view": known.view.id, "known_group": known.view.name, "known_flag": known.view.held}
            words |= {"view": change.view.id, "group": change.view.name, "flag": change.view.held}
            findings.violation("in doubt", (known.witness, change.witness), **words)
        if change.view.held:
            findings.checked += 1
            held.add(change.view.id.configuration)
            if change.view.primary is not False:
                findings.violation("primary", (change.witness,), view=change.view.id, group=change.view.name)
    for life in history.lives:
        _hands_nothing_over(life, held, findings)


def _hands_nothing_over(life: Life, held: set[ViewId], findings: Findings) -> None:
    regular: ViewId | None = None
    for event in life.events:
        match event:
            case Conf(view=view) if view.id.is_regular:
                regular = view.id
            case ClientDelivery() if regular in held:
                findings.violation("handed", ((life.node, event.lseq),), node=life.node, configuration=regular)
            case Gap():
                findings.pending += 1
                return
            case End():
                return
            case _:
                pass


STANDING: Final = """
    select run, node, lseq, label, name, view, primary, coalesce(held, false) as held,
           first(struct(node, lseq, label, name, coalesce(held, false) as held)) over of_configuration as known
    from {changes}
    where is_regular and own is not null
    window of_configuration as (partition by view order by node_order, lseq)
"""
"""Each regular view, beside the first that stands in the same configuration."""

IN_DOUBT: Final = """
    select run, 'in doubt' as kind, known.label as known_view, known.name as known_group,
           initcap(string(known.held)) as known_flag, label as view, name as group, initcap(string(held)) as flag,
           array(known.node, node) as nodes, array(view) as views,
           array(array(known.node, known.lseq), array(node, lseq)) as witness, lseq as position
    from {standing}
    where held <> known.held
"""

PRIMARY: Final = """
    select run, 'primary' as kind, label as view, name as group, array(node) as nodes, array(view) as views,
           array(array(node, lseq)) as witness, lseq as position
    from {standing}
    where held and coalesce(primary, true)
"""

HANDED: Final = """
    with held as (
        select distinct view from {standing} where held
    ), stands as (
        select run, node, view, lseq, lead(lseq) over (partition by node order by lseq) as next_lseq
        from {confs}
        where view_kind = 0
    ), spans as (
        select stands.*, least(next_lseq, gap_lseq) as until
        from stands join held using (view) join (select node, gap_lseq from {client_lives}) using (node)
    ), handed as (
        select /*+ broadcast(spans) */ distinct spans.run, spans.node, spans.view, got.lseq
        from {got} got join spans on got.node = spans.node and got.lseq > spans.lseq and (until is null or got.lseq < until)
    )
    select handed.run, 'handed' as kind, node_name as node, view_name as configuration, array(handed.node) as nodes,
           array(handed.view) as views, array(array(handed.node, lseq)) as witness, lseq as position
    from handed join {node_names} on {node_names}.node = handed.node join {view_names} using (view)
"""

GROUP_ONLY_PRIMARY: Final = Property(
    name="group_only_primary",
    meaning="where only a primary component goes on, nobody else is handed anything",
    predicate="All regular views of one configuration agree on whether it waits for a quorum (`held`). One that does is not "
    "primary, and no process is handed a message while it or the transitional configuration behind it is in force. Where "
    "`without_quorum` is `continue`, no view is held, and nothing is checked.",
    broken={
        "in doubt": "{known_view} of {known_group} says held {known_flag}, and {view} of {group} says {flag}, "
        "in one configuration",
        "primary": "{view} of {group} waits for a quorum, and does not say that it is not primary",
        "handed": "{node} handed messages over in {configuration}, which waits for a quorum",
    },
    reads=Reads.GROUPS,
    check=check_group_only_primary,
    sql=f"{IN_DOUBT};{PRIMARY};{HANDED}",
    counts="""
        select run, 1 as checked, 0 as pending from {standing} where held
        union all select run, 0, int(gapped) from {client_lives}
    """,
    shared={"standing": STANDING},
    examples=(
        kept("a: R4{a,b} c1 Vg1{a#1}!yes s2@g d2 T6{a} h2>1 R8{a} Vg0{a#1}!held c2 Vg1{a#1,a#2}!held / b: R4{a,b} d2 x"),
        kept("a: R4{a} c1 Vg1{a#1}!held T6{a} R8{a} Vg0{a#1}!no s2@g d2 h2>1"),
        breaks("a: R4{a} c1 Vg1{a#1}!held s2@g d2 h2>1", "a/1 handed messages over in R4@a/1, which waits for a quorum"),
        breaks("a: R4{a} c1 Vg1{a#1}!held T6{a} s2@g d2 h2>1", "a/1 handed messages over in R4@a/1, which waits for a quorum"),
        breaks("a: R4{a} c1 s1?@g d1 Vg2{a#1}!held w1>1", "a/1 handed messages over in R4@a/1, which waits for a quorum"),
        breaks(
            "a: R4{a} c1 Vg1{a#1}!no Vh2{a#1}!held",
            "R4@a/1+1.0 of g says held False, and R4@a/1+2.0 of h says True, in one configuration",
        ),
        breaks(
            "a: R4{a} c1 Vg1{a#1}!both",
            "R4@a/1+1.0 of g waits for a quorum, and does not say that it is not primary",
        ),
        left_open("a: R4{a} c1 Vg1{a#1}!held g s2@g d2 h2>1"),
    ),
)
