"""EVS 3: self delivery."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.history import LaidHistory, Obligation, Stay
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open


def check_self_delivery(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        for stay in life.stays:
            findings.checked += len(stay.sent_codes)
            missing = set(stay.sent_codes).difference(stay.all.codes)
            if missing:
                _missing(history, stay, sorted(missing), findings)


def _missing(history: LaidHistory, stay: Stay, missing: list[int], findings: Findings) -> None:
    obligation = stay.obligation(history.closed)
    if obligation is Obligation.PENDING:
        findings.pending += len(missing)
    if obligation is not Obligation.DUE:
        return
    messages = history.messages(missing)
    sent = (stay.node, history.origins[missing[0]].sent.lseq)
    words = {"node": stay.node, "message": list(messages), "view": stay.ring}
    if stay.following is None:
        findings.violation("at the end", (sent,), messages, **words)
    else:
        went_on = (stay.node, stay.following.conf.lseq)
        findings.violation("on the way", (sent, went_on), messages, **words, next=stay.following.ring)


SQL: Final = """
    with missing as (
        select run, ring, node, stay_no, process, counter, message, lseq
        from {sent} left anti join {everything} using (node, stay_no, process, counter)
        union all  -- what is proven for others, above the end of a stay that has not come as far
        select p.run, p.ring, s.node, s.stay_no, p.process, counter,
               concat(n.process_name, ':', counter), p.sent_lseq
        from {pairs} p
        join {stays} s on p.sent_node = s.node and p.sent_stay_no = s.stay_no
        join {process_names} n on p.process = n.process
        lateral view explode(sequence(p.first, p.first + p.count - 1)) as counter
        where s.n < s.bound and p.tpos >= s.n and p.tpos + p.count <= s.bound
    )
    select if(s.following is null, 'at the end', 'on the way') as kind, m.run, m.ring,
           s.node_name as node, m.message, s.ring_name as view, s.following_name as next,
           array(m.node) as nodes, array(m.ring) as views, array(array(m.process, m.counter)) as messages,
           array(array(m.node, m.lseq), array(m.node, s.following_lseq)) as witness, s.duty = 'pending' as is_pending
    from missing m join {stays} s on m.node = s.node and m.stay_no = s.stay_no
    where s.duty <> 'void'
"""

COUNTS: Final = """
    select run, ring, count as checked, 0 as pending from {sends} where stay_no > 0 and service > 0
    union all  -- where something was dropped own deliveries may be among it: they are counted, not looked for
    select run, null, 0, sum(sent) - sum(delivered)
    from (
        select run, node, stay_no, count as sent, 0 as delivered from {sends} where service > 0
        union all
        select run, node, stay_no, 0, count from {deliveries} where service > 0 and sender = node
    ) left semi join (select node, stay_no from {stays} where not whole) using (node, stay_no)
    group by run, node, stay_no
    having sum(sent) > sum(delivered)
"""

SELF_DELIVERY: Final = Property(
    name="self_delivery_3",
    meaning="a sender delivers its own messages, unless it fails",
    paper="EVS94, Specification 3",
    predicate="A node delivers the messages that it sends, basic ones apart, in the configuration in which it sent them or in "
    "the transitional one after it, unless it fails.",
    broken={
        "at the end": "{node} sent {message} in {view} and had not delivered it when the run ended",
        "on the way": "{node} sent {message} in {view} and had not delivered it when it installed {next}",
    },
    reads=Reads.ORDER,
    check=check_self_delivery,
    sql=SQL,
    counts=COUNTS,
    examples=(
        kept("a: R4{a} s1 d1"),
        kept("a: R4{a} s1 T6{a} d1 R8{a}"),
        breaks("a: R4{a} s1", "a/1 sent a/1#0:1 in R4@a/1 and had not delivered it when the run ended"),
        breaks("a: R4{a} s1 T6{a} R8{a}", "a/1 sent a/1#0:1 in R4@a/1 and had not delivered it when it installed R8@a/1"),
        breaks("a: R4{a} s1 T6{a} R8{a} d1", "a/1 sent a/1#0:1 in R4@a/1 and had not delivered it when it installed R8@a/1"),
        kept("a: R4{a} s1 s2? d1"),
        kept("a: R4{a} s1 x"),
        left_open("a: R4{a} s1"),
        left_open("a: R4{a} s1 T6{a}"),
        left_open("a: R4{a} s1 g T6{a} R8{a}"),
    ),
)
