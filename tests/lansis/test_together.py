"""Whole engines at one table: they agree on one order, merge, lose members, split, heal, and say the same about all of it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.engine.hand import HOP_US, Seat, Verdict, both, cut_off, first, is_data, one_way
from tests.lansis.hand import PULSE, TIMING, Table, is_beacon, is_flushed, is_statement
from transis.lansis.packets import Attempt, Faults, Joining, Statement
from transis.lansis.states import State, Trap
from transis.types.ids import Service, ViewId
from transis.types.outputs import Configure, Deliver, Phase

CALM_US = 200_000
DETECTED_US = PULSE.silence_us * 5 // 4 + 4 * PULSE.probe_us + 10_000
"""Silence, the last tick before it shows, three questions, and the change itself."""


def formed(members: str) -> Table:
    table = Table(members)
    table.form(members)
    table.run(CALM_US)
    return table


# --- one order ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", Service)
def test_a_machine_alone_hears_itself_at_once(service: Service) -> None:
    table = Table("a")
    table.start()
    table.submit("a", service, "one", "two")
    assert table.texts("a") == ["one", "two"]


@pytest.mark.parametrize("service", (Service.AGREED, Service.SAFE))
def test_everybody_delivers_in_one_order(service: Service) -> None:
    table = formed("abc")
    for number in range(20):
        for name in "cab":
            table.submit(name, service, f"{name}{number}")
        table.run(HOP_US * (1 + number % 3))
    table.run(CALM_US)
    assert len(table.texts("a")) == 60
    assert table.texts("a") == table.texts("b") == table.texts("c")


def test_lost_data_is_asked_for_and_delivered_in_the_same_order() -> None:
    table = formed("abcd")
    random = Random(1)
    table.drops.append(both(is_data, lambda journey: random.random() < 0.3))
    for number in range(30):
        table.submit("abcd"[number % 4], Service.SAFE if number % 3 else Service.AGREED, str(number))
        table.run(1_000)
    table.run(2 * CALM_US)
    assert sorted(table.texts("a"), key=int) == list(map(str, range(30)))
    assert len({tuple(table.texts(name)) for name in "abcd"}) == 1
    assert {seat.view for seat in table.seats.values()} == {"abcd"}, "losing data is no fault of anybody"


def test_a_safe_message_waits_for_everybody_an_agreed_one_only_for_their_clocks() -> None:
    table = formed("abc")
    table.drops.append(both(is_data, one_way("a", "c")))
    table.drops.append(both(is_data, one_way("b", "c")))
    table.submit("a", Service.SAFE, "safe")
    table.run(20_000)
    assert table.texts("a") == table.texts("b") == []
    table.drops.clear()
    table.run(20_000)
    assert table.texts("a") == table.texts("b") == table.texts("c") == ["safe"]


# --- merging --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", ("ab", "abcde"))
def test_machines_that_start_at_once_are_one_view_in_one_change(members: str) -> None:
    table = Table(members)
    table.form(members)
    assert {tuple(seat.views_had) for seat in table.seats.values()} == {
        (f"regular {name}", f"transitional {name}", f"regular {members}") for name in members
    }
    assert len({seat.views[-1].id for seat in table.seats.values()}) == 1


def test_a_newcomer_joins_a_view_at_work_and_nothing_is_lost() -> None:
    table = Table("abc")
    table.form("ab")
    table.start("c")
    number = 0
    while not table.all_in("abc"):
        table.submit("ab"[number % 2], Service.SAFE, str(number))
        table.run(5_000)
        number += 1
    table.run(CALM_US)
    assert table.texts("a") == table.texts("b")
    assert sorted(table.texts("a"), key=int) == list(map(str, range(number)))
    assert set(table.texts("c")) < set(table.texts("a"))


@pytest.mark.parametrize("kind", (Attempt, Joining))
def test_a_lost_aj_or_join_costs_no_member(kind: type) -> None:
    table = Table("abc")
    table.drops.append(first(3, lambda journey: isinstance(journey.packet, kind)))
    table.form("abc")
    assert {len(seat.views) for seat in table.seats.values()} == {3}


def test_two_views_that_meet_in_the_middle_of_a_join_end_in_one() -> None:
    """Trap 42, T10: b and c hear each other's first word late; all four still end together."""
    table = Table("abcd")
    table.drops.append(cut_off("c", "d"))
    table.form("ab")
    table.start("c", "d")
    table.run_until(lambda: table.all_in("cd"))
    table.drops = [first(6, is_beacon), first(4, both(is_statement, one_way("b", "c")))]
    table.run_until(lambda: table.all_in("abcd"))
    assert len({seat.views[-1].id for seat in table.seats.values()}) == 1


