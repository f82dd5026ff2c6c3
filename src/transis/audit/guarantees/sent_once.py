"""What becomes of the messages that a node accepts: EVS 1.4, sent once; and every submit accounted for."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.history import LaidHistory, Life, SentRun
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.types.ids import ProcessId

# --- sent once --------------------------------------------------------------------------------------------------------


def check_sent_once(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        findings.checked += sum(origin.sent.count for origin in life.origins)
        for origin in life.origins:
            _in_regular(life, origin, findings)
    for code, again in history.sent_again:
        message = history.message(code)
        node = message.process.node
        first = history.origins[code]
        witness = ((node, first.sent.lseq), (node, again.sent.lseq))
        findings.violation("twice", witness, (message,), node=node, message=message)


def _in_regular(life: Life, origin: SentRun, findings: Findings) -> None:
    stay, sent = origin.stay, origin.sent
    if stay is None:
        findings.violation("outside", ((life.node, sent.lseq),), node=life.node)
    elif stay.trans is not None and stay.trans.lseq < sent.lseq:
        witness = ((life.node, stay.trans.lseq), (life.node, sent.lseq))
        findings.violation("transitional", witness, node=life.node, view=stay.trans.view.id)


SQL_SENT_ONCE: Final = """
    select 'outside' as kind, e.run, e.ring, n.node_name as node, array(e.node) as nodes, array(array(e.node, e.lseq)) as witness
    from {sends} e join {node_names} n on e.node = n.node
    where e.stay_no = 0
    ;
    select 'transitional' as kind, e.run, e.ring, s.node_name as node, s.trans_name as view,
           array(e.node) as nodes, array(s.trans) as views, array(array(e.node, s.trans_lseq), array(e.node, e.lseq)) as witness
    from {sends} e join {stays} s on e.node = s.node and e.stay_no = s.stay_no
    where e.phase = 1
    ;
    with sent as (
        select *, first(lseq) over same as first_lseq from {unaccounted} where kind = 'sends'
        window same as (partition by node, process, counter order by lseq)
    )
    select 'twice' as kind, e.run, n.node_name as node, concat(p.process_name, ':', e.counter) as message,
           array(e.node) as nodes, array(array(e.process, e.counter)) as messages,
           array(array(e.node, e.first_lseq), array(e.node, e.lseq)) as witness, e.counter as position
    from sent e join {node_names} n on e.node = n.node join {process_names} p on e.process = p.process
    where e.lseq <> e.first_lseq
