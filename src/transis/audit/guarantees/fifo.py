"""At every node the counters of a process only grow: FIFO, and no duplicates."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.history import Deliveries, LaidHistory, Life
from transis.audit.guarantees.property import RELIABLE, Findings, Property, Reads, breaks, kept
from transis.trace.events import Delivery
from transis.types.ids import MessageId

# --- fifo -------------------------------------------------------------------------------------------------------------


def check_fifo(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        latest: dict[int, Delivery] = {}
        for delivered in (stay.all for stay in life.stays):
            findings.checked += len(delivered.codes)
            for start, run in zip(delivered.starts, delivered.runs, strict=True):
                process = delivered.codes[start] % history.stride
                before = latest.get(process)
                if before is not None and before.first + before.count > run.first:
                    _overtaken(life, before, run, findings)
                latest[process] = run


def _overtaken(life: Life, before: Delivery, run: Delivery, findings: Findings) -> None:
    later = MessageId(before.process, before.first + before.count - 1)
    earlier = MessageId(run.process, run.first)
    if later == earlier:
        return  # The same message twice in a row is a duplicate, not a question of order.
    witness = ((life.node, before.lseq), (life.node, run.lseq))
    findings.violation("overtaken", witness, (earlier, later), node=life.node, later=later, earlier=earlier)


FIFO: Final = Property(
    name="fifo",
    meaning="a sender's messages arrive in the order it sent them",
    predicate="A node delivers the messages of a process, basic ones apart, in the order of their counters, over its whole "
    "life. A message right behind itself is a duplicate, not a question of order.",
    broken={"overtaken": "{node} delivered {later} before {earlier}, although the same process sent it later"},
    reads=Reads.ORDER,
    check=check_fifo,
    sql="""
        with delivered as (
            select *, lag(struct(last, last_lseq)) over (partition by node, process order by stay_no, tpos) as before
            from {stretches}
        )
        select d.run, d.ring, f.node_name as node, concat(p.process_name, ':', d.before.last) as later,
               concat(p.process_name, ':', d.first) as earlier, array(d.node) as nodes, array(f.conf) as views,
               array(array(d.process, d.first), array(d.process, d.before.last)) as messages,
               array(array(d.node, d.before.last_lseq), array(d.node, d.first_lseq)) as witness, d.tpos as position
        from delivered d join {process_names} p on d.process = p.process
        join {phases} f on d.node = f.node and d.stay_no = f.stay_no and d.phase = f.phase
        where d.before.last > d.first
    """,
    counts=RELIABLE,
    examples=(
        kept("a: R4{a} s1 s2 d1 d2"),
        kept("a: R4{a} s1? s2? s3 d3 d2 d1"),
        breaks("a: R4{a} s1 s2 d2 d1", "a/1 delivered a/1#0:2 before a/1#0:1, although the same process sent it later"),
        breaks(
            "a: R4{a} s1 s2 d2 T6{a} R8{a} d1",
            "a/1 delivered a/1#0:2 before a/1#0:1, although the same process sent it later",
        ),
        kept("a: R4{a} s1 d1 d1"),
    ),
)

# --- no duplicates ----------------------------------------------------------------------------------------------------


def check_no_duplicates(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        total = sum(len(stay.all.codes) for stay in life.stays)
        findings.checked += total
        seen: set[int] = set()
        seen.update(*(stay.all.codes for stay in life.stays))
        if len(seen) < total:
            _name_them(history, life, findings)


def _name_them(history: LaidHistory, life: Life, findings: Findings) -> None:
    first: dict[int, tuple[Deliveries, int]] = {}
    for delivered in (stay.all for stay in life.stays):
        for position, code in enumerate(delivered.codes):
            if code not in first:
                first[code] = (delivered, position)
                continue
            earlier, before = first[code]
            message = history.message(code)
            words = {"earlier_view": earlier.conf_at(before).view.id, "view": delivered.conf_at(position).view.id}
            witness = (earlier.event_at(before), delivered.event_at(position))
            findings.violation("twice", witness, (message,), node=life.node, message=message, **words)


NO_DUPLICATES: Final = Property(
    name="no_duplicates",
    meaning="nobody delivers a message twice",
    paper="EVS94, Specification 1.4, second half",
    predicate="A node delivers a message, unless it is a basic one, at most once in its whole life.",
    broken={"twice": "{node} delivered {message} twice, in {earlier_view} and {view}"},
    reads=Reads.ORDER,
    check=check_no_duplicates,
    sql="""
        with suspect as (  -- what is not above all that the node delivered of this process before
            select distinct node, process, explode(sequence(first, least(last, used))) as counter
            from (
                select *, max(last) over (partition by node, process order by stay_no, tpos
                                          rows between unbounded preceding and 1 preceding) as used
                from {stretches}
            ) where first <= used
        ), delivered as (  -- looked up by blocks of counters, not in all runs of the process
            select d.run, d.ring, d.node, d.stay_no, d.phase, d.process, s.counter, d.lseq, d.tpos + s.counter - d.first as tpos
            from (
                select *, explode(sequence(first div 256, (first + count - 1) div 256)) as block
                from {deliveries} where service > 0 and stay_no > 0
            ) d
            join suspect s on d.node = s.node and d.process = s.process and d.block = s.counter div 256
            where s.counter between d.first and d.first + d.count - 1
        ), placed as (
            select d.*, f.node_name, f.conf, f.conf_name, row_number() over same as nth,
                   first(struct(d.lseq, f.conf_name)) over same as one
            from delivered d join {phases} f on d.node = f.node and d.stay_no = f.stay_no and d.phase = f.phase
            window same as (partition by d.node, d.process, d.counter order by d.stay_no, d.lseq)
        )
        select m.run, m.ring, m.node_name as node, concat(p.process_name, ':', m.counter) as message,
               m.one.conf_name as earlier_view, m.conf_name as view, array(m.node) as nodes, array(m.conf) as views,
               array(array(m.process, m.counter)) as messages,
               array(array(m.node, m.one.lseq), array(m.node, m.lseq)) as witness, m.tpos as position
        from placed m join {process_names} p on m.process = p.process
        where m.nth > 1
    """,
    counts=RELIABLE,
    examples=(
        kept("a: R4{a} s1 s2 d1 d2"),
        breaks("a: R4{a} s1 s2 d1 d2 d2", "a/1 delivered a/1#0:2 twice, in R4@a/1 and R4@a/1"),
        breaks("a: R4{a} s1 d1 T6{a} d1 R8{a}", "a/1 delivered a/1#0:1 twice, in R4@a/1 and T6@a/1"),
        breaks("a: R4{a} s1 d1 T6{a} R8{a} d1", "a/1 delivered a/1#0:1 twice, in R4@a/1 and R8@a/1"),
        kept("a: R4{a} s1 d1 s2? d2 d2"),
    ),
)