# --- losing ---------------------------------------------------------------------------------------------------------


def test_a_crash_is_noticed_in_time_and_costs_one_change() -> None:
    table = formed("abc")
    at = table.now
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    assert table.now - at <= DETECTED_US
    for name in "ab":
        assert table[name].views_had[-2:] == ["transitional ab", "regular ab"]
        assert table[name].views[-1].cause.accused == (table.dead[0].me,)


def test_what_only_some_got_before_a_crash_is_delivered_by_all_or_none() -> None:
    """c's last message reached b alone; b goes on with a, so a gets it from b before either installs anything."""
    table = formed("abc")
    table.drops.append(lambda journey: journey.target == "a" and is_data(journey) and table["a"].engine.state is not State.FLUSH)
    table.submit("c", Service.SAFE, "last words")
    table.run(2 * HOP_US)
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    assert table.texts("a") == table.texts("b") == ["last words"]
    assert table["a"].heard == table["b"].heard
    assert table["a"].heard[-1].phase == "transitional"
    assert Trap.ANSWERED_FOR_THE_DEAD.value in table["b"].traps


def test_halves_go_on_and_come_together_again() -> None:
    table = formed("abcd")
    table.drops.append(cut_off("c", "d"))
    for name in "abcd":
        table.submit(name, Service.SAFE, f"{name} before")
    table.run_until(lambda: table.all_in("ab") and table.all_in("cd"))
    for name in "abcd":
        table.submit(name, Service.SAFE, f"{name} apart")
    table.run(CALM_US)
    table.drops.clear()
    table.run_until(lambda: table.all_in("abcd"))
    for name in "abcd":
        table.submit(name, Service.SAFE, f"{name} after")
    table.run(CALM_US)
    assert table["a"].heard == table["b"].heard
    assert table["c"].heard == table["d"].heard
    assert [heard.text for heard in table["a"].heard if heard.view == "ab"] == ["a apart", "b apart"]
    assert table.texts("a")[-4:] == table.texts("c")[-4:]
    assert {heard.text for heard in table["c"].heard if heard.phase == "transitional"} == {"c before", "d before"}


def test_a_new_life_of_a_member_replaces_the_old_without_waiting_for_silence() -> None:
    table = formed("abc")
    at = table.now
    table.restart("c")
    table.run_until(lambda: table.all_in("abc"))
    assert table.now - at < PULSE.silence_us + TIMING.beacon_us + 2 * PULSE.alpha_us
    assert table["a"].views[-1].nodes[2].incarnation == 2
    assert Trap.REBORN_MEMBER.value in table["a"].traps | table["b"].traps


def test_who_is_heard_by_nobody_is_left_out_and_ends_alone() -> None:
    """One-way: c hears everybody, nobody hears c."""
    table = formed("abc")
    table.drops += [one_way("c", "a"), one_way("c", "b")]
    table.run_until(lambda: table.all_in("ab") and table.all_in("c"))
    assert table["a"].views_had[-1] == "regular ab"


def test_a_crash_in_the_middle_of_a_merge_leaves_the_others_together() -> None:
    table = Table("abcd")
    table.drops.append(cut_off("c", "d"))
    table.form("ab")
    table.start("c", "d")
    table.run_until(lambda: table.all_in("cd"))
    table.drops.clear()
    table.run_until(lambda: table["a"].engine.state is State.STAGE_2)
    table.crash("c")
    table.run_until(lambda: table.all_in("abd"))
    assert len({table[name].views[-1].id for name in "abd"}) == 1


def test_a_leave_is_said_and_costs_no_timeout() -> None:
    table = formed("abc")
    table.submit("c", Service.SAFE, "goodbye")
    table.leave("c")
    at = table.now
    table.run_until(lambda: table.all_in("ab"))
    assert table.now - at < 10_000
    assert table["c"].engine.state is State.STOPPED
    assert table.texts("a") == table.texts("b") == table.texts("c") == ["goodbye"]
    assert {heard.phase for heard in table["a"].heard} == {"regular"}
    assert table["a"].views[-1].cause.what == "leave"


def test_a_late_statement_of_a_view_that_was_left_restarts_nothing() -> None:
    """F12, trap 17: copies of every statement come again long after."""
    table = formed("abc")
    table.copies.append((is_statement, 300_000))
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    views = len(table["a"].views)
    table.run(600_000)
    assert table.all_in("ab")
    assert len(table["a"].views) == views
    assert Trap.LATE_FA.value in table["a"].traps