"""

SENT_ONCE: Final = Property(
    name="sent_once_1_4",
    meaning="a message is sent once, in one view",
    paper="EVS94, Specification 1.4, first half",
    predicate="A message is sent at most once, by one process, in a regular configuration. That one process sends it is part "
    "of its id.",
    broken={
        "outside": "{node} sent messages before it installed any configuration",
        "transitional": "{node} sent messages while the transitional configuration {view} was in force",
        "twice": "{node} sent {message} twice",
    },
    reads=Reads.VIEWS,
    check=check_sent_once,
    sql=SQL_SENT_ONCE,
    counts="select run, ring, count as checked from {sends}",
    examples=(
        kept("a: R4{a} s1 d1"),
        breaks("a: R4{a} s1 o1 d1", "a/1 sent a/1#0:1 twice"),
        breaks("a: R4{a} s1 d1 T6{a} R8{a} o1", "a/1 sent a/1#0:1 twice"),
        breaks("a: R4{a} T6{a} s1 d1 R8{a}", "a/1 sent messages while the transitional configuration T6@a/1 was in force"),
        breaks("a: s1 R4{a}", "a/1 sent messages before it installed any configuration"),
    ),
)


# --- every submit accounted -------------------------------------------------------------------------------------------


def check_submits(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        submitted = _submitted(history, life, findings)
        refused = _refused(history, life, findings)
        sent = {
            code
            for origin in life.origins
            for code in history.codes(ProcessId(life.node, origin.sent.process), origin.sent.first, origin.sent.count)
        }
        findings.checked += len(submitted)
        _never(history, life, sent & refused.keys(), "sent and refused", refused, findings)
        if not life.gapped:
            _never(history, life, sent - submitted.keys(), "only sent", refused, findings)
            _never(history, life, refused.keys() - submitted.keys(), "only refused", refused, findings)
        _unaccounted(history, life, submitted.keys() - sent - refused.keys(), submitted, findings)


def _submitted(history: LaidHistory, life: Life, findings: Findings) -> dict[int, int]:
    """Codes of submitted messages with the event of each; says where counters were not dense."""
    found: dict[int, int] = {}
    following: dict[int, int] = {}
    for event in life.submits:
        expected = following.get(event.process, 1)
        process = ProcessId(life.node, event.process)
        if event.first != expected and not life.gapped:
            findings.violation("not dense", ((life.node, event.lseq),), process=process, first=event.first, expected=expected)
        following[event.process] = event.first + event.count
        found.update(dict.fromkeys(history.codes(process, event.first, event.count), event.lseq))
    return found


def _refused(history: LaidHistory, life: Life, findings: Findings) -> dict[int, int]:
    found: dict[int, int] = {}
    for event in life.refusals:
        for code in history.codes(ProcessId(life.node, event.process), event.first, event.count):
            if found.setdefault(code, event.lseq) != event.lseq:
                message = history.message(code)
                witness = ((life.node, found[code]), (life.node, event.lseq))
                findings.violation("refused twice", witness, (message,), node=life.node, message=message)
    return found


def _never(history: LaidHistory, life: Life, codes: set[int], kind: str, refused: dict[int, int], findings: Findings) -> None:
    for code in sorted(codes):
        message, origin = history.message(code), history.origins.get(code)
        events = (None if origin is None else origin.sent.lseq, refused.get(code))
        findings.violation(kind, tuple((life.node, lseq) for lseq in events if lseq is not None), (message,), message=message)


def _unaccounted(history: LaidHistory, life: Life, codes: set[int], submitted: dict[int, int], findings: Findings) -> None:
    if not codes or life.ended in ("failed", "stopped"):
        return
    if life.gapped or life.ended or not history.closed:
        findings.pending += len(codes)
        return
    ordered = sorted(codes)
    messages = history.messages(ordered)
    witness = ((life.node, submitted[ordered[0]]),)
    findings.violation("forgotten", witness, messages, node=life.node, message=list(messages))


SQL_SUBMITS: Final = """
    with carried as (  -- segment by segment: a busy process has as many partitions
        select node, process, segment, lag(last, 1, 1) over (partition by node, process order by segment) as next
        from (
            select node, process, segment, max_by(first + count, lseq) as last from {submits} group by node, process, segment
        )
    ), submit as (
        select s.*, coalesce(lag(first + count) over (partition by node, process, segment order by lseq), next) as expected
        from {submits} s join carried using (node, process, segment)
    )
    select 'not dense' as kind, s.run, p.process_name as process, s.first, s.expected, array(s.node) as nodes,
           array(array(s.node, s.lseq)) as witness, s.first as position
    from submit s join {lives} l on s.node = l.node join {process_names} p on s.process = p.process
    where s.first <> s.expected and not l.gapped
    ;
    with refused as (
        select *, first(lseq) over same as first_lseq from {unaccounted} where kind = 'refusals'
        window same as (partition by node, process, counter order by lseq)
    )
    select 'refused twice' as kind, e.run, n.node_name as node, concat(p.process_name, ':', e.counter) as message,
           array(e.node) as nodes, array(array(e.process, e.counter)) as messages,
           array(array(e.node, e.first_lseq), array(e.node, e.lseq)) as witness, e.counter as position
    from refused e join {node_names} n on e.node = n.node join {process_names} p on e.process = p.process
    where e.lseq <> e.first_lseq
    ;
    with message as (
        select run, node, process, counter, max(lseq) filter (where kind = 'submits') as submitted,
               min(lseq) filter (where kind = 'sends') as sent, min(lseq) filter (where kind = 'refusals') as refused
        from {unaccounted} group by run, node, process, counter
    ), wrong as (
        select m.*, explode(array_compact(array(
                   if(sent is not null and refused is not null, 'sent and refused', null),
                   if(sent is not null and submitted is null and not gapped, 'only sent', null),
                   if(refused is not null and submitted is null and not gapped, 'only refused', null)))) as kind
        from message m join {lives} l on m.node = l.node
    )
    select w.kind, w.run, concat(p.process_name, ':', w.counter) as message, array(w.node) as nodes,
           array(array(w.process, w.counter)) as messages, array(array(w.node, w.sent), array(w.node, w.refused)) as witness,
           w.counter as position
    from wrong w join {process_names} p on w.process = p.process
    ;
    with message as (
        select run, node, process, counter, max(lseq) as lseq from {unaccounted}
        group by run, node, process, counter
        having count_if(kind <> 'submits') = 0
    ), forgotten as (  -- one violation a life, with all the messages that it forgot
        select m.run, m.node, array_sort(collect_list(struct(m.counter, p.number, m.process, p.process_name, m.lseq))) as those
        from message m join {process_names} p on m.process = p.process
        group by m.run, m.node
    )
    select 'forgotten' as kind, f.run, n.node_name as node,
           transform(those, one -> concat(one.process_name, ':', one.counter)) as message, array(f.node) as nodes,
           transform(those, one -> array(one.process, one.counter)) as messages, array(array(f.node, those[0].lseq)) as witness,
           those[0].counter as position
    from forgotten f join {node_names} n on f.node = n.node
