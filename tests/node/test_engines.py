"""Which engine a configuration means, and what one engine does with the packets of the other."""

from __future__ import annotations

import pytest

from tests.wire.samples import ANN, BEACON, COMMIT, JOIN, TOKEN, WAKE
from transis.lansis.packets import KIND_ALIVE, KIND_FAULTS, KIND_QUERY
from transis.node.node import ENGINES, Node, engine_of, foreign_kinds
from transis.totem.engine import TotemEngine
from transis.totem.packets import encode_token
from transis.types.config import Config
from transis.types.ids import NodeId
from transis.types.outputs import NodeOutput, Note, Port
from transis.wire.burst import KIND_DATA
from transis.wire.control import KIND_PART, ControlPacket, encode_control
from transis.wire.envelope import Sealer

ME = NodeId("me", 1, 5)
KINDS = {name: frozenset(packet.kind for packet in engine.packets) for name, engine in ENGINES.items()}


def heard(node: Node, body: bytes) -> list[NodeOutput]:
    node.receive(1, Port.CONTROL, [Sealer("transis", ANN, None).seal(body)])
    return node.outputs()


def started(engine: str = "totem") -> Node:
    node = Node(Config("me", plaintext=True, engine=engine), {}, 5)
    node.start(0)
    node.outputs()
    return node


def test_the_default_is_the_ring() -> None:
    assert isinstance(engine_of(Config("me").validated(), ME, 0), TotemEngine)


def test_the_kinds_of_the_engines_are_apart_and_the_shared_ones_are_nobody_s() -> None:
    assert foreign_kinds("totem") == KINDS["lansis"]
    assert foreign_kinds("lansis") == KINDS["totem"]
    assert not KINDS["totem"] & KINDS["lansis"]
    assert not {KIND_DATA, KIND_PART, encode_control(BEACON)[0]} & (KINDS["totem"] | KINDS["lansis"])


@pytest.mark.parametrize("kind", [KIND_ALIVE, KIND_FAULTS, KIND_QUERY])
def test_a_ring_tells_once_that_somebody_runs_lansis(kind: int) -> None:
    node = started()
    (note,) = heard(node, bytes([kind]) + b"anything")
    assert isinstance(note, Note)
    assert note.what == "rejected"
    assert dict(note.detail)["field"] == "engine"
    assert heard(node, bytes([kind]) + b"anything") == []
    assert node.rejections == {"engine": 2}


def test_packets_of_the_ring_are_not_rejected_on_a_ring() -> None:
    node = started()
    said: tuple[ControlPacket, ...] = (JOIN, COMMIT, WAKE, BEACON)
    for body in (*map(encode_control, said), encode_token(TOKEN)):
        heard(node, body)
    assert not node.rejections
