"""Whatever somebody sends, a terminal shows it and obeys none of it."""

from __future__ import annotations

import json
from base64 import b64decode

from hypothesis import given
from hypothesis import strategies as st

from transis.cli.options import as_json, shown


@given(st.binary(max_size=200), st.none() | st.integers(1, 20))
def test_nothing_but_printable_characters_reaches_the_terminal(payload: bytes, most: int | None) -> None:
    assert shown(payload, most).isprintable()


@given(st.text(st.characters(categories=["L", "N", "P"]), max_size=50))
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    assert shown(text.encode()) == text


@given(st.binary(max_size=200))
def test_json_gives_back_every_byte(payload: bytes) -> None:
    value = json.loads(json.dumps(as_json(payload)))
    assert (value["text"].encode() if "text" in value else b64decode(value["base64"])) == payload


def test_a_long_message_is_cut_with_its_size() -> None:
    assert shown(b"x" * 5_000_000, 10) == "xxxxxxxxxx… (5,000,000 bytes)"
    assert shown(b"\xff" * 20, 3) == r"\xf… (20 bytes)"
    assert shown(b"short", 10) == "short"
