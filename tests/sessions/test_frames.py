"""Frames between a client and its node: their bytes, and how they come out of a stream however it is cut."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.samples import ANN, BOB
from transis.sessions.frames import (
    CLIENT_FRAMES,
    FRAME_MAX,
    MESSAGE_COST,
    NODE_FRAMES,
    Answer,
    Ask,
    Bye,
    Changed,
    Checkpoint,
    ClientFrame,
    Configured,
    Credit,
    Done,
    Follow,
    Frame,
    FrameReader,
    Goodbye,
    Hello,
    Inquire,
    Join,
    Joined,
    Leave,
    Left,
    NamedHello,
    NodeFrame,
    NotJoined,
    NotSent,
    Send,
    SendToPrimary,
    Stream,
    Welcome,
    WithoutQuorum,
    cost,
    decode_value,
    encode_frame,
    encode_value,
)
from transis.types.errors import Rejection
from transis.types.ids import Place, ProcessId, Service, ViewId, ViewKind
from transis.types.limits import ADDRESS_MAX, MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.views import Cause, GroupCause, GroupView, GroupViewId, Member, Origin, View, group_id

VIEW = ViewId(ViewKind.TRANSITIONAL, 12, ANN)
PROCESS = ProcessId(ANN, 3)
GROUP_VIEW = GroupView(
    group_id("x"),
    "x",
    GroupViewId(VIEW, Place(5, 1)),
    (PROCESS,),
    (PROCESS,),
    (ProcessId(BOB, 1),),
    (Origin(GroupViewId(VIEW, Place(0, 0)), (PROCESS,)),),
    GroupCause("configuration", None, Cause("token lost", ANN, (BOB,), "token_loss")),
    True,
    ("x",),
)

REGULAR = ViewId(ViewKind.REGULAR, 8, ANN)
CONFIGURATION = View(VIEW, REGULAR, (Member(ANN, "a:1", REGULAR),), Cause("token lost", ANN, (BOB,), "token_loss"), 77)

NODE = "93a3616e6e03cf0a0a0a0a0a0a0a0a"
OTHER = "93a3626f6201cfffffffffffffffff"
PROCESS_BYTES = f"92{NODE}03"
VIEW_BYTES = f"93010c{NODE}"
REGULAR_BYTES = f"930008{NODE}"
CAUSE_BYTES = f"94aa746f6b656e206c6f7374{NODE}91{OTHER}aa746f6b656e5f6c6f7373"

FROM_CLIENT: list[tuple[Frame, str]] = [
    (Hello(1, "me", 4096), "9401 01 a26d65 cd1000"),
    (Join("x"), "9202 a178"),
    (Leave("x"), "9203 a178"),
    (Send(b"\x01", Service.SAFE, [b"a", b""], 300), "950a c40101 03 92c40161c400 cd012c"),
    (SendToPrimary(b"\x01", Service.SAFE, [b"a", b""], 300), "950d c40101 03 92c40161c400 cd012c"),
    (Credit(300), "9205 cd012c"),
    (Ask(7, "statistics"), "9306 07 aa73746174697374696373"),
    (Bye(), "9107"),
    (NamedHello(1, "me", 4096, "x"), "950b 01 a26d65 cd1000 a178"),
    (Inquire(7, "members", "x", PROCESS, 5), f"960c 07 a76d656d62657273 a178 {PROCESS_BYTES} 05"),
    (Follow(), "9108"),
    (
        Checkpoint("x", GroupViewId(VIEW, Place(5, 1)), 7, PROCESS, 9, Place(10, 2), b"d"),
        f"9809 a178 92{VIEW_BYTES}920501 07 {PROCESS_BYTES} 09 920a02 c40164",
    ),
    (
        Checkpoint("x", GroupViewId(VIEW, Place(5, 1)), 0, None, 0, Place(0, 0), b"d"),
        f"9809 a178 92{VIEW_BYTES}920501 00 c0 00 920000 c40164",
    ),
]
FROM_NODE: list[tuple[Frame, str]] = [
    (Welcome(1, "c", PROCESS, 1 << 20), f"9521 01 a163 {PROCESS_BYTES} ce00100000"),
    (Joined("x"), "9222 a178"),
    (NotJoined("x", "no"), "9323 a178 a26e6f"),
    (
        Stream(PROCESS, b"\x01", Service.AGREED, VIEW, -1, 4, [(9, 0, 1), (10, 0, 1)], [b"a", b"b"], [(300, 2)], 34),
        f"9b2d {PROCESS_BYTES} c40101 02 {VIEW_BYTES} ff 04 92 93090001 930a0001 92c40161c40162 9192cd012c02 22",
    ),
    (
        Changed(GROUP_VIEW),
        f"9225 9b {msgspec.msgpack.encode(int(group_id('x'))).hex()} a178 92{VIEW_BYTES}920501 91{PROCESS_BYTES}"
        f"91{PROCESS_BYTES} 9192{OTHER}01 919292{VIEW_BYTES}920000 91{PROCESS_BYTES} 93ad636f6e66696775726174696f6ec0"
        f"{CAUSE_BYTES} c3 91a178 c2",
    ),
    (Left("x", "left"), "9326 a178 a46c656674"),
    (Done(1, 9, VIEW), f"942c 01 09 {VIEW_BYTES}"),
    (NotSent(1, 9, "no"), "9428 01 09 a26e6f"),
    (Answer(7, b"v", ""), "9429 07 c40176 a0"),
    (Goodbye("why"), "922a a3776879"),
    (Credit(300), "9205 cd012c"),
    (WithoutQuorum("why", held=True, raises=False), "942f a3776879 c3 c2"),
    (
        Configured(CONFIGURATION),
        f"922b 96 {VIEW_BYTES}{REGULAR_BYTES} 9194{NODE}a3613a31{REGULAR_BYTES}c400 {CAUSE_BYTES} 4d a3657673",
    ),
]
BOTH = [(CLIENT_FRAMES, *one) for one in FROM_CLIENT] + [(NODE_FRAMES, *one) for one in FROM_NODE]


@pytest.mark.parametrize(("decoder", "frame", "golden"), BOTH, ids=lambda one: type(one).__name__)
def test_golden_bytes_and_back(decoder: msgspec.msgpack.Decoder[Frame], frame: Frame, golden: str) -> None:
    """A red test here means that clients and nodes of two releases would misunderstand each other (traps 32)."""
    body = bytes.fromhex(golden)
    assert encode_frame(frame) == len(body).to_bytes(4) + body
    assert FrameReader(decoder).feed(encode_frame(frame)) == [frame]


def test_every_kind_of_frame_is_here() -> None:
    assert {type(frame) for frame, _ in FROM_CLIENT} == set(get_args(ClientFrame))
    assert {type(frame) for frame, _ in FROM_NODE} == set(get_args(NodeFrame))


def test_no_two_kinds_of_frames_share_a_tag() -> None:
    kinds = {*get_args(ClientFrame), *get_args(NodeFrame)}
    assert len({kind.__struct_config__.tag for kind in kinds}) == len(kinds)


def test_what_comes_back_has_its_types() -> None:
    (frame,) = FrameReader(NODE_FRAMES).feed(encode_frame(Changed(GROUP_VIEW)))  # type: ignore[misc]
    assert isinstance(frame, Changed)
    assert isinstance(frame.view, GroupView)
    assert frame.view.kind is ViewKind.TRANSITIONAL
    assert frame.view.merged_from[0].members[0].node.name == "ann"


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (Send(b"", Service.BASIC, [b"abc", b""], 0), 3 + 2 * MESSAGE_COST),
        (Stream(PROCESS, b"", Service.BASIC, VIEW, 0, 1, [], [b"abc"], [], 3 + MESSAGE_COST), 3 + MESSAGE_COST),
        (Changed(GROUP_VIEW), 4 * MESSAGE_COST),
        (Left("x", "left"), MESSAGE_COST),
        (Configured(CONFIGURATION), 2 * MESSAGE_COST),
        (Follow(), 0),
        (Done(1, 1_000_000, VIEW), 0),
        (Goodbye("x" * 1000), 0),
        (Credit(1), 0),
    ],
    ids=lambda one: type(one).__name__,
)
def test_cost(frame: Frame, expected: int) -> None:
    assert cost(frame) == expected


@given(st.lists(st.sampled_from([frame for frame, _ in FROM_CLIENT]), max_size=12), st.lists(st.integers(1, 40)))
def test_any_cut_gives_the_same_frames(frames: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, frames))
    reader, got, position = FrameReader(CLIENT_FRAMES), [], 0
    for size in [*cuts, len(stream)]:
        read = reader.feed(stream[position : position + size])
        assert not isinstance(read, Rejection)
        got += read
        position += size
    assert got == frames
    assert reader.waiting == 0


@given(st.lists(st.binary(max_size=60), max_size=8), st.sampled_from([CLIENT_FRAMES, NODE_FRAMES]))
def test_any_bytes_are_frames_or_a_rejection(pieces: list[bytes], decoder: msgspec.msgpack.Decoder[Frame]) -> None:
    reader = FrameReader(decoder)
    for piece in pieces:
        read = reader.feed(piece)
        if isinstance(read, Rejection):
            assert read.field in {"length", "frame"}
            return
        assert all(isinstance(frame, msgspec.Struct) for frame in read)


@given(st.sampled_from(BOTH), st.data())
def test_a_frame_with_wrong_bytes_in_it_is_a_frame_or_a_rejection(one: tuple[object, Frame, str], data: st.DataObject) -> None:
    body = bytearray.fromhex(one[2])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    for decoder in (CLIENT_FRAMES, NODE_FRAMES):
        read = FrameReader(decoder).feed(len(body).to_bytes(4) + body)
        assert isinstance(read, Rejection) or len(read) == 1


@pytest.mark.parametrize(
    "body",
    [
        msgspec.msgpack.encode([1, 1, "x" * 129, 1]),
        msgspec.msgpack.encode([1, 1, "x", 0]),
        msgspec.msgpack.encode([1, 1, "x"]),
        msgspec.msgpack.encode([1, 1, "x", 1, 1]),
        msgspec.msgpack.encode([4, bytes(ADDRESS_MAX + 1), 2, [b""]]),
        msgspec.msgpack.encode([4, b"", 9, [b""]]),
        msgspec.msgpack.encode([4, b"", 2, []]),
        msgspec.msgpack.encode([4, b"", 2, [b""] * (RUN_MESSAGES_MAX + 1)]),
        msgspec.msgpack.encode([5, 0]),
        msgspec.msgpack.encode([5, -1]),
        msgspec.msgpack.encode([6, 1, "x" * 65]),
        msgspec.msgpack.encode([9, "x", [[0, 8, ["ann", 3, 1]], [0, 0]], 0, None, 0, [0, 0], b""]),
        msgspec.msgpack.encode([9, "x", [[0, 8, ["ann", 3, 1]], [0, 0]], 0, None, 0, [0, 0], bytes(65)]),
        msgspec.msgpack.encode([33, 1, "c", [["ann", 3, 1], 3], 1]),
        msgspec.msgpack.encode({"type": 1}),
        b"",
        b"\xc1",
        b"\x91" * 2000,
    ],
)
def test_limits_are_checked_before_anything_is_made_of_it(body: bytes) -> None:
    read = FrameReader(CLIENT_FRAMES).feed(len(body).to_bytes(4) + body)
    assert isinstance(read, Rejection)
    assert read.field == "frame"


def test_a_length_beyond_the_limit_is_refused_before_the_bytes_come() -> None:
    assert FRAME_MAX > MESSAGE_MAX
    read = FrameReader(CLIENT_FRAMES).feed((FRAME_MAX + 1).to_bytes(4))
    assert read == Rejection("length", f"a frame of {FRAME_MAX + 1} bytes, at most {FRAME_MAX} are allowed")


def test_the_largest_message_fits_a_frame() -> None:
    data = encode_frame(Send(bytes(ADDRESS_MAX), Service.SAFE, [bytes(MESSAGE_MAX)], 0))
    reader = FrameReader(CLIENT_FRAMES)
    assert reader.feed(data[:-1]) == []
    assert reader.waiting == len(data) - 1
    (frame,) = reader.feed(data[-1:])  # type: ignore[misc]
    assert len(frame.payloads[0]) == MESSAGE_MAX


def test_frames_keep_nothing_of_the_buffer_they_came_in() -> None:
    buffer = bytearray(encode_frame(Send(b"\x01", Service.SAFE, [b"keep"], 0)))
    (frame,) = FrameReader(CLIENT_FRAMES).feed(memoryview(buffer))  # type: ignore[misc]
    buffer[:] = bytes(len(buffer))
    assert (frame.address, frame.payloads) == (b"\x01", [b"keep"])


def test_answers_carry_plain_values() -> None:
    value = {"queue": 3, "groups": ["x"], "state": "Operational", "rate": 1.5, "primary": None}
    assert decode_value(encode_value(value)) == value
