"""What a seed draws, and what is counted."""

from collections import Counter

from transis.sim.coverage import Coverage
from transis.sim.episodes import EPISODES, KINDS, KINDS_OF_ONE, THEMES
from transis.sim.swarm import draw
from transis.types.outputs import Note


def test_a_seed_always_draws_the_same_plan() -> None:
    assert all(draw(seed) == draw(seed) for seed in range(20))


def test_sizes_are_drawn_as_promised() -> None:
    sizes = Counter(len(draw(seed).names) for seed in range(2000))
    assert 1700 < sum(count for size, count in sizes.items() if size <= 7) < 1900
    assert 120 < sum(count for size, count in sizes.items() if 8 <= size <= 20) < 240
    assert sizes[50] == 2000 - sum(count for size, count in sizes.items() if size <= 20)
    assert sizes[50] > 5
    assert set(range(1, 8)) <= set(sizes)


def test_every_kind_of_fault_is_drawn_somewhere() -> None:
    drawn = {str(fault).split()[0] for seed in range(300) for _, fault in draw(seed).schedule}
    everything = "crash restart pause resume partition heal cut mend weather slow delay leave copy on send"
    assert drawn == set(everything.split())


def test_plans_are_valid_and_nodes_may_be_chosen() -> None:
    for seed in range(200):
        draw(seed).config.validated()
    assert len(draw(1, nodes=50).names) == 50


def test_every_kind_has_an_episode() -> None:
    assert {kind for kind, _ in (*KINDS, *KINDS_OF_ONE)} == set(EPISODES)
    assert set(THEMES) <= set(EPISODES)


def test_coverage_merges_and_names_what_was_never_reached() -> None:
    one, other = Coverage(), Coverage()
    one.note(Note("state", (("from", "Gather"), ("to", "Commit"), ("event", "commit token"))))
    one.node({("Gather", "join"): 3})
    other.node({("Gather", "join"): 4})
    other.note(Note("trap", (("number", "8"),)))
    other.fault("crash", ["Gather"])
    one.merge(other)
    assert one.as_dict()["events"] == {"Gather x join": 7}
    assert one.as_dict()["transitions"] == {"Gather -commit token-> Commit": 1}
    missing = one.never_reached([("Gather", "join"), ("Commit", "join")], [("crash", "Commit")], ["8", "9"])
    assert missing == {"events": ["Commit x join"], "faults": ["crash x Commit"], "traps": ["9"]}


def test_why_nodes_stop_is_counted_whomever_it_names() -> None:
    coverage = Coverage()
    for life in ("a/2", "b/17"):
        why = f"superseded by {life}, a later life of this name"
        coverage.note(Note("state", (("from", "Gather"), ("to", "Stopped"), ("event", why))))
    assert coverage.as_dict()["transitions"] == {"Gather -superseded by another, a later life of this name-> Stopped": 2}
