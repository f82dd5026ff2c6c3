"""The counter-examples of the deviations, as stories. Each is right with the machine as it is.

Most of them a random schedule meets in one of ten thousand seeds or never, so the defects that they show are run against them.
"""

from __future__ import annotations

from tests.prsl.stories import LARGE, Story, action
from transis.prsl.record import What


def longest_order_decides() -> Story:
    """R1. 1, 2, 3 were together, 1 and 2 acknowledged m, and it is green at 1. 2 and 3 must find it, though 3 never saw it."""
    story = Story(3)
    m, x = action(1, 1, lts=2), action(3, 1)
    story.disk("ann", [m], green=1, committed=1, attempted=1)
    story.disk("bob", [m], committed=1, attempted=1)
    story.disk("cyd", red=[x], committed=1, attempted=1)
    story.boot("ann")
    story.die("ann")
    story.form("bob", "cyd")
    assert story.placed(m) == 0 and story.placed(x) == 1
    return story


def disk_full_holds_up_nobody() -> Story:
    """R1. 3 stays in the primary and cannot write: 1 and 2 go on."""
    story = Story(3)
    story.form("ann", "bob", "cyd")
    story["cyd"].is_hung = True
    story["ann"].post([b"m"])
    story.rounds("ann", "bob", "cyd")
    assert len(story.cluster.ledger.order) == 1
    return story


def slow_disk_holds_up_no_attempt() -> Story:
    """R3. 3 told its STATE and hangs then: its ATTEMPT never comes, and 1 and 2 commit without it."""
    story = Story(3)
    story.boot("ann", "bob", "cyd")
    story["cyd"].post([b"x"])
    story.sync("cyd")
    story.view(["ann", "bob", "cyd"])
    story.hear("cyd")
    story.sync("cyd")
    story["cyd"].is_hung = True
    story.rounds("ann", "bob", "cyd")
    assert story["ann"].machine.primary is not None
    assert len(story.cluster.ledger.order) == 1
    return story


def content_comes_first() -> Story:
    """R2. pi is green in primary 1; 3 committed primary 2 with it. 4 hears of primary 2, and 3 dies before the content comes: 4
    must not say that it has primary 2, or its short order would decide when it meets 1 and 2."""
    story = Story(5)
    pi, x = action(1, 1, lts=2), action(4, 1)
    story.disk("ann", [pi], green=1, committed=1, attempted=2)
    story.disk("bob", [pi], committed=1, attempted=2)
    story.disk("cyd", [pi], committed=2, attempted=2)
    story.disk("dan", red=[x], committed=1, attempted=1)
    story.boot("ann")
    story.die("ann")
    story.boot("cyd", "dan")
    story.view(["cyd", "dan"])
    for name in ("cyd", "dan"):
        story.hear(name)
        story.send(name)
    story.receive("dan")
    story.hear("dan")
    story.sync("dan")
    story.die("cyd", "dan")
    story.form("ann", "bob", "dan")
    assert story.placed(pi) == 0 and story.placed(x) == 1
    return story


def attempt_of_a_majority() -> Story:
    """1 alone has its attempt on disk, and hears it. If it committed, 2 and 3, who lose power, would attempt the same number
    again."""
    story = Story(3)
    names = ("ann", "bob", "cyd")
    story.boot(*names)
    story.view(names)
    for name in names:
        story.hear(name)
        story.send(name)
    for name in names:
        story.receive(name)
        story.hear(name)
    story.sync("ann")
    story.send("ann")
    story.receive("ann")
    story.hear("ann")
    story.die("bob", "cyd")
    story.form("bob", "cyd")
    assert story["bob"].machine.primary is not None
    return story


def yellow_in_the_regular_view_only() -> Story:
    """R2b. 4's m is acknowledged by 3, 4, 5 and green at 3. 1 and 2 miss it, and hear 1's h behind the gap. h must get no
    place."""
    story = Story(5)
    names = ("ann", "bob", "cyd", "dan", "eve")
    story.form(*names)
    story["dan"].post([b"m"])
    story.sync("dan")
    story.send("dan")
    for name in ("cyd", "dan", "eve"):
        story.receive(name)
        story.hear(name)
        story.sync(name)
        story.send(name)
    story.receive("cyd")
    story.hear("cyd")
    assert len(story.cluster.ledger.order) == 1
    story["ann"].post([b"h"])
    story.sync("ann")
    story.send("ann")
    story.view(["ann", "bob"], ["cyd", "eve"])
    for name in ("ann", "bob"):
        story.hear(name)
        story.sync(name)
    story.die("cyd", "dan", "eve")
    story.boot("dan")
    story.view(["ann", "bob", "dan"])
    story.rounds("ann", "bob", "dan")
    assert [one.creator for one in story.cluster.ledger.order] == [4, 1]
    return story


