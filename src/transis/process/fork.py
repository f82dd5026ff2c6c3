"""After a fork: what a process has opened stays its own. A child gives it back at once, and using it there raises one sentence.

1. A fork copies descriptors. A child would hold its parent's locks, ports and connections for as long as it lives, and both would
   read from one socket. So in the child each of these numbers becomes one of /dev/null: what was open there is released, and
   closing the number later closes nothing that belongs to somebody else.
2. The threads that did the work do not exist in the child, so nothing inherited could work there. Each part gets
   a class that raises ForkedError whatever is asked of it: no method has to look where it runs, and no message pays for it.
3. A child may open nodes and sessions of its own, and the parent notices nothing.
"""

from __future__ import annotations

import os
from asyncio import BaseTransport
from collections.abc import Iterable
from types import new_class
from typing import Final, NoReturn, Protocol, runtime_checkable
from weakref import WeakSet

from transis.types.errors import ForkedError

# --- parts ------------------------------------------------------------------------------------------------------------


@runtime_checkable
class HoldsDescriptors(Protocol):
    def descriptors(self) -> Iterable[int]:
        """Those that are open now."""
        ...


def descriptors_of(transport: BaseTransport | None) -> list[int]:
    """The descriptors of a connection or pipe of asyncio's or uvloop's; none if it is lost."""
    opened = None if transport is None else transport.get_extra_info("pipe") or transport.get_extra_info("socket")
    return [opened.fileno()] if opened is not None and opened.fileno() >= 0 else []


_parts: Final[WeakSet[object]] = WeakSet()
_inherited: Final[list[object]] = []
"""In a child these are never destroyed, because destroying tasks and transports would run their ends a second time."""


def stays_here(part: object) -> None:
    """This part is of no use in a child; if it holds descriptors, they are not inherited. Its class has no `__slots__`."""
    _parts.add(part)


def is_inherited(part: object) -> bool:
    """Whether this process is a child of the one that made this part."""
    return type(part) in _INHERITED


# --- in the child -----------------------------------------------------------------------------------------------------

_WHAT, _PARENT = " what", " parent"
"""Keys beside the part's own attributes; no attribute can have such a name."""


_INHERITED: Final = WeakSet[type]()
"""The classes that parts have become."""


def _ask(part: object, name: str) -> object:
    if not name.startswith("__"):
        _refuse(part)
    return object.__getattribute__(part, name)


def _refuse(part: object, *_: object) -> NoReturn:
    what, parent = part.__dict__[_WHAT], part.__dict__[_PARENT]
    raise ForkedError(
        f"this {what} belongs to process {parent}, and this process was forked from it: open nodes and sessions of its own here"
    )


def _show(part: object) -> str:
    return f"<{part.__dict__[_WHAT]} of process {part.__dict__[_PARENT]}>"


_OPERATIONS: Final = ("aiter", "anext", "iter", "next", "enter", "exit", "aenter", "aexit")
_ANSWERS: Final = {"__slots__": (), "__getattribute__": _ask, "__repr__": _show} | {f"__{one}__": _refuse for one in _OPERATIONS}
"""What the class of an inherited part has in place of its own."""


_pid = os.getpid()


def _in_child() -> None:
    global _pid
    parent, _pid = _pid, os.getpid()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for part in list(_parts):
            _leave_behind(part, parent, nothing)
    finally:
        os.close(nothing)
        _inherited.extend(_parts)
        _parts.clear()


def _leave_behind(part: object, parent: int, nothing: int) -> None:
    if isinstance(part, HoldsDescriptors):
        for descriptor in part.descriptors():
            os.dup2(nothing, descriptor, inheritable=False)
    kind = type(part)
    what, mute = kind.__name__, new_class(kind.__name__, (kind,), exec_body=lambda names: names.update(_ANSWERS))
    _INHERITED.add(mute)
    object.__setattr__(part, "__class__", mute)
    part.__dict__.update({_WHAT: what, _PARENT: parent})


os.register_at_fork(after_in_child=_in_child)
