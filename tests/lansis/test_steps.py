"""The mode `transis`: the view that ends goes on, in steps, until its members say FLUSHED: what is sent while others have still
to agree is delivered meanwhile, in that view. Evs is the control: there delivery stands from the first statement on.
"""

from __future__ import annotations

import pytest

from tests.engine.hand import Verdict, both
from tests.lansis.hand import PULSE, Table, is_flushed, is_statement
from tests.lansis.test_flowing import CALM_US, SMALL, TEXTS, finish, marked
from transis.lansis.packets import BurstMark
from transis.lansis.states import State
from transis.types.config import Window
from transis.types.ids import Service

WHILE_THEY_WAIT_US = 100_000
"""Less than a member may take to agree."""
STRONG = (Service.AGREED, Service.SAFE)


def statement_of(source: str) -> Verdict:
    """What this machine states is lost, in the DAG and beside it, so nobody else can agree with it."""
    return lambda one: one.source == source and (marked(BurstMark.STATEMENT)(one) or is_statement(one))


def losing_d(mode: str = "transis", order: str = "all-ack") -> Table:
    """d died; a and b wait for c, whose statements are lost."""
    table = Table("abcd", mode=mode, order=order)
    table.form("abcd")
    table.run(CALM_US)
    table.drops.append(statement_of("c"))
    table.crash("d")
    table.run_until(lambda: all(table[name].engine.state is State.FAULTS for name in "ab"))
    return table


def meeting_c(mode: str = "transis", order: str = "all-ack", window: Window | None = None) -> Table:
    """c wants to join a and b, who wait for it, because its statements are lost."""
    table = Table("abc", mode=mode, order=order, window=window)
    table.form("ab")
    table.run(CALM_US)
    table.drops.append(statement_of("c"))
    table.start("c")
    table.run_until(lambda: all(table[name].engine.state is State.STAGE_2 for name in "ab"))
    return table


def told(table: Table, name: str) -> set[tuple[str, str]]:
    return {(heard.view, heard.phase) for heard in table[name].heard}


# --- delivered in the change ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", Service)
def test_when_strangers_come_every_service_is_delivered_while_the_members_wait_for_them(service: Service) -> None:
    table = meeting_c()
    for number, text in enumerate(TEXTS):
        table.submit("ab"[number % 2], service, text)
    table.run(WHILE_THEY_WAIT_US)
    assert all(table[name].engine.state is State.STAGE_2 for name in "ab")
    for name in "ab":
        assert sorted(table.texts(name)) == TEXTS
        assert told(table, name) == {("ab", "regular")}
        assert table[name].notes("delivered in the change") or service is Service.BASIC
    if service in STRONG:
        assert table.texts("a") == table.texts("b")
    finish(table, "abc")
    assert table.texts("c") == []
    assert len(table.texts("a")) == len(table.texts("b")) == len(TEXTS)


@pytest.mark.parametrize("service", Service)
def test_in_evs_nothing_that_is_sent_in_the_change_is_delivered_in_it(service: Service) -> None:
    table = meeting_c(mode="evs")
    table.submit("a", service, *TEXTS)
    table.run(WHILE_THEY_WAIT_US)
    assert table.texts("a") == table.texts("b") == []


@pytest.mark.parametrize("service", [Service.BASIC, Service.CAUSAL])
def test_when_a_member_is_lost_what_needs_no_word_of_it_is_delivered_in_the_change(service: Service) -> None:
    table = losing_d()
    for number, text in enumerate(TEXTS):
        table.submit("ab"[number % 2], service, text)
    table.run(WHILE_THEY_WAIT_US)
    assert all(table[name].engine.state is State.FAULTS for name in "ab")
    for name in "ab":
        assert sorted(table.texts(name)) == TEXTS
        assert told(table, name) == {("abcd", "regular")}


@pytest.mark.parametrize("service", STRONG)
def test_the_order_waits_for_the_word_of_the_lost_member_until_the_view_ends(service: Service) -> None:
    table = losing_d()
    table.submit("a", service, "first")
    table.submit("b", service, "second")
    table.run(WHILE_THEY_WAIT_US)
    assert all(table.texts(name) == [] for name in "abc")
    finish(table, "abc")
    assert table.texts("a") == table.texts("b") == table.texts("c")
    assert sorted(table.texts("a")) == ["first", "second"]
    assert told(table, "a") == {("abcd", "transitional")}


def test_an_answer_comes_after_its_question_also_when_both_are_said_in_the_change() -> None:
    table = meeting_c()
    table.submit("a", Service.AGREED, "question")
    table.run_until(lambda: table.texts("b") == ["question"])
    table.submit("b", Service.CAUSAL, "answer")
    table.run(WHILE_THEY_WAIT_US)
    assert table.texts("a") == table.texts("b") == ["question", "answer"]


def test_nothing_moves_after_flushed() -> None:
    """All but c have promised the view that comes: what moves now would be missing in it."""
    table = losing_d()
    table.drops[:] = [is_flushed]
    table.run_until(lambda: all(seat.engine.inspect().flushed is not None for seat in table.seats.values()))
    before = table["a"].engine.inspect().sets.mine
    table.submit("a", Service.CAUSAL, *TEXTS)
    table.run(WHILE_THEY_WAIT_US)
    assert table.texts("a") == table.texts("b") == []
    assert table["a"].engine.inspect().sets.mine == before


# --- how much, how often ----------------------------------------------------------------------------------------------


def test_a_sender_goes_on_beyond_its_share_of_the_window() -> None:
    table = meeting_c(window=SMALL)
    texts = [f"{number:03}" + 1_000 * "x" for number in range(12)]
    table.submit("a", Service.AGREED, *texts)
    assert table["a"].engine.statistics()["flowed"] == 2
    table.run(WHILE_THEY_WAIT_US)
    assert all(table[name].engine.state is State.STAGE_2 for name in "ab")
    assert table["a"].engine.statistics()["flowed"] == len(texts)
    assert table.texts("a") == table.texts("b") == texts


