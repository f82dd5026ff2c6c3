"""What a review of the ring once found wrong, each as the story in which it went wrong.

Every test failed on the engine of its day. Flapping is also shown over longer times by the worked examples `w7_*.txt`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from string import ascii_lowercase

import pytest

from tests.engine.hand import Journey, Seat, cut_off, first, node_id
from tests.totem.hand import TIMING, Table, config, is_commit, is_token
from transis.totem.packets import KIND_JOIN, Token
from transis.totem.states import State
from transis.types.config import Window
from transis.types.errors import ConfigError
from transis.types.ids import NodeId, RingId, Service
from transis.types.limits import MEMBERS_MAX, VISIT_DATAGRAMS_MAX
from transis.types.outputs import Port, Send
from transis.wire.burst import INDEX_MAX, Burst
from transis.wire.control import Beacon, config_digest

SECOND = 1_000_000
DIGEST = config_digest(config("a").digest_fields())


def regular_views(seat: Seat) -> int:
    return sum(view.id.is_regular for view in seat.views)


def beacon_of(ring: RingId, members: frozenset[NodeId], timestamp: int = 0) -> Beacon:
    return Beacon(ring.rep, "rep:1", ring, members, frozenset(), timestamp, DIGEST, (1, 1))


# --- tokens and requests --------------------------------------------------------------------------------------------


def test_one_lost_token_does_not_break_a_busy_ring_of_twenty_six() -> None:
    """T_retx grew with the members and T_loss with the rotation, so that a large fast ring was lost before any retry."""
    table = Table(ascii_lowercase)
    ring = table.form(ascii_lowercase)
    for turn in range(120):
        table.submit("a", Service.AGREED, str(turn))
        table.run(8_000)
    table.submit("a", Service.AGREED, "on the lost token")
    table.drops.append(first(1, is_token))
    table.run(SECOND // 2)
    assert table["a"].engine.ring_id == ring
    assert any(seat.notes("token retransmitted") for seat in table.seats.values())


def test_a_request_for_what_came_late_leaves_the_token() -> None:
    """Delayed data arrived after they were asked for and were forgotten as safe: the request went round for ever."""
    table = Table("ab", window=Window(window=4, visit_max=4, gap_max=400))
    table.form("ab")
    late: list[Burst] = []

    def delay(journey: Journey) -> bool:
        if not isinstance(journey.packet, Burst) or journey.target != "b":
            return False
        late.append(journey.packet)
        return True

    table.drops.append(delay)
    for turn in range(60):
        table.submit("a", Service.AGREED, f"{turn:01200}")
    table.run_until(lambda: len(table.texts("a")) == 60)
    table.drops.remove(delay)
    table.hand("b", *late)
    table.run(3 * SECOND)
    requests = [journey.packet.rtr for journey in table.journeys if isinstance(journey.packet, Token)]
    assert any(requests)
    assert requests[-1] == []
    assert table.all_in("ab")


def test_a_request_for_what_is_safe_is_answered_by_silence() -> None:
    """Whoever keeps it on the token finds it, one day, farther behind than a token can say, and stops."""
    table = Table("ab")
    ring = table.form("ab").tag
    table.submit("a", Service.SAFE, "old")
    table.run_until(lambda: table.texts("a") == table.texts("b") == ["old"])
    table.drops.append(is_token)
    table.run_until(lambda: table.is_still)
    last = [journey.packet for journey in table.journeys if isinstance(journey.packet, Token)][-1]
    asking = replace(last, ring=ring, sender=1, target=0, token_seq=last.token_seq + 1 - last.sender, rtr=[(1, 1)])
    known = len(table.journeys)
    table.submit("a", Service.AGREED, "new")
    table.hand("a", asking)
    forwarded = [journey.packet for journey in table.journeys[known:] if isinstance(journey.packet, Token)]
    assert [token.rtr for token in forwarded] == [[]]


# --- lateness -------------------------------------------------------------------------------------------------------


def paused_seven_times() -> Table:
    """Two nodes on a machine that was stopped again and again: they have learnt to suspect slowly (W17)."""
    table = Table("ab")
    table.form("ab")
    for _ in range(7):
        table.now += SECOND
        table.run(SECOND // 100)
    table.run_until(lambda: table.all_in("ab"))
    return table


@pytest.mark.parametrize(("idle_us", "noticed"), [(0, False), (10 * SECOND, True)])
def test_an_idle_ring_forgets_old_pauses(idle_us: int, noticed: bool) -> None:
    """The rotations of an idle ring healed nobody, so who had once been away suspected others slowly for ever."""
    table = paused_seven_times()
    table.run(idle_us)
    assert table.all_in("ab")
    table.drops.append(cut_off("a"))
    table.run(4 * TIMING.token_loss_us)
    assert (table["b"].view == "b") == noticed


def test_a_node_whose_timers_are_always_late_still_notices_a_dead_ring() -> None:
    """Each late timer got another second chance, so that a starved machine waited for its dead neighbour for ever."""
    table = Table("ab")
    ring = table.form("ab")
    engine, now = table["a"].engine, table.now
    for _ in range(100):
        now = max(now, engine.deadline()) + TIMING.token_retransmit_us
        engine.wake(now)
    assert engine.ring_id != ring


# --- the end of a node ----------------------------------------------------------------------------------------------


def waiting_for_the_disk() -> Table:
    table = Table("ab", disk_us=None)
    table.start()
    table.run_until(lambda: table["a"].engine.state is State.COMMIT)
    assert table["a"].notes("commit waits for disk")
    return table


def test_a_disk_that_completes_after_the_stop_sends_nothing() -> None:
    """The commit token that had waited for the disk left a node that was stopped."""
    table = waiting_for_the_disk()
    table.leave("a")
    table.run_until(lambda: table["a"].engine.state is State.STOPPED)
    sent = len(table["a"].log)
    for name, persist in table.unwritten:
        table.persisted(name, persist.ticket)
    assert len(table["a"].log) == sent


def test_a_node_that_is_stopped_while_it_forms_a_ring_keeps_its_invariants() -> None:
    """The half-formed ring stayed behind, and the engine's own check raised."""
    table = waiting_for_the_disk()
    table["a"].engine.stop(table.now, "superseded")
    table.carry("a")
    assert table["a"].engine.state is State.STOPPED


