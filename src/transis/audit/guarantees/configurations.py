"""Configurations: EVS 2.2, events in the one that is in force; how they follow each other at a node; that all agree on them."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.history import LaidHistory, Life, Stay
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.trace.events import Conf, Delivery
from transis.types.ids import ViewId, ViewKind
from transis.types.views import View

# --- configuration ----------------------------------------------------------------------------------------------------


def check_configuration(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        for conf in life.confs:
            _member(life, conf, findings)
        for stay in life.stays:
            _claims(stay, findings)
        for event in life.homeless:
            findings.violation("before any", ((life.node, event.lseq),), node=life.node)
        if life.afterwards and life.end is not None:
            witness = ((life.node, life.end.lseq), (life.node, life.afterwards[0].lseq))
            findings.violation("afterwards", witness, node=life.node, late=len(life.afterwards))


def _member(life: Life, conf: Conf, findings: Findings) -> None:
    findings.checked += 1
    if life.node not in conf.view.nodes:
        findings.violation("no member", ((life.node, conf.lseq),), node=life.node, view=conf.view.id)


def _claims(stay: Stay, findings: Findings) -> None:
    runs = stay.all.runs
    findings.checked += sum(run.count for run in runs) + sum(origin.sent.count for origin in stay.origins)
    if not stay.whole:
        findings.pending += 1
        return
    regular = stay.ring
    transitional = regular if stay.trans is None else stay.trans.view.id
    cut = stay.all.run_cut
    wrong = [run for run in runs[:cut] if run.regular != regular or run.conf != regular]
    wrong += [run for run in runs[cut:] if run.regular != regular or run.conf != transitional]
    for run in wrong:
        _wrong_delivery(stay, run, findings)
    for origin in stay.origins:
        if origin.sent.conf != regular:
            witness = ((stay.node, stay.conf.lseq), (stay.node, origin.sent.lseq))
            findings.violation("sent", witness, node=stay.node, claimed=origin.sent.conf, view=regular)


def _wrong_delivery(stay: Stay, run: Delivery, findings: Findings) -> None:
    in_force: ViewId = stay.ring
    lseq = stay.conf.lseq
    if stay.trans is not None and stay.trans.lseq < run.lseq:
        in_force, lseq = stay.trans.view.id, stay.trans.lseq
    findings.violation(
        "delivered",
        ((stay.node, lseq), (stay.node, run.lseq)),
        node=stay.node,
        message=f"{run.process}:{run.first}",
        claimed=run.conf,
        regular=run.regular,
        view=in_force,
    )


CONFIGURATION: Final = Property(
    name="configuration_2_2",
    meaning="events happen in the view that is in force",
    paper="EVS94, Specification 2.2",
    predicate="A node installs only configurations of which it is a member. It sends and delivers in the "
    "configuration in force, which is the one that it installed last, and nothing happens at it after its end.",
    broken={
        "no member": "{node} installed {view}, but is not a member of it",
        "delivered": "{node} claims to have delivered {message} in {claimed} of {regular} while {view} was in force",
        "sent": "{node} claims to have sent in {claimed} while {view} was in force",
        "before any": "{node} delivered a message before it installed any configuration",
        "afterwards": "{node} has {late} events after its end",
    },
    reads=Reads.VIEWS,
    check=check_configuration,
    sql="""
        select 'no member' as kind, run, node_name as node, view_name as view,
               array(node) as nodes, array(view) as views, array(array(node, lseq)) as witness
        from {confs} where not array_contains(members, node)
        ;
        select 'delivered' as kind, d.run, d.ring, s.node_name as node,
               concat(p.process_name, ':', d.first) as message, c.view_name as claimed, r.view_name as regular,
               if(d.phase = 1, s.trans_name, s.ring_name) as view, array(d.node) as nodes, array(d.conf, d.ring) as views,
               array(array(d.node, if(d.phase = 1, s.trans_lseq, s.conf_lseq)), array(d.node, d.lseq)) as witness,
               d.tpos as position
        from {deliveries} d join {stays} s on d.node = s.node and d.stay_no = s.stay_no
        join {view_names} c on d.conf = c.view join {view_names} r on d.regular = r.view
        join {process_names} p on d.process = p.process
        where d.service > 0 and s.whole and (d.regular <> d.ring or d.conf <> d.ring or d.phase = 1)
          and (d.regular <> d.ring or d.conf <> if(d.phase = 1, s.trans, d.ring))
        ;
        select 'sent' as kind, e.run, e.ring, s.node_name as node, c.view_name as claimed,
               s.ring_name as view, array(e.node) as nodes, array(e.conf, e.ring) as views,
               array(array(e.node, s.conf_lseq), array(e.node, e.lseq)) as witness
        from {sends} e join {stays} s on e.node = s.node and e.stay_no = s.stay_no join {view_names} c on e.conf = c.view
        where e.conf <> e.ring and s.whole
        ;
        select 'before any' as kind, d.run, n.node_name as node, array(d.node) as nodes,
               array(array(d.node, d.lseq)) as witness
        from {deliveries} d join {node_names} n on d.node = n.node
        where d.service > 0 and d.stay_no = 0
        ;
        select 'afterwards' as kind, l.run, l.node_name as node, a.late, array(l.node) as nodes,
               array(array(l.node, l.end_lseq), array(l.node, a.first_lseq)) as witness
        from {lives} l
        join (select node, count(*) as late, min(lseq) as first_lseq from {afterwards} group by node) a on l.node = a.node
    """,
    counts="""
        select run, cast(null as bigint) as ring, 1 as checked, 0 as pending from {confs}
        union all
        select run, ring, count, 0 from {deliveries} where service > 0 and stay_no > 0
        union all
        select run, ring, count, 0 from {sends} where stay_no > 0
        union all
        select run, ring, 0, int(not whole) from {stays}
    """,
    examples=(
        kept("a: R4{a,b} s1 d1 T6{a} R8{a} / b: R4{a,b} T6{b} R8{b} x"),
        breaks("a: R4{b} x", "a/1 installed R4@b/1, but is not a member of it"),
        breaks(
            "a: R4{a} s1 d1@R3 T6{a} R8{a}",
            "a/1 claims to have delivered a/1#0:1 in R3@a/1 of R3@a/1 while R4@a/1 was in force",
        ),
        breaks(
            "a: R4{a} s1 T6{a} d1@R4 R8{a}",
            "a/1 claims to have delivered a/1#0:1 in R4@a/1 of R4@a/1 while T6@a/1 was in force",
        ),
        breaks("a: R4{a} s1@R3 d1", "a/1 claims to have sent in R3@a/1 while R4@a/1 was in force"),
        breaks("a: u1 d1 R4{a} o1", "a/1 delivered a message before it installed any configuration"),
        breaks("a: R4{a} x s1", "a/1 has 2 events after its end"),
        left_open("a: R4{a} g s1 d1@R3"),
    ),
)


# --- structure --------------------------------------------------------------------------------------------------------

Fault = tuple[str, dict[str, object]]
"""Which sentence, and its words."""


def check_structure(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        findings.checked += len(life.confs)
        findings.pending += len(life.unlinked)
        before: Conf | None = None
        regular: ViewId | None = None
        for conf in life.confs:
            _complain(life, conf, None, _own_fault(conf.view), findings)
            if conf not in life.unlinked:
                _complain(life, conf, before, _fault_after(life, before, conf.view, regular), findings)
            before = conf
            if conf.view.id.is_regular:
                regular = conf.view.id


def _fault_after(life: Life, before: Conf | None, view: View, regular: ViewId | None) -> Fault | None:
    return _first_fault(life, view) if before is None else _link_fault(life, before.view, view, regular)


def _complain(life: Life, conf: Conf, before: Conf | None, fault: Fault | None, findings: Findings) -> None:
    if fault is None:
        return
    kind, words = fault
    here = (life.node, conf.lseq)
    witness = (here,) if before is None else ((life.node, before.lseq), here)
    findings.violation(kind, witness, node=life.node, view=conf.view.id, **words)


def _first_fault(life: Life, view: View) -> Fault | None:
    if view.id.kind is not ViewKind.REGULAR:
        return "transitional first", {}
    return _previous_fault(life, view, None)


def _own_fault(view: View) -> Fault | None:
    """What is wrong with a view whatever came before it."""
    nodes = view.nodes
    if list(nodes) != sorted(set(nodes)):
        return "not sorted", {}
    if view.id.rep not in nodes:
        return "no representative", {}
    if view.id.kind is ViewKind.REGULAR:
        return None if view.regular == view.id else ("not its own regular", {"regular": view.regular})
    strangers = [member.node for member in view.members if member.previous != view.regular]
    return ("strangers", {"strangers": strangers, "regular": view.regular}) if strangers else None


def _link_fault(life: Life, before: View, view: View, regular: ViewId | None) -> Fault | None:
    """What is wrong between one configuration and the next."""
    if view.id.kind is ViewKind.TRANSITIONAL:
        if before.id.kind is ViewKind.TRANSITIONAL:
            return "two transitional", {"before": before.id}
        return None if view.regular == before.id else ("follows another", {"regular": view.regular, "before": before.id})
    if before.id.kind is ViewKind.REGULAR:
        return "no transitional", {"before": before.id}
    if regular is not None and (view.id.seq, view.id.rep) <= (regular.seq, regular.rep):
        return "sequence", {"last": regular}
    return _transitional_members_fault(before, view) or _previous_fault(life, view, regular)


def _transitional_members_fault(before: View, view: View) -> Fault | None:
    together = [member.node for member in view.members if member.previous == before.regular]
    if together == list(before.nodes):
        return None
    return "members", {"together": together, "origin": before.regular, "members": list(before.nodes)}


def _previous_fault(life: Life, view: View, regular: ViewId | None) -> Fault | None:
    claimed = [member.previous for member in view.members if member.node == life.node]
    if not claimed or claimed[0] == regular:
        return None
    return "origin", {"claimed": claimed[0] or "nowhere", "last": regular or "nowhere"}


SQL_STRUCTURE: Final = """
    with linked as (
        select c.*, o.view_order, lag(struct(c.lseq, view_name, view_kind, view, regular, members)) over life as before,
               last(if(view_kind = 0, struct(view, view_name, o.view_order), null)) ignore nulls over earlier as last
        from {confs} c join (select view, view_order from {view_names}) o using (view)
        window life as (partition by node order by lseq),
               earlier as (partition by node order by lseq rows between unbounded preceding and 1 preceding)
    ), judged as (
        select *, get(previous, int(array_position(members, node)) - 1) as claimed,
               transform(filter(arrays_zip(members, previous), m -> not m.previous <=> regular), m -> m.members) as strangers,
               transform(filter(arrays_zip(members, previous), m -> m.previous = before.regular), m -> m.members) as together
        from linked
    ), faulty as (
        select *, array(array(node, lseq)) as witness,
               case when not is_sorted then 'not sorted'
                    when not array_contains(members, view_rep) then 'no representative'
                    when view_kind = 0 and regular <> view then 'not its own regular'
                    when view_kind = 1 and size(strangers) > 0 then 'strangers' end as kind
        from judged
        union all
        select *, array(array(node, before.lseq), array(node, lseq)),
               case when before is null and view_kind = 1 then 'transitional first'
                    when view_kind = 1 and before.view_kind = 1 then 'two transitional'
                    when view_kind = 1 and regular <> before.view then 'follows another'
                    when view_kind = 1 then null
                    when before.view_kind = 0 then 'no transitional'
                    when view_order <= last.view_order then 'sequence'
                    when together <> before.members then 'members'
                    when array_contains(members, node) and not claimed <=> last.view then 'origin' end
        from judged where not blind
    )
    select f.kind, f.run, f.node_name as node, f.view_name as view, f.before.view_name as before,
           r.view_name as regular, o.view_name as origin, coalesce(f.last.view_name, 'nowhere') as last,
           coalesce(c.view_name, 'nowhere') as claimed,
           transform(f.strangers, node -> try_element_at(m.node_names, node)) as strangers,
           transform(f.together, node -> try_element_at(m.node_names, node)) as together,
           transform(f.before.members, node -> try_element_at(m.node_names, node)) as members,
           array(f.node) as nodes, array(f.view) as views, f.witness
    from faulty f join {node_maps} m on f.run = m.run left join {view_names} r on f.regular = r.view
    left join {view_names} o on f.before.regular = o.view left join {view_names} c on f.claimed = c.view
    where f.kind is not null
