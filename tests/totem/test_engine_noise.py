"""Packets that must change nothing: duplicates, strangers, the past, and commit tokens that come twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.hand import cut_off, node_id
from tests.totem.hand import Table, config, in_commit, is_commit, is_token
from transis.engine.base import Packet
from transis.totem.packets import NOBODY, Commit, CommitEntry, Join, Token, Wake
from transis.totem.states import State
from transis.types.ids import DatagramClass, NodeId, RingId, RingTag, Service
from transis.types.outputs import Deliver, Note, Phase
from transis.types.views import Cause
from transis.wire.burst import Burst, DataHeader, encode_data
from transis.wire.control import Beacon, config_digest

SECOND = 1_000_000
DIGEST = config_digest(config("a").digest_fields())


# --- what changes nothing (traps 5, 12, 13, 14; F2, W9) -------------------------------------------------------------


def _unmoved(table: Table, name: str, *packets: Packet) -> None:
    """Handing over these packets puts nothing out and moves no timer, no state, no ring."""
    engine = table[name].engine
    before = (engine.state, engine.ring_id, engine.deadline())
    for packet in packets:
        assert table.hand(name, packet) == []
        assert (engine.state, engine.ring_id, engine.deadline()) == before


def _token(ring: RingTag, **changes: object) -> Token:
    token = Token(ring, 0, 1, 1 << 40, 0, 0, 0, NOBODY, 0, 0, False, 0, [])
    return replace(token, **changes)  # type: ignore[arg-type]


def test_tokens_of_another_ring_target_or_sender_change_nothing() -> None:
    table = Table("abc")
    ring = table.form("abc").tag
    for name, rank in zip("abc", range(3), strict=True):
        before, after = (rank - 1) % 3, (rank + 1) % 3
        _unmoved(
            table,
            name,
            _token(RingTag(ring.seq + 4, ring.boot), sender=before, target=rank),
            _token(RingTag(ring.seq, ring.boot + 1), sender=before, target=rank),
            _token(ring, sender=before, target=after),
            _token(ring, sender=after, target=rank),
            _token(ring, sender=rank, target=rank),
            _token(ring, sender=100, target=rank),
            _token(ring, sender=before, target=rank, token_seq=0),
            _token(ring, sender=before, target=rank, token_seq=1),
        )


def test_a_token_that_forgot_what_i_sent_is_no_token_of_mine() -> None:
    table = Table("ab")
    ring = table.form("ab").tag
    table.submit("b", Service.AGREED, "kept")
    table.run_until(lambda: table.texts("b") == ["kept"])
    forgetful = _token(ring, sender=0, target=1, seq=0)
    (told,) = table.hand("b", forgetful)
    assert isinstance(told, Note)
    assert told.what == "impossible token"
    _unmoved(table, "b", forgetful)


def test_duplicated_tokens_change_nothing_but_their_count() -> None:
    """Every token arrives three times: the same messages in the same order, at the same virtual time."""
    results = []
    for after in ([], [0, 250]):
        table = Table("abc")
        table.copies += [(is_token, delay) for delay in after]
        table.form("abc")
        for turn in range(6):
            table.submit("abc"[turn % 3], Service.SAFE, str(turn))
        table.run_until(lambda table=table: all(len(table[name].heard) == 6 for name in "abc"))  # type: ignore[misc]
        results.append((table.now, [table[name].history for name in "abc"]))
    assert results[0] == results[1]


def test_a_duplicated_token_does_not_hide_that_a_member_died() -> None:
    """Trap 13: the predecessor lives and repeats its token, but the ring is dead all the same."""
    table = Table("abc")
    table.form("abc")
    table.drops.append(cut_off("c"))
    table.copies += [(is_token, 500 * copy) for copy in range(1, 60)]
    table.run_until(lambda: table.all_in("ab"))
    assert table["a"].history[-2:] == ["transitional ab", "regular ab"]


def _entry(name: str, *, filled: bool, ring: RingId) -> CommitEntry:
    return CommitEntry(node_id(name), "", b"", filled, ring if filled else None, b"", 0, 0, False, frozenset({node_id(name)}), 0)


@pytest.mark.parametrize("rotation", [1, 2])
@pytest.mark.parametrize("members", ["ab", "abc", "xb", "bz"])
def test_commit_tokens_do_not_touch_a_healthy_ring(members: str, rotation: int) -> None:
    table = Table("ab")
    ring = table.form("ab")
    entries = tuple(_entry(name, filled=True, ring=ring) for name in members)
    commit = Commit(RingId(ring.seq + 400, node_id(members[0])), rotation, 9, 0, 1, 0, Cause("forged"), entries)
    _unmoved(table, "b", commit, commit._replace(target=0), commit._replace(ring=RingId(ring.seq, node_id(members[0]))))


def _gathering(members: str) -> Table:
    """`b` has lost the token and gathers with whoever it had; nothing it sends arrives."""
    table = Table(members)
    table.form(members)
    table.drops.append(lambda _: True)
    table.run_until(lambda: table["b"].engine.state is State.GATHER)
    return table


def test_in_gather_only_a_commit_token_of_my_own_proposal_above_all_rings_is_taken() -> None:
    table = _gathering("abc")
    old = table["b"].engine.ring_id
    full = tuple(_entry(name, filled=name == "a", ring=old) for name in "abc")
    fresh = Commit(RingId(old.seq + 4, node_id("a")), 1, 1, 0, 1, 0, Cause("token lost"), full)
    _unmoved(
        table,
        "b",
        fresh._replace(ring=old),
        fresh._replace(ring=RingId(old.seq - 4, node_id("a"))),
        fresh._replace(target=2),
        fresh._replace(entries=full[:2]),
        fresh._replace(entries=(*full, _entry("d", filled=False, ring=old))),
        fresh._replace(rotation=2),
    )
    assert table.hand("b", fresh) != []
    assert table["b"].engine.state is State.COMMIT
    # W9: what was accepted once is never accepted again, not even after going back to Gather.
    table.run_until(lambda: table["b"].engine.state is State.GATHER)
    assert table.hand("b", fresh) == []
    assert table["b"].engine.state.value == "Gather"


def test_data_of_unknown_ranks_and_other_rings_changes_nothing() -> None:
    table = Table("ab")
    ring = table.form("ab").tag
    header = DataHeader(DatagramClass.ORDERED, ring, 77, 1, 1, 1, 1, 0, True, False)
    strange = header._replace(ring=RingTag(ring.seq + 4, ring.boot), sender=0)
    left = header._replace(ring=RingId(0, node_id("b")).tag, sender=0)
    _unmoved(table, "b", *(Burst(each, [encode_data(each, b"?")]) for each in (header, strange, left)))


def test_a_wake_of_another_ring_changes_nothing() -> None:
    table = Table("ab")
    ring = table.form("ab").tag
    table.run(SECOND)
    _unmoved(table, "a", Wake(RingTag(ring.seq + 4, ring.boot), 1), Wake(RingTag(ring.seq, ring.boot + 1), 1))


def test_a_stopped_engine_ignores_everything() -> None:
    table = Table("ab")
    ring = table.form("ab").tag
    table["b"].engine.stop(table.now, "over")
    table.carry("b")
    _unmoved(table, "b", _token(ring, sender=0, target=1), Wake(ring, 1))


def _join(sender: NodeId, ring: RingId, **changes: object) -> Join:
    both = frozenset({node_id("a"), node_id("b"), sender})
    join = Join(sender, "", b"", ring.seq, both, frozenset(), both, (), 0, 0, False, 1, DIGEST, (1, 1))
    return join._replace(**changes)  # type: ignore[arg-type]


def test_joins_that_must_not_bounce_a_healthy_ring() -> None:
    """Trap 17: from members who are behind or who fail me, from strangers who fail me, who leave, or who are the past."""
    table = Table("ab")
    ring = table.form("ab")
    failed = frozenset({node_id("b")})
    stranger = node_id("x")
    _unmoved(
        table,
        "b",
        _join(node_id("b"), ring),
        _join(node_id("a"), ring, ring_seq=ring.seq - 1),
        _join(node_id("a"), ring, fail_set=failed),
        _join(stranger, ring, fail_set=failed),
        _join(stranger, ring, leaving=True),
        _join(NodeId("a", 0, 5), ring),
    )
    table.hand("b", _join(stranger, ring))
    assert table["b"].engine.state is State.GATHER, "an ordinary stranger is welcome"


def test_beacons_of_members_and_of_their_earlier_lives_are_no_foreign_rings() -> None:
    table = Table("ab")
    ring = table.form("ab")
    own = Beacon(node_id("a"), "", RingId(0, node_id("a")), frozenset({node_id("a")}), frozenset(), 1, DIGEST, (1, 1))
    _unmoved(table, "b", own, own._replace(sender=NodeId("a", 0, 5)), own._replace(sender=node_id("b"), ring=ring))
    table.hand("b", own._replace(sender=node_id("x")))
    assert table["b"].engine.state is State.GATHER


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"digest": b"another!"}, "its engine, order, mode or datagram is not that of this node (engine totem, datagram 1400)"),
        ({"versions": (2, 9)}, "it speaks wire version 2 to 9 and this node 1"),
        ({"versions": (0, 0)}, "it speaks wire version 0 to 0 and this node 1"),
    ],
)
def test_a_stranger_that_could_not_read_us_is_refused_loudly(change: dict[str, object], why: str) -> None:
    table = Table("ab")
    ring = table.form("ab")
    (note,) = table.hand("b", _join(node_id("x"), ring, **change))
    assert isinstance(note, Note)
    assert (note.what, dict(note.detail)["node"]) == ("refused", "x/1")
    assert str(dict(note.detail)["why"]).startswith(why)
    assert table["b"].engine.state is State.OPERATIONAL


def test_old_ring_data_counts_in_gather_and_no_more_once_my_entry_is_written() -> None:
    """W12: delivery stays eager until the commit entry says what was delivered, and is frozen from there."""
    late = DataHeader(DatagramClass.ORDERED, RingTag(0, 0), 0, 1, 1, 1, 1, 0, True, False)
    table = _gathering("abc")
    header = late._replace(ring=table["b"].engine.ring_id.tag)
    (deliver,) = table.hand("b", Burst(header, [encode_data(header, b"late")]))
    assert isinstance(deliver, Deliver)
    assert (deliver.phase, deliver.sender) == (Phase.REGULAR, node_id("a"))
    table, _ = in_commit("abc")
    header = late._replace(ring=table["b"].engine.ring_id.tag)
    _unmoved(table, "b", Burst(header, [encode_data(header, b"too late")]))


# --- the commit token, twice (T2, F2) -------------------------------------------------------------------------------


@pytest.mark.parametrize("rotations", [(1,), (2,), (1, 2)])
@pytest.mark.parametrize("after_us", [0, 150, 350, 5_000])
def test_duplicated_commit_tokens_install_one_ring_once(rotations: tuple[int, ...], after_us: int) -> None:
    table = Table("abc")
    table.copies.append((lambda j: isinstance(j.packet, Commit) and j.packet.rotation in rotations, after_us))
    table.form("abc")
    table.submit("c", Service.SAFE, "after")
    table.run_until(lambda: all(table.texts(name) == ["after"] for name in "abc"))
    for name in "abc":
        assert [word for word in table[name].history if "abc" in word] == ["regular abc"]
        assert not table[name].notes("token lost")


def test_the_representative_makes_one_regular_token_of_one_commit_token() -> None:
    table = Table("ab")
    table.copies += [(is_commit, 20), (is_commit, 180)]
    ring = table.form("ab").tag
    table.run(SECOND // 10)
    tokens = [
        j.packet.token_seq for j in table.journeys if isinstance(j.packet, Token) and j.packet.ring == ring and j.source == "a"
    ]
    assert len(tokens) > 3
    assert tokens == sorted(set(tokens)), "a second regular token would repeat the numbers of the first"


def _blank(commit: Commit, rank: int) -> Commit:
    entries = list(commit.entries)
    entries[rank] = _entry(entries[rank].node.name, filled=False, ring=commit.ring)
    return commit._replace(entries=tuple(entries))


def test_in_commit_only_the_full_list_of_the_second_rotation_leads_on() -> None:
    """F2: a repeated first rotation, even one that looks full, and a second one with a hole in it change nothing."""
    table, second = in_commit("abc")
    strange = RingId(second.ring.seq + 4, node_id("a"))
    again = second._replace(rotation=1)
    _unmoved(table, "b", again, _blank(again, 1), _blank(second, 0), second._replace(ring=strange), second._replace(target=0))
    table.hand("b", second)
    assert table["b"].engine.state is State.RECOVERY
    _unmoved(table, "b", second, again)


def test_the_representative_starts_the_second_rotation_only_from_a_full_list_of_its_predecessor() -> None:
    table = Table("ab")
    table.drops.append(lambda journey: is_commit(journey) and journey.target == "a")
    table.start()
    table.run_until(lambda: any(is_commit(journey) and journey.target == "a" for journey in table.journeys))
    (returned,) = [journey.packet for journey in table.journeys if isinstance(journey.packet, Commit) and journey.target == "a"]
    _unmoved(table, "a", _blank(returned, 1), returned._replace(sender=0), returned._replace(rotation=2))
    table.hand("a", returned)
    assert table["a"].engine.state is State.RECOVERY