"""

SUBMITS: Final = Property(
    name="every_submit_accounted",
    meaning="every accepted message is sent or refused, once",
    predicate="Every message that a node accepts from a process is sent or refused, exactly once, and nothing else is: "
    "nobody's message is lost in a queue. Counters are dense from 1 in every process. What waits when a node ends is void: the "
    "node takes its queue with it.",
    broken={
        "not dense": "{process} was given counter {first} where {expected} was next",
        "refused twice": "{node} refused {message} twice",
        "sent and refused": "{message} was both sent and refused",
        "only sent": "{message} was sent but never submitted",
        "only refused": "{message} was refused but never submitted",
        "forgotten": "{node} neither sent nor refused {message}, which it had accepted",
    },
    reads=Reads.VIEWS,
    check=check_submits,
    sql=SQL_SUBMITS,
    counts="""
        select run, stop - start as checked, if(sends = 0 and refusals = 0 and fate = 'pending', stop - start, 0) as pending
        from {accounts} where submits > 0
    """,
    examples=(
        kept("a: R4{a} s1 u2 r2 d1"),
        kept("a: R4{a} s1 u2 d1 x"),
        breaks("a: R4{a} o1 u2 r2 d1", "a/1#0 was given counter 2 where 1 was next"),
        breaks("a: R4{a} u1 r1 r1", "a/1 refused a/1#0:1 twice"),
        breaks("a: R4{a} s1 d1 r1", "a/1#0:1 was both sent and refused"),
        breaks("a: R4{a} o1 d1", "a/1#0:1 was sent but never submitted"),
        breaks("a: R4{a} s1 d1 u2 r2 r3", "a/1#0:3 was refused but never submitted"),
        breaks("a: R4{a} s1 u2 d1", "a/1 neither sent nor refused a/1#0:2, which it had accepted"),
        breaks("a: R4{a} s1 d1 u2 u3", "a/1 neither sent nor refused a/1#0:2, a/1#0:3, which it had accepted"),
        left_open("a: R4{a} s1 u2 d1"),
        left_open("a: R4{a} s1 u2 d1 g", closed=True),
        left_open("a: R4{a} s1 u2 d1 ?", closed=True),
    ),
)
