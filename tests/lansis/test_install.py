"""Installation: the views and their order, what is delivered in which, and what starts afresh."""

from __future__ import annotations

from dataclasses import replace

from tests.engine.hand import both, cut_off, is_data, node_id, one_way
from tests.lansis.hand import PULSE, Table
from transis.lansis import dag as keys
from transis.lansis.states import State, Trap
from transis.types.config import Window
from transis.types.ids import Service, ViewId, ViewKind
from transis.types.outputs import Configure, Deliver, Lane, Note, Originated, OutboundRun, Refused, Room


def formed(members: str) -> Table:
    table = Table(members)
    table.form(members)
    table.run(100_000)
    return table


def without_c() -> Table:
    table = formed("abc")
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    return table


def test_the_first_view_is_the_machine_itself() -> None:
    table = Table("a")
    table.start()
    (view,) = table["a"].views
    assert view.id == view.regular == ViewId(ViewKind.REGULAR, 0, node_id("a"))
    assert view.members[0].previous is None
    assert view.guarantees == "evs"


def test_a_transitional_view_is_two_below_the_next_and_names_the_view_before() -> None:
    table = without_c()
    before, transitional, regular = table["b"].views[-3:]
    assert transitional.id == ViewId(ViewKind.TRANSITIONAL, regular.id.seq - 2, node_id("a"))
    assert transitional.regular == before.id
    assert {member.previous for member in transitional.members} == {before.id}
    assert {member.previous for member in regular.members} == {before.id}
    assert regular.id.seq == before.id.seq + 4
    assert transitional.timestamp == regular.timestamp > before.timestamp


def test_every_member_tells_the_same_view() -> None:
    table = without_c()
    assert table["a"].views[-2:] == table["b"].views[-2:]


def test_views_of_different_past_name_it_for_each_member() -> None:
    table = Table("abc")
    table.drops.append(cut_off("c"))
    table.form("ab")
    table.start("c")
    together = table["a"].views[-1].id
    table.drops.clear()
    table.run_until(lambda: table.all_in("abc"))
    previous = {member.node.name: member.previous for member in table["c"].views[-1].members}
    assert previous == {"a": together, "b": together, "c": table["c"].views[0].id}
    assert table["a"].views_had[-2] == "transitional ab"
    assert table["c"].views_had[-2] == "transitional c"


def test_what_one_of_us_had_delivered_is_delivered_in_the_regular_view_by_all() -> None:
    """D: b had c's word on a's message, a had not; both end with it in the regular view."""
    table = formed("abc")
    table.drops.append(one_way("c", "a"))
    table.submit("a", Service.SAFE, "one")
    table.run(5_000)
    assert (table.texts("a"), table.texts("b")) == ([], ["one"])
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    assert table["a"].heard == table["b"].heard
    assert table["a"].heard[0].phase == "regular"


def test_what_nobody_had_delivered_waits_for_the_transitional_view() -> None:
    table = formed("abc")
    table.drops.append(both(is_data, one_way("a", "c")))
    table.submit("a", Service.SAFE, "one")
    table.run(2_000)
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    assert [heard.phase for heard in table["a"].heard + table["b"].heard] == ["transitional"] * 2
    assert Trap.SAFE_IN_TRANSITIONAL.value in table["a"].traps
    kinds = [type(output) for output in table["b"].log if isinstance(output, Configure | Deliver)]
    assert kinds[-3:] == [Configure, Deliver, Configure]


def test_own_messages_are_delivered_in_the_view_in_which_they_were_sent() -> None:
    table = formed("abc")
    for name in "abc":
        table.submit(name, Service.SAFE, name)
    table.lose_all()
    table.drops.append(lambda journey: len({journey.source, journey.target} & set("abc")) == 2)
    table.run_until(lambda: all(table.all_in(name) for name in "abc"))
    for name in "abc":
        assert [(heard.text, heard.view) for heard in table[name].heard] == [(name, "abc")]


def test_how_long_messages_were_held_is_told() -> None:
    table = without_c()
    (note,) = table["a"].notes("held")[-1:]
    assert isinstance(note, Note)
    figures = table["a"].engine.statistics()
    assert dict(note.detail)["us"] == figures["held_last_us"]
    assert PULSE.coalesce_us <= figures["held_last_us"] <= figures["held_max_us"] < PULSE.agree_us


def test_messages_bound_to_the_view_before_are_refused() -> None:
    table = formed("abc")
    old = table["a"].views[-1].id
    table.crash("c")
    table.run_until(lambda: table["a"].engine.state in (State.FAULTS, State.FLUSH))
    run = OutboundRun(0, b"", Service.AGREED, 1, [b"only there"])
    assert table["a"].engine.submit(table.now, Lane.APPLICATION, run, old) == 1
    table.run_until(lambda: table.all_in("ab"))
    assert [output.why for output in table["a"].log if isinstance(output, Refused)] == ["the view changed first"]
    assert table.texts("b") == []


def test_a_half_sent_message_starts_again_in_the_next_view() -> None:
    """Traps 1, 28: its first fragments died with the old view, so receivers must see none of them."""
    table = Table("abc", window=replace(Window(), window=4, visit_max=2))
    table.form("abc")
    table.drops.append(both(is_data, lambda journey: journey.target == "c"))
    large = "x" * 30_000
    table.submit("a", Service.AGREED, large)
    table.run(5_000)
    table.crash("c")
    table.run_until(lambda: table.all_in("ab"))
    table.run(300_000)
    assert Trap.HALF_SENT.value in table["a"].traps
    assert [(heard.text == large, heard.view) for heard in table["b"].heard] == [(True, "ab")]
    assert [output.view for output in table["a"].log if isinstance(output, Originated)] == [table["a"].views[-1].id]


def test_a_submit_that_was_cut_short_hears_of_room() -> None:
    table = Table("ab", window=replace(Window(), outbox_bytes=2_000))
    table.form("ab")
    taken = table.submit("a", Service.AGREED, *["x" * 900] * 5)
    assert taken < 5
    table.run(50_000)
    assert any(isinstance(output, Room) for output in table["a"].log)


def test_a_view_that_ran_out_of_timestamps_is_renewed_with_everybody() -> None:
    table = formed("abc")
    ahead = table["a"].views[-1].timestamp + keys.RENEWAL_ROOM
    table["a"].engine.observe(ahead)
    table.submit("a", Service.SAFE, "over the edge")
    table.run(100_000)
    assert table.all_in("abc")
    assert table["b"].views_had[-2:] == ["transitional abc", "regular abc"]
    assert table["b"].views[-1].timestamp > ahead
    assert [(heard.text, heard.phase) for heard in table["c"].heard] == [("over the edge", "regular")]
    assert len(table["a"].notes("renewed")) == 1


def test_after_an_installation_nothing_of_the_change_is_left() -> None:
    """Trap 34: a thousand changes cost no memory."""
    table = without_c()
    for name in "ab":
        seen = table[name].engine.inspect()
        assert not seen.heard_at
        assert seen.flushed is None
        assert seen.sets.mine is None
        assert seen.sets.j == seen.sets.ccs
