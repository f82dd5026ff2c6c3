"""EVS 5: causal order.

Where causal messages share the total order, direct causes are looked up: what the sender had sent itself in this
configuration, and what it had delivered there. Causes of causes follow, because a node that delivers m' must have delivered
the direct ones, and so their own before them.

Where they do not (Lansis), messages are counted, because every node counts alike. For each sender of a ring, count its messages
that a node has delivered there. A node that delivers m must have delivered, of every sender, at least as many as the sender of m
had when it sent m, and of that sender as many as it had sent. If no count falls short, then the first message of a sender that
anybody delivers is its first, the second its second, and so on: messages that are delivered in this order at all nodes are
identified by their numbers, so that equal counts are equal sets. A violation of EVS 5 is therefore a count that falls short
somewhere, and vice versa. Only what a sender delivered since it last sent is counted for a message: the rest was required of
the message before, which must be there. Messages count where they were first sent, and once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from transis.audit.guarantees.history import LaidHistory, Ring, SentRun, Stay
from transis.audit.guarantees.property import RELIABLE, Findings, Property, Reads, Witness, breaks, kept, left_open

# --- causal counts ----------------------------------------------------------------------------------------------------

Needs = dict[int, int]
"""How many messages of other stays of a ring, by the number of the stay."""


class Arrival(NamedTuple):
    """A message at a node, for the first time there: where it stands, whose it is, and how many its sender had sent before."""

    position: int
    code: int
    sender: int
    rank: int


class Senders:
    """The sender of each message (code) of a ring, and the message's number among those of its sender, from 0."""

    def __init__(self, history: LaidHistory, ring: Ring) -> None:
        self.ring = ring
        self.known: dict[int, tuple[int, int]] = {}
        for number, stay in enumerate(ring.stays):
            first_here = [code for code in dict.fromkeys(stay.sent_codes) if history.origins[code].stay is stay]
            self.known.update((code, (number, rank)) for rank, code in enumerate(first_here))

    def arrivals(self, stay: Stay) -> Iterator[Arrival]:
        first = stay.all.position
        for position, code in enumerate(stay.all.codes):
            if code in self.known and first[code] == position:
                yield Arrival(position, code, *self.known[code])


def check_counts(history: LaidHistory, ring: Ring, findings: Findings) -> None:
    senders = Senders(history, ring)
    needs: dict[int, Needs] = {}
    for number, stay in enumerate(ring.stays):
        needs.update(_needs(history, senders, number, stay))
    for stay in ring.stays:
        if stay.whole:
            _compare(history, senders, stay, needs, findings)
        else:
            findings.pending += 1


def _needs(history: LaidHistory, senders: Senders, number: int, stay: Stay) -> Iterator[tuple[int, Needs]]:
    """What each message of a stay requires: of whom its sender had delivered something new, and how many messages in all."""
    counts = [0] * len(senders.ring.stays)
    arrivals = (arrival for arrival in senders.arrivals(stay) if arrival.sender != number)
    coming = next(arrivals, None)
    for code in filter(senders.known.__contains__, dict.fromkeys(stay.sent_codes)):
        grown: Needs = {}
        while coming is not None and coming.position < history.origins[code].all_before:
            counts[coming.sender] += 1
            grown[coming.sender] = counts[coming.sender]
            coming = next(arrivals, None)
        yield code, grown


def _compare(history: LaidHistory, senders: Senders, stay: Stay, needs: dict[int, Needs], findings: Findings) -> None:
    counts = [0] * len(senders.ring.stays)
    for arrival in senders.arrivals(stay):
        if counts[arrival.sender] < arrival.rank:
            _tell(history, senders.ring, stay, arrival, arrival.rank, None, findings)
        for number, need in needs[arrival.code].items():
            if counts[number] < need:
                _tell(history, senders.ring, stay, arrival, need, senders.ring.stays[number], findings)
        counts[arrival.sender] += 1


def _tell(
    history: LaidHistory,
    ring: Ring,
    stay: Stay,
    arrival: Arrival,
    need: int,
    other: Stay | None,
    findings: Findings,
) -> None:
    message = history.message(arrival.code)
    sender = message.process.node
    witness = ((sender, history.origins[arrival.code].sent.lseq), stay.all.event_at(arrival.position))
    words = {"sender": sender, "need": need, "ring_view": ring.id, "message": message, "node": stay.node}
    words["view"] = stay.all.conf_at(arrival.position).view.id
    if other is None:
        findings.violation("fewer of its own", witness, (message,), **words)
    else:
        findings.violation("fewer of another", witness, (message,), **words, other=other.node)


