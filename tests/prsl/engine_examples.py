"""The counter-examples of the ordering engine, as stories. Each is right with the machine as it is."""

from __future__ import annotations

from tests.prsl.stories import LARGE, Story
from transis.prsl.record import What
from transis.prsl.votes import Primary, Voting, Vulnerable


def formed(replicas: int, **options: object) -> Story:
    story = Story(replicas, ordering="engine", **options)
    story.form(*story.names)
    return story


def receive(story: Story, *names: str) -> None:
    """All of these have all that was sent; nobody was handed anything yet."""
    for name in names:
        story.streams.receive_all(story[name].process)


def attempt(story: Story, *names: str) -> None:
    """The members of a new view exchange, and have written down that they are vulnerable; their CPCs have arrived."""
    while True:
        for name in names:
            story.hear(name)
        is_wanted = all(story[name].machine.status().state == "Construct" for name in names)
        for name in names:
            story.sync(name)
            story.send(name)
        receive(story, *names)
        if is_wanted:
            return
        for name in names:
            story.hand_over(name)


def hear(story: Story, *names: str) -> None:
    """These learn that all is safe, and take it."""
    for name in names:
        story.hand_over(name)
        story.hear(name)


def doubt_of_who_was_not_in_the_last_primary() -> Story:
    """R34. 1 and 3 are the last primary; 1, 2 and 4 attempt the next one, and only 4 hears that all wanted it. 2 was not in the
    last primary, and its doubt counts all the same: 1 and 2 alone must not go on."""
    story = formed(4)
    story.view(["ann", "cyd"], ["bob"], ["dan"])
    story.rounds(*story.names)
    story["dan"].post([b"x"])
    story["bob"].post([b"y"])
    story.rounds(*story.names)
    story.die("cyd")
    story.view(["ann", "bob", "dan"])
    attempt(story, "ann", "bob", "dan")
    hear(story, "dan")
    story.sync("dan")
    story.view(["ann", "bob"], ["dan"])
    story.rounds("ann", "bob")
    assert story["ann"].machine.status().waits_for == ("dan",)
    story.view(["ann", "bob", "dan"])
    story.rounds("ann", "bob", "dan")
    assert story["ann"].machine.primary is not None
    return story


def yellow_before_red() -> Story:
    """2, 3 and 4 are a primary, 1 is apart with an older red x. All receive 2's m, only 2 knows that they do, and it is cut off:
    1, 3 and 4 must give m its place before x."""
    story = formed(4)
    story.view(["ann"], ["bob", "cyd", "dan"])
    story.rounds(*story.names)
    story["ann"].post([b"x"])
    story["bob"].post([b"m"])
    story.rounds("ann", many=2)
    story.sync("bob")
    story.send("bob")
    receive(story, "bob", "cyd", "dan")
    hear(story, "bob")
    story.sync("bob")
    story.die("bob")
    story.view(["ann", "cyd", "dan"])
    story.rounds("ann", "cyd", "dan")
    assert [one.creator for one in story.cluster.ledger.order] == [2, 1]
    return story


def green_is_with_everybody() -> Story:
    """m is delivered in a primary when all of it have it, and not before: its poster is cut off, and the others go on."""
    story = formed(3)
    story["ann"].post([b"m"])
    story.sync("ann")
    story.send("ann")
    receive(story, "ann")
    hear(story, "ann")
    story.sync("ann")
    story.die("ann")
    story["bob"].post([b"x"])
    story.view(["bob", "cyd"])
    story.rounds("bob", "cyd")
    assert [one.creator for one in story.cluster.ledger.order] == [2]
    return story


def lost_session_is_no_transition() -> Story:
    """R9. m is green at 1; 3 has it as yellow; 2 lost its session before it came. 2 saw no end of the primary, and has no say in
    what is yellow, or its older x would take m's place."""
    story = formed(3)
    story["cyd"].post([b"m"])
    story.sync("cyd")
    story.send("cyd")
    receive(story, *story.names)
    hear(story, "ann")
    story.sync("ann")
    story.streams.disconnect(story["bob"].process)
    story["bob"].reconnect()
    story["bob"].post([b"x"])
    story.sync("bob")
    story.die("ann")
    story.view(["bob", "cyd"])
    story.rounds("bob", "cyd")
    assert [one.creator for one in story.cluster.ledger.order] == [3, 2]
    return story


def all_back_always() -> Story:
    """F14, R14. All lose power with an open attempt: any part of them is in doubt, all together are not."""
    story = formed(3)
    story.view(["ann"], ["bob"], ["cyd"])
    story.rounds(*story.names)
    story.view(story.names)
    attempt(story, *story.names)
    story.die(*story.names)
    story.form("ann", "bob")
    assert story["ann"].machine.status().waits_for == ("cyd",)
    story.boot("cyd")
    story.view(story.names)
    story.rounds(*story.names)
    assert story["ann"].machine.primary is not None
    return story


def attempts_of_one_number() -> Story:
    """R13. 1 and 2 attempted a primary with 3, which lost power before it wrote that down, and attempted one of the same number
    with 4 and 5. All lose power; 2 stays away. 3 tells 1 that nothing came of theirs, and 3, 4 and 5 are all in doubt alike."""
    story = Story(5, ordering="engine")
    founders = Primary(1, 0, (1, 2, 3, 4, 5), (1, 2, 3, 4, 5))
    for name, members in (("ann", (1, 2, 3)), ("cyd", (3, 4, 5)), ("dan", (3, 4, 5)), ("eve", (3, 4, 5))):
        story.cluster.disks[name].stored.apply(Voting(founders, 1, Vulnerable(1, 1, members)))
    story.form("ann", "cyd", "dan", "eve")
    assert story["ann"].machine.primary is not None
    return story


