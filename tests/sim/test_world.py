"""The world, with a fake node: turns, sockets, crashes, ambushes, disks."""

from __future__ import annotations

from collections.abc import Mapping

from tests.sim.fake import HEARTBEAT_US, FakeNode
from transis.sim.faults import parse
from transis.sim.host import Machine
from transis.sim.life import Submission
from transis.sim.network import Journey, LinkQuality
from transis.sim.world import Conditions, World
from transis.types.config import Config
from transis.types.ids import Service
from transis.types.outputs import NEVER, Port

QUIET = Conditions(climate=LinkQuality(delay_us=(300, 200, 100), jitter_us=0), sync_us=(1_000, 1_000), kept_permille=0)


def world_of(*names: str, conditions: Conditions = QUIET, broken: str = "") -> tuple[World, dict[str, list[FakeNode]]]:
    """A started world and the fakes in it, by name, one per life."""
    made: dict[str, list[FakeNode]] = {name: [] for name in names}

    def make(config: Config, stored: Mapping[str, int], boot: int, key: bytes | None = None) -> FakeNode:
        node = FakeNode(config, stored, boot, key, broken)
        made[config.name].append(node)
        return node

    world = World(1, conditions, make)
    for name in names:
        world.add_host(Config(name=name))
        world.start(name)
    return world, made


def strike(world: World, *lines: str) -> None:
    for line in lines:
        world.strike(parse(line))


def test_a_submission_reaches_everybody_else_and_comes_back() -> None:
    world, made = world_of("a", "b", "c")
    world.run(5_000)
    world.hosts["a"].submit(Submission(Service.AGREED, (10, 20)))
    world.run(9_000)
    assert [len(node[0].received) for node in made.values()] == [0, 1, 1]
    life = world.hosts["a"].life
    assert life is not None
    assert (life.taken, life.returned, life.owed) == (2, 2, 0)
    assert world.verified == 2
    assert world.mishaps == []


def test_timers_fire_when_they_are_due_and_not_before() -> None:
    world, made = world_of("a")
    world.run(35_000)
    assert made["a"][0].woken == [11_000, 21_000, 31_000]


def test_what_waits_is_handed_over_in_order_data_first_and_together() -> None:
    world, made = world_of("a")
    world.run(5_000)
    strike(world, "pause a")
    for port in (Port.TOKEN, Port.DATA, Port.CONTROL, Port.DATA):
        world.hosts["a"].arrive(Journey(world.now, "x", port, [port.name.encode()]))
    world.run(5_000 + 3 * HEARTBEAT_US)
    assert made["a"][0].received == []
    strike(world, "resume a")
    world.run(world.now + 10)
    assert [(port, datagrams) for _, port, datagrams in made["a"][0].received] == [
        (Port.DATA, [b"DATA", b"DATA"]),
        (Port.CONTROL, [b"CONTROL"]),
        (Port.TOKEN, [b"TOKEN"]),
    ]
    assert made["a"][0].woken[-1] >= made["a"][0].received[-1][0]


def test_a_socket_holds_so_much_and_no_more() -> None:
    world, made = world_of("a", conditions=Conditions(machine=Machine(buffer_bytes=25)))
    world.run(5_000)
    strike(world, "pause a")
    world.hosts["a"].arrive(Journey(world.now, "x", Port.DATA, [b"0123456789"] * 4))
    strike(world, "resume a")
    world.run(6_000)
    assert [len(datagrams) for _, _, datagrams in made["a"][0].received] == [2]
    assert world.hosts["a"].overflowed == 2


def test_a_slow_node_handles_the_next_burst_later() -> None:
    world, made = world_of("a")
    world.run(5_000)
    strike(world, "slow a 1ms")
    for _ in range(2):
        world.hosts["a"].arrive(Journey(world.now, "x", Port.DATA, [b"x"] * 3))
        world.run(world.now + 10)
    world.run(20_000)
    times = [time for time, _, _ in made["a"][0].received]
    assert times[1] - times[0] >= 3_000


