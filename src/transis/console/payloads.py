"""Bytes that anybody may have sent, on a terminal: what is no plain text is escaped, so that it can neither hide nor command."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

SHOWN_MAX: Final = 2_000
"""Characters of one message on a terminal; a pipe gets all of them."""


def shown(payload: bytes, most: int | None = None) -> str:
    """Text as it is; the rest as `\\n`, `\\x00` or `\\u202e`."""
    cut = payload if most is None else payload[: 4 * most]
    text = cut.decode("utf-8", "backslashreplace")
    if most is not None and (len(text) > most or len(cut) < len(payload)):
        return f"{printable(text[:most])}… ({len(payload):,} bytes)"
    return printable(text)


def printable(text: str) -> str:
    """What a terminal would obey instead of show is escaped."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def as_json(payload: bytes) -> dict[str, str]:
    """`text` if it is text, else `base64`."""
    try:
        return {"text": payload.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": b64encode(payload).decode()}