def quorum_in_doubt() -> Story:
    """R14. 2 and 3 are the last primary, and 2 took part in an attempt with 1, which alone knows what came of it."""
    story = formed(3)
    story.view(["ann"], ["bob", "cyd"])
    story.rounds(*story.names)
    story.view(["ann", "bob"], ["cyd"])
    attempt(story, "ann", "bob")
    story.die("bob")
    story.form("bob", "cyd")
    status = story["bob"].machine.status()
    assert status.waits_for == ("ann",) and "bob cannot know whether ann went on without it" in status.why
    story.view(["ann", "bob", "cyd"])
    story.rounds(*story.names)
    assert story["bob"].machine.primary is not None
    return story


def leave_by_bulk_shrinks_no_older_primary() -> Story:
    """R27. 1 and 3 are a primary, and 1 leaves. 2 gets that by bulk and is cut off: it is no half of what it knows as the last
    primary without 1."""
    story = formed(3, behind_max=0)
    story.view(["ann", "cyd"], ["bob"])
    story.rounds(*story.names)
    story["cyd"].admin(What.LEAVE, number=1)
    story.rounds("ann", "cyd")
    story["cyd"].post([bytes(LARGE)])
    story["cyd"].post([bytes(LARGE)])
    story.rounds("cyd")
    story.view(["bob", "cyd"])
    while story["bob"].machine.status().green == 0:
        story.rounds("bob", "cyd", many=1)
    assert story["bob"].machine.status().state == "ExchangeActions"
    story.view(["bob"], ["cyd"])
    story.rounds("bob", "cyd")
    assert story["bob"].machine.primary is None and story["cyd"].machine.primary is not None
    return story


def yellow_leave_counts() -> Story:
    """R27. LEAVE(3) is green at 1, who goes on alone as half of {1, 2}. 2 and 3 have it as yellow: they are two of three, and no
    quorum without 3."""
    story = formed(3)
    story["ann"].admin(What.LEAVE, number=3)
    story.sync("ann")
    story.send("ann")
    receive(story, *story.names)
    hear(story, "ann")
    story.sync("ann")
    story.view(["ann"], ["bob", "cyd"])
    story.rounds(*story.names)
    assert story["ann"].machine.primary is not None and story["bob"].machine.primary is None
    story.view(story.names)
    story.rounds(*story.names)
    assert story["cyd"].stopped and story["bob"].machine.primary is not None
    return story


def last_one_stays() -> Story:
    """R28. 1 is a primary alone, and asks to leave: that waits until the primary has another member."""
    story = formed(2)
    story.view(["ann"], ["bob"])
    story.rounds(*story.names)
    story["ann"].admin(What.LEAVE, number=1)
    story.rounds("ann")
    assert not story["ann"].stopped and story["ann"].machine.primary is not None
    for _ in range(3):
        story.view([name for name in story.names if story[name].is_in_group])
        story.rounds(*story.names, many=8)
    assert story["ann"].stopped and story["bob"].machine.primary is not None
    return story


def doubt_of_a_primary_that_shrank() -> Story:
    """R31. 1, 2 and 3 install a primary that 2 leaves with; m is green in it at 3. 1 and 2 lose power: 2 alone must not find that
    it never belonged to the primary, or 1 and 2 give m's place away."""
    story = formed(3)
    story.view(["ann"], ["bob"], ["cyd"])
    story.rounds(*story.names)
    story["ann"].admin(What.LEAVE, number=2)
    story.rounds("ann")
    story.view(story.names)
    attempt(story, *story.names)
    hear(story, *story.names)
    story["cyd"].post([b"m"])
    story.sync("ann")
    story.sync("cyd")
    story.send("cyd")
    receive(story, *story.names)
    hear(story, "cyd")
    story.sync("cyd")
    story.sync("bob")
    story.die("ann", "bob")
    story.boot("bob")
    story.rounds("bob")
    story.boot("ann")
    story["ann"].post([b"x"])
    story.view(["ann", "bob"])
    story.rounds("ann", "bob")
    assert story["ann"].machine.status().waits_for == ("cyd",)
    return story


def removed_engine_goes_on_answering() -> Story:
    """R26. 1, 2 and 3 attempt a primary that 3 leaves with, and only 3 installs it. 1 and 2 lose power, and are in doubt: 3 must
    tell them before it goes."""
    story = formed(3)
    story.view(["ann"], ["bob"], ["cyd"])
    story.rounds(*story.names)
    story["ann"].admin(What.LEAVE, number=3)
    story.rounds("ann")
    story.view(story.names)
    attempt(story, *story.names)
    hear(story, "cyd")
    story.sync("cyd")
    assert len(story.cluster.ledger.order) == 1
    story.die("ann", "bob")
    story.boot("ann", "bob")
    others = [name for name in story.names if not story[name].stopped]
    for _ in range(2):
        story.view([name for name in others if story[name].is_in_group])
        story.rounds(*others, many=8)
    assert story["ann"].machine.primary is not None and story["cyd"].stopped
    return story


ENGINE_EXAMPLES = (
    doubt_of_who_was_not_in_the_last_primary,
    yellow_before_red,
    green_is_with_everybody,
    lost_session_is_no_transition,
    all_back_always,
    attempts_of_one_number,
    quorum_in_doubt,
    leave_by_bulk_shrinks_no_older_primary,
    yellow_leave_counts,
    last_one_stays,
    doubt_of_a_primary_that_shrank,
    removed_engine_goes_on_answering,
)
