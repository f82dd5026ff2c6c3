"""Coverage-guided fuzzing of every decoder of the wire room, of attributes of messages and of what replicas say (atheris):

    python tests/fuzz/fuzz_wire.py -runs=20000

Whatever the bytes are, each decoder must answer with a packet or a `Rejection`; an exception ends the run with the
bytes that caused it. What decodes is encoded again, so that encoders meet every packet that decoders let through.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.prsl.test_messages import BULK, MESSAGES
from tests.wire.samples import BEACON, COMMIT, JOIN, PROBE, TOKEN, WAKE  # the tests are no package of ours
from transis.client.attributes import PLAIN, split_payload, time_at, with_attributes
from transis.prsl.messages import decode_bulk, decode_message, encode
from transis.totem.packets import Token, decode_token, encode_token
from transis.types.errors import Rejection
from transis.types.ids import DatagramClass, NodeId, RingTag, Service, ViewId, ViewKind
from transis.types.outputs import Lane, OutboundRun, Phase
from transis.wire.burst import (
    DATA_HEADER_SIZE,
    Burst,
    DataHeader,
    decapsulate,
    decode_data_header,
    encapsulate,
    encode_data,
    read_bursts,
)
from transis.wire.control import PartAssembler, decode_control, encode_control, split
from transis.wire.envelope import Opener, Sealer
from transis.wire.outbox import Outbox
from transis.wire.reassembly import Assembler

NODE = NodeId("ann", 1, 2)
VIEW = ViewId(ViewKind.REGULAR, 4, NODE)
KEY = bytes(32)
HEADER = DataHeader(DatagramClass.SAFE, RingTag(4, 2), 0, 1, 0, 0, 0, 0, False, False)


def try_envelope(data: bytes) -> None:
    for key in (None, KEY):
        opener = Opener("transis", key)
        opener.open(data)
        assert not isinstance(opener.open(Sealer("transis", NODE, key).seal(data)), Rejection), "our own datagram"
        opener.open(Sealer("transis", NODE, key).seal(b"body")[: len(data)] + data)


def try_data(data: bytes) -> None:
    header = decode_data_header(data)
    if isinstance(header, DataHeader):
        assert encode_data(header, data[DATA_HEADER_SIZE:]) == data, "a header that decodes differently than it encodes"
    outer = HEADER._replace(encapsulated=True)
    bursts, _ = decapsulate(Burst(outer, [encapsulate(outer, data)]))
    for burst in bursts + read_bursts([data, data[:60], data])[0]:
        burst.check()


def try_token(data: bytes) -> None:
    token = decode_token(data)
    if isinstance(token, Token):
        assert encode_token(token) == data, "a token that decodes differently than it encodes"


def try_control(data: bytes) -> None:
    packet = decode_control(data)
    if not isinstance(packet, Rejection):
        assert decode_control(encode_control(packet)) == packet, "a packet that does not come back"


def try_parts(data: bytes) -> None:
    assembler = PartAssembler()
    for body in (data, data[:40], data):
        assembler.feed(b"ann", body)


def try_stream(data: bytes) -> None:
    """The first byte chooses the class and where the stream is cut."""
    choice = data[0] if data else 0
    klass, size = DatagramClass(choice % 4), 1 + choice // 4
    bodies = [data[start : start + size] for start in range(1, len(data), size)] or [b""]
    headers = [HEADER._replace(klass=klass, seq=1 + step, index=step) for step in range(len(bodies))]
    datagrams = [encode_data(header, body) for header, body in zip(headers, bodies, strict=True)]
    whole = _feed(Burst(headers[0], datagrams))
    single = _feed(*(Burst(header, [datagram]) for header, datagram in zip(headers, datagrams, strict=True)))
    assert whole == single, "deliveries depend on how the bursts were cut"


def try_replica(data: bytes) -> None:
    for decode in (decode_message, decode_bulk):
        message = decode(data)
        assert isinstance(message, Rejection) or decode(encode(message)) == message, "a message that does not come back"


def _feed(*bursts: Burst) -> list[tuple[object, ...]]:
    assembler = Assembler()
    runs = [run for burst in bursts for run in assembler.feed(burst, NODE, VIEW, Phase.REGULAR, False, burst.first_seq)]
    parts = [part for run in runs for part in run.parts()]
    return [
        (one.process, one.first_counter, one.place, one.event_us, [bytes(payload) for payload in one.payloads]) for one in parts
    ]


def try_attributes(data: bytes) -> None:
    attributes, rest = split_payload(data)
    if attributes is PLAIN:
        assert rest == data, "a payload without attributes is data"
        return
    time = None if attributes.event_us is None else time_at(attributes.event_us)
    again = with_attributes(rest, attributes.key, attributes.headers, time)
    assert split_payload(again) == (attributes, rest), "attributes that do not come back"


TRIALS = (try_envelope, try_data, try_token, try_control, try_parts, try_stream, try_attributes, try_replica)


def try_one(data: bytes) -> None:
    """The first byte chooses the decoder, so that the fuzzer's mutations stay with one layout."""
    if data:
        TRIALS[data[0] % len(TRIALS)](data[1:])


def corpus() -> list[bytes]:
    """One good packet of every kind for its decoder: nested layouts are not found by chance."""
    packets = (JOIN, COMMIT, BEACON, WAKE, PROBE)
    good = [(try_token, encode_token(TOKEN)), *((try_control, encode_control(packet)) for packet in packets)]
    good += [(try_parts, part) for part in split(7, encode_control(JOIN), 80)]
    good += [(try_data, encode_data(HEADER, b"body")), (try_envelope, Sealer("transis", NODE, None).seal(b"body"))]
    good += [(try_replica, encode(message)) for message in (*MESSAGES, *BULK)]
    outbox = Outbox(200, 1 << 16)
    outbox.submit(Lane.APPLICATION, OutboundRun(0, b"to", Service.SAFE, 1, [b"one", b"two", bytes(700)]), None)
    good += [(try_stream, b"\xff" + b"".join(filled.body for filled in outbox.fill(8)))]
    outbox.submit(Lane.APPLICATION, OutboundRun(0, b"to", Service.SAFE, 4, [b"one", b"two", bytes(700)], 5), None)
    good += [(try_stream, b"\xff" + b"".join(filled.body for filled in outbox.fill(8)))]
    good += [(try_attributes, with_attributes(b"data", b"key", {"name": b"value"}, time_at(7)))]
    return [bytes([TRIALS.index(trial)]) + data for trial, data in good]


def main() -> int:
    try:
        import atheris
    except ImportError:
        sys.stderr.write("skipped: atheris is not installed here, so there is no coverage-guided fuzzing\n")
        return 0
    with TemporaryDirectory() as directory:
        for number, data in enumerate(corpus()):
            (Path(directory) / str(number)).write_bytes(data)
        atheris.instrument_all()
        atheris.Setup([*sys.argv, directory], try_one)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
