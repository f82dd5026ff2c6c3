"""What a review of the node once found wrong, as the story in which it went wrong."""

from __future__ import annotations

from tests.node.test_node import run_alone, transmits
from transis.types.ids import NodeId
from transis.types.outputs import Port
from transis.wire.control import Probe, encode_control
from transis.wire.envelope import Sealer

SUCCESSOR = NodeId("ann", 2, 501)
QUESTION = Sealer("transis", SUCCESSOR, None).seal(encode_control(Probe(SUCCESSOR, "ann:501")))


def test_a_node_that_left_does_not_claim_its_name() -> None:
    """It still answered whoever asked for the name, so that its own successor on the same machine was refused."""
    now, one = run_alone()
    one.leave(now)
    while one.state != "Stopped":
        now = one.deadline()
        one.wake(now)
    one.outputs()
    one.receive(now, Port.CONTROL, [QUESTION])
    assert transmits(one.outputs()) == []


def test_a_node_that_runs_does_claim_it() -> None:
    now, one = run_alone()
    one.outputs()
    one.receive(now, Port.CONTROL, [QUESTION])
    assert transmits(one.outputs())
