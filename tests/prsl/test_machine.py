"""What a replica answers and refuses, and what it makes of nonsense."""

from __future__ import annotations

from random import Random

import pytest

from tests.prsl.stories import Story, action
from tests.prsl.streams import Arrival
from transis.prsl.actions import ActionId, Kind, Lane
from transis.prsl.core import Config
from transis.prsl.log import Stored
from transis.prsl.machine import Machine, first_base
from transis.prsl.messages import Ack, Attempt, GreenPlaces, Posted, Retransmission, encode
from transis.prsl.outputs import Append, JoinGroup, Stopped
from transis.prsl.record import What
from transis.types.errors import Rejection

NAMES = ("ann", "bob", "cyd")


def formed(**options: object) -> Story:
    story = Story(3, **options)
    story.form(*NAMES)
    return story


def test_a_status_names_who_is_missing_and_what_is_needed() -> None:
    story = formed()
    story.view(["ann"], ["bob", "cyd"])
    story.rounds(*NAMES)
    ann, bob = story["ann"].machine.status(), story["bob"].machine.status()
    assert not ann.is_primary and ann.missing == ("bob", "cyd")
    assert bob.is_primary and bob.missing == ("ann",)
    assert [record.members for record in ann.counting] == [(1, 2, 3)]


def test_a_minority_accepts_and_orders_nothing() -> None:
    story = formed()
    story.view(["ann"], ["bob", "cyd"])
    story.rounds(*NAMES)
    story["ann"].post([b"m"])
    story.rounds(*NAMES)
    assert len(story.cluster.ledger.accepted) == 1 and not story.cluster.ledger.order
    assert [one.data for one in story["ann"].machine.dirty()] == [b"m"]
    story.view(NAMES)
    story.rounds(*NAMES)
    assert story.cluster.ledger.order == list(story.cluster.ledger.accepted)


@pytest.mark.parametrize(
    ("messages", "key", "field"),
    [([b"m"] * 5000, b"", "messages"), ([bytes(200_000)] * 2, b"", "messages"), ([b"m"], b"short", "key")],
    ids=["too many", "too large", "key"],
)
def test_an_unfit_post_is_refused(messages: list[bytes], key: bytes, field: str) -> None:
    story = formed()
    found = story["ann"].machine.post(messages, key=key)
    assert isinstance(found, Rejection) and found.field == field
    assert isinstance(story["ann"].machine.post([b"m"]), ActionId), "the number was not used up"


def test_posting_is_bounded_by_bytes_until_it_is_ordered() -> None:
    """A view in between makes no difference: what is red still waits."""
    story = Story(3, out_max=900)
    story.boot("ann")
    assert [isinstance(story["ann"].machine.post([bytes(200)]), Rejection) for _ in range(2)] == [False, False]
    story["ann"].carry_out()
    story.rounds("ann")
    found = [story["ann"].machine.post([bytes(200)]) for _ in range(3)]
    assert [isinstance(one, Rejection) for one in found] == [False, True, True]
    story["ann"].carry_out()
    story.boot("bob")
    for one in (ActionId(1, Lane.MESSAGES, number) for number in (1, 2, 3)):
        story.cluster.ledger.post(one, frozenset())
    story.view(["ann", "bob"])
    story.rounds("ann", "bob")
    assert isinstance(story["ann"].machine.post([bytes(200)]), ActionId)


def test_a_replica_whose_disk_hangs_accepts_nothing_and_says_why() -> None:
    story = formed()
    story["ann"].is_hung = True
    story["ann"].tell_hung(True)
    found = story["ann"].machine.post([b"m"])
    assert isinstance(found, Rejection) and "disk" in found.why


def test_a_change_that_changes_nothing_is_refused_with_the_members() -> None:
    story = formed()
    found = story["ann"].machine.admin(What.LEAVE, number=9)
    assert isinstance(found, Rejection) and "ann (1), bob (2), cyd (3)" in found.why


def test_a_newcomer_posts_nothing_before_it_is_a_member() -> None:
    story = formed()
    story.new_disk("dan", b"a new directory!", story.base)
    story.boot("dan")
    found = story["dan"].machine.post([b"m"])
    assert isinstance(found, Rejection) and found.field == "member" and not story["dan"].is_in_group


def test_who_is_removed_is_told_what_of_its_own_is_void() -> None:
    """What it posted behind its LEAVE, and what nobody else has."""
    story = formed()
    story.view(["ann", "bob"], ["cyd"])
    story.rounds(*NAMES)
    story["ann"].admin(What.LEAVE, number=3)
    story.rounds("ann", "bob")
    story["cyd"].post([b"too late"])
    story.rounds("cyd")
    story.view(NAMES)
    story.rounds(*NAMES)
    refused = story.cluster.ledger.refused
    assert refused == {ActionId(3, Lane.MESSAGES, 1)} <= story.cluster.ledger.accepted
    assert story["cyd"].stopped
    found = story["cyd"].machine.post([b"later still"])
    assert isinstance(found, Rejection) and found.field == "stopped"


