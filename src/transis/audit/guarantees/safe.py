"""EVS 7: safe messages reach everybody who does not fail, and wait until everybody is there."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.history import LaidHistory, Obligation, Ring, Stay
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.types.ids import NodeId, Service

# --- safe delivered ---------------------------------------------------------------------------------------------------

Deliverers = dict[int, Stay]
"""A safe message and one stay that delivered it."""


def check_safe_delivered(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        regular, transitional = safe_deliveries(history, ring)
        for node in ring.members:
            _obliged(history, ring, node, regular, findings)
        for members, delivered in transitional.items():
            open_only = {code: stay for code, stay in delivered.items() if code not in regular}
            for node in members:
                _obliged(history, ring, node, open_only, findings)


def safe_deliveries(history: LaidHistory, ring: Ring) -> tuple[Deliverers, dict[tuple[NodeId, ...], Deliverers]]:
    """Safe messages delivered in the regular configuration, and in transitional ones by their members."""
    regular: Deliverers = {}
    transitional: dict[tuple[NodeId, ...], Deliverers] = {}
    for stay in ring.stays:
        here = regular
        for number, run in enumerate(stay.runs):
            if number == stay.run_cut and stay.trans is not None:
                here = transitional.setdefault(stay.trans.view.nodes, {})
            if run.service is Service.SAFE:
                for code in history.codes(run.process, run.first, run.count):
                    here.setdefault(code, stay)
    return regular, transitional


def _obliged(history: LaidHistory, ring: Ring, node: NodeId, delivered: Deliverers, findings: Findings) -> None:
    findings.checked += len(delivered)
    stay = ring.by_node.get(node)
    missing = delivered.keys() if stay is None else delivered.keys() - stay.position.keys()
    if not missing:
        return
    obligation = _obligation(history, ring, node, stay)
    if obligation is Obligation.PENDING:
        findings.pending += len(missing)
    if obligation is Obligation.DUE:
        _lacking(history, ring, node, stay, sorted(missing), delivered, findings)


def _obligation(history: LaidHistory, ring: Ring, node: NodeId, stay: Stay | None) -> Obligation:
    if stay is not None:
        return stay.obligation(history.closed)
    life = history.by_node.get(node)
    return Obligation.PENDING if life is None else life.never_came(ring.id, history.closed)


def _lacking(
    history: LaidHistory,
    ring: Ring,
    node: NodeId,
    stay: Stay | None,
    missing: list[int],
    delivered: Deliverers,
    findings: Findings,
) -> None:
    by = delivered[missing[0]]
    position = by.position[missing[0]]
    witness = (by.event_at(position),)
    messages = history.messages(missing)
    words = {"node": by.node, "message": list(messages), "view": by.conf_at(position).view.id, "member": node}
    if stay is None:
        findings.violation("never came", witness, messages, **words, ring_view=ring.id)
    elif stay.following is None:
        findings.violation("at the end", witness, messages, **words)
    else:
        went_on = (node, stay.following.conf.lseq)
        findings.violation("went on", (*witness, went_on), messages, **words, next=stay.following.ring)


SQL_SAFE_DELIVERED: Final = """
    with safe as (  -- in the tail, by whom, in order of stays
        select t.*, s.stay_rank, s.trans_members
        from {tail} t join {stays} s on t.node = s.node and t.stay_no = s.stay_no
        where t.service = 3
    ), regular as (
        select * from (
            select *, row_number() over (partition by ring, process, counter order by stay_rank, tpos) as nth
            from safe where phase = 0
        ) where nth = 1
    ), transitional as (
        select * from (
            select *, row_number() over (partition by ring, process, counter, member order by stay_rank, tpos) as nth
            from (select *, explode(trans_members) as member from safe where phase = 1)
            left anti join (select ring, process, counter from regular) using (ring, process, counter)
        ) where nth = 1
    ), owed as (
        select g.run, g.ring, process, counter, message, member, node, stay_no, phase, tpos, lseq
        from regular g join (select ring, explode(members) as member from {rings}) r on g.ring = r.ring
        union all
        select run, ring, process, counter, message, member, node, stay_no, phase, tpos, lseq from transitional
        union all  -- members without a stay owe what is proven for others, too, once it is certain that they never came
        select p.run, p.ring, p.process, counter, concat(n.process_name, ':', counter), a.node,
               r.canon_node, r.canon_stay_no, 0, p.tpos, null
        from {pairs} p join {absent} a on p.ring = a.ring join {rings} r on p.ring = r.ring
        join {process_names} n on p.process = n.process
        lateral view explode(sequence(p.first, p.first + p.count - 1)) as counter
        where p.service = 3 and a.duty = 'due' and p.tpos + p.count <= a.bound
    ), missing as (
        select o.* from owed o left anti join {tail} t
        on o.ring = t.ring and o.member = t.node and o.process = t.process and o.counter = t.counter
    )
    select case when s.node is null then 'never came' when s.following is null then 'at the end' else 'went on' end as kind,
           m.run, m.ring, f.node_name as node, m.message, f.conf_name as view, n.node_name as member,
           r.ring_name as ring_view, s.following_name as next, array(m.node, m.member) as nodes, array(f.conf) as views,
           array(array(m.process, m.counter)) as messages,
           array(array(m.node, m.lseq), array(m.member, s.following_lseq)) as witness, m.tpos as position,
           coalesce(s.duty, a.duty) = 'pending' as is_pending
    from missing m join {phases} f on m.node = f.node and m.stay_no = f.stay_no and m.phase = f.phase
    join {node_names} n on m.member = n.node join {rings} r on m.ring = r.ring
    left join {stays} s on m.ring = s.ring and m.member = s.node left join {absent} a on m.ring = a.ring and m.member = a.node
    where coalesce(s.duty, a.duty) <> 'void'
