"""What is delivered was sent: no creation; and EVS 1.3, delivered where sent."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.history import Deliveries, LaidHistory, Life, Ring
from transis.audit.guarantees.property import MODES, RELIABLE, Findings, Property, Reads, Witness, breaks, kept, left_open

# --- no creation ------------------------------------------------------------------------------------------------------


def check_no_creation(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        for stay in ring.stays:
            findings.checked += len(stay.all.codes)
            if history.origins.keys() >= set(stay.all.codes):
                continue
            for position, code in enumerate(stay.all.codes):
                if code not in history.origins:
                    _unsent(history, stay.all, position, findings)


def _unsent(history: LaidHistory, delivered: Deliveries, position: int, findings: Findings) -> None:
    message = history.message(delivered.codes[position])
    sender = message.process.node
    if may_still_be_sent(history, history.by_node.get(sender)):
        findings.pending += 1
        return
    view = delivered.conf_at(position).view.id
    witness = (delivered.event_at(position),)
    findings.violation("from nowhere", witness, (message,), node=delivered.node, message=message, view=view, sender=sender)


def may_still_be_sent(history: LaidHistory, sender: Life | None) -> bool:
    """Is the sender's trace too incomplete to say that it did not send?"""
    if sender is None:
        return not history.closed
    if sender.gapped or sender.ended == "unknown":
        return True
    return not (history.closed or sender.ended)


NO_CREATION: Final = Property(
    name="no_creation",
    meaning="what is delivered was sent",
    paper="EVS94, Specification 1.3, first half",
    predicate="What a node delivers, basic messages apart, was sent by the node that its id names. It is pending while the "
    "trace of that node is missing, open or has a gap, for the SEND may still turn up there.",
    broken={"from nowhere": "{node} delivered {message} in {view}, but {sender} never sent it"},
    reads=Reads.ORDER,
    check=check_no_creation,
    sql="""
        select m.run, m.ring, f.node_name as node, m.message, f.conf_name as view, s.sender_name as sender,
               array(m.node, m.sender) as nodes, array(f.conf) as views, array(array(m.process, m.counter)) as messages,
               array(array(m.node, m.lseq)) as witness, m.tpos as position, s.may_still_be_sent as is_pending
        from {everything} m left anti join {origins} o on m.process = o.process and m.counter = o.counter
        join {phases} f on m.node = f.node and m.stay_no = f.stay_no and m.phase = f.phase
        join {senders} s on m.sender = s.sender
    """,
    counts=RELIABLE,
    examples=(
        kept("a: R4{a,b} s1 d1 / b: R4{a,b} d1"),
        kept("a: R4{a,b} s1 x / b: R4{a,b} T6{b} d1 R8{b}"),
        breaks("a: R4{a,b} d1<b / b: R4{a,b}", "a/1 delivered b/1#0:901 in R4@a/1, but b/1 never sent it"),
        breaks("a: R4{a,b} d1<b / b: R4{a,b} x", "a/1 delivered b/1#0:901 in R4@a/1, but b/1 never sent it", closed=False),
        breaks("a: R4{a} T6{a} d1<a R8{a}", "a/1 delivered a/1#0:901 in T6@a/1, but a/1 never sent it"),
        left_open("a: R4{a,b} d1<b / b: R4{a,b}"),
        left_open("a: R4{a,b} d1<b"),
        left_open("a: R4{a,b} d1<b / b: R4{a,b} g", closed=True),
        left_open("a: R4{a,b} d1<b / b: R4{a,b} ?", closed=True),
    ),
)

# --- delivered where sent ---------------------------------------------------------------------------------------------


