"""A replicated class is checked when it is decorated, and stays a class like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.replica.accounts import Accounts
from transis import replicated
from transis.types.errors import UsageError


def test_it_works_without_a_cluster() -> None:
    accounts = Accounts()
    accounts.balance["7"] = 10
    assert accounts.move("7", "9", 3) == 7
    assert accounts.of("9") == 3


def with_(method: Callable[..., Any], name: str = "move", **more: Any) -> type:
    @replicated.action
    def fine(self: object) -> None:
        """Something to do."""

    return replicated(type("Book", (), {"fine": fine, name: replicated.action(method), **more}))


def without_a_type(self: object, a) -> None: ...  # type: ignore[no-untyped-def]
def without_a_result(self: object, a: int): ...  # type: ignore[no-untyped-def]
def strange(self: object, a: Iterator[int]) -> None: ...
def with_stars(self: object, *a: int) -> None: ...
def plain(self: object, a: int) -> None: ...
def selfless() -> None: ...
def unknown(self: object, a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
async def later(self: object, a: int) -> None: ...
def several(self: object, a: int) -> Iterator[int]:
    yield a


@pytest.mark.parametrize(
    ("method", "name", "why"),
    [
        (without_a_type, "move", "Book.move: 'a' has no type: write one"),
        (without_a_result, "move", "Book.move: its result has no type: write one"),
        (strange, "move", "Book.move: <class 'collections.abc.Iterator'> cannot be carried. Use what msgspec can"),
        (with_stars, "move", "Book.move: 'a' is not a plain parameter: leave out *, ** and /"),
        (plain, "status", "Book.status: a replica has a method of this name"),
        (plain, "_move", "Book._move: a replica has a method of this name, or hides it"),
        (selfless, "move", "Book.move is no method: its first parameter is self"),
        (unknown, "move", "Book.move: its types cannot be read (name 'Missing' is not defined)"),
        (later, "move", "Book.move is async: what changes or reads the state runs at one place of the order, so leave out async"),
        (several, "move", "Book.move is a generator: return a list"),
    ],
)
def test_what_is_wrong_is_named(method: Callable[..., Any], name: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        with_(method, name)
    assert str(raised.value).startswith(why)


def test_a_class_needs_an_action() -> None:
    with pytest.raises(UsageError, match="Empty has no action"):

        @replicated
        class Empty:
            pass


def test_a_snapshot_needs_its_restore() -> None:
    with pytest.raises(UsageError, match="Book has snapshot alone: write both"):
        with_(plain, snapshot=lambda self: [])


def test_marks_are_inherited_whole() -> None:
    class Child(Accounts):
        def move(self, a: str, b: str, amount: int) -> int:
            return 0

    with pytest.raises(UsageError, match=r"Child.move is marked in one class and not so in another"):
        replicated(Child)


def test_a_mark_stands_above_a_method() -> None:
    with pytest.raises(UsageError, match="stands above a method, and this is property"):
        replicated.action(property(lambda self: 1))  # type: ignore[type-var]