"""

STRUCTURE: Final = Property(
    name="structure",
    meaning="regular and transitional views follow each other as they must",
    predicate="The first configuration of a life is regular and says that its node comes from nowhere; then transitional and "
    "regular ones take turns. A transitional configuration names the regular one that it follows, from which all its members "
    "come; its members are those of the next regular one that come from there. Ring sequences grow. The representative is a "
    "member; members are sorted, each once.",
    broken={
        "not sorted": "{node} installed {view}: its members are not sorted, or one is there twice",
        "no representative": "{node} installed {view}: its representative is not a member",
        "not its own regular": "{node} installed {view}: a regular configuration is its own regular one, not {regular}",
        "strangers": "{node} installed {view}: {strangers} did not come from {regular}",
        "transitional first": "{node} installed {view}: the first configuration of a life cannot be transitional",
        "two transitional": "{node} installed {view}: it follows another transitional configuration, {before}",
        "follows another": "{node} installed {view}: it says it follows {regular}, but {before} was in force",
        "no transitional": "{node} installed {view}: no transitional configuration stands between it and {before}",
        "sequence": "{node} installed {view}: its ring sequence does not exceed that of {last}",
        "members": "{node} installed {view}: {together} came from {origin}, but the transitional configuration had {members}",
        "origin": "{node} installed {view}: it says that {node} came from {claimed}, but it came from {last}",
    },
    reads=Reads.VIEWS,
    check=check_structure,
    sql=SQL_STRUCTURE,
    counts="select run, 1 as checked, int(blind) as pending from {confs}",
    examples=(
        kept("a: R4{a} T6{a} R8{a,b} / b: R5{b} T6{b} R8{a,b}"),
        breaks("a: R4@a{b,a} x", "a/1 installed R4@a/1: its members are not sorted, or one is there twice"),
        breaks("a: R4@b{a} x", "a/1 installed R4@b/1: its representative is not a member"),
        breaks("a: R4~3{a} x", "a/1 installed R4@a/1: a regular configuration is its own regular one, not R3@a/1"),
        breaks("a: R4{a,b} T6{a,b>3} x / b: R4{a,b} x", "a/1 installed T6@a/1: b/1 did not come from R4@a/1"),
        breaks("a: T2{a} R4{a}", "a/1 installed T2@a/1: the first configuration of a life cannot be transitional"),
        breaks("a: R4{a} T6{a} T7{a} R8{a}", "a/1 installed T7@a/1: it follows another transitional configuration, T6@a/1"),
        breaks("a: R4{a} T6~3{a} x", "a/1 installed T6@a/1: it says it follows R3@a/1, but R4@a/1 was in force"),
        breaks("a: R4{a} R8{a}", "a/1 installed R8@a/1: no transitional configuration stands between it and R4@a/1"),
        breaks("a: R8{a} T6{a} R4{a}", "a/1 installed R4@a/1: its ring sequence does not exceed that of R8@a/1"),
        breaks(
            "a: R4{a,b} T6{a,b} R8{a} / b: R4{a,b} T7{b} R9{b}",
            "a/1 installed R8@a/1: a/1 came from R4@a/1, but the transitional configuration had a/1, b/1",
        ),
        breaks("a: R4{a>3} x", "a/1 installed R4@a/1: it says that a/1 came from R3@a/1, but it came from nowhere"),
        left_open("a: R4{a} g R8{a}"),
    ),
)


# --- agreement on views -----------------------------------------------------------------------------------------------


def check_agreement_on_views(history: LaidHistory, findings: Findings) -> None:
    first: dict[ViewId, tuple[Life, Conf]] = {}
    for life in history.lives:
        for conf in life.confs:
            findings.checked += 1
            known_life, known = first.setdefault(conf.view.id, (life, conf))
            difference = _difference(known.view, conf.view)
            if difference is not None:
                kind, words = difference
                witness = ((known_life.node, known.lseq), (life.node, conf.lseq))
                findings.violation(kind, witness, one=known_life.node, other=life.node, view=conf.view.id, **words)


def _difference(left: View, right: View) -> Fault | None:
    if left is right:
        return None
    if left.nodes != right.nodes:
        return "members", {"one_members": list(left.nodes), "other_members": list(right.nodes)}
    if left.members != right.members:
        return "of members", {}
    if left.regular != right.regular:
        return "regular", {"one_regular": left.regular, "other_regular": right.regular}
    if left.cause != right.cause:
        return "cause", {"one_cause": left.cause, "other_cause": right.cause}
    return None


SQL_AGREEMENT: Final = """
    with beside as (
        select c.*, first(struct(c.node, c.node_name, c.lseq, members, previous, regular, cause, digest)) over same as one
        from {confs} c join {node_names} n on c.node = n.node
        window same as (partition by view order by n.name, n.incarnation, n.boot, c.lseq)
    )
    select case when b.one.members <> b.members then 'members'
                when not b.one.previous <=> b.previous then 'of members'
                when b.one.regular <> b.regular then 'regular'
                when b.one.cause <> b.cause then 'cause'
                else 'of members' end as kind,  -- addresses and info of members are in the digest only
           b.run, b.one.node_name as one, b.node_name as other, b.view_name as view,
           transform(b.one.members, node -> try_element_at(m.node_names, node)) as one_members,
           transform(b.members, node -> try_element_at(m.node_names, node)) as other_members,
           l.view_name as one_regular, r.view_name as other_regular, b.one.cause as one_cause, b.cause as other_cause,
           array(b.one.node, b.node) as nodes, array(b.view) as views,
           array(array(b.one.node, b.one.lseq), array(b.node, b.lseq)) as witness
    from beside b join {node_maps} m on b.run = m.run
    left join {view_names} l on b.one.regular = l.view left join {view_names} r on b.regular = r.view
    where b.digest <> b.one.digest