def answer_not_before_its_question() -> Story:
    """R4. 5 posts q, 4 answers a; 4 retransmits both, and the view ends between: the others must not order a without q."""
    story = Story(5)
    q, a = action(5, 1, size=LARGE), action(4, 1, lts=2, deps=((5, 1),), size=LARGE)
    story.disk("dan", red=[q, a])
    names = ("ann", "bob", "cyd")
    story.boot(*names, "dan")
    story.view([*names, "dan"])
    for name in (*names, "dan"):
        story.hear(name)
        story.send(name)
    story.receive("dan")
    story.hear("dan")
    story.send("dan", 1)
    for name in names:
        story.receive(name)
        story.hear(name)
    story.die("dan")
    story.view(names)
    story.rounds(*names)
    assert story.placed(a) is None
    return story


def line_ends_with_its_view() -> Story:
    """R17. 5 acknowledged m, which only 1 has heard; where 2, 3, 4 are, x takes its place. 5 must not count as having x."""
    story = Story(5)
    names = ("ann", "bob", "cyd", "dan", "eve")
    story.form(*names)
    story["ann"].post([b"m"])
    story.sync("ann")
    story.send("ann")
    story.receive("eve")
    story.hear("eve")
    story.sync("eve")
    story.send("eve")
    story.receive("ann")
    story.hear("ann")
    story.sync("ann")
    story.view(["ann"], ["eve"], ["bob", "cyd", "dan"])
    story.rounds("bob", "cyd", "dan")
    story["bob"].post([b"x"])
    story.rounds("bob", "cyd", "dan")
    story.view(["ann", "bob", "cyd", "dan"])
    story.rounds("ann", "bob", "cyd", "dan")
    assert [one.creator for one in story.cluster.ledger.order] == [2, 1]
    return story


def half_an_order_has_no_vote() -> Story:
    """R20. 5 takes some of the green order by bulk from 3, whose primary is 3, and meets 1 and 2, who have all of primary 2."""
    story = Story(5, behind_max=0)
    a, b, c = (action(4, number, lts=number, size=LARGE) for number in (1, 2, 3))
    x = action(5, 1, size=LARGE)
    for name, committed in (("ann", 2), ("bob", 2), ("cyd", 3)):
        story.disk(name, [a, b, c], green=2 + (name == "ann"), committed=committed, attempted=3)
    story.disk("eve", red=[x])
    story.boot("ann")
    story.die("ann")
    story.boot("cyd", "eve")
    story.view(["cyd", "eve"])
    story.rounds("cyd", "eve", many=3)
    story.hear("cyd")
    story.hear("eve", 1)
    story.sync("eve")
    assert story["eve"].machine.status().green == 1
    story.die("cyd", "eve")
    story.form("ann", "bob", "eve")
    assert [one.creator for one in story.cluster.ledger.order] == [4, 4, 4, 5]
    return story


def snapshot_runs_ahead() -> Story:
    """R22. 3 is behind, and loads a snapshot that has b before it hears b: b is still in the view's order, and what follows goes
    on."""
    story = Story(3, behind_max=0, keep_places=0)
    story.boot("ann", "bob", "cyd")
    story.view(["ann", "bob"])
    story.rounds("ann", "bob")
    story["ann"].post([b"a"])
    story.rounds("ann", "bob")
    story.view(["ann", "bob", "cyd"])
    story.hear("cyd")
    story.sync("cyd")
    story.send("cyd")
    story.rounds("ann", "bob", many=2)
    story.receive("cyd")  # it will hear later that its exchange is done
    story["bob"].post([b"b"])
    story.rounds("bob", "ann", many=6)
    assert len(story.cluster.ledger.order) == 2
    story["ann"].take_snapshot()
    story.sync("ann")
    story["ann"].trim()
    story.sync("ann")
    story.hear("cyd")
    return _catch_up_and_go_on(story)


