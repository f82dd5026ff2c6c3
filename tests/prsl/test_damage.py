"""Green content that cannot be read any more: it holds up nobody, and comes again from others."""

from __future__ import annotations

from tests.prsl.stories import Story
from transis.prsl.log import Unreadable

NAMES = ("ann", "bob", "cyd")


def ordered(**options: object) -> Story:
    """Three replicas that have ordered four messages, and remember none of them."""
    story = Story(3, tail_max=0, **options)
    story.form(*NAMES)
    for number in range(4):
        story["ann"].post([b"%d" % number])
        story.rounds(*NAMES, many=6)
    assert all(story.cluster.disks[name].stored.checkpoint.base.place == 4 for name in NAMES)
    return story


def damage(story: Story, name: str, place: int) -> None:
    stored = story.cluster.disks[name].stored
    del stored.content[stored.order[place]]


def is_whole(story: Story, name: str) -> bool:
    stored = story.cluster.disks[name].stored
    return all(action in stored.content for action in stored.order)


def without_cyd(**options: object) -> Story:
    """Ann and bob have ordered what cyd lacks; ann, who is asked first, cannot read some of it."""
    story = Story(3, tail_max=0, **options)
    story.form("ann", "bob")
    for number in range(4):
        story["ann"].post([b"%d" % number])
        story.rounds("ann", "bob", many=6)
    damage(story, "ann", 1)
    story.boot("cyd")
    story.view(NAMES)
    story.rounds(*NAMES)
    return story


def test_who_is_behind_gets_it_from_another() -> None:
    story = without_cyd(behind_max=0)
    assert story["cyd"].machine.status().green == 4 and not story["cyd"].machine.status().is_behind


def test_who_is_near_gets_it_from_another_in_the_next_view() -> None:
    """Ann was chosen, cannot read what it has to send, leaves, and comes back telling that it has less."""
    story = without_cyd()
    assert story["ann"].machine.status().here == {1} and story["cyd"].machine.status().here == {2, 3}
    story.view(NAMES)
    story.rounds(*NAMES)
    assert all(story[name].machine.status().is_primary and story[name].machine.status().green == 4 for name in NAMES)


def test_it_is_repaired_from_others() -> None:
    story = without_cyd(behind_max=0)
    assert is_whole(story, "ann")


def test_what_was_ordered_in_this_view_is_repaired_in_it() -> None:
    story = ordered()
    damage(story, "ann", 2)
    stored = story.cluster.disks["ann"].stored
    story["ann"].machine.damaged(Unreadable("found by looking through", 2, stored.order[2]))
    story["ann"].carry_out()
    story.rounds(*NAMES)
    assert is_whole(story, "ann")


def test_an_application_that_is_replayed_waits_until_it_is_repaired() -> None:
    story = ordered()
    story.die("ann")
    damage(story, "ann", 2)
    story.boot("ann")
    story.rounds("ann")
    assert story["ann"].machine.status().offset == 2
    story.view(NAMES)
    story.rounds(*NAMES)
    assert story["ann"].machine.status().offset == 4 and is_whole(story, "ann")


def test_whom_nobody_can_help_goes_on_without_it() -> None:
    """All have lost the same: what follows is ordered all the same, and only who has to read it waits."""
    story = ordered()
    for name in NAMES:
        damage(story, name, 2)
    story.die("ann")
    story.boot("ann")
    story.view(NAMES)
    story.rounds(*NAMES)
    story["bob"].post([b"more"])
    story.rounds(*NAMES)
    assert story["bob"].machine.status().offset == 5
    assert (story["ann"].machine.status().green, story["ann"].machine.status().offset) == (5, 2)