def test_what_the_view_that_ends_holds_has_a_limit() -> None:
    """Nothing is collected while views change; so what is sent ends where a lost member would stop it, too."""
    window = Window(window=48, visit_max=16, gap_max=192)
    table = meeting_c(window=window)
    table.submit("a", Service.AGREED, *(f"{number:03}" + 1_000 * "x" for number in range(400)))
    table.run(WHILE_THEY_WAIT_US)
    assert window.gap_max // 2 < len(table.texts("b")) <= window.gap_max
    assert table["a"].engine.inspect().view.dag.held_datagrams <= window.gap_max + window.window
    finish(table, "abc")
    assert len(table.texts("a")) == len(table.texts("b")) == 400


def test_statements_are_renewed_while_there_is_something_new_and_no_longer() -> None:
    table = meeting_c()
    table.submit("a", Service.AGREED, "once")
    table.run(WHILE_THEY_WAIT_US // 2)
    said = [table[name].engine.inspect().sets.mine for name in "ab"]
    assert all(one is not None and one.version > 1 for one in said)
    table.run(WHILE_THEY_WAIT_US // 2)
    assert [table[name].engine.inspect().sets.mine for name in "ab"] == said


def test_each_step_waits_until_the_statement_of_the_last_has_left() -> None:
    table = meeting_c()
    before = table["a"].engine.inspect().sets.mine
    for number in range(50):
        table.submit("a", Service.CAUSAL, str(number))
        table.run(500)
    after = table["a"].engine.inspect().sets.mine
    assert before is not None
    assert after is not None
    assert after.version - before.version <= 1 + 25_000 // PULSE.coalesce_us
    assert len(table.texts("b")) > 30


def test_a_member_that_talks_all_the_time_does_not_make_others_wait_longer_for_the_one_that_does_not_agree() -> None:
    table = meeting_c()
    for number in range(200):
        table.submit("a", Service.CAUSAL, str(number))
        table.run(10_000)
    assert "abc" not in (table["a"].view, table["b"].view)
    assert len(table["a"].views) > 2


# --- one message, one view --------------------------------------------------------------------------------------------


def test_a_message_that_flowed_in_part_is_claimed_in_no_part() -> None:
    """Its rest may have to go to the next view, where nobody would know its beginning."""
    table = meeting_c(window=SMALL)
    large = "".join(f"{number:08}" for number in range(2_000))
    table.submit("a", Service.AGREED, "before")
    table.run(WHILE_THEY_WAIT_US // 2)
    table.submit("a", Service.AGREED, large, "behind")
    table.run(WHILE_THEY_WAIT_US // 2)
    assert table["a"].engine.statistics()["outbox_bytes"] > 0
    assert table.texts("b") == ["before"]
    finish(table, "abc")
    assert table.texts("a") == table.texts("b") == ["before", large, "behind"]
    assert table.texts("c") == [large, "behind"]


@pytest.mark.parametrize("mark", [BurstMark.FLOW, BurstMark.CLAIM])
def test_who_lost_what_flowed_or_its_claim_asks_for_it_in_the_view_that_ends(mark: BurstMark) -> None:
    table = meeting_c()
    lost = both(marked(mark), lambda one: one.source == "a" and one.target == "b")
    table.drops.append(lost)
    table.submit("a", Service.AGREED, *TEXTS)
    table.run(WHILE_THEY_WAIT_US // 2)
    table.drops.remove(lost)
    table.run(WHILE_THEY_WAIT_US)
    assert table.texts("a") == table.texts("b") == TEXTS
    assert told(table, "b") == {("ab", "regular")}


def test_strangers_forget_what_was_claimed_where_they_are_not() -> None:
    table = meeting_c()
    table.submit("a", Service.AGREED, "in the view that ends")
    table.run(WHILE_THEY_WAIT_US)
    table.drops[:] = [is_flushed]
    table.run_until(lambda: all(seat.engine.inspect().flushed is not None for seat in table.seats.values()))
    table.submit("a", Service.AGREED, "in the next")
    finish(table, "abc")
    assert table.texts("a") == table.texts("b") == ["in the view that ends", "in the next"]
    assert table.texts("c") == ["in the next"]


# --- what is promised binds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alone", ["a", "b"])
def test_what_was_delivered_in_the_change_is_delivered_by_all_who_go_on(alone: str) -> None:
    """One of the two is cut off right after it has delivered; c, which had not, goes on with the other."""
    table = losing_d()
    table.submit("a", Service.CAUSAL, "said by a")
    table.submit("b", Service.CAUSAL, "said by b")
    table.run_until(lambda: len(table.texts(alone)) == 2)
    others = "abc".replace(alone, "")
    table.drops[:] = [lambda one: (one.source == alone) != (one.target == alone)]
    table.run_until(lambda: table.all_in(others))
    first, second = (table.texts(name) for name in others)
    assert sorted(first) == sorted(second)


# --- ToTo -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("senders", ["a", "ab"])
def test_with_toto_members_vote_in_the_change_also_those_that_have_nothing_to_say(senders: str) -> None:
    table = meeting_c(order="toto")
    for number, text in enumerate(TEXTS):
        table.submit(senders[number % len(senders)], Service.AGREED, text)
    table.run(WHILE_THEY_WAIT_US)
    assert all(table[name].engine.state is State.STAGE_2 for name in "ab")
    assert table.texts("a") == table.texts("b")
    assert sorted(table.texts("a")) == TEXTS
    assert told(table, "a") == {("ab", "regular")}