def test_a_silent_process_is_excluded_and_the_others_go_on() -> None:
    """R33. Somebody else's process is in the group and never says anything; the host has waited long enough."""
    story = Story(3)
    story.boot(*NAMES)
    stranger = story.cluster.process("stranger")
    story.streams.connect(stranger)
    story.streams.join(stranger)
    story.streams.together([stranger, *(story[name].process for name in NAMES)])
    story.rounds(*NAMES)
    assert story["ann"].machine.primary is None
    story["ann"].machine.silent((stranger,))
    story["ann"].carry_out()
    story.rounds(*NAMES)
    assert all(story[name].machine.primary is not None for name in NAMES)


def test_who_is_excluded_comes_back() -> None:
    """R33. 3 was only slow: it finds itself excluded, leaves, and is in the next view."""
    story = Story(3)
    story.boot(*NAMES)
    story.view(NAMES)
    story.rounds("ann", "bob")
    story["ann"].machine.silent((story["cyd"].process,))
    story["ann"].carry_out()
    story.rounds("ann", "bob")
    assert story["ann"].machine.primary is not None
    story.receive("cyd")
    story.hear("cyd")
    story.view(NAMES)
    story.rounds(*NAMES)
    assert story["cyd"].machine.primary == story["ann"].machine.primary


def test_lists_of_founders_that_differ_are_named_and_nothing_forms() -> None:
    story = Story(2)
    for name, founders in (("ann", ("ann", "bob")), ("bob", ("ann", "bob", "cyd"))):
        disk = story.new_disk(name, bytes([len(founders)]) * 16, story.base)
        disk.config = disk.config._replace(founders=founders)
        disk.stored = Stored(first_base(disk.config))
    story.form("ann", "bob")
    trouble = story["ann"].machine.status().trouble
    assert "ann has [ann, bob]" in trouble and "bob has [ann, bob, cyd]" in trouble
    assert not story.cluster.ledger.primaries


def test_founders_order_nothing_before_all_were_together() -> None:
    """R32."""
    story = Story(3)
    for name in NAMES:
        disk = story.cluster.disks[name]
        disk.config = disk.config._replace(founders=NAMES)
        disk.stored = Stored(first_base(disk.config))
    story.form("ann", "bob")
    story["ann"].post([b"m"])
    story.rounds("ann", "bob")
    assert not story.cluster.ledger.order
    story.boot("cyd")
    story.view(NAMES)
    story.rounds(*NAMES)
    assert len(story.cluster.ledger.order) == 2 and story["cyd"].machine.status().record.is_founded


def test_a_second_life_of_one_directory_stops_the_first() -> None:
    story = formed()
    old = story["ann"]
    config = old.disk.config._replace(life=old.disk.life + 1)
    twin = Machine(config, old.disk.opened())
    twin.start()
    process = story.cluster.process("ann")
    story.streams.connect(process)
    assert any(isinstance(output, JoinGroup) for output in twin.take())
    story.streams.join(process)
    story.streams.together([process, *(story[name].process for name in NAMES)])
    _run_beside(story, twin, process)
    assert "superseded" in old.stopped


def _run_beside(story: Story, twin: Machine, process: object) -> None:
    for _ in range(3):
        for event in list(story.streams.inbox[process]):  # type: ignore[index]
            if isinstance(event, Arrival):
                twin.message(event.sender, event.payload)
            else:
                twin.view(event, process)  # type: ignore[arg-type]
            for output in twin.take():
                if hasattr(output, "payload"):
                    story.streams.submit(process, output.payload)  # type: ignore[arg-type]
                assert not isinstance(output, Append | Stopped)
        story.streams.inbox[process].clear()  # type: ignore[index]
        story.streams.originate(process)  # type: ignore[arg-type]
        story.streams.receive_all(process)  # type: ignore[arg-type]
        story.streams.hand_over(process)  # type: ignore[arg-type]
        story.rounds(*(name for name in NAMES if not story[name].stopped), many=1)


def test_nonsense_of_a_peer_is_counted_and_dropped() -> None:
    """Well-formed messages that mean nothing, and bytes that are none, in every stage of a view."""
    story = formed()
    random = Random(5)
    ann, bob = story["ann"].machine, story["bob"].process
    tag = (ann.primary or (0, 0))[1]
    strange = action(2, 99, lts=5, deps=((3, 77),))
    for payload in (
        encode(Ack(tag, 1 << 40, 1 << 40, 1 << 40)),
        encode(Attempt(tag)),
        encode(Posted(tag, strange)),
        encode(Retransmission(tag, (strange,))),
        encode(GreenPlaces(tag, 1 << 30, (strange,))),
        encode(Posted(tag + 1, strange)),
        *(random.randbytes(30) for _ in range(50)),
    ):
        ann.message(bob, payload)
        story["ann"].carry_out()
    assert sum(ann.rejections.values()) >= 50
    story["cyd"].post([b"m"])
    story.rounds(*NAMES)
    assert len(story.cluster.ledger.order) == 1


def test_a_mark_has_a_place_and_no_content() -> None:
    story = formed()
    mark = story["ann"].machine.post([], kind=Kind.MARK)
    assert isinstance(mark, ActionId)
    story.cluster.ledger.post(mark, frozenset())
    story["ann"].carry_out()
    story.rounds(*NAMES)
    assert story.cluster.ledger.order == [mark] and story["bob"].machine.status().offset == 0


def test_a_new_directory_knows_its_founders_only() -> None:
    config = Config("ann", bytes(16), NAMES)
    machine = Machine(config, Stored(first_base(config)).opened())
    machine.start()
    assert machine.take() == [JoinGroup()] and machine.number == 1