"""

COUNTS_SAFE_DELIVERED: Final = """
    select p.run, p.ring, p.count * size(r.members) as checked, 0 as pending
    from {pairs} p join {rings} r on p.ring = r.ring
    where p.service = 3 and p.tpos is not null
    union all  -- who has not come as far as what is proven owes all of it that is safe: one for all
    select /*+ broadcast(o) */ o.run, cast(null as bigint), 0, 1
    from (
        select run, ring, n from {stays} where duty = 'pending'
        union all
        select run, ring, 0 from {absent} where duty = 'pending'
    ) o
    join (
        select p.ring, max(p.tpos) as last_safe from {pairs} p join {rings} r on p.ring = r.ring
        where p.service = 3 and p.tpos + p.count <= r.bound
        group by p.ring
    ) g on o.ring = g.ring and o.n <= g.last_safe
"""

SAFE_DELIVERED: Final = Property(
    name="safe_7_1",
    meaning="a safe message is delivered by all of its view, unless they fail",
    paper="EVS94, Specification 7.1",
    predicate="If anybody delivers a safe message in a configuration, every member of it that does not fail delivers it, in "
    "the regular configuration or in whatever transitional one it installs itself. The configuration is the regular one if "
    "anybody delivered it there, else the transitional ones in which it was delivered, together.",
    broken={
        "never came": "{node} delivered the safe {message} in {view}, but its member {member} never installed {ring_view}",
        "at the end": "{node} delivered the safe {message} in {view}, but its member {member} had not delivered it when the run "
        "ended",
        "went on": "{node} delivered the safe {message} in {view}, but its member {member} went on to {next} without it",
    },
    reads=Reads.ORDER,
    check=check_safe_delivered,
    sql=SQL_SAFE_DELIVERED,
    counts=COUNTS_SAFE_DELIVERED,
    examples=(
        kept("a: R4{a,b} s1! d1 / b: R4{a,b} d1"),
        kept("p: R4{p,q} s1! d1 T6{p} R8{p} / q: R4{p,q} T6{q} d1 R8{q}"),
        kept("a: R4{a,b} s1! d1 T6{a} R8{a} / b: R4{a,b} x"),
        breaks(
            "p: R4{p,q} s1! d1 T6{p} R8{p} / q: R4{p,q} T6{q} R8{q}",
            "p/1 delivered the safe p/1#0:1 in R4@p/1, but its member q/1 went on to R8@q/1 without it",
        ),
        breaks(
            "a: R4{a,b,c} s1! T6{a,b,c} d1 R8{a,b,c} T10{a} R12{a} / b: R4{a,b,c} T6{a,b,c} d1 R8{a,b,c} T10{b} R12{b} / "
            "c: R4{a,b,c} T10{c} R12{c}",
            "a/1 delivered the safe a/1#0:1 in T6@a/1, but its member c/1 went on to R12@c/1 without it",
        ),
        breaks(
            "a: R4{a,b} s1! d1 / b: R4{a,b}",
            "a/1 delivered the safe a/1#0:1 in R4@a/1, but its member b/1 had not delivered it when the run ended",
        ),
        breaks(
            "a: R4{a} T6{a} R8{a,b} s1! d1 / b: R5{b} x",
            "a/1 delivered the safe a/1#0:1 in R8@a/1, but its member b/1 never installed R8@a/1",
        ),
        left_open("a: R4{a,b} s1! d1 T6{a} R8{a} / b: R4{a,b} T6{b}"),
        left_open("a: R4{a,b} s1! d1 T6{a} R8{a} / b: R4{a,b} g T6{b} R8{b}", closed=True),
        left_open("a: R4{a} T6{a} R8{a,b} s1! d1 / b: R5{b}"),
    ),
)


# --- safe installed ---------------------------------------------------------------------------------------------------


def check_safe_installed(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        for stay in ring.stays:
            position = _first_safe(stay)
            if position is not None:
                _installed(history, ring, stay, position, findings)
                break


def _first_safe(stay: Stay) -> int | None:
    """The position of the first safe message that a stay delivered in the regular configuration."""
    regular = zip(stay.starts[: stay.run_cut], stay.runs, strict=False)
    return next((start for start, run in regular if run.service is Service.SAFE), None)


def _installed(history: LaidHistory, ring: Ring, by: Stay, position: int, findings: Findings) -> None:
    message = history.message(by.codes[position])
    findings.checked += len(ring.members)
    for node in ring.members:
        if node in ring.by_node:
            continue
        life = history.by_node.get(node)
        if life is None or life.never_came(ring.id, history.closed) is Obligation.PENDING:
            findings.pending += 1
        else:
            witness = (by.event_at(position),)
            findings.violation("never came", witness, (message,), node=by.node, message=message, view=ring.id, member=node)


FIRST_SAFE: Final = """
    with safe as (
        select node, stay_no, min_by(struct(process, first), lseq) as message, min(lseq) as lseq
        from {deliveries} where service = 3 and stay_no > 0 and phase = 0
        group by node, stay_no
    ), member as (
        select s.*, first(members) over in_ring as of_ring
        from {stays} s window in_ring as (partition by ring order by stay_rank)
    ), deliverer as (
        select m.run, m.ring, m.ring_name, m.node, m.node_name, m.of_ring, message, lseq,
               row_number() over (partition by ring order by m.stay_rank) as nth
        from member m join safe s on m.node = s.node and m.stay_no = s.stay_no
    )
    select * from deliverer where nth = 1
