"""Histories that break something: each a few lines, with the exact set of properties it breaks and words of the reason."""

from typing import NamedTuple

import pytest

from tests.guarantees.toy import history, report
from transis.audit.guarantees import check
from transis.trace.events import Delivery, Event, Refuse, Sent, Submit
from transis.types.ids import MessageId, NodeId, ProcessId


class Bad(NamedTuple):
    text: str
    breaks: set[str]
    words: str


BAD = {
    "delivery from nowhere": Bad(
        "a: R4{a} d1<a",
        {"no_creation", "delivered_where_sent_1_3"},
        "a/1 delivered a/1#0:901 in R4@a/1, but a/1 never sent it",
    ),
    "delivered twice": Bad("a: R4{a} s1 s2 d1 d2 d2", {"no_duplicates"}, "a/1 delivered a/1#0:2 twice"),
    "delivered again in the next view": Bad(
        "a: R4{a} s1 d1 T6{a} R8{a} d1",
        {"no_duplicates", "delivered_where_sent_1_3"},
        "a/1 delivered a/1#0:1 twice, in R4@a/1 and R8@a/1",
    ),
    "sent twice": Bad("a: R4{a} s1 o1 d1", {"sent_once_1_4"}, "a/1 sent a/1#0:1 twice"),
    "sent in a transitional configuration": Bad("a: R4{a} T6{a} s1 d1 R8{a}", {"sent_once_1_4"}, "T6@a/1 was in force"),
    "sent before any configuration": Bad("a: s1 R4{a}", {"sent_once_1_4"}, "before it installed any"),
    "lost in the queue": Bad("a: R4{a} s1 u2 d1", {"every_submit_accounted"}, "neither sent nor refused a/1#0:2"),
    "sent and refused": Bad("a: R4{a} s1 d1 r1", {"every_submit_accounted"}, "both sent and refused"),
    "refused twice": Bad("a: R4{a} u1 r1 r1", {"every_submit_accounted"}, "refused a/1#0:1 twice"),
    "sent but never submitted": Bad("a: R4{a} o1 d1", {"every_submit_accounted"}, "sent but never submitted"),
    "moved across a view": Bad(
        """
        a: R4{a,b} s1 d1 T6{a,b} R8{a,b}
        b: R4{a,b} T6{a,b} R8{a,b} d1
        """,
        {"delivered_where_sent_1_3", "failure_atomicity_4", "total_order_6_1"},
        "b/1 delivered a/1#0:1 in R8@a/1 of ring R8@a/1, but it was sent in R4@a/1",
    ),
    "before any configuration": Bad(
        "a: u1 d1 R4{a} o1",
        {"configuration_2_2", "delivered_where_sent_1_3", "self_delivery_3", "partial_order_1_1", "total_order_6_1"},
        "before it installed any configuration",
    ),
    "not FIFO": Bad(
        "a: R4{a} s1 s2 d2 d1",
        {"fifo", "causal_5", "places"},
        "a/1 delivered a/1#0:2 before a/1#0:1, although the same process sent it later",
    ),
    "no member of its own view": Bad("a: R4{b} x", {"configuration_2_2"}, "but is not a member of it"),
    "alive after its end": Bad("a: R4{a} x s1", {"configuration_2_2"}, "2 events after its end"),
    "one id, two memberships": Bad(
        """
        a: R4{a,b}
        b: R4@a{a,b,c} x
        """,
        {"agreement_on_views", "end_together_2_1"},
        "installed R4@a/1 with different members: a/1, b/1 against a/1, b/1, c/1",
    ),
    "no transitional configuration": Bad("a: R4{a} R8{a}", {"structure"}, "no transitional configuration stands between"),
    "two transitional ones": Bad("a: R4{a} T6{a} T7{a} R8{a}", {"structure"}, "follows another transitional"),
    "a life begins in a transitional one": Bad("a: T2{a} R4{a}", {"structure"}, "cannot be transitional"),
    "a transitional one too large": Bad(
        """
        a: R4{a,b} T6{a,b} R8{a}
        b: R4{a,b} T7{b} R9{b}
        """,
        {"structure"},
        "a/1 came from R4@a/1, but the transitional configuration had a/1, b/1",
    ),
    "ring sequence goes back": Bad("a: R8{a} T6{a} R4{a}", {"structure"}, "does not exceed"),
    "left behind": Bad(
        """
        a: R4{a,b} T6{a,b} R8{a,b}
        b: R4{a,b}
        """,
        {"end_together_2_1"},
        "a/1 stayed in R8@a/1 to the end, but its member b/1 stayed in R4@a/1",
    ),
    "with a failed member to the end": Bad(
        """
        a: R4{a,b}
        b: R4{a,b} x
        """,
        {"end_together_2_1"},
        "its member b/1 failed in R4@a/1",
    ),
    "own message not delivered": Bad("a: R4{a} s1 T6{a} R8{a}", {"self_delivery_3"}, "when it installed R8@a/1"),
    "own message never delivered": Bad("a: R4{a} s1", {"self_delivery_3"}, "when the run ended"),
    "different sets in the regular": Bad(
        """
        a: R4{a,b} s1 d1 T6{a,b} R8{a,b}
        b: R4{a,b} T6{a,b} R8{a,b}
        """,
        {"failure_atomicity_4"},
        "went together from R4@a/1 to T6@a/1, but in R4@a/1 only a/1 delivered a/1#0:1, b/1 did not",
    ),
    "different sets in the transitional": Bad(
        """
        a: R4{a,b} s1 T6{a,b} d1 R8{a,b}
        b: R4{a,b} T6{a,b} R8{a,b}
        """,
        {"failure_atomicity_4"},
        "from T6@a/1 to R8@a/1",
    ),
    "before the transitional here, after it there": Bad(
        """
        a: R4{a,b} s1 d1 T6{a,b} R8{a,b}
        b: R4{a,b} T6{a,b} d1 R8{a,b}
        """,
        {"failure_atomicity_4", "total_order_6_1"},
        "a/1 delivered a/1#0:1 before it installed T6@a/1; b/1 installed T6@a/1 before it delivered a/1#0:1",
    ),
    "effect without cause": Bad(
        """
        a: R4{a,b,c} s1 d1 x
        b: R4{a,b,c} d1 s2 d2 T6{b} R8{b}
        c: R4{a,b,c} T6{c} d2 R8{c}
        """,
        {"causal_5"},
        "b/1 had delivered a/1#0:1 before it sent b/1#0:1, but c/1 delivered b/1#0:1 in T6@c/1 and never a/1#0:1",
    ),
    "a later message without an earlier one of the same sender": Bad(
        """
        a: R4{a,b} s1 s2 x
        b: R4{a,b} T6{b} d2 R8{b}
        """,
        {"causal_5"},
        "a/1 had sent a/1#0:1 before it sent a/1#0:2",
    ),
    "two nodes, two orders": Bad(
        """
        a: R4{a,b} s1 d1 d2
        b: R4{a,b} s2 d2 d1
        """,
        {"total_order_6_1", "places", "no_holes_6_3", "one_sequence"},
        "a/1 delivered a/1#0:1 before it delivered b/1#0:1; b/1 delivered b/1#0:1 before it delivered a/1#0:1",
    ),
    "a circle of three, each pair at one node only": Bad(
        """
        a: R4{a,b,c} s1 T6{a} d1 d2 R8{a}
        b: R4{a,b,c} s2 T6{b} d2 d3 R8{b}
        c: R4{a,b,c} s3 T6{c} d3 d1 R8{c}
        """,
        {"total_order_6_1", "places"},
        "these cannot be put into one total order",
    ),
    "delivered before it was sent, through others": Bad(
        """
        a: R4{a,b} d2 s1 d1
        b: R4{a,b} d1 s2 d2
        """,
        {"partial_order_1_1", "total_order_6_1", "causal_5", "places", "no_holes_6_3", "one_sequence"},
        "these steps form a cycle",
    ),
    "a configuration change that is not one moment": Bad(
        """
        a: R4{a,b} T6{a,b} R8{a,b} s1 d1
        b: R4{a,b} T6{a,b} d1 R8{a,b}
        """,
        {"partial_order_1_1", "total_order_6_1", "delivered_where_sent_1_3", "failure_atomicity_4"},
        "these steps form a cycle",
    ),
    "a false place": Bad(
        """
        a: R4{a,b} s1 d1
        b: R4{a,b} d1=2
        """,
        {"places"},
        "b/1 delivered a/1#0:1 at place 2.0 of R4@a/1, elsewhere it has 1.0",
    ),
    "a hole in the regular": Bad(
        """
        a: R4{a,b} s1 d1 d2 T6{a} R8{a}
        b: R4{a,b} s2 d2 T6{b} R8{b}
        """,
        {"no_holes_6_3", "one_sequence"},
        "a/1 delivered a/1#0:1 before b/1#0:1; b/1 delivered b/1#0:1 in R4@a/1, but a/1#0:1 not at all",
    ),
    "another message behind a gap": Bad(
        """
        a: R4{a,b,c} s1 s2 s3 s4 d1 d2 d3 d4
        b: R4{a,b,c} d1 g d3 d4
        c: R4{a,b,c} d1 d2 d3
        """,
        {"one_sequence"},
        "at position 1 of R4@a/1 the majority, a/1, c/1 delivered a/1#0:2; b/1 delivered a/1#0:3; "
        "the last that they have in common is a/1#0:1",
    ),
    "a hole of a member in the transitional": Bad(
        """
        a: R4{a,b,c} s1 x
        b: R4{a,b,c} s2 T6{a,b} d2 R8{a,b} T10{b} R12{b}
        c: R4{a,b,c} d1 d2 T6{c} R8{c}
        """,
        {"no_holes_6_3"},
        "b/1 delivered b/1#0:1 in T6@a/1, but a/1#0:1 not at all",
    ),
    "safe, delivered in the regular, missed by a member (F1 broken)": Bad(
        """
        p: R4{p,q,r} s12! d12 T6{p} R8{p}
        q: R4{p,q,r} T6{q,r} R8{q,r}
        r: R4{p,q,r} T6{q,r} R8{q,r}
        """,
        {"safe_7_1"},
        "p/1 delivered the safe p/1#0:1 in R4@p/1, but its member q/1 went on to R8@q/1 without it",
    ),
    "safe, delivered in a transitional, missed in a smaller one (F8 broken)": Bad(
        """
        a: R4{a,b,c} s1! T6{a,b,c} d1 R8{a,b,c} T10{a} R12{a}
        b: R4{a,b,c} T6{a,b,c} d1 R8{a,b,c} T10{b} R12{b}
        c: R4{a,b,c} T10{c} R12{c}
        """,
        {"safe_7_1"},
        "delivered the safe a/1#0:1 in T6@a/1, but its member c/1 went on to R12@c/1 without it",
    ),
    "safe in a view that a member never installed": Bad(
        """
        a: R4{a,b} T6{a} R8{a,c} s1! d1
        c: R5{c} x
        b: R4{a,b} T6{b} R7{b}
        """,
        {"safe_7_2", "safe_7_1", "end_together_2_1"},
        "a/1 delivered the safe a/1#0:1 in R8@a/1, but its member c/1 never installed R8@a/1",
    ),
    "two lives of one name in one view": Bad(
        """
        a: R4{a} x
        a2: +900 R5@a2{a,a2}
        """,
        {"incarnations_never_overlap", "end_together_2_1"},
        "with a/1 and a/2 in it, lives of one name",
    ),
    "two lives of one name at one time": Bad(
        """
        a: R4{a} +900 x
        a2: +100 R5{a2}
        """,
        {"incarnations_never_overlap"},
        "a/2 installed R5@a/2 at 120 us, while a/1 ended only at 930 us",
    ),
    "basic, twice": Bad("a: R4{a} s1? d1 d1", {"basic"}, "a/1 delivered the basic a/1#0:1 twice"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_breaks_exactly_this(name: str) -> None:
    bad = BAD[name]
    outcome = report(bad.text)
    assert set(outcome.broken) == bad.breaks, [violation.explanation for violation in outcome.violations]
    assert any(bad.words in violation.explanation for violation in outcome.violations)


@pytest.mark.parametrize("name", BAD)
def test_witnesses_are_the_events_that_the_explanation_speaks_of(name: str) -> None:
    """They exist, none is told twice, their nodes are named, and one of the messages that it names is in one of them."""
    told = history(BAD[name].text)
    events = {(trace.node, event.lseq): event for trace in told.nodes for event in trace.events}
    for violation in check(told).violations:
        assert 1 <= len(violation.witness) == len(set(violation.witness)) <= 6
        assert all(str(node) in violation.explanation for node, _ in violation.witness)
        assert all(str(message) in violation.explanation for message in violation.messages)
        shown = {message for at in violation.witness for message in messages_of(at[0], events[at])}
        assert not violation.messages or not shown.isdisjoint(violation.messages)


def messages_of(node: NodeId, event: Event) -> set[MessageId]:
    """Those that an event is about."""
    match event:
        case Submit() | Refuse() | Sent():
            process = ProcessId(node, event.process)
        case Delivery():
            process = event.process
        case _:
            return set()
    return {MessageId(process, counter) for counter in range(event.first, event.first + event.count)}