"""

AGREEMENT_ON_VIEWS: Final = Property(
    name="agreement_on_views",
    meaning="the same view has the same members for everybody",
    predicate="A configuration's id means one configuration: wherever it is installed it has the same members, each with one "
    "origin, address and info, the same regular configuration and the same cause. Without this, every other property would mean "
    "different things by one name.",
    broken={
        "members": "{one} and {other} installed {view} with different members: {one_members} against {other_members}",
        "of members": "{one} and {other} installed {view} with different previous views, addresses or info of members",
        "regular": "{one} and {other} installed {view} with different regular configurations before it: "
        "{one_regular} against {other_regular}",
        "cause": "{one} and {other} installed {view} with different causes: {one_cause} against {other_cause}",
    },
    reads=Reads.VIEWS,
    check=check_agreement_on_views,
    sql=SQL_AGREEMENT,
    counts="select run, 1 as checked from {confs}",
    examples=(
        kept("a: R4{a,b} / b: R4{a,b}"),
        breaks(
            "a: R4{a,b} / b: R4@a{a,b,c} x",
            "a/1 and b/1 installed R4@a/1 with different members: a/1, b/1 against a/1, b/1, c/1",
        ),
        breaks(
            "a: R4{a,b} x / b: R4{a,b>3} x",
            "a/1 and b/1 installed R4@a/1 with different previous views, addresses or info of members",
        ),
        breaks(
            "a: R4{a,b} T6@a{a>4,b>4} x / b: R4{a,b} T6~5@a{a>4,b>4} x",
            "a/1 and b/1 installed T6@a/1 with different regular configurations before it: R4@a/1 against R5@a/1",
        ),
        breaks("a: R4{a,b} x / b: R4(merge){a,b} x", "a/1 and b/1 installed R4@a/1 with different causes: toy against merge"),
    ),
)