# --- causal -----------------------------------------------------------------------------------------------------------

NEVER: Final = 1 << 62
"""The position of what was not delivered."""


def check_causal(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        findings.checked += sum(len(stay.all.codes) for stay in ring.stays)
        if ring.is_mixed:
            check_counts(history, ring, findings)
        else:
            _check_order(history, ring, findings)


def _check_order(history: LaidHistory, ring: Ring, findings: Findings) -> None:
    """A prefix of the canon is right wherever the canon is."""
    for stay in [ring.canon, *(fork for fork in ring.forks if fork is not ring.canon)]:
        if stay.whole:
            _follows_causes(history, ring, stay, findings)
        else:
            findings.pending += 1


def _follows_causes(history: LaidHistory, ring: Ring, stay: Stay, findings: Findings) -> None:
    expected: dict[Stay, int] = {}
    for position, code in enumerate(stay.codes):
        origin = history.origins.get(code)
        if origin is None or origin.stay is None or origin.stay.ring != ring.id:
            continue  # Created, or sent elsewhere: other checkers say so.
        sender = origin.stay
        rank = origin.first_rank + code // history.stride - origin.sent.first
        if rank > expected.get(sender, 0):
            _own_earlier(history, stay, position, sender.sent_codes[expected.get(sender, 0) : rank], findings)
        expected[sender] = max(rank + 1, expected.get(sender, 0))
        if origin.before > min(position, stay.agreed, sender.agreed):
            _seen_before(history, stay, position, origin, findings)


def _own_earlier(history: LaidHistory, stay: Stay, position: int, causes: list[int], findings: Findings) -> None:
    for cause in causes:
        if stay.position.get(cause, position) >= position:
            _tell_behind(history, stay, position, cause, "sent", (), findings)


def _seen_before(history: LaidHistory, stay: Stay, position: int, origin: SentRun, findings: Findings) -> None:
    """The slow way, for sequences that fork: each message that the sender had delivered must come before this one here. Of those
    that do not, the one that came last here is reported; one that never came is later than any."""
    sender = origin.stay
    assert sender is not None
    causes = enumerate(sender.codes[: origin.before])
    late = [(stay.position.get(cause, NEVER), -there) for there, cause in causes if cause != stay.codes[position]]
    here, back = max(late, default=(-1, 0))
    if here >= position:
        _tell_behind(history, stay, position, sender.codes[-back], "delivered", (sender.event_at(-back),), findings)


def _tell_behind(
    history: LaidHistory, stay: Stay, position: int, cause: int, how: str, seen: Witness, findings: Findings
) -> None:
    effect = stay.codes[position]
    origin = history.origins[effect]
    message, before = history.message(effect), history.message(cause)
    here = stay.position.get(cause)
    sender = message.process.node
    witness: Witness = (*seen, (sender, origin.sent.lseq), stay.event_at(position))
    words = {"sender": sender, "cause": before, "message": message, "node": stay.node, "view": stay.conf_at(position).view.id}
    if here is None:
        findings.violation(f"{how}, never", witness, (before, message), **words)
    else:
        findings.violation(f"{how}, later", (*witness, stay.event_at(here)), (before, message), **words)


JUDGED: Final = """
    with judged as (  -- stays like the longest one of their ring are right wherever that is
        select run, ring, node, stay_no, whole from {stays} left anti join {mixed} using (ring)
        where is_canon or agreed < n
    )
"""

SQL: Final = (
    JUDGED
    + """
    , delivered as (  -- where each judged stay has each message of the tail; of a duplicate, the first
        select * from (
            select /*+ broadcast(j) */ t.*, row_number() over (partition by t.node, t.stay_no, t.process, t.counter order by tpos)
                   as nth
            from {tail} t join judged j on t.node = j.node and t.stay_no = j.stay_no
            where j.whole
        ) where nth = 1
    ), sent as (  -- messages of the tail by their first SEND, if that was in the ring
        select * from (
            select *, row_number() over (partition by process, counter order by lseq) as nth from {sent}
        ) where nth = 1
    ), own as (  -- each message of a sender, at each stay, beside the first delivered one that it sent later
        select e.run, e.ring, j.node, j.stay_no, e.node as sender, e.process, e.counter, e.message, d.tpos, d.lseq,
               min(if(d.tpos is null, null,
                      struct(d.tpos, e.process, e.counter, e.message, e.lseq as sent_lseq, d.lseq, d.phase))) over later as effect
        from sent e join judged j on e.ring = j.ring and j.whole
        left join delivered d on j.node = d.node and j.stay_no = d.stay_no and e.process = d.process and e.counter = d.counter
        window later as (partition by j.node, j.stay_no, e.node, e.stay_no order by e.rank desc
                         rows between unbounded preceding and 1 preceding)
    ), seen as (  -- by position of a sender: of all that it had delivered, what came last at another stay, or never
        select j.node, j.stay_no, s.node as sender, s.stay_no as sender_stay_no, s.tpos as seen_tpos,
               max(struct(coalesce(d.tpos, 9223372036854775807) as at, -s.tpos as back, s.process, s.counter, s.message, d.lseq,
                          s.lseq as seen_lseq)) over so_far as latest
        from {tail} s join judged j on s.ring = j.ring and j.whole
        left join delivered d on j.node = d.node and j.stay_no = d.stay_no and s.process = d.process and s.counter = d.counter
        window so_far as (partition by j.node, j.stay_no, s.node, s.stay_no order by s.tpos
                          rows between unbounded preceding and current row)
    ), late as (
        select 'sent' as how, run, ring, node, stay_no, sender, effect, process, counter, message, lseq,
               cast(null as bigint) as seen_lseq
        from own where effect.tpos < coalesce(tpos, 9223372036854775807)
        union all
        select 'delivered', d.run, d.ring, d.node, d.stay_no, o.sent_node,
               struct(d.tpos, d.process, d.counter, d.message, o.sent_lseq, d.lseq, d.phase), s.latest.process,
               s.latest.counter, s.latest.message, s.latest.lseq, s.latest.seen_lseq
        from delivered d
        join {origins} o on d.process = o.process and d.counter = o.counter and d.ring = o.sent_ring
        join seen s on d.node = s.node and d.stay_no = s.stay_no and o.sent_node = s.sender
                   and o.sent_stay_no = s.sender_stay_no and o.before - 1 = s.seen_tpos
        where o.nth = 1 and o.sent_service > 0 and s.latest.at >= d.tpos
          and not (s.latest.process = d.process and s.latest.counter = d.counter)
    )
    select if(l.how = 'sent', if(l.lseq is null, 'sent, never', 'sent, later'),
              if(l.lseq is null, 'delivered, never', 'delivered, later')) as kind, l.run, l.ring, n.node_name as sender,
           l.message as cause, l.effect.message, f.node_name as node, f.conf_name as view, array(l.node, l.sender) as nodes,
           array(f.conf) as views, array(array(l.process, l.counter), array(l.effect.process, l.effect.counter)) as messages,
           array(array(l.sender, l.seen_lseq), array(l.sender, l.effect.sent_lseq), array(l.node, l.effect.lseq),
                 array(l.node, l.lseq)) as witness,
           l.effect.tpos as position
    from late l join {node_names} n on l.sender = n.node
    join {phases} f on l.node = f.node and l.stay_no = f.stay_no and l.effect.phase = f.phase
    ;
    select if(c.other is null, 'fewer of its own', 'fewer of another') as kind, c.run, c.ring, n.node_name as sender, c.need,
           o.node_name as other, f.ring_name as ring_view, concat(p.process_name, ':', c.counter) as message,
           f.node_name as node, f.conf_name as view, array(c.node, c.sender) as nodes, array(f.conf) as views,
           array(array(c.process, c.counter)) as messages,
           array(array(c.sender, c.sent_lseq), array(c.node, c.lseq)) as witness
    from {short} c join {node_names} n on c.sender = n.node left join {node_names} o on c.other = o.node
    join {process_names} p on c.process = p.process
    join {phases} f on c.node = f.node and c.stay_no = f.stay_no and c.phase = f.phase
"""
)

COUNTS: Final = (
    RELIABLE
    + "\n;\n"
    + JUDGED
    + """
    select run, ring, 0 as checked, 1 as pending from judged where not whole
    ;
    select run, ring, 0 as checked, 1 as pending from {stays} left semi join {mixed} using (ring) where not whole
"""
)

CAUSAL: Final = Property(
    name="causal_5",
    meaning="no answer comes before its question",
    paper="EVS94, Specification 5",
    predicate="If sending m precedes sending m' in one configuration, every node that delivers m' there has delivered m before "
    "it. Sending m precedes whatever its sender sends later, and whatever is sent by a node that has delivered m. No sender is "
    "exempt, not even one that is not a member of the transitional configuration.",
    broken={
        "sent, never": "{sender} had sent {cause} before it sent {message}, but {node} delivered {message} in {view} and never "
        "{cause}",
        "sent, later": "{sender} had sent {cause} before it sent {message}, but {node} delivered {message} in {view} before "
        "{cause}",
        "delivered, never": "{sender} had delivered {cause} before it sent {message}, but {node} delivered {message} in {view} "
        "and never {cause}",
        "delivered, later": "{sender} had delivered {cause} before it sent {message}, but {node} delivered {message} in {view} "
        "before {cause}",
        "fewer of its own": "{sender} had sent {need} messages of its own in {ring_view} before it sent {message}, but {node} "
        "had delivered fewer of them when it delivered {message} in {view}",
        "fewer of another": "{sender} had delivered {need} messages of {other} in {ring_view} before it sent {message}, but "
        "{node} had delivered fewer of them when it delivered {message} in {view}",
    },
    reads=Reads.ORDER,
    check=check_causal,
    sql=SQL,
    counts=COUNTS,
    examples=(
        kept("a: R4{a,b} s1 d1 d2 / b: R4{a,b} d1 s2 d2"),
        kept("a: R4{a,b} s1 d1 d2 / b: R4{a,b} s2 d1 d2"),
        breaks(
            "a: R4{a} s1 s2 d2 T6{a} R8{a} x",
            "a/1 had sent a/1#0:1 before it sent a/1#0:2, but a/1 delivered a/1#0:2 in R4@a/1 and never a/1#0:1",
        ),
        breaks(
            "a: R4{a} s1 s2 d2 d1",
            "a/1 had sent a/1#0:1 before it sent a/1#0:2, but a/1 delivered a/1#0:2 in R4@a/1 before a/1#0:1",
        ),
        breaks(
            "a: R4{a,b,c} s1 d1 d2 / b: R4{a,b,c} d1 s2 d2 / c: R4{a,b,c} d2 T6{c} R8{c}",
            "b/1 had delivered a/1#0:1 before it sent b/1#0:1, but c/1 delivered b/1#0:1 in R4@a/1 and never a/1#0:1",
        ),
        breaks(
            "a: R4{a,b,c} s1 d1 d2 / b: R4{a,b,c} d1 s2 d2 / c: R4{a,b,c} d2 d1",
            "b/1 had delivered a/1#0:1 before it sent b/1#0:1, but c/1 delivered b/1#0:1 in R4@a/1 before a/1#0:1",
        ),
        kept("a: R4{a,b} s1~ d1 d2 / b: R4{a,b} s2~ d2 d1", engine="lansis"),
        breaks(
            "a: R4{a,b} s1~ s2~ d1 d2 / b: R4{a,b} d2 d1",
            "a/1 had sent 1 messages of its own in R4@a/1 before it sent a/1#0:2, but b/1 had delivered fewer of them when it "
            "delivered a/1#0:2 in R4@a/1",
            engine="lansis",
        ),
        breaks(
            "a: R4{a,b,c} s1~ d1 d2 / b: R4{a,b,c} d1 s2~ d2 / c: R4{a,b,c} d2 d1",
            "b/1 had delivered 1 messages of a/1 in R4@a/1 before it sent b/1#0:1, but c/1 had delivered fewer of them when it "
            "delivered b/1#0:1 in R4@a/1",
            engine="lansis",
        ),
        left_open("a: R4{a,b} s1 s2 d1 d2 / b: R4{a,b} g d2 d1", closed=True),
    ),
)
