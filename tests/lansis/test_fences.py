"""Fences: what travels on the control lane has every causal message on one side, the same at all who go on together (P15)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.hand import Seat, cut_off
from tests.lansis.bursts import BASE, Said, burst_of, said, single
from tests.lansis.fixed import HOP_US, Fixed
from tests.lansis.hand import Table
from tests.lansis.test_data_path import assert_causes_first, assert_nothing_left
from transis.lansis.dag import Dag, DagNode
from transis.lansis.delivery import may_leave
from transis.lansis.orders import WaitingNodes
from transis.lansis.packets import FENCE, Alive
from transis.lansis.stability import Stability
from transis.sim.defects import broken_engine
from transis.types.ids import DatagramClass, Service, ViewId
from transis.types.outputs import Configure, Deliver, Lane
from transis.wire.burst import Burst, encode_data

CAUSAL = DatagramClass.CAUSAL
ORDERS = ("all-ack", "toto")
DEFECTS = ("no_fence", "fence_passes_early", "fence_not_followed")

# --- the rule ---------------------------------------------------------------------------------------------------------


def fence(one: Said) -> Burst:
    burst = burst_of(one)
    header = burst.header._replace(round=FENCE)
    return Burst(header, [encode_data(header, body) for body in burst.bodies()])


def entered(graph: Dag, burst: Burst) -> DagNode:
    graph.receive(burst)
    (node,) = graph.insert_ready()
    return node


def test_only_what_is_ordered_can_be_a_fence() -> None:
    graph = Dag(-1, [1], BASE)
    assert entered(graph, fence(said(0, 1, 1))).is_fence
    assert entered(graph, fence(said(0, 2, 2, klass=DatagramClass.SAFE))).is_fence
    assert not entered(graph, fence(said(0, 3, 3, klass=CAUSAL))).is_fence
    assert not single(said(0, 4, 4)).is_fence


def test_what_follows_a_fence_waits_for_it_and_what_does_not_goes_before() -> None:
    graph, waiting = Dag(-1, [1, 1, 1], BASE), WaitingNodes(3)
    control = entered(graph, fence(said(0, 1, 5)))
    before = entered(graph, burst_of(said(1, 1, 9, klass=CAUSAL)))
    behind = entered(graph, burst_of(said(2, 1, 6, (0, 1), klass=CAUSAL)))
    for node in (control, before, behind):
        waiting.inserted(node)
    assert waiting.eligible(0) == [before]
    control.delivered = True
    waiting.delivered(control)
    assert waiting.eligible(control.key) == [behind]


def test_who_waits_for_several_waits_for_the_last_of_them() -> None:
    graph, waiting = Dag(-1, [1, 1, 1], BASE), WaitingNodes(3)
    first, second = entered(graph, fence(said(0, 1, 5))), entered(graph, fence(said(1, 1, 6)))
    own = entered(graph, burst_of(said(2, 1, 7, (0, 1), (1, 1))))
    behind = entered(graph, burst_of(said(2, 2, 8, klass=CAUSAL)))
    for node in (first, second, own, behind):
        waiting.inserted(node)
    for node in (first, second, own):
        assert waiting.eligible(node.key - 1) == []
        node.delivered = True
        waiting.delivered(node)
    assert waiting.eligible(own.key) == [behind]


def test_an_acknowledgement_that_overtook_what_was_sent_before_it_lets_no_fence_pass() -> None:
    """b says in an ALIVE that it has the fence, and that it has sent 1: a burst that is not here, and may belong before it."""
    graph, stability = Dag(0, [1, 1], BASE), Stability(0, [1, 1], 0)
    graph.receive(fence(said(0, 1, 1)), own=True)
    (control,) = graph.insert_ready()
    stability.inserted(control, 1)
    stability.heard_alive(1, 1, (1, 1), 2)
    assert stability.is_stable(control)
    assert not may_leave(control, stability)
    stability.heard_alive(1, 0, (0, 0), 3)
    stability.inserted(entered(graph, burst_of(said(1, 1, 2, klass=CAUSAL))), 4)
    assert may_leave(control, stability), "an older ALIVE that comes later takes nothing back"


def test_a_burst_that_follows_a_fence_lets_it_pass() -> None:
    graph, stability = Dag(0, [1, 1], BASE), Stability(0, [1, 1], 0)
    graph.receive(fence(said(0, 1, 1)), own=True)
    (control,) = graph.insert_ready()
    stability.inserted(control, 1)
    stability.inserted(entered(graph, burst_of(said(1, 1, 2, klass=CAUSAL))), 2)
    assert not may_leave(control, stability)
    stability.inserted(entered(graph, burst_of(said(1, 2, 3, (0, 1), klass=CAUSAL))), 3)
    assert may_leave(control, stability)


# --- one view ---------------------------------------------------------------------------------------------------------


def talk(net: Fixed, seed: int, messages: int) -> None:
    """Causal and agreed messages of everybody, and now and then something on the control lane."""
    random = Random(seed)
    for number in range(messages):
        name, dice = random.choice(sorted(net.seats)), random.random()
        if dice < 0.25:
            net.submit(name, Service.AGREED, f"!{number}", lane=Lane.CONTROL)
        else:
            net.submit(
                name, Service.CAUSAL if dice < 0.85 else Service.AGREED, f"{number}" + "x" * random.choice((0, 0, 900, 5000))
            )
        net.run(random.choice((0, 0, 50, 300, 3000)))
    net.run(1_500_000)
    net.lose = 0
    net.run(1_500_000)


def sides(net: Fixed) -> dict[str, set[frozenset[str]]]:
    """Of each message of the control lane, what came before it at each member: one set if they agree."""
    found: dict[str, set[frozenset[str]]] = {}
    for seat in net.seats.values():
        before: set[str] = set()
        for heard in seat.heard:
            if heard.text.startswith("!"):
                found.setdefault(heard.text, set()).add(frozenset(before))
            before.add(heard.text)
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 1 << 32),
    st.integers(2, 5),
    st.sampled_from((0, 20, 150)),
    st.sampled_from((0, 150, 3000)),
    st.sampled_from(ORDERS),
)
def test_everybody_has_the_same_before_what_the_control_lane_carries(
    seed: int, members: int, lose: int, jitter_us: int, order: str
) -> None:
    net = Fixed("abcde"[:members], seed=seed, lose=lose, jitter_us=jitter_us, order=order)
    talk(net, seed, 25)
    found = sides(net)
    assert len({len(seat.heard) for seat in net.seats.values()}) == 1, "everything came everywhere"
    assert all(len(each) == 1 for each in found.values()), found
    assert_causes_first(net)
    assert_nothing_left(net)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("defect", DEFECTS)
def test_without_a_part_of_the_rule_sides_differ(defect: str, order: str) -> None:
    for seed in range(40):
        net = Fixed("abcd", seed=seed, lose=20, jitter_us=3000, order=order)
        with broken_engine(defect):
            talk(net, seed, 25)
        if any(len(each) > 1 for each in sides(net).values()):
            return
    pytest.fail(f"{defect} makes no difference under {order}")


def test_a_causal_message_waits_for_a_fence_and_for_nothing_else() -> None:
    net = Fixed("abc")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: source == "c" and isinstance(packet, Alive))
    net.submit("a", Service.CAUSAL, "free")
    net.run(HOP_US)
    assert net["b"].texts(Service.CAUSAL) == ["free"]
    net.submit("a", Service.AGREED, "!", lane=Lane.CONTROL)
    net.run(HOP_US)
    net.submit("b", Service.CAUSAL, "behind")
    net.run(10_000)
    assert net["b"].texts(*Service) == ["free"]
    net.drops.clear()
    net.run(100_000)
    assert {tuple(seat.texts(*Service)) for seat in net.seats.values()} == {("free", "!", "behind")}


# --- views that change ------------------------------------------------------------------------------------------------


def storm(seed: int, mode: str, order: str) -> Table:
    random = Random(seed)
    members = "abcde"[: random.randint(3, 5)]
    table = Table(members, mode=mode, order=order)
    loss = random.choice((0.0, 0.05, 0.2))
    weather = [lambda journey: random.random() < loss]
    table.drops = list(weather)
    table.start()
    for number in range(80):
        table.run(random.choice((0, 100, 500, 5_000, 40_000)))
        dice = random.random()
        if dice < 0.08:
            table.drops = [*weather, cut_off(*random.sample(members, random.randint(1, 2)))]
        elif dice < 0.25:
            table.drops = list(weather)
        elif dice < 0.27:
            table.restart(random.choice(members))
        for name in random.sample(members, 2):
            if random.random() < 0.3:
                table.submit(name, Service.AGREED, f"!{name}{number}", lane=Lane.CONTROL)
            else:
                table.submit(name, Service.CAUSAL, f"{name}{number}")
    table.drops.clear()
    return table


Datagram = tuple[object, int]


def walked(seat: Seat) -> list[tuple[ViewId, dict[Datagram, frozenset[Datagram]], ViewId | None]]:
    """Each regular view of a seat, of each fence that it delivered there what came before it, and the next regular view."""
    regular: list[ViewId] = []
    fences: list[dict[Datagram, frozenset[Datagram]]] = []
    before: set[Datagram] = set()
    for output in seat.log:
        if isinstance(output, Configure) and output.view.id.is_regular:
            regular.append(output.view.id)
            fences.append({})
            before = set()
        elif isinstance(output, Deliver) and not output.early:
            assert isinstance(output.burst, Burst)
            if output.burst.header.round == FENCE:
                fences[-1][output.sender, output.burst.last_seq] = frozenset(before)
            before |= {(output.sender, seq) for seq in range(output.burst.first_seq, output.burst.last_seq + 1)}
    return list(zip(regular, fences, [*regular[1:], None], strict=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("mode", "order"), [("evs", "all-ack"), ("transis", "all-ack"), ("evs", "toto"), ("transis", "toto")])
def test_who_goes_on_together_has_the_same_before_each_fence(seed: int, mode: str, order: str) -> None:
    table = storm(seed, mode, order)
    members = "".join(table.seats)
    table.run_until(lambda: table.all_in(members))
    table.run(200_000)
    seen: dict[tuple[ViewId, ViewId | None], object] = {}
    compared = 0
    for seat in [*table.seats.values(), *table.dead]:
        for view, fences, after in walked(seat):
            if after is not None or seat not in table.dead:
                known = seen.setdefault((view, after), fences)
                compared += len(fences) if known is not fences else 0
                assert known == fences, f"{seat.name} in {view}"
    assert compared > 10
