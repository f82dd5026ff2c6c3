"""The state of a replicated object <-> bytes, for snapshots.

1. A class with `snapshot` and `restore` does it itself: chunks of bytes out, the same chunks in.
2. Otherwise its attributes are saved: those with a type in the class body by that type, all others if they are made of nothing
   but None, truth, numbers, text, bytes, lists and dicts, since these come back as they were. The rest is named.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from transis.types.errors import UsageError

PLAIN: Final = (type(None), bool, int, float, str, bytes)


def save(thing: object) -> Iterator[bytes]:
    snapshot = getattr(thing, "snapshot", None)
    if snapshot is None:
        yield _encoded(thing)
        return
    for chunk in snapshot():
        if not isinstance(chunk, bytes):
            raise UsageError(f"{type(thing).__name__}.snapshot yields {type(chunk).__name__}: it must yield bytes")
        yield chunk


def restore(thing: object, chunks: Iterable[bytes]) -> None:
    if hasattr(thing, "restore"):
        thing.restore(iter(chunks))
        return
    found = msgspec.msgpack.decode(b"".join(chunks), type=dict[str, msgspec.Raw])
    hints = _hints(thing)
    state = {name: msgspec.msgpack.decode(value, type=hints.get(name, Any)) for name, value in found.items()}
    vars(thing).clear()
    vars(thing).update(state)


def _encoded(thing: object) -> bytes:
    hints = _hints(thing)
    if not hasattr(thing, "__dict__"):
        raise UsageError(f"{type(thing).__name__} has slots: write snapshot and restore")
    for name, value in vars(thing).items():
        if name not in hints and (foreign := _foreign(value)) is not None:
            remedy = "give it a type in the class body, or write snapshot and restore"
            raise UsageError(f"{type(thing).__name__}.{name} holds {foreign.__name__}: {remedy}")
    return msgspec.msgpack.encode(vars(thing))


def _hints(thing: object) -> dict[str, Any]:
    return typing.get_type_hints(type(thing), include_extras=True)


def _foreign(value: Any) -> type | None:
    """A type in it that would come back as another one."""
    kind = type(value)
    if kind in PLAIN:
        return None
    if kind is list:
        parts = value
    elif kind is dict:
        parts = [*value, *value.values()]
    else:
        return kind
    return next((found for one in parts if (found := _foreign(one)) is not None), None)
