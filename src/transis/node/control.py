"""What a program and its node in a child process tell each other beside the sessions: lines of JSON on two pipes.

Down: first the Begin, then Ask and Leave. Up: Opened once, then Viewed, Figures, and in the end one Ended. When the pipe down
ends, the program is gone, and the node leaves.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from transis.model.errors import ConfigError, IdentityError, NodeLost, TransisError
from transis.model.ids import NodeId
from transis.model.view import View
from transis.node.settings import NodeSettings

LINE_MAX: Final = 1 << 22
"""Bytes of one line: a view of the largest ring has a tenth of it."""


class _Line(msgspec.Struct, frozen=True, tag=True):
    """One line."""


class Begin(_Line, frozen=True):
    """`parent` is the process that wants the node, `socket` where it will find its sessions."""

    settings: NodeSettings
    parent: int
    socket: str


class Ask(_Line, frozen=True):
    number: int


class Leave(_Line, frozen=True):
    pass


class Opened(_Line, frozen=True):
    node: NodeId


class Viewed(_Line, frozen=True):
    view: View


class Figures(_Line, frozen=True):
    number: int
    figures: dict[str, int | str]


class Ended(_Line, frozen=True):
    """`error` is the name of the error that ended it, or nothing if it left; `field` is that of a ConfigError."""

    why: str
    error: str = ""
    field: str = ""


Down = Begin | Ask | Leave
Up = Opened | Viewed | Figures | Ended

_encoder: Final = msgspec.json.Encoder()
_down: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(Down)
_up: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(Up)


def encode_line(line: Down | Up) -> bytes:
    return _encoder.encode(line) + b"\n"


def decode_down(line: bytes) -> Down:
    decoded: Down = _down.decode(line)
    return decoded


def decode_up(line: bytes) -> Up:
    decoded: Up = _up.decode(line)
    return decoded


def ended_by(error: Exception) -> Ended:
    return Ended(str(error), type(error).__name__, error.field if isinstance(error, ConfigError) else "")


def error_of(ended: Ended) -> TransisError:
    """The child's error as the program sees it."""
    if ended.error == "IdentityError":
        return IdentityError(ended.why)
    if ended.error == "ConfigError":
        error = ConfigError(ended.field, None, "")
        error.args = (ended.why,)
        return error
    return NodeLost(f"the node's process failed: {ended.error}: {ended.why}")
