"""The sequences of a ring, held against each other: one sequence, true places, and EVS 6.3, no unexplained holes."""

from __future__ import annotations

from typing import Final

from transis.audit.guarantees.certificates import sent_places, strictly_increasing
from transis.audit.guarantees.history import PLACE_SHIFT, LaidHistory, Ring, Stay
from transis.audit.guarantees.property import MODES, ORDERED, Findings, Property, Reads, breaks, kept, left_open, several

# --- one sequence -----------------------------------------------------------------------------------------------------

Side = tuple[int, list[tuple[Stay, int]]]
"""A message, and who delivered it, by which event."""


def check_one_sequence(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        findings.checked += sum(len(stay.codes) for stay in ring.stays)
        if not _are_prefixes(ring):
            _tell_first_difference(history, ring, findings)


def _are_prefixes(ring: Ring) -> bool:
    """The usual case costs one comparison a stay."""
    longest = max(ring.stays, key=lambda stay: stay.cut)
    return all(
        stay.starts == [run.tpos for run in stay.runs] and stay.codes[: stay.cut] == longest.codes[: stay.cut]
        for stay in ring.stays
    )


def _tell_first_difference(history: LaidHistory, ring: Ring, findings: Findings) -> None:
    positions: dict[int, dict[int, list[tuple[Stay, int]]]] = {}
    for stay in ring.stays:
        for run in stay.runs[: stay.run_cut]:
            for ahead, code in enumerate(history.codes(run.process, run.first, run.count)):
                positions.setdefault(run.tpos + ahead, {}).setdefault(code, []).append((stay, run.lseq))
    differing = min((position for position, codes in positions.items() if len(codes) > 1), default=None)
    if differing is None:
        return
    ranked = sorted(positions[differing].items(), key=lambda side: (-len(side[1]), str(history.message(side[0]))))
    before = next((str(history.message(code)) for code in positions.get(differing - 1, ())), "")
    findings.violation(
        "in common" if before else "nothing before",
        tuple((stay.node, lseq) for _, delivered in ranked for stay, lseq in delivered),
        tuple(history.message(code) for code, _ in ranked),
        sides="; ".join(_side_words(history, side, _is_majority(side, ranked)) for side in ranked),
        position=differing,
        view=ring.id,
        before=before,
    )


def _is_majority(side: Side, sides: list[Side]) -> bool:
    return 2 * len(side[1]) > sum(len(delivered) for _, delivered in sides)


def _side_words(history: LaidHistory, side: Side, is_majority: bool) -> str:
    code, delivered = side
    who = several([stay.node for stay, _ in delivered])
    return f"{'the majority, ' if is_majority else ''}{who} delivered {history.message(code)}"


SQL_ONE_SEQUENCE: Final = """
    with apart as (
        select ring, tpos from {tail} where phase = 0 group by ring, tpos
        having min(struct(process, counter)) <> max(struct(process, counter))
    ), near as (  -- the first position at which stays differ, and the one before it
        select /*+ broadcast(f) */ t.*, f.differs, s.node_name, s.ring_name, s.stay_rank
        from {tail} t join (select ring, min(tpos) as differs from apart group by ring) f on t.ring = f.ring
        join {stays} s on t.node = s.node and t.stay_no = s.stay_no
        where t.phase = 0 and t.tpos between f.differs - 1 and f.differs
    ), side as (
        select run, ring, ring_name, differs, tpos, process, counter, message,
               array_sort(collect_list(struct(stay_rank, node_name, node, lseq))) as who
        from near group by run, ring, ring_name, differs, tpos, process, counter, message
    ), difference as (
        select run, ring, ring_name, differs,
               array_sort(collect_list(struct(-size(who) as fewer, message, process, counter, who)) filter (where tpos = differs))
                   as sides,
               min(message) filter (where tpos < differs) as before, sum(size(who)) filter (where tpos = differs) as nodes_there
        from side group by run, ring, ring_name, differs
    )
    select if(before is null, 'nothing before', 'in common') as kind, run, ring, ring_name as view, differs as position, before,
           array_join(transform(sides, side -> concat(
               if(size(side.who) * 2 > nodes_there, 'the majority, ', ''), array_join(slice(side.who.node_name, 1, 5), ', '),
               if(size(side.who) > 5, concat(' and ', size(side.who) - 5, ' more'), ''), ' delivered ', side.message)), '; ')
               as sides,
           flatten(transform(sides, side -> side.who.node)) as nodes, array(ring) as views,
           transform(sides, side -> array(side.process, side.counter)) as messages,
           flatten(transform(sides, side -> transform(side.who, one -> array(one.node, one.lseq)))) as witness
    from difference
"""

ONE_SEQUENCE: Final = Property(
    name="one_sequence",
    meaning="members of a view deliver one sequence in it, position by position",
    predicate="At each position of a regular configuration all who deliver a message there deliver the same. It follows from "
    "total order without holes, but needs no whole trace: a part whose beginning is missing, or digests, are enough to judge it.",
    broken={
        "in common": "at position {position} of {view} {sides}; the last that they have in common is {before}",
        "nothing before": "at position {position} of {view} {sides}; nothing before it is known",
    },
    promised_in=frozenset({"evs"}),
    reads=Reads.ORDER,
    check=check_one_sequence,
    sql=SQL_ONE_SEQUENCE,
    counts=ORDERED,
    examples=(
        kept("a: R4{a,b} s1 s2 d1 d2 / b: R4{a,b} d1 x"),
        breaks(
            "a: R4{a,b,c} s1 s2 s3 s4 d1 d2 d3 d4 / b: R4{a,b,c} d1 g d3 d4 / c: R4{a,b,c} d1 d2 d3",
            "at position 1 of R4@a/1 the majority, a/1, c/1 delivered a/1#0:2; b/1 delivered a/1#0:3; "
            "the last that they have in common is a/1#0:1",
        ),
        breaks(
            "a: R4{a,b} s1 s2 d1 d2 / b: R4{a,b} d2 d1",
            "at position 0 of R4@a/1 a/1 delivered a/1#0:1; b/1 delivered a/1#0:2; nothing before it is known",
        ),
        kept("a: R4{a,b} s1 s2 d1 T6{a} d2 R8{a} / b: R4{a,b} d1 T6{b} R8{b}"),
    ),
)

# --- places -----------------------------------------------------------------------------------------------------------


def check_places(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        places = sent_places(ring)
        holder: dict[int, int] = {place: code for code, place in places.items()}
        for stay in ring.stays:
            findings.checked += len(stay.codes)
            if list(map(places.get, stay.codes)) != stay.places:
                _claims(history, stay, places, holder, findings)
            if not strictly_increasing(stay.places):
                _descents(history, stay, findings)


def _claims(history: LaidHistory, stay: Stay, places: dict[int, int], holder: dict[int, int], findings: Findings) -> None:
    for position, (code, place) in enumerate(zip(stay.codes, stay.places, strict=True)):
        message = history.message(code)
        witness = (stay.event_at(position),)
        words = {"node": stay.node, "message": message, "place": _place_words(place), "view": stay.ring}
        if places.setdefault(code, place) != place:
            findings.violation("elsewhere", witness, (message,), **words, right_place=_place_words(places[code]))
        elif holder.setdefault(place, code) != code:
            owner = history.message(holder[place])
            findings.violation("taken", witness, (message, owner), **words, owner=owner)


def _descents(history: LaidHistory, stay: Stay, findings: Findings) -> None:
    for position in range(1, len(stay.places)):
        place, following = stay.places[position - 1 : position + 1]
        if place > following:
            before, after = history.message(stay.codes[position - 1]), history.message(stay.codes[position])
            findings.violation(
                "descent",
                (stay.event_at(position - 1), stay.event_at(position)),
                (before, after),
                node=stay.node,
                message=before,
                place=_place_words(place),
                next=after,
                next_place=_place_words(following),
                view=stay.ring,
            )


def _place_words(place: int) -> str:
    return f"{place >> PLACE_SHIFT}.{place & ((1 << PLACE_SHIFT) - 1)}"


SQL_PLACES: Final = """
    select 'elsewhere' as kind, run, ring, node_name as node, message, ring_name as view, place_name as place,
           concat(shiftright(right_place, 20), '.', right_place & 1048575) as right_place, array(node) as nodes,
           array(conf) as views, array(array(process, counter)) as messages, array(array(node, lseq)) as witness,
           tpos as position
    from {claims} where place <> right_place
    ;
    with owner as (  -- of messages that were sent here, the one that has a place
        select ring, process, first, count, shiftleft(place_seq, 20) + place_index as place, place_seq
        from {sends} where stay_no > 0 and is_ordered
    )
    select 'taken' as kind, c.run, c.ring, c.node_name as node, c.message, c.ring_name as view, c.place_name as place,
           concat(p.process_name, ':', o.first + c.place - o.place) as owner, array(c.node) as nodes,
           array(array(c.process, c.counter), array(o.process, o.first + c.place - o.place)) as messages,
           array(array(c.node, c.lseq)) as witness
    from {claims} c join owner o on c.ring = o.ring and shiftright(c.place, 20) = o.place_seq
    join {process_names} p on o.process = p.process
    where c.place = c.right_place and c.sent_place is null and c.place >= o.place and c.place < o.place + o.count
    ;
    with claim as (
        select *, lag(struct(process, counter, message, place, place_name, lseq)) over (partition by node, stay_no order by tpos)
               as before
        from {claims}
    )
    select 'descent' as kind, run, ring, node_name as node, before.message as message, before.place_name as place,
           message as next, place_name as next_place, ring_name as view, array(node) as nodes, array(conf) as views,
           array(array(before.process, before.counter), array(process, counter)) as messages,
           array(array(node, before.lseq), array(node, lseq)) as witness, tpos as position
    from claim where before.place > place
"""

PLACES: Final = Property(
    name="places",
    meaning="a message has the same place in the order everywhere",
    predicate="The place that an engine claims for a message is the same at every node and belongs to no other message; and a "
    "node delivers messages in the order of their places. Other tools sort by places.",
    broken={
        "elsewhere": "{node} delivered {message} at place {place} of {view}, elsewhere it has {right_place}",
        "taken": "{node} delivered {message} at place {place} of {view}, which belongs to {owner}",
        "descent": "{node} delivered {message} at place {place} before {next} at place {next_place} of {view}",
    },
    promised_in=frozenset({"evs", "transis"}),
    reads=Reads.ORDER,
    check=check_places,
    sql=SQL_PLACES,
    counts=ORDERED,
    examples=(
        kept("a: R4{a,b} s1 s2 d1 d2 / b: R4{a,b} d1 d2"),
        breaks("a: R4{a,b} s1 d1 / b: R4{a,b} d1=2", "b/1 delivered a/1#0:1 at place 2.0 of R4@a/1, elsewhere it has 1.0"),
        breaks(
            "a: R4{a,b} s1 d1 d9=1<b / b: R4{a,b} d1",
            "a/1 delivered b/1#0:909 at place 1.0 of R4@a/1, which belongs to a/1#0:1",
        ),
        breaks("a: R4{a} s1 s2 d2 d1", "a/1 delivered a/1#0:2 at place 2.0 before a/1#0:1 at place 1.0 of R4@a/1"),
    ),
)

# --- no holes ---------------------------------------------------------------------------------------------------------

NOWHERE = 1 << 62
"""A position that no message has: nothing delivered after."""


def check_no_holes(history: LaidHistory, findings: Findings) -> None:
    for ring in history.rings.values():
        findings.checked += sum(len(stay.codes) for stay in ring.stays)
        findings.pending += sum(1 for stay in ring.stays if not stay.whole)
        _compare_forks(history, ring, findings)


def _compare_forks(history: LaidHistory, ring: Ring, findings: Findings) -> None:
    """Two prefixes of one sequence have no holes; every other pair is compared, equal sequences once."""
    forks = _distinct([stay for stay in ring.forks if stay.whole])
    others = _distinct([stay for stay in ring.stays if stay.whole and stay.agreed == len(stay.codes)])
    for fork in forks:
        for other in others:
            _holes(history, fork, other, findings)
            _holes(history, other, fork, findings)
        for twin in forks:
            if twin is not fork:
                _holes(history, fork, twin, findings)


def _distinct(stays: list[Stay]) -> list[Stay]:
    found: dict[tuple[object, ...], Stay] = {}
    for stay in stays:
        trans = None if stay.trans is None else stay.trans.view.id
        found.setdefault((stay.agreed, stay.cut, trans, *stay.codes[stay.agreed :]), stay)
    return list(found.values())


def _holes(history: LaidHistory, reference: Stay, stay: Stay, findings: Findings) -> None:
    """Walk the reference's tail backwards, knowing the earliest place at which `stay` has anything that follows."""
    members = () if stay.trans is None else stay.trans.view.nodes
    first_regular = first_any = NOWHERE
    for code in reversed(reference.codes[min(reference.agreed, stay.agreed) :]):
        position = stay.position.get(code, NOWHERE)
        bound = first_any if history.sender(code).node in members else first_regular
        if position > bound:
            _tell(history, reference, stay, code, bound, findings)
        if position < stay.cut:
            first_regular = min(first_regular, position)
        first_any = min(first_any, position)


def _tell(history: LaidHistory, reference: Stay, stay: Stay, code: int, bound: int, findings: Findings) -> None:
    if bound == NOWHERE:
        return
    missing, later = history.message(code), history.message(stay.codes[bound])
    here = stay.position.get(code)
    witness = (
        reference.event_at(reference.position[code]),
        reference.event_at(reference.position[stay.codes[bound]]),
        stay.event_at(bound),
    )
    words = {"one": reference.node, "message": missing, "later": later, "node": stay.node, "view": stay.conf_at(bound).view.id}
    if here is None:
        findings.violation("missing", witness, (missing, later), **words)
    else:
        findings.violation("behind", (*witness, stay.event_at(here)), (missing, later), **words)


SQL_NO_HOLES: Final = """
    with content as (  -- of rings whose stays differ
        select node, stay_no, sum(cast(xxhash64(tpos, process, counter) as decimal(38, 0))) as content
        from {tail} left semi join (select ring from {rings} where forked) using (ring)
        group by node, stay_no
    ), sequence as (  -- each distinct one once
        select * from (
            select s.*, row_number() over (partition by s.ring, cut, trans, n, content order by stay_rank) as nth
            from {stays} s left semi join (select ring from {rings} where forked) r on s.ring = r.ring
            left join content c on s.node = c.node and s.stay_no = c.stay_no
            where s.whole
        ) where nth = 1
    ), pair as (  -- a reference beside another stay; two that are both like the longest have no holes
        select one.node as one, one.stay_no as one_stay_no, s.node, s.stay_no, s.cut, s.trans_members,
               least(one.agreed, s.agreed) as parted
        from sequence one join sequence s on one.ring = s.ring and (one.node <> s.node or one.stay_no <> s.stay_no)
        where one.agreed < one.n or s.agreed < s.n
    ), position as (
        select node, stay_no, process, counter, min(tpos) as tpos, min_by(lseq, tpos) as lseq
        from {tail} group by node, stay_no, process, counter
    ), beside as (
        select /*+ broadcast(p) */ t.run, t.ring, p.*, t.tpos as one_tpos, t.process, t.counter, t.message, t.sender,
               t.lseq as one_lseq, h.tpos, h.lseq,
               if(h.tpos is null, null, struct(h.tpos, t.process, t.counter, t.message, t.lseq as one_lseq, h.lseq)) as here
        from {tail} t join pair p on t.node = p.one and t.stay_no = p.one_stay_no
        left join position h on p.node = h.node and p.stay_no = h.stay_no and t.process = h.process and t.counter = h.counter
        where t.tpos >= p.parted
    ), bounded as (  -- the first that the stay delivered of what follows in the reference
        select *, if(array_contains(trans_members, sender), min(here) over later, min(if(tpos < cut, here, null)) over later)
               as bound
        from beside
        window later as (partition by one, one_stay_no, node, stay_no order by one_tpos desc
                         rows between unbounded preceding and 1 preceding)
    )
    select if(b.tpos is null, 'missing', 'behind') as kind, b.run, b.ring, n.node_name as one, b.message,
           b.bound.message as later, f.node_name as node, f.conf_name as view, array(b.one, b.node) as nodes,
           array(f.conf) as views, array(array(b.process, b.counter), array(b.bound.process, b.bound.counter)) as messages,
           array(array(b.one, b.one_lseq), array(b.one, b.bound.one_lseq), array(b.node, b.bound.lseq), array(b.node, b.lseq))
               as witness,
           b.bound.tpos as position
    from bounded b join {node_names} n on b.one = n.node
    join {phases} f on b.node = f.node and b.stay_no = f.stay_no and f.phase = int(b.bound.tpos >= b.cut)
    where b.bound is not null and (b.tpos is null or b.tpos > b.bound.tpos)
"""

NO_HOLES: Final = Property(
    name="no_holes_6_3",
    meaning="what is delivered has no gap that matters before it",
    paper="EVS94, Specification 6.3",
    predicate="If p delivers m before m', and q delivers m' in c', then q delivers m before m', unless the sender of m is not "
    "a member of c'. In a regular configuration every sender is a member, so there are no holes at all; in a transitional one "
    "messages of nodes that are gone may be missing. Different transitional successors of one regular configuration are held "
    "against each other, too.",
    broken={
        "missing": "{one} delivered {message} before {later}; {node} delivered {later} in {view}, but {message} not at all",
        "behind": "{one} delivered {message} before {later}; {node} delivered {later} in {view}, but {message} only after it",
    },
    promised_in=frozenset(MODES) - {"toto"},
    reads=Reads.ORDER,
    check=check_no_holes,
    sql=SQL_NO_HOLES,
    counts=ORDERED + "\n;\nselect run, ring, 0 as checked, 1 as pending from {stays} where not whole",
    examples=(
        kept("a: R4{a,b,c} s1 d1 d2 T6{a} R8{a} / b: R4{a,b,c} s2 T6{b,c} d2 R8{b,c} / c: R4{a,b,c} T6{b,c} d2 R8{b,c}"),
        breaks(
            "a: R4{a,b} s1 d1 d2 T6{a} R8{a} / b: R4{a,b} s2 d2 T6{b} R8{b}",
            "a/1 delivered a/1#0:1 before b/1#0:1; b/1 delivered b/1#0:1 in R4@a/1, but a/1#0:1 not at all",
        ),
        breaks(
            "a: R4{a,b,c} s1 x / b: R4{a,b,c} s2 T6{a,b} d2 R8{a,b} T10{b} R12{b} / c: R4{a,b,c} d1 d2 T6{c} R8{c}",
            "c/1 delivered a/1#0:1 before b/1#0:1; b/1 delivered b/1#0:1 in T6@a/1, but a/1#0:1 not at all",
        ),
        breaks(
            "a: R4{a,b} s1 d1 d2 / b: R4{a,b} s2 d2 d1",
            "a/1 delivered a/1#0:1 before b/1#0:1; b/1 delivered b/1#0:1 in R4@a/1, but a/1#0:1 only after it",
        ),
        left_open("a: R4{a,b} s1 d1 d2 / b: R4{a,b} s2 g d2", closed=True),
    ),
)