def _catch_up_and_go_on(story: Story) -> Story:
    story.sync("cyd")
    for _ in range(4):
        story.rounds("ann", many=1)
        story.hear("cyd")
        story.sync("cyd")
    story.rounds("ann", "bob", "cyd")
    story["bob"].post([b"c"])
    story.rounds("ann", "bob", "cyd")
    assert story["cyd"].machine.status().green == len(story.cluster.ledger.order) == 3
    return story


def removed_goes_on_answering() -> Story:
    """R26. LEAVE(2) is green at 2, whose ACK never reached 1. 1 needs a majority of {1, 2}, so 2 must still be there."""
    story = Story(2)
    story.form("ann", "bob")
    story["ann"].admin(What.LEAVE, number=2)
    story.sync("ann")
    story.send("ann")
    for name in ("ann", "bob"):
        story.receive(name)
        story.hear(name)
        story.sync(name)
    story.send("ann")
    story.send("bob")
    story.receive("bob")
    story.view(["ann"], ["bob"])
    story.hear("ann")
    story.hear("bob")
    assert len(story.cluster.ledger.order) == 1
    bob = story["bob"]
    if bob.stopped:
        story.cluster.replicas.pop("bob")
        story.view(["ann"])
        story.rounds("ann")
    else:
        story.die("bob")
        story.boot("bob")
        bob = story["bob"]
        story.view(["ann", "bob"])
        story.rounds("ann", "bob")
    assert story["ann"].machine.status().record.members == (1,)
    assert bob.stopped
    return story


def chosen_by_number_not_by_name() -> Story:
    """R29. cyd's disk is lost, and another cyd comes: its first action is (4, 1), and not the (3, 1) that everybody knows."""
    story = Story(3)
    names = ("ann", "bob", "cyd")
    story.form(*names)
    story["cyd"].post([b"old"])
    story.rounds(*names)
    story.die("cyd")
    story.cluster.lost.add(3)
    story.new_disk("cyd", b"new directory..!", story.base)
    story.view(["ann", "bob"])
    story.rounds("ann", "bob")
    story["ann"].admin(What.REPLACE, name="cyd", directory=b"new directory..!", number=3)
    story.rounds("ann", "bob")
    story.boot("cyd")
    assert not story["cyd"].is_in_group
    story["cyd"].bring_up(story["ann"].process)
    for _ in range(4):
        story.rounds("ann", "bob", many=1)
        story.hear("cyd")
        story.sync("cyd")
    return _post_as_a_new_one(story)


def _post_as_a_new_one(story: Story) -> Story:
    """R21: what it was brought up to is no primary of its own."""
    marks = story.cluster.disks["cyd"].stored.marks
    assert (marks.committed, marks.attempted) == (0, 0) and story["cyd"].machine.number == 4
    story.view(["ann", "bob", "cyd"])
    story.rounds("ann", "bob", "cyd")
    story["cyd"].post([b"new"])
    story.rounds("ann", "bob", "cyd")
    assert [one.creator for one in story.cluster.ledger.order if not one.lane] == [3, 4]
    return story


def green_beyond_yellow() -> Story:
    """R20. 5 has three green actions by bulk and no primary; 2 has primary 2 and one of them. Together they are no majority, and
    that green is longer than what decides is no contradiction."""
    story = Story(5)
    a, b, c = (action(4, number, lts=number) for number in (1, 2, 3))
    story.disk("eve", [a, b, c], green=3)
    story.disk("bob", [a], green=1, committed=2, attempted=2)
    story.form("bob", "eve")
    assert story["bob"].machine.status().green == 3
    return story


def process_dies_without_a_transition() -> Story:
    """R8. 3's process dies and its daemon lives: 1 and 2 get a regular view only, and go on."""
    story = Story(3)
    names = ("ann", "bob", "cyd")
    story.form(*names)
    story["ann"].post([b"m"])
    story.sync("ann")
    story.send("ann")
    story.streams.leave(story.cluster.replicas.pop("cyd").process)
    story.rounds("ann", "bob")
    assert len(story.cluster.ledger.order) == 1 and story["bob"].machine.primary is not None
    return story


