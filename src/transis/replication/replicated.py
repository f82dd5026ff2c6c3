"""`@replicated`: a class whose actions run everywhere in one order. It is checked when it is decorated.

    @replicated
    class Accounts:
        def __init__(self) -> None:
            self.balance: dict[str, int] = {}

        @replicated.action
        def move(self, a: str, b: str, amount: int) -> int: ...

        @replicated.query
        def of(self, a: str) -> int: ...

1. It stays a class like any other: an object of it that is not replicated works, and is what its tests use.
2. Arguments and results are what msgspec can carry; each has a type, since what arrives is checked against it.
3. An action may only depend on the state and its arguments. For the time and for lots there is `context` (context.py).
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeVar

import msgspec

from transis.types.errors import UsageError

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

MARK: Final = "_transis_kind"
HOME: Final = "_transis_methods"

RESERVED: Final = frozenset(
    {"admin", "ask", "call", "close", "end", "group", "life", "me", "post", "read", "restore", "snapshot", "status"}
)
"""What a replica is asked by these names is not the class's."""

MethodKind = Literal["action", "query"]


class Method:
    """An action or a query: its arguments and its result <-> bytes."""

    def __init__(self, owner: type, name: str, function: Callable[..., Any], kind: str) -> None:
        self.name = name
        self.kind = kind
        self.function = function
        where = f"{owner.__name__}.{name}"
        self._where = where
        parameters = _parameters(where, function)
        hints = _hints(where, function)
        for one in (*parameters, "return"):
            if one not in hints:
                raise UsageError(f"{where}: {'its result' if one == 'return' else repr(one)} has no type: write one")
        self._signature = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *parameters.values()])
        self._arguments = _decoder(where, tuple[tuple(hints[one] for one in parameters)] if parameters else tuple[()])  # type: ignore[misc]
        self._result = _decoder(where, hints["return"])

    def encode(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes:
        """A call as it travels. TypeError for arguments that the method does not have, UsageError for values of another type."""
        bound = self._signature.bind(None, *arguments, **named)
        bound.apply_defaults()
        try:
            encoded = msgspec.msgpack.encode(bound.args[1:])
            self._arguments.decode(encoded)
        except (msgspec.MsgspecError, TypeError, OverflowError, ValueError) as error:
            raise UsageError(f"{self._where}: {self._named(str(error))}") from None
        return msgspec.msgpack.encode((self.name, msgspec.Raw(encoded)))

    def _named(self, error: str) -> str:
        """The argument by its name, where msgspec says `$[2]`."""
        names = list(self._signature.parameters)[1:]
        return re.sub(r"`\$\[(\d+)\](.*?)`", lambda found: f"`{names[int(found[1])]}{found[2]}`", error)

    def arguments(self, encoded: bytes) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self._arguments.decode(encoded)
        return found

    def encode_result(self, value: Any) -> bytes:
        try:
            return msgspec.msgpack.encode(value)
        except (TypeError, OverflowError, ValueError, msgspec.MsgspecError) as error:
            raise UsageError(f"the result of {self._where} cannot be carried: {error}") from None

    def result(self, encoded: bytes) -> Any:
        try:
            return self._result.decode(encoded)
        except msgspec.MsgspecError as error:
            raise UsageError(f"the result of {self._where} is not of the type that it says: {error}") from None


Methods = dict[str, Method]


def methods_of(kind: type) -> Methods:
    """What a replicated class has; UsageError if it is none."""
    found = vars(kind).get(HOME)
    if not isinstance(found, dict):
        raise UsageError(f"machine: {kind.__name__} is no replicated class: write @replicated above it")
    return found


class Replicated:
    """What `replicated` is: a decorator of classes, and of their actions and queries."""

    def __call__(self, kind: C) -> C:
        """Check the class of this `kind`, and remember its actions and queries."""
        methods: Methods = {}
        for name in sorted({one for base in kind.__mro__ for one in vars(base)}):
            marks = {getattr(vars(base)[name], MARK, "") for base in kind.__mro__ if name in vars(base)}
            if len(marks) > 1:
                raise UsageError(f"{kind.__name__}.{name} is marked in one class and not so in another: mark it alike in both")
            for mark in marks - {""}:
                methods[name] = Method(kind, name, getattr(kind, name), mark)
        _check(kind, methods)
        setattr(kind, HOME, methods)
        return kind

    def action(self, method: F) -> F:
        """This `method` changes the state: it runs at every replica, at one place of the order."""
        return _marked(method, "action")

    def query(self, method: F) -> F:
        """This `method` only looks at the state."""
        return _marked(method, "query")


replicated: Final = Replicated()


def _marked(method: F, kind: MethodKind) -> F:
    if not inspect.isfunction(method):
        raise UsageError(f"@replicated.{kind} stands above a method, and this is {type(method).__name__}")
    setattr(method, MARK, kind)
    return method


def _check(kind: type, methods: Methods) -> None:
    if not any(method.kind == "action" for method in methods.values()):
        raise UsageError(f"{kind.__name__} has no action: write @replicated.action above the methods that change it")
    for name in methods:
        if name in RESERVED or name.startswith("_"):
            raise UsageError(f"{kind.__name__}.{name}: a replica has a method of this name, or hides it: choose another one")
    has = [one for one in ("snapshot", "restore") if callable(getattr(kind, one, None))]
    if len(has) == 1:
        raise UsageError(f"{kind.__name__} has {has[0]} alone: write both snapshot and restore, or neither")


def _parameters(where: str, function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{where} is async: what changes or reads the state runs at one place of the order, so leave out async")
    if inspect.isgeneratorfunction(function):
        raise UsageError(f"{where} is a generator: return a list")
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].name != "self":
        raise UsageError(f"{where} is no method: its first parameter is self")
    for one in parameters[1:]:
        if one.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise UsageError(f"{where}: {one.name!r} is not a plain parameter: leave out *, ** and /")
    return {one.name: one for one in parameters[1:]}


def _hints(where: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise UsageError(f"{where}: its types cannot be read ({error}): they must be there when the class is decorated") from None


def _decoder(where: str, kind: Any) -> msgspec.msgpack.Decoder[Any]:
    try:
        for foreign in _foreign(msgspec.inspect.type_info(kind), set()):
            raise TypeError(f"{foreign} cannot be carried")
        return msgspec.msgpack.Decoder(kind)
    except TypeError as error:
        raise UsageError(f"{where}: {error}. Use what msgspec can: numbers, text, bytes, lists, dicts, dataclasses") from None


def _foreign(info: Any, seen: set[int]) -> Iterator[Any]:
    """The types in it that msgspec knows nothing of."""
    if id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        yield info.cls
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        yield from _foreign(msgspec.structs.astuple(info), seen)
    elif isinstance(info, tuple):
        for one in info:
            yield from _foreign(one, seen)
