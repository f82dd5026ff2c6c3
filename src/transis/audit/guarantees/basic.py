"""Basic messages, which promise least: they are sent, come at most once, and come to everybody who goes on with their sender."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.creation import may_still_be_sent
from transis.audit.guarantees.history import LaidHistory, Life, Obligation, Stay
from transis.audit.guarantees.property import Findings, Property, Reads, breaks, kept, left_open
from transis.trace.events import Delivery, Sent
from transis.types.ids import ProcessId, Service

# --- sent, and at most once -------------------------------------------------------------------------------------------


def check_basic(history: LaidHistory, findings: Findings) -> None:
    for life in history.lives:
        seen: dict[int, int] = {}
        for run in life.basics:
            findings.checked += run.count
            for code in history.codes(run.process, run.first, run.count):
                _once(history, life, run, code, seen, findings)
                if code not in history.origins:
                    _unsent(history, life, run, code, findings)


def _once(history: LaidHistory, life: Life, run: Delivery, code: int, seen: dict[int, int], findings: Findings) -> None:
    if seen.setdefault(code, run.lseq) != run.lseq:
        message = history.message(code)
        witness = ((life.node, seen[code]), (life.node, run.lseq))
        findings.violation("twice", witness, (message,), node=life.node, message=message)


def _unsent(history: LaidHistory, life: Life, run: Delivery, code: int, findings: Findings) -> None:
    if may_still_be_sent(history, history.life_of(code)):
        findings.pending += 1
        return
    message = history.message(code)
    witness = ((life.node, run.lseq),)
    findings.violation("from nowhere", witness, (message,), node=life.node, message=message, sender=message.process.node)


BASIC: Final = Property(
    name="basic",
    meaning="basic messages: sent, and at most once",
    predicate="A basic message that a node delivers was sent by the node that its id names, and the node delivers it at most "
    "once.",
    broken={
        "twice": "{node} delivered the basic {message} twice",
        "from nowhere": "{node} delivered the basic {message}, but {sender} never sent it",
    },
    reads=Reads.VIEWS,
    check=check_basic,
    sql="""
        select 'twice' as kind, b.run, n.node_name as node, concat(p.process_name, ':', b.counter) as message,
               array(b.node) as nodes, array(array(b.process, b.counter)) as messages,
               array(array(b.node, b.first_lseq), array(b.node, b.lseq)) as witness, b.counter as position
        from {basics_repeated} b join {node_names} n on b.node = n.node join {process_names} p on b.process = p.process
        ;
        select 'from nowhere' as kind, b.run, n.node_name as node, concat(p.process_name, ':', b.counter) as message,
               s.sender_name as sender, array(b.node, s.sender) as nodes, array(array(b.process, b.counter)) as messages,
               array(array(b.node, b.lseq)) as witness, b.counter as position
        from {basics_from_nowhere} b join {node_names} n on b.node = n.node join {process_names} p on b.process = p.process
        join {senders} s on p.node = s.sender
    """,
    counts="""
        select run, count as checked, 0 as pending from {deliveries} where service = 0
        union all
        select run, 0, delivered * (stop - start) from {basics_unsent} where may_still_be_sent
    """,
    examples=(
        kept("a: R4{a,b} s1? s2? s3? d2 d3 d1 / b: R4{a,b} d3"),
        breaks("a: R4{a} s1? d1 d1", "a/1 delivered the basic a/1#0:1 twice"),
        breaks("a: R4{a} s1? d1 T6{a} R8{a} d1", "a/1 delivered the basic a/1#0:1 twice"),
        breaks("a: R4{a} u1? d1", "a/1 delivered the basic a/1#0:1, but a/1 never sent it"),
        left_open("a: R4{a} u1? d1"),
        left_open("a: R4{a,b} d1 / b: u1? R4{a,b} g", closed=True),
    ),
)


# --- they arrive ------------------------------------------------------------------------------------------------------


def check_basic_arrives(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        arrivals = [(stay, _arrived(history, stay)) for stay in ring.stays]
        for sender in ring.stays:
            for sent in (origin.sent for origin in sender.origins if origin.sent.service is Service.BASIC):
                for receiver, arrived in arrivals:
                    _reaches(history, sender, sent, receiver, arrived, findings)


def _arrived(history: LaidHistory, stay: Stay) -> set[int]:
    return {code for run in stay.basics for code in history.codes(run.process, run.first, run.count)}


def _reaches(history: LaidHistory, sender: Stay, sent: Sent, receiver: Stay, arrived: set[int], findings: Findings) -> None:
    duty = _duty(sender, receiver, history.closed)
    codes = history.codes(ProcessId(sender.node, sent.process), sent.first, sent.count)
    if duty is Obligation.VOID:
        return
    missing = [code for code in codes if code not in arrived]
    if duty is Obligation.PENDING:
        findings.pending += len(missing)
        return
    findings.checked += len(codes)
    for code in missing:
        witness = [(sender.node, sent.lseq)]
        if receiver.following is not None:
            witness.append((receiver.node, receiver.following.conf.lseq))
        words = {"sender": sender.node, "message": history.message(code), "view": sender.ring, "node": receiver.node}
        kind = "at the end" if receiver.way is None else "on the way"
        findings.violation(kind, tuple(witness), (history.message(code),), next=receiver.way, **words)


def _duty(sender: Stay, receiver: Stay, closed: bool) -> Obligation:
    """Must what one sends in a configuration come to the other? Only if they stay in it, or leave it, together."""
    duty = receiver.obligation(closed)
    if duty is Obligation.VOID or sender is receiver:
        return duty
    if not sender.whole or sender.life.ended == "unknown":
        return Obligation.PENDING
    if sender.way is None and sender.life.ended:
        return Obligation.VOID
    if sender.way == receiver.way:
        return duty
    one_stays = sender.way is None or receiver.way is None
    return Obligation.PENDING if one_stays and not closed else Obligation.VOID


BASIC_ARRIVES: Final = Property(
    name="basic_arrives",
    meaning="a basic message reaches everybody who goes on with its sender",
    paper="Transis 1992, section 3: basic multicast",
    predicate="A basic message reaches every node that goes from the configuration in which it was sent directly to the next "
    "together with its sender, or stays there with it; the sender too. It is delivered there or, where they go on, in the "
    "transitional configuration behind it. Nothing is promised to a node that fails there, or parts from the sender.",
    broken={
        "on the way": "{sender} sent the basic {message} in {view}, and {node} went on to {next} without it",
        "at the end": "{sender} sent the basic {message} in {view}, and {node} had not delivered it when the run ended",
    },
    reads=Reads.VIEWS,
    check=check_basic_arrives,
    sql="""
        select /*+ broadcast(r, s, n) */ if(r.way is null, 'at the end', 'on the way') as kind, m.run, r.ring,
               s.node_name as sender, concat(p.process_name, ':', m.counter) as message, r.ring_name as view,
               n.node_name as node, r.way_name as next, array(p.node, m.node) as nodes, array(r.ring) as views,
               array(array(m.process, m.counter)) as messages,
               array(array(p.node, m.lseq), array(m.node, r.following_lseq)) as witness, m.counter as position
        from {basics_missing} m join {ways} r on m.node = r.node and m.stay_no = r.stay_no
        join {process_names} p on m.process = p.process join {node_names} s on p.node = s.node
        join {node_names} n on m.node = n.node
    """,
    counts="""
        select run, ring, count as checked, 0 as pending from {basics_owed} where duty = 'due'
        union all
        select run, null, 0, pending * (stop - start) from {basics_unarrived} where pending > 0
    """,
    examples=(
        kept("a: R4{a,b} s1? d1 T6{a,b} R8{a,b} / b: R4{a,b} T6{a,b} d1 R8{a,b}"),
        kept("a: R4{a,b} s1? d1 x / b: R4{a,b} s2? d2 T6{b} R8{b}"),
        kept("a: R4{a,b} s1? d1 T6{a} R8{a} / b: R4{a,b} T6{b} R8{b}"),
        kept("a: R4{a,b} s1? d1 T6{a,b} R8{a,b} / b: R4{a,b} T6{a,b} x"),
        kept("a: R4{a} R4{a} s1? d1"),
        breaks(
            "a: R4{a,b} s1? d1 T6{a,b} R8{a,b} / b: R4{a,b} T6{a,b} R8{a,b}",
            "a/1 sent the basic a/1#0:1 in R4@a/1, and b/1 went on to T6@a/1 without it",
        ),
        breaks(
            "a: R4{a,b} s1? d1 T6{a,b} R8{a,b} / b: R4{a,b} T6{a,b} R8{a,b} d1",
            "a/1 sent the basic a/1#0:1 in R4@a/1, and b/1 went on to T6@a/1 without it",
        ),
        breaks(
            "a: R4{a} s1? T6{a} R8{a}",
            "a/1 sent the basic a/1#0:1 in R4@a/1, and a/1 went on to T6@a/1 without it",
        ),
        breaks(
            "a: R4{a,b} s1? d1 / b: R4{a,b}",
            "a/1 sent the basic a/1#0:1 in R4@a/1, and b/1 had not delivered it when the run ended",
        ),
        left_open("a: R4{a,b} s1? d1 / b: R4{a,b}"),
        left_open("a: R4{a,b} s1? d1 / b: R4{a,b} T6{b} R8{b}"),
        left_open("a: R4{a,b} s1? d1 T6{a,b} R8{a,b} / b: R4{a,b} g T6{a,b} R8{a,b}", closed=True),
        left_open("a: R4{a,b} s1? d1 g / b: R4{a,b} T6{b} R8{b}", closed=True),
    ),
)