def test_nobody_echoes_what_it_says_already() -> None:
    """F11: a fault is stated once by each, whoever says it first; repetitions are the same packet."""
    table = formed("abcd")
    table.crash("d")
    table.run_until(lambda: table.all_in("abc"))
    said = {journey.packet for journey in table.journeys if isinstance(journey.packet, Faults)}
    assert sorted(statement.sender.name for statement in said) == ["a", "b", "c"]


@pytest.mark.parametrize("lost", (is_statement, is_flushed))
def test_lost_words_are_repeated(lost: Verdict) -> None:
    table = formed("abc")
    table.drops.append(first(4, lost))
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    assert len(table["a"].views) == len(table["b"].views) == 5


def test_sends_are_held_while_the_view_changes_and_go_out_in_the_next() -> None:
    table = formed("abc")
    table.crash("c")
    table.run_until(lambda: table["a"].engine.state in (State.FAULTS, State.FLUSH))
    table.submit("a", Service.AGREED, "held")
    assert table.texts("a") == []
    table.run_until(lambda: table.all_in("ab"))
    table.run(CALM_US)
    assert [(heard.text, heard.view) for heard in table["b"].heard] == [("held", "ab")]
    assert Trap.QUEUED.value in table["a"].traps


def test_thirty_in_two_halves_and_together_again() -> None:
    """The paper's picture: one statement of each and one view in every change, however many there are."""
    everybody = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcd"
    upper, lower = everybody[:15], everybody[15:]
    table = Table(everybody)
    table.form(everybody)
    table.drops.append(cut_off(*upper))
    table.run_until(lambda: table.all_in(upper) and table.all_in(lower))
    table.drops.clear()
    table.run_until(lambda: table.all_in(everybody))
    assert {len(seat.views) for seat in table.seats.values()} == {7}
    packets = {journey.packet for journey in table.journeys if isinstance(journey.packet, Statement)}
    said = Counter((type(packet), packet.sender.name) for packet in packets)
    assert {count for (kind, _), count in said.items() if kind is Faults} == {1}
    assert {count for (kind, _), count in said.items() if kind is Joining} == {2}


# --- storms ---------------------------------------------------------------------------------------------------------


def stays(seat: Seat) -> list[tuple[ViewId, list[tuple[object, Phase]], ViewId | None]]:
    """Each regular view of a seat with what it delivered in it, basic apart, and the regular view that came next."""
    regular: list[ViewId] = []
    heard: dict[ViewId, list[tuple[object, Phase]]] = {}
    for output in seat.log:
        if isinstance(output, Configure) and output.view.id.is_regular:
            regular.append(output.view.id)
            heard[output.view.id] = []
        elif isinstance(output, Deliver) and not output.early:
            heard[output.view].append(((output.sender, output.burst.first_seq), output.phase))
    return [(view, heard[view], after) for view, after in zip(regular, [*regular[1:], None], strict=True)]


def storm(seed: int) -> Table:
    random = Random(seed)
    members = "abcde"[: random.randint(3, 5)]
    table = Table(members)
    loss = random.choice((0.0, 0.05, 0.2))
    weather = [lambda journey: random.random() < loss]
    table.drops = list(weather)
    table.start()
    for number in range(60):
        table.run(random.choice((500, 5_000, 40_000)))
        dice = random.random()
        if dice < 0.1:
            table.drops = [*weather, cut_off(*random.sample(members, random.randint(1, 2)))]
        elif dice < 0.25:
            table.drops = list(weather)
        elif dice < 0.28:
            table.restart(random.choice(members))
        for name in random.sample(members, 2):
            table.submit(name, random.choice((Service.CAUSAL, Service.AGREED, Service.SAFE)), f"{name}{number}")
    table.drops.clear()
    return table


@pytest.mark.parametrize("seed", range(6))
def test_a_storm_ends_in_one_view_and_who_went_together_heard_the_same(seed: int) -> None:
    table = storm(seed)
    members = "".join(table.seats)
    table.run_until(lambda: table.all_in(members))
    for name in members:
        table.submit(name, Service.SAFE, f"{name} at last")
    table.run(CALM_US)
    seen: dict[tuple[ViewId, ViewId | None], object] = {}
    for seat in [*table.seats.values(), *table.dead]:
        for view, heard, after in stays(seat):
            if after is not None or seat not in table.dead:
                ordered = sorted(heard, key=repr)
                assert seen.setdefault((view, after), ordered) == ordered, f"{seat.name} in {view}"
    assert len({tuple(table.texts(name)[-len(members) :]) for name in members}) == 1
