"""The ordering engine from outside: what it says when it waits, what is durable, and whom it does not mix with."""

from __future__ import annotations

from tests.prsl.engine_examples import formed
from tests.prsl.stories import Story
from transis.prsl.machine import Machine
from transis.prsl.outputs import Stopped
from transis.prsl.record import What


def test_a_primary_goes_down_to_one_and_says_whom_the_others_need() -> None:
    story = formed(3)
    story.view(["ann", "bob"], ["cyd"])
    story.rounds(*story.names)
    story.view(["ann"], ["bob"])
    story.rounds("ann", "bob")
    assert story["ann"].machine.status().is_primary
    status = story["bob"].machine.status()
    assert status.state == "NonPrim" and status.waits_for == ("ann",)
    assert status.why == "of the last primary (ann, bob) only bob is here"


def test_a_primary_does_not_shrink_below_what_is_asked_for() -> None:
    story = formed(3, servers_min=2)
    story.view(["ann", "bob"], ["cyd"])
    story.rounds(*story.names)
    assert story["ann"].machine.status().is_primary
    story.view(["ann"], ["bob"])
    story.rounds("ann", "bob")
    assert not story["ann"].machine.status().is_primary


def test_what_is_on_the_disks_of_a_majority_is_told() -> None:
    """Who posts tells how far it is; who only listens tells it when the host asks for it."""
    story = formed(3)
    story["ann"].post([b"m"])
    story.rounds(*story.names)
    assert story["ann"].stable.majority == story["ann"].stable.place == 0
    story["ann"].tell_line()
    story["bob"].tell_line()
    story.rounds(*story.names)
    assert story["ann"].stable.majority == 1 and story["ann"].stable.place == 0
    story["cyd"].tell_line()
    story.rounds(*story.names)
    assert story["ann"].stable.place == 1


def test_who_is_removed_stops_when_there_is_a_primary_without_it() -> None:
    story = formed(3)
    story["ann"].admin(What.LEAVE, number=3)
    story.rounds(*story.names)
    assert not story["cyd"].stopped
    story.view(story.names)
    story.rounds(*story.names)
    assert story["cyd"].stopped and story["ann"].machine.status().is_primary


def test_orderings_that_differ_are_named_and_nothing_forms() -> None:
    story = Story(2)
    disk = story.cluster.disks["bob"]
    disk.config = disk.config._replace(ordering="engine")
    story.form("ann", "bob")
    assert "ann has corel; bob has engine" in story["ann"].machine.status().trouble
    assert not story.cluster.ledger.primaries


def test_a_directory_is_not_opened_by_another_ordering() -> None:
    story = formed(2)
    disk = story.cluster.disks["ann"]
    machine = Machine(disk.config._replace(ordering="corel"), disk.stored.opened())
    machine.start()
    (stopped,) = machine.take()
    assert isinstance(stopped, Stopped) and "ordered by engine, not corel" in stopped.why