# --- claims of peers ------------------------------------------------------------------------------------------------


def test_one_absurd_timestamp_silences_nobody() -> None:
    """A clock at the limit of its field made every later datagram of the honest node impossible to encode."""
    table = Table("ab")
    ring = table.form("ab")
    table.hand("a", beacon_of(RingId(ring.seq, node_id("b")), frozenset(), timestamp=1 << 62))
    table.submit("a", Service.AGREED, "still here")
    table.run(SECOND)
    assert table.texts("b") == ["still here"]


@pytest.mark.parametrize(("members", "state"), [(MEMBERS_MAX, State.OPERATIONAL), (MEMBERS_MAX - 1, State.GATHER)])
def test_a_full_ring_is_not_invited(members: int, state: State) -> None:
    """Nobody can be added to it: rings of more nodes than one ring may have met, gathered and parted without end."""
    table = Table("a")
    table.start()
    others = frozenset(NodeId(f"n{number:03}", 1, number + 1) for number in range(members))
    table.hand("a", beacon_of(RingId(8, min(others)), others))
    assert table["a"].engine.state is state


def test_a_visit_has_no_more_datagrams_than_its_index_can_count() -> None:
    """A configuration was accepted with which the engine would raise at its first full visit."""
    assert VISIT_DATAGRAMS_MAX <= INDEX_MAX + 1
    with pytest.raises(ConfigError, match="visit_max"):
        config("a", window=Window(window=100_000, visit_max=VISIT_DATAGRAMS_MAX + 1, gap_max=200_000))


# --- Joins and flapping ---------------------------------------------------------------------------------------------


def test_a_repeated_join_is_the_same_packet_so_that_its_parts_add_up() -> None:
    """The clock and relayed beats made every repetition another packet: with lost parts, none was ever complete (D25)."""
    table = Table("abcdefgh")
    table.form("abcdefgh")
    before = len(table["a"].log)
    table.drops.append(cut_off("h"))
    table.run_until(lambda: table.all_in("abcdefg"))
    sends = [output for output in table["a"].log[before:] if isinstance(output, Send) and output.port is Port.CONTROL]
    joins = [send.datagrams[0] for send in sends if send.datagrams[0][0] == KIND_JOIN]
    assert any(one == next_one for one, next_one in pairwise(joins))


def test_two_nodes_between_which_no_commit_token_passes_do_not_flap() -> None:
    """Who was blamed hears and is heard, so its next beacon was mercy enough: a new ring every half second."""
    table = Table("ab")
    table.drops.append(lambda journey: is_commit(journey) and journey.target == "b")
    table.start()
    table.run(12 * SECOND)
    assert len(table["a"].notes("blamed")) == 4
    assert regular_views(table["a"]) == 5


def test_a_node_that_is_deaf_to_data_does_not_flap() -> None:
    """Expelled, invited by its own beacon, expelled again: now it is back once a second, two, four later."""
    table = Table("abc")
    table.form("abc")
    table.drops.append(lambda journey: isinstance(journey.packet, Burst) and journey.target == "c")
    for turn in range(250):
        table.submit("a", Service.AGREED, str(turn))
        table.run(SECOND // 25)
    assert 2 <= len(table["a"].notes("failed to receive")) + len(table["b"].notes("failed to receive")) <= 4
    assert regular_views(table["a"]) <= 2 + 2 * 4