def check_delivered_where_sent(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        sent_here: set[int] = set()
        sent_here.update(*(stay.sent_codes for stay in ring.stays))
        for stay in ring.stays:
            findings.checked += len(stay.all.codes)
            if not sent_here.issuperset(stay.all.codes):
                _strangers(history, ring, stay.all, sent_here, findings)
    for life in history.lives:
        for event in life.homeless:
            findings.checked += event.count
            findings.violation("before any", ((life.node, event.lseq),), node=life.node)


def _strangers(history: LaidHistory, ring: Ring, delivered: Deliveries, sent_here: set[int], findings: Findings) -> None:
    for position, code in enumerate(delivered.codes):
        if code in sent_here:
            continue
        message, origin = history.message(code), history.origins.get(code)
        if origin is None and may_still_be_sent(history, history.life_of(code)):
            findings.pending += 1
            continue
        there = "no configuration at all" if origin is None or origin.stay is None else origin.stay.ring
        witness: Witness = () if origin is None else ((message.process.node, origin.sent.lseq),)
        words = {"node": delivered.node, "message": message, "view": delivered.conf_at(position).view.id}
        here = delivered.event_at(position)
        findings.violation("elsewhere", (*witness, here), (message,), **words, ring_view=ring.id, there=there)


WHERE_SENT: Final = Property(
    name="delivered_where_sent_1_3",
    meaning="a message is delivered in the view it was sent in",
    paper="EVS94, Specification 1.3",
    predicate="A message, unless it is a basic one, is delivered only in the configuration in which it was sent or in the "
    "transitional one after it. That it was sent before it is delivered is a part of the partial order.",
    broken={
        "elsewhere": "{node} delivered {message} in {view} of ring {ring_view}, but it was sent in {there}",
        "before any": "{node} delivered messages before any configuration",
    },
    promised_in=frozenset(MODES) - {"transis"},
    reads=Reads.ORDER,
    check=check_delivered_where_sent,
    sql="""
        select 'elsewhere' as kind, m.run, m.ring, f.node_name as node, m.message, f.conf_name as view, f.ring_name as ring_view,
               coalesce(v.view_name, 'no configuration at all') as there, array(m.node, m.sender) as nodes,
               array(f.conf) as views, array(array(m.process, m.counter)) as messages,
               array(array(o.sent_node, o.sent_lseq), array(m.node, m.lseq)) as witness, m.tpos as position,
               o.sent_lseq is null and s.may_still_be_sent as is_pending
        from {everything} m
        left anti join (select process, counter, sent_ring from {origins} where sent_service > 0) h
            on m.process = h.process and m.counter = h.counter and m.ring = h.sent_ring
        left join (select * from {origins} where nth = 1) o on m.process = o.process and m.counter = o.counter
        join {phases} f on m.node = f.node and m.stay_no = f.stay_no and m.phase = f.phase
        join {senders} s on m.sender = s.sender left join {view_names} v on o.sent_ring = v.view
        ;
        select 'before any' as kind, d.run, n.node_name as node, array(d.node) as nodes, array(array(d.node, d.lseq)) as witness
        from {deliveries} d join {node_names} n on d.node = n.node
        where d.service > 0 and d.stay_no = 0
    """,
    counts=RELIABLE + "\n;\nselect run, count as checked from {deliveries} where service > 0 and stay_no = 0",
    examples=(
        kept("a: R4{a,b} s1 d1 T6{a,b} R8{a,b} / b: R4{a,b} T6{a,b} d1 R8{a,b}"),
        breaks(
            "a: R4{a,b} s1 d1 T6{a,b} R8{a,b} / b: R4{a,b} T6{a,b} R8{a,b} d1",
            "b/1 delivered a/1#0:1 in R8@a/1 of ring R8@a/1, but it was sent in R4@a/1",
        ),
        breaks("a: s1 R4{a} d1", "a/1 delivered a/1#0:1 in R4@a/1 of ring R4@a/1, but it was sent in no configuration at all"),
        breaks("a: R4{a} d1<a", "a/1 delivered a/1#0:901 in R4@a/1 of ring R4@a/1, but it was sent in no configuration at all"),
        breaks("a: u1 d1 R4{a} o1", "a/1 delivered messages before any configuration"),
        left_open("a: R4{a,b} d1<b / b: R4{a,b}"),
    ),
)