def session_is_lost() -> Story:
    """R9. 2 loses its session in the middle of an order and comes back as another process; what it posted is ordered."""
    story = Story(3)
    names = ("ann", "bob", "cyd")
    story.form(*names)
    for name in names:
        story[name].post([name.encode()])
        story.sync(name)
        story.send(name)
    story.receive("bob")
    story.hear("bob", 2)
    story.streams.disconnect(story["bob"].process)
    story["bob"].reconnect()
    story["bob"].post([b"meanwhile"])
    story.view(["ann", "cyd"])
    story.rounds("ann", "cyd", "bob")
    story.view(names)
    story.rounds(*names)
    assert len(story.cluster.ledger.order) == 4
    return story


def empty_disk_is_refused() -> Story:
    """R18. 1 and 3 acknowledged m, and 3's disk is lost. A new directory under its name is no replica, and has no vote with 2."""
    story = Story(3)
    m = action(1, 1)
    story.disk("ann", [m], green=1, committed=1, attempted=1)
    story.new_disk("cyd", b"another disk ..!", story.base)
    story.boot("ann")
    story.die("ann")
    story.form("bob", "cyd")
    assert not story["cyd"].is_in_group and not story.cluster.ledger.primaries
    return story


def empty_disk_under_its_old_identity() -> Story:
    """R18, what must never be done: the empty directory has the old identity, votes with 2, and m's place is given away. Nothing
    that a machine can see tells it from a replica that was never there."""
    story = Story(3)
    m, x = action(1, 1), action(2, 1)
    story.disk("ann", [m], green=1, committed=1, attempted=1)
    story.disk("bob", red=[x])
    story.boot("ann")
    story.die("ann")
    story.form("bob", "cyd")
    return story


def dead_newcomer_blocks_nobody() -> Story:
    """R15. 1 and 2 of three ask for a fourth that is dead: with it three of four would be needed, so the change is held back."""
    story = Story(3)
    story.boot("ann", "bob")
    story["ann"].admin(What.JOIN, name="dan", directory=b"never to be seen")
    story.view(["ann", "bob"])
    story.rounds("ann", "bob")
    story["bob"].post([b"m"])
    story.rounds("ann", "bob")
    assert [one.lane for one in story.cluster.ledger.order] == [0]
    assert story["ann"].machine.status().red == 1
    return story


def one_change_wins() -> Story:
    """R15. 1 and 3 ask for different changes while apart: the second in the order is void, and everybody is told."""
    story = Story(3)
    names = ("ann", "bob", "cyd")
    story.boot(*names)
    story["ann"].admin(What.LEAVE, number=2)
    story["cyd"].admin(What.LEAVE, number=1)
    story.view(names)
    story.rounds(*names)
    assert story["cyd"].machine.status().record.members == (1, 3)
    assert len(story.cluster.ledger.order) == 2
    return story


def both_majorities_for_a_replacement() -> Story:
    """R15. {1, 2, 3}: 3 is replaced by 4 in a primary of 1 and 2; it is yellow at 2 only. 2 and 4 are a majority of what it
    makes, and not of {1, 2, 3}: 1 and 3 may have gone on."""
    story = Story(3)
    names = ("ann", "bob")
    story.boot(*names)
    story.view(names)
    story.rounds(*names)
    story["ann"].admin(What.REPLACE, name="dan", directory=b"the new disk ..!", number=3)
    story.sync("ann")
    story.send("ann")
    for name in names:
        story.receive(name)
    story.hear("bob")
    story.sync("bob")
    counting = story["bob"].machine.status().counting
    assert [record.members for record in counting] == [(1, 2, 3), (1, 2, 4)]
    assert [record.has_majority({2, 4}) for record in counting] == [False, True]
    story.rounds(*names)
    assert story["ann"].machine.status().record.members == (1, 2, 4)
    return story


EXAMPLES = (
    green_beyond_yellow,
    process_dies_without_a_transition,
    session_is_lost,
    empty_disk_is_refused,
    dead_newcomer_blocks_nobody,
    one_change_wins,
    both_majorities_for_a_replacement,
    longest_order_decides,
    disk_full_holds_up_nobody,
    slow_disk_holds_up_no_attempt,
    content_comes_first,
    attempt_of_a_majority,
    yellow_in_the_regular_view_only,
    answer_not_before_its_question,
    line_ends_with_its_view,
    half_an_order_has_no_vote,
    snapshot_runs_ahead,
    removed_goes_on_answering,
    chosen_by_number_not_by_name,
)
