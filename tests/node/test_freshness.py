"""Replays: of each transmitter only news counts, in a sealed cluster."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transis.node.intake import Freshness
from transis.node.node import IDENTITY_TICKET, Node
from transis.types.config import Config
from transis.types.outputs import Audience, Persist, Port, Transmit
from transis.wire.envelope import KEYS_MAX

KEY = bytes(range(32))


def sealed(name: str) -> Node:
    return Node(Config(name=name, address=name), {}, boot=1, key=KEY)


def step(one: Node) -> list[bytes]:
    """To its next deadline, with a disk that is always done; what it says to the world."""
    now = one.deadline()
    one.wake(now)
    said: list[bytes] = []
    while outputs := one.outputs():
        for output in outputs:
            if isinstance(output, Persist):
                one.persisted(now, output.ticket)
            elif isinstance(output, Transmit) and (output.to, output.port) == (Audience.WORLD, Port.CONTROL):
                said += output.datagrams
    return said


def start(one: Node) -> list[bytes]:
    """Until it has said a lot: Joins and Beacons of a node that is alone."""
    one.start(0)
    one.persisted(0, IDENTITY_TICKET)
    return [datagram for _ in range(200) for datagram in step(one)]


def test_what_a_node_said_before_is_rejected_the_second_time() -> None:
    said = start(sealed("bob"))
    ann = sealed("ann")
    start(ann)
    ann.receive(10_000_000, Port.CONTROL, said)
    assert ann.rejections["replayed"] == 0
    ann.receive(10_000_001, Port.CONTROL, said[-3:])
    assert ann.rejections["replayed"] == 3


def test_a_replay_starts_no_gathering() -> None:
    """A stranger's Beacon makes a node gather; the same Beacon again does nothing."""
    said = start(sealed("bob"))
    ann = sealed("ann")
    start(ann)
    ann.receive(ann.deadline(), Port.CONTROL, said[-1:])
    assert ann.state == "Gather"
    for _ in range(200):
        step(ann)
    assert ann.state == "Operational"
    ann.receive(ann.deadline(), Port.CONTROL, said[-1:])
    assert ann.state == "Operational"


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(1, 20))))
def test_only_what_is_newer_than_everything_before_is_news(heard: list[tuple[bytes, int]]) -> None:
    freshness = Freshness()
    before: dict[bytes, int] = {}
    for transmitter, counter in heard:
        assert freshness.is_news(transmitter, counter) == (counter > before.get(transmitter, 0))
        before[transmitter] = max(counter, before.get(transmitter, 0))


def test_those_heard_last_are_remembered() -> None:
    freshness = Freshness()
    assert all(freshness.is_news(b"%d" % number, 5) for number in range(KEYS_MAX + 1))
    assert not freshness.is_news(b"1", 5)
    assert freshness.is_news(b"0", 5)