def test_a_crash_before_the_sync_forgets_the_incarnation() -> None:
    world, made = world_of("a")
    strike(world, "crash a", "restart a")
    world.run(5_000)
    assert [node.id.incarnation for node in made["a"]] == [1, 1]
    strike(world, "crash a", "restart a")
    assert made["a"][2].id.incarnation == 2
    assert len({node.id.boot for node in made["a"]}) == 3


def test_a_crash_in_the_middle_of_the_outputs_keeps_the_rest_from_happening() -> None:
    world, made = world_of("a", "b")
    world.run(5_000)
    strike(world, "crash a after=2")
    world.hosts["a"].submit(Submission(Service.AGREED, (10,)))
    world.run(9_000)
    assert world.hosts["a"].state == "down"
    assert made["b"][0].received == []
    (life,) = [life for life in world.lives.values() if life.host == "a"]
    assert [type(event).__name__ for event in life.recorder.events][-3:] == ["Submit", "Sent", "End"]


def test_an_ambush_waits_for_its_moment() -> None:
    world, _ = world_of("a")
    strike(world, "on a Operational crash a")
    assert world.hosts["a"].state == "Starting"
    world.run(5_000)
    assert world.hosts["a"].state == "down"
    strike(world, "on a Persist crash a", "restart a")
    assert world.hosts["a"].state == "down"
    assert world.coverage.faults["crash", "Starting"] == 1


def test_an_ambush_may_strike_later_but_not_in_peace() -> None:
    world, _ = world_of("a", "b")
    strike(world, "on a Operational+3ms crash a", "on b Operational+9ms crash b")
    world.run(3_900)
    assert world.hosts["a"].state == "Operational"
    world.run(4_100)
    assert world.hosts["a"].state == "down"
    world.at_peace = True
    world.run(20_000)
    assert world.hosts["b"].state == "Operational"


def test_a_copy_starts_beside_its_original_with_the_same_memory() -> None:
    world, made = world_of("a")
    world.run(5_000)
    strike(world, "copy a")
    original, copy = made["a"]
    assert copy.id.incarnation == original.id.incarnation + 1
    assert world.hosts["a+copy"].config.address == "a+copy"


def test_a_lost_directory_starts_from_nothing() -> None:
    world, made = world_of("a")
    world.run(5_000)
    strike(world, "crash a", "restart a lost")
    assert made["a"][1].id.incarnation == 1


def test_a_node_that_leaves_has_stopped() -> None:
    world, _ = world_of("a")
    world.run(5_000)
    strike(world, "leave a")
    assert world.hosts["a"].life is None
    assert [life.ended for life in world.lives.values()] == ["stopped"]


def test_whatever_a_node_raises_is_a_mishap() -> None:
    world, _ = world_of("a", "b", broken="raise")
    world.run(5_000)
    world.hosts["a"].submit(Submission(Service.AGREED, (10,)))
    world.run(9_000)
    assert [mishap.property for mishap in world.mishaps] == ["no_crash"]
    assert "a deliberate defect" in world.mishaps[0].explanation
    assert world.hosts["b"].state == "down"


def test_changed_bytes_are_a_mishap() -> None:
    world, _ = world_of("a", broken="change")
    world.run(5_000)
    world.hosts["a"].submit(Submission(Service.AGREED, (10,)))
    world.run(9_000)
    assert [mishap.property for mishap in world.mishaps] == ["integrity"]


def test_faults_that_do_not_apply_do_nothing() -> None:
    world, made = world_of("a")
    strike(world, "restart a", "resume a", "crash nobody", "mend a->b", "heal")
    assert len(made["a"]) == 1
    strike(world, "crash a", "crash a", "pause a", "leave a", "resume a")
    assert world.hosts["a"].state == "down"
    assert not world.hosts["a"].paused


def test_the_event_budget_ends_a_run_early() -> None:
    world, _ = world_of("a")
    world.run(NEVER, turns_max=4)
    assert world.turns == 4
    assert world.now < HEARTBEAT_US * 5
