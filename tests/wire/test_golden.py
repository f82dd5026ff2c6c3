"""Golden bytes of every packet kind, field by field as the layouts say (traps 32).

A red test here means that nodes of two builds would no longer understand each other: raise the wire version, or undo it.
"""

from __future__ import annotations

import pytest

from tests.wire.samples import (
    ANN,
    BEACON,
    COMMIT,
    DATA_HEADER,
    JOIN,
    KEY,
    PROBE,
    PROBE_ANSWER,
    TOKEN,
    WAKE,
)
from transis.totem.packets import encode_token
from transis.types.ids import DatagramClass, Service
from transis.types.outputs import Lane, OutboundRun
from transis.wire.burst import encapsulate, encode_data
from transis.wire.control import ControlPacket, config_digest, decode_control, encode_control, split
from transis.wire.envelope import Sealer
from transis.wire.outbox import Outbox

RING_TAG = "0000000000000008 0a0a0a0a0a0a0a0a"
HEADER_MIDDLE = f"0002 {RING_TAG} 00000005 000000000000004d 00000000000f4240 0000000000000102 0004 01"
NODES = "93 93a3616e6e03cf0a0a0a0a0a0a0a0a 93a3626f6201cfffffffffffffffff 93a3636964070c"
ANN_ADDRESS = "ad31302e302e302e313a37303030"
ENVELOPE_END = "d29f4887ee551eaf 3aaae613c930e3eb546567ae3daafdc7 0000000000000001"

CONTROL = [
    (
        JOIN,
        f"03 9f {NODES} 00 {ANN_ADDRESS} c404696e666f 08 c40107 c40104 c40103 92 94000201c40104 94010101c40100 0c 01 c2 4f"
        "c4086469676573742121 920101",
    ),
    (
        COMMIT,
        f"04 99 {NODES} 0c 01 05 00 01 01 94 aa746f6b656e206c6f7374 00 9102 aa746f6b656e5f6c6f7373 92"
        f"9b 00 {ANN_ADDRESS} c400 c3 920800 c4086d656d6265727321 ccfa ccf9 c3 c40105 50"
        "9b 01 ad31302e302e302e323a37303030 c400 c2 c0 c400 00 00 c2 c40100 00",
    ),
    (BEACON, f"05 9a {NODES} 00 {ANN_ADDRESS} 08 00 c40103 c40107 51 c4086469676573742121 920101"),
    (WAKE, f"06 {RING_TAG} 0000000000000063"),
    (PROBE, f"07 92 93a3616e6e03cf0a0a0a0a0a0a0a0a {ANN_ADDRESS}"),
    (
        PROBE_ANSWER,
        "10 94 93a3616e6e03cf0a0a0a0a0a0a0a0a 93a3626f6201cfffffffffffffffff a57374616c65 93a3616e6e04cf0a0a0a0a0a0a0a0a",
    ),
]


def test_data() -> None:
    assert encode_data(DATA_HEADER, b"body") == bytes.fromhex(f"01 03 00 {HEADER_MIDDLE} 626f6479")


def test_encapsulated_data() -> None:
    header = DATA_HEADER._replace(encapsulated=True)
    assert encapsulate(header, b"old") == bytes.fromhex(f"01 03 01 {HEADER_MIDDLE} 6f6c64")


def test_token() -> None:
    assert encode_token(TOKEN) == bytes.fromhex(
        f"02 01 0001 0002 {RING_TAG} 0000000000000063 00000005 000000000000012c 00000000000000fa 0002 0000000c"
        "0000000000001000 000000000000004e 02 000031000000 000001000027"
    )


@pytest.mark.parametrize(("packet", "golden"), CONTROL, ids=lambda value: type(value).__name__)
def test_control(packet: ControlPacket, golden: str) -> None:
    assert encode_control(packet) == bytes.fromhex(golden)
    assert decode_control(bytes.fromhex(golden)) == packet


def test_plaintext_envelope() -> None:
    assert Sealer("transis", ANN, None).seal(b"body") == bytes.fromhex(f"5473 01 00 {ENVELOPE_END} 626f6479")


def test_sealed_envelope() -> None:
    sealed = Sealer("transis", ANN, KEY).seal(b"body")
    assert sealed == bytes.fromhex(f"5473 01 01 {ENVELOPE_END} b0958922 b3cba354ba6e40123a4bd2c8ba2a59e0")


def test_parts() -> None:
    assert split(258, b"\x03abcdef", 18) == [b"\x03abcdef"]
    assert split(258, b"\x03" + b"a" * 18, 18) == [
        bytes.fromhex(f"09 03 0000000000000102 {index:04x} 0005") + share
        for index, share in enumerate((b"\x03aaa", b"aaaa", b"aaaa", b"aaaa", b"aaa"))
    ]


def test_config_digest() -> None:
    assert config_digest(("totem", 1400)) == bytes.fromhex("6c1a529a3fe20fd0")


def test_uniform_and_mixed_runs() -> None:
    outbox = Outbox(64, 1000)
    outbox.submit(Lane.APPLICATION, OutboundRun(5, b"to", Service.AGREED, 9, [b"one", b"two"]), None)
    outbox.submit(Lane.APPLICATION, OutboundRun(5, b"to", Service.SAFE, 11, [b"one", b""]), None)
    (filled,) = outbox.fill(1)
    assert filled.body == bytes.fromhex(
        "01 02 00000005 0000000000000009 0002 0002 746f 00000003 6f6e65 74776f"
        "02 03 00000005 000000000000000b 0002 0002 746f 00000003 00000000 6f6e65"
    )


def test_fragments() -> None:
    outbox = Outbox(64, 1000)
    outbox.submit(Lane.APPLICATION, OutboundRun(5, b"to", Service.SAFE, 13, [b"x" * 50]), None)
    (first,), (second,) = outbox.fill(1), outbox.fill(1)
    head = "03 03 00000005 000000000000000d 0002 00000034"
    assert first.body == bytes.fromhex(f"{head} 00000000 00000024 746f") + b"x" * 34
    assert second.body == bytes.fromhex(f"{head} 00000024 00000010") + b"x" * 16
    assert (first.klass, second.klass) == (DatagramClass.ORDERED, DatagramClass.SAFE)


def test_what_says_when_it_was_sent_has_the_time_behind_its_address() -> None:
    outbox = Outbox(64, 1000)
    outbox.submit(Lane.APPLICATION, OutboundRun(5, b"to", Service.AGREED, 9, [b"one", b"two"], 0x0102), None)
    outbox.submit(Lane.APPLICATION, OutboundRun(5, b"to", Service.SAFE, 11, [b"x" * 50], 0x0102), None)
    run, begin, rest = [one for _ in range(3) for one in outbox.fill(1)]
    assert run.body == bytes.fromhex("11 02 00000005 0000000000000009 0002 000a 746f 0000000000000102 00000003 6f6e65 74776f")
    head = "13 03 00000005 000000000000000b 000a 0000003c"
    assert begin.body == bytes.fromhex(f"{head} 00000000 00000024 746f 0000000000000102") + b"x" * 26
    assert rest.body == bytes.fromhex(f"{head} 00000024 00000018") + b"x" * 24
