"""The fuzz entry under hypothesis, so that its assertions also run where atheris is not installed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.fuzz_wire import TRIALS, corpus, try_one
from tests.wire.samples import control_packets, data_headers, mutated, tokens
from transis.totem.packets import encode_token
from transis.wire.burst import encode_data
from transis.wire.control import encode_control

encodings = st.one_of(
    control_packets.map(encode_control), tokens().map(encode_token), data_headers.map(lambda header: encode_data(header, b"body"))
)


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.__name__)
@given(data=encodings | mutated(encodings) | st.binary(min_size=1, max_size=120))
def test_no_bytes_raise(trial: Callable[[bytes], None], data: bytes) -> None:
    trial(data)


def test_the_entry_takes_nothing_and_single_bytes() -> None:
    try_one(b"")
    for byte in range(256):
        try_one(bytes((byte,)))


def test_the_corpus_has_a_good_packet_for_every_decoder() -> None:
    for data in corpus():
        try_one(data)
    assert {data[0] for data in corpus()} == set(range(len(TRIALS)))
