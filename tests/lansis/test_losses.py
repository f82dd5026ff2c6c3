"""Losses: when a gap is asked for and by how much later again; who answers when, and when nobody needs to."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.lansis.bursts import BASE, enter, said
from transis.lansis.dag import Dag
from transis.lansis.losses import PATIENCE_MAX, AnswerTurns, MissingRequests, PlannedAnswers
from transis.lansis.packets import NACK_COUNT_MAX, NACK_RANGES_MAX, Nack
from transis.types.outputs import NEVER

NACK_US = 2000


def lacking(*bursts: tuple[int, int]) -> Dag:
    """A graph to which some members named counters of rank 0 in their data."""
    graph = Dag(-1, [1] * 4, BASE)
    enter(graph, *(said(rank, 1, 50, (0, counter)) for rank, counter in bursts))
    return graph


def test_a_gap_may_be_only_late_and_is_asked_for_after_a_while() -> None:
    graph, requests = lacking((1, 3)), MissingRequests(NACK_US)
    requests.look(graph, 100)
    assert requests.take_due(100 + NACK_US - 1) == ()
    assert requests.due_at() == 100 + NACK_US
    assert requests.take_due(100 + NACK_US) == (Nack(0, 1, 3),)


def test_what_two_members_name_in_their_data_is_asked_for_at_once() -> None:
    graph, requests = lacking((1, 3)), MissingRequests(NACK_US)
    requests.look(graph, 100)
    enter(graph, said(2, 1, 50, (0, 3)))
    requests.look(graph, 200)
    assert requests.take_due(200) == (Nack(0, 1, 3),)


def test_a_gap_that_reaches_beyond_what_two_members_named_waits() -> None:
    graph, requests = lacking((1, 3), (2, 2)), MissingRequests(NACK_US)
    requests.look(graph, 100)
    assert requests.take_due(100) == ()


def test_requests_come_half_as_late_again_each_time_up_to_a_bound() -> None:
    graph, requests = lacking((1, 3)), MissingRequests(NACK_US)
    requests.look(graph, 0)
    asked = []
    for _ in range(10):
        now = requests.due_at()
        assert requests.take_due(now) == (Nack(0, 1, 3),)
        asked.append(now)
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses[:3] == [2000, 3000, 4500]
    assert pauses[-1] == PATIENCE_MAX * NACK_US
    assert pauses == sorted(pauses)


def test_looking_again_changes_no_turn_and_what_came_is_asked_for_no_more() -> None:
    graph, requests = lacking((1, 3)), MissingRequests(NACK_US)
    requests.look(graph, 0)
    requests.take_due(NACK_US)
    requests.look(graph, NACK_US + 5)
    assert requests.due_at() == 2 * NACK_US
    enter(graph, said(0, 1, 1), said(0, 2, 2), said(0, 3, 3))
    requests.look(graph, NACK_US + 6)
    assert requests.due_at() == NEVER
    assert len(requests) == 0


def test_the_end_of_what_is_named_is_not_asked_for_while_data_keeps_coming() -> None:
    """An ALIVE travels apart from data and overtakes it; every datagram that comes gives the next one time."""
    graph, requests = Dag(-1, [1, 1], BASE), MissingRequests(NACK_US)
    graph.name(0, 5)
    for number in range(1, 5):
        requests.look(graph, number * 1500)
        assert requests.take_due(number * 1500) == ()
        enter(graph, said(0, number, number))
    requests.look(graph, 6500)
    assert requests.due_at() == 6500 + NACK_US


def test_the_lowest_gaps_of_the_lowest_ranks_go_first_and_no_packet_has_too_many() -> None:
    graph, requests = Dag(-1, [1] * 3, BASE), MissingRequests(NACK_US)
    for rank in (1, 0):
        for counter in range(2, 61, 2):
            enter(graph, said(rank, counter, counter))
    requests.look(graph, 0)
    due = requests.take_due(NACK_US)
    assert len(due) == NACK_RANGES_MAX
    assert list(due) == sorted(due)
    assert len(requests.take_due(NACK_US)) == 60 - NACK_RANGES_MAX


def test_a_gap_larger_than_a_request_can_say_is_cut() -> None:
    graph, requests = lacking((1, 1 << 20)), MissingRequests(NACK_US)
    requests.look(graph, 0)
    assert requests.take_due(NACK_US) == (Nack(0, 1, NACK_COUNT_MAX),)


def ranges(answers: PlannedAnswers, now: int) -> list[tuple[int, int, int]]:
    return [(answer.rank, answer.first, answer.last) for answer in answers.take_due(now)]


def test_an_answer_comes_in_its_turn() -> None:
    answers = PlannedAnswers(NACK_US, 100)
    answers.schedule(Nack(0, 3, 5), 50, 0)
    assert ranges(answers, 49) == []
    assert answers.due_at() == 50
    assert ranges(answers, 50) == [(0, 3, 5)]
    assert answers.due_at() == NEVER


def test_what_another_sent_again_is_not_sent_by_me() -> None:
    answers = PlannedAnswers(NACK_US, 100)
    answers.schedule(Nack(0, 1, 9), 50, 0)
    assert answers.seen(0, 4, 5) == 2
    assert answers.seen(1, 1, 9) == 0
    assert ranges(answers, 50) == [(0, 1, 3), (0, 6, 9)]


def test_what_many_ask_for_is_sent_once_and_again_only_after_a_while() -> None:
    answers = PlannedAnswers(NACK_US, 100)
    answers.schedule(Nack(0, 1, 4), 0, 0)
    answers.schedule(Nack(0, 3, 6), 0, 0)
    assert ranges(answers, 0) == [(0, 1, 4), (0, 5, 6)]
    answers.schedule(Nack(0, 1, 7), 1, 1)
    assert ranges(answers, 1) == [(0, 7, 7)]
    answers.schedule(Nack(0, 1, 4), NACK_US, NACK_US)
    assert ranges(answers, NACK_US) == [(0, 1, 4)]


def test_answers_have_a_budget_and_the_rest_comes_later() -> None:
    answers = PlannedAnswers(NACK_US, 10)
    answers.schedule(Nack(0, 1, 25), 0, 0)
    assert ranges(answers, 0) == [(0, 1, 10)]
    assert ranges(answers, NACK_US - 1) == []
    assert answers.due_at() == NACK_US
    assert ranges(answers, NACK_US) == [(0, 11, 20)]
    assert ranges(answers, 2 * NACK_US) == [(0, 21, 25)]


steps = st.lists(
    st.tuples(
        st.sampled_from(("ask", "see", "take")), st.integers(0, 2), st.integers(1, 12), st.integers(0, 5), st.integers(0, 3000)
    ),
    max_size=40,
)


@given(steps)
def test_answers_against_sets_of_datagrams(story: list[tuple[str, int, int, int, int]]) -> None:
    """With a budget that is never reached: a naive twin keeps one turn for each datagram."""
    answers = PlannedAnswers(NACK_US, 1 << 30)
    waiting: dict[tuple[int, int], int] = {}
    given_at: dict[tuple[int, int], int] = {}
    now = 0
    for what, rank, first, more, later in story:
        spots = [(rank, seq) for seq in range(first, first + more + 1)]
        if what == "ask":
            answers.schedule(Nack(rank, first, first + more), now + later, now)
            for spot in spots:
                if spot not in waiting and given_at.get(spot, -NACK_US) + NACK_US <= now:
                    waiting[spot] = now + later
        elif what == "see":
            answers.seen(rank, first, first + more)
            for spot in spots:
                waiting.pop(spot, None)
        else:
            now += later
            due = {spot for spot, at in waiting.items() if at <= now}
            taken = [(each, seq) for each, low, high in ranges(answers, now) for seq in range(low, high + 1)]
            assert sorted(taken) == sorted(due)
            for spot in due:
                del waiting[spot]
                given_at[spot] = now
        assert answers.due_at() == min(waiting.values(), default=NEVER)


LOST = Nack(2, 7, 9)


def ahead(turns: AnswerTurns, asker: int, now: int, nack: Nack = LOST, gone: frozenset[int] = frozenset()) -> list[int]:
    """How many of four members each of them lets go first, when this one asks now; the asker itself answers nothing."""
    turns.asked(asker, nack, now)
    return [turns.ahead(nack, me, 4, gone) for me in range(4)]


def test_the_sender_answers_first_and_the_others_behind_it_in_turn() -> None:
    assert ahead(AnswerTurns(NACK_US), 0, 0) == [2, 2, 0, 1]
    assert ahead(AnswerTurns(NACK_US), 3, 0) == [1, 2, 0, 1]


def test_what_one_asks_for_again_the_next_answers_first_and_so_on_round() -> None:
    turns, first = AnswerTurns(NACK_US), []
    for again in range(9):
        waits = ahead(turns, 1, again * NACK_US)
        first.append([rank for rank, wait in enumerate(waits) if wait == 0 and rank != 1])
    assert first == [[2], [3], [0], [2], [2], [3], [0], [2], [2]], "the turn of the asker goes to the next"


def test_who_asks_has_no_turn_so_the_only_holder_never_waits() -> None:
    turns = AnswerTurns(NACK_US)
    for again in range(5):
        turns.asked(0, Nack(1, 1, 1), again * NACK_US)
        assert turns.ahead(Nack(1, 1, 1), 1, 2, frozenset()) == 0


def test_who_is_gone_has_no_turn() -> None:
    turns = AnswerTurns(NACK_US)
    assert ahead(turns, 1, 0, gone=frozenset({2}))[3] == 0
    assert ahead(turns, 1, NACK_US, gone=frozenset({2, 3}))[0] == 0


def test_many_who_ask_at_nearly_the_same_time_ask_once() -> None:
    turns = AnswerTurns(NACK_US)
    assert ahead(turns, 0, 0)[2] == 0
    assert ahead(turns, 1, NACK_US - 1)[2] == 0
    assert ahead(turns, 3, NACK_US - 1)[2] == 0


def test_many_who_ask_again_ask_once_more_and_none_of_them_has_a_turn() -> None:
    turns = AnswerTurns(NACK_US)
    for asker in (0, 3):
        turns.asked(asker, LOST, asker)
    for asker, now in ((0, NACK_US), (3, NACK_US + 3)):
        assert ahead(turns, asker, now)[1:3] == [0, 1], "also 3 asked last time, so 1 is the next that may have it"
    assert ahead(turns, 0, 3 * NACK_US)[1:3] == [0, 1]
    assert ahead(turns, 0, 5 * NACK_US)[1:3] == [0, 1]
    assert ahead(turns, 0, 7 * NACK_US)[1:] == [2, 0, 1], "3 has not asked for long: it may have got it"


def test_a_copy_of_a_request_is_none() -> None:
    turns = AnswerTurns(NACK_US)
    assert [ahead(turns, 0, now)[2] for now in (0, 10, NACK_US // 2 - 1)] == [0, 0, 0]


def test_requests_for_other_gaps_have_turns_of_their_own() -> None:
    turns = AnswerTurns(NACK_US)
    ahead(turns, 0, 0)
    assert ahead(turns, 0, NACK_US)[3] == 0
    assert ahead(turns, 0, NACK_US, Nack(2, 8, 9))[2] == 0
    assert ahead(turns, 0, NACK_US, Nack(3, 7, 9))[3] == 0


def test_turns_are_forgotten_with_what_everybody_has_and_when_nobody_asks_any_more() -> None:
    turns = AnswerTurns(NACK_US)
    for first in range(1, 6):
        turns.asked(0, Nack(2, first, 9), 0)
    turns.forget([0, 9, 3, 0], 10)
    assert len(turns) == 2
    turns.asked(0, Nack(2, 4, 9), PATIENCE_MAX * NACK_US)
    turns.forget([0, 0, 3, 0], 2 * PATIENCE_MAX * NACK_US + 1)
    assert len(turns) == 1
    assert ahead(turns, 0, 2 * PATIENCE_MAX * NACK_US + 1, Nack(2, 5, 9))[2] == 0, "as if for the first time"


def test_what_is_asked_for_as_rarely_as_can_be_is_not_forgotten_between() -> None:
    turns = AnswerTurns(NACK_US)
    for again in range(4):
        turns.forget([0] * 4, again * PATIENCE_MAX * NACK_US)
        turns.asked(1, LOST, again * PATIENCE_MAX * NACK_US)
    assert turns.ahead(LOST, 2, 4, frozenset()) == 0
    assert turns.ahead(LOST, 0, 4, frozenset()) == 2