"""
"""In each ring the first stay, in order of node ids, that delivered a safe message, and its first one. Members are those that the
first stay of the ring names."""

SQL_SAFE_INSTALLED: Final = """
    select d.run, d.ring, d.node_name as node, concat(p.process_name, ':', d.message.first) as message, d.ring_name as view,
           n.node_name as member, array(d.node, a.node) as nodes, array(d.ring) as views,
           array(array(d.message.process, d.message.first)) as messages, array(array(d.node, d.lseq)) as witness,
           a.duty = 'pending' as is_pending
    from {first_safe} d join {absent} a on d.ring = a.ring join {node_names} n on a.node = n.node
    join {process_names} p on d.message.process = p.process
"""

SAFE_INSTALLED: Final = Property(
    name="safe_7_2",
    meaning="a safe message is delivered only in a view that all its members installed",
    paper="EVS94, Specification 7.2",
    predicate="If anybody delivers a safe message in a regular configuration, all members of that configuration have installed "
    "it.",
    broken={
        "never came": "{node} delivered the safe {message} in {view}, but its member {member} never installed {view}",
    },
    reads=Reads.VIEWS,
    check=check_safe_installed,
    sql=SQL_SAFE_INSTALLED,
    counts="select run, ring, size(of_ring) as checked from {first_safe}",
    shared={"first_safe": FIRST_SAFE},
    examples=(
        kept("a: R4{a,b} s1! d1 / b: R4{a,b} x"),
        breaks(
            "a: R4{a} T6{a} R8{a,b} s1! d1 / b: R5{b} x",
            "a/1 delivered the safe a/1#0:1 in R8@a/1, but its member b/1 never installed R8@a/1",
        ),
        breaks(
            "a: R4{a} T6{a} R8{a,b} s1! d1 / b: R5{b} T8{b} R9{b}",
            "a/1 delivered the safe a/1#0:1 in R8@a/1, but its member b/1 never installed R8@a/1",
            closed=False,
        ),
        kept("a: R4{a,b} s1! d1 T6{a} d2 R8{a} / b: R4{a,b} s2! x"),
        left_open("a: R4{a} T6{a} R8{a,b} s1! d1 / b: R5{b}"),
        left_open("a: R8{a,b} s1! d1"),
    ),
)
