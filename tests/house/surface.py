"""The public names as text: classes with their members, functions with their signatures, as a user of the package sees them.

1. What is public: `__all__` of the package, of `blocking` and of `testing`, the errors, and every class of ours that the
   annotations of these lead to.
2. Annotations are resolved and told without the module that holds a class, and a class that has a public name by that name: a
   class may move to another file, and that is no difference.
3. Members are told flat: which base class a method stands in is nobody's business. Constructors count where users call them.
"""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args, get_origin

import transis
from transis import blocking, errors, testing
from transis.settings.schema import NodeArguments

CONSTRUCTED: Final = (
    *("Node", "Transfer", "Json", "MsgPack", "Raw", "Position", "MessageId", "ProcessId", "View"),
    *("Timing", "Pulse", "Window", "SessionPolicy"),
)
"""Classes that users make; the others are handed to them."""

PROTOCOLS: Final = (
    *("__enter__", "__exit__", "__aenter__", "__aexit__", "__call__", "__await__"),
    *("__iter__", "__next__", "__aiter__", "__anext__", "__len__", "__getitem__", "__contains__"),
)
IMPORTED_FOR_TYPES: Final = {"NodeArguments": NodeArguments}
"""What modules import for type checkers only."""
ROOM_IN_FRONT: Final = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")


def surface() -> str:
    """All of it, by the place where a user finds it."""
    rooms = {
        "transis": {name: getattr(transis, name) for name in transis.__all__},
        "transis.blocking": {name: getattr(blocking, name) for name in blocking.__all__},
        "transis.testing": {name: getattr(testing, name) for name in testing.__all__},
        "transis.errors": {name: thing for name, thing in vars(errors).items() if _is_error(thing)},
    }
    return "\n".join(_Surface(rooms).lines()) + "\n"


def _is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseException)


def _only_refuses(kind: type, name: str) -> bool:
    """It is there to say what to write instead."""
    return getattr(getattr(kind, name, None), "__name__", "") == "_refuse"


def _is_ours(thing: object) -> bool:
    return isinstance(thing, type) and thing.__module__.partition(".")[0] == "transis"


class _Surface:
    def __init__(self, rooms: dict[str, dict[str, object]]) -> None:
        self._rooms = rooms
        self._public = {
            thing: name for things in reversed(rooms.values()) for name, thing in things.items() if isinstance(thing, type)
        }
        self._reached: dict[type, str] = {}

    def lines(self) -> Iterator[str]:
        for room, things in self._rooms.items():
            yield from (f"# {room}", "")
            for name in sorted(things):
                yield from (*self._told(name, things[name]), "")
        yield from ("# what these lead to", "")
        told: dict[type, list[str]] = {}
        while waiting := [kind for kind in self._reached if kind not in told]:
            told |= {kind: list(self._class(self._reached[kind], kind)) for kind in waiting}
        for lines in sorted(told.values()):
            yield from (*lines, "")

    def _told(self, name: str, thing: Any) -> Iterator[str]:
        if isinstance(thing, type):
            yield from self._class(name, thing)
        elif inspect.isroutine(thing):
            yield from self._function(name, thing)
        elif _is_ours(type(thing)):
            yield f"{name}: {self._named(type(thing))}"
        else:
            yield f"{name}: {type(thing).__name__}"

    # --- classes ----------------------------------------------------------------------------------------------------

    def _class(self, name: str, kind: type) -> Iterator[str]:
        is_told = _is_error(kind) or issubclass(kind, enum.Enum)
        yield f"class {name}({', '.join(map(self._named, kind.__bases__))})" if is_told else f"class {name}"
        if hasattr(kind, "_fields"):
            yield f"    in this order: {', '.join(kind._fields)}"
        yield from (f"    {line}" for member in self._names(kind) for line in self._member(name, kind, member))

    def _names(self, kind: type) -> list[str]:
        ours = [vars(base) for base in kind.__mro__ if _is_ours(base)]
        named = {name for members in ours for name in (*members, *members.get("__annotations__", ()))}
        found = {name for name in named if not name.startswith("_") or (name in PROTOCOLS and not _only_refuses(kind, name))}
        return [*(("__init__",) if self._is_made(kind) else ()), *sorted(found)]

    def _is_made(self, kind: type) -> bool:
        is_public = self._named(kind) in CONSTRUCTED or _is_error(kind)
        return is_public and any("__init__" in vars(base) for base in kind.__mro__ if _is_ours(base))

    def _member(self, owner: str, kind: type, name: str) -> Iterator[str]:
        holder = next((base for base in kind.__mro__ if name in vars(base)), None)
        member: Any = vars(holder)[name] if holder is not None else None
        if isinstance(member, enum.Enum):
            yield f"{name} = {member.value!r}"
        elif name == "__init__":
            yield from self._function("__init__", kind.__init__)
        elif isinstance(member, property):
            assert member.fget is not None, "a property that cannot be read"
            yield f"{name}: {self._annotation(typing.get_type_hints(member.fget)['return'])}"
        elif isinstance(member, staticmethod | classmethod):
            yield from self._function(name, member.__func__, f"{type(member).__name__} ")
        elif inspect.isfunction(member):
            yield from self._function(name, member)
        else:
            hints = typing.get_type_hints(kind)
            yield f"{name}: {self._annotation(hints[name])}" if name in hints else name

    # --- functions --------------------------------------------------------------------------------------------------

    def _function(self, name: str, function: Callable[..., Any], kind: str = "") -> Iterator[str]:
        several = typing.get_overloads(function) or [function]
        word = "async def" if inspect.iscoroutinefunction(function) else "def"
        yield from (f"{kind}{word} {name}{self._signature(one)}" for one in several)

    def _signature(self, function: Callable[..., Any]) -> str:
        hints = typing.get_type_hints(function, localns=IMPORTED_FOR_TYPES)
        signature = inspect.signature(function)
        parameters = [
            one.replace(annotation=_Verbatim(self._annotation(hints[one.name]))) if one.name in hints else one
            for one in signature.parameters.values()
        ]
        back = _Verbatim(self._annotation(hints["return"])) if "return" in hints else signature.return_annotation
        return str(signature.replace(parameters=parameters, return_annotation=back))

    # --- annotations ------------------------------------------------------------------------------------------------

    def _annotation(self, kind: Any) -> str:
        if isinstance(kind, str):
            return ROOM_IN_FRONT.sub("", kind)
        if isinstance(kind, list):
            return f"[{', '.join(map(self._annotation, kind))}]"
        if kind in (None, type(None), Ellipsis):
            return "..." if kind is Ellipsis else "None"
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return " | ".join(map(self._annotation, arguments))
        if origin is typing.Literal:
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if origin is not None:
            return f"{self._named(origin)}[{', '.join(map(self._annotation, arguments))}]"
        return self._named(kind)

    def _named(self, kind: Any) -> str:
        if kind in self._public:
            return self._public[kind]
        name = str(getattr(kind, "__qualname__", None) or getattr(kind, "__name__", None) or kind)
        if _is_ours(kind):
            self._reached.setdefault(kind, name)
        return ROOM_IN_FRONT.sub("", name)


class _Verbatim:
    """Shown in a signature as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
