"""What a user finds without the documents: every public name explains itself, and shows nothing that is not for users."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import transis
from tests.house.sources import ROOT
from tests.house.surface import CONSTRUCTED
from transis import blocking, errors, testing

SELF_EVIDENT: Final = {"self", "name", "data", "timeout", "args", "kwargs"}
"""`timeout` is in seconds everywhere in `blocking`, which says so once."""

DOCUMENTS: Final = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))

Member = tuple[str, type, Any]


def classes() -> Iterator[tuple[str, type]]:
    for module in (transis, blocking, testing):
        yield from (
            (f"{module.__name__}.{name}", thing) for name in module.__all__ if isinstance(thing := getattr(module, name), type)
        )
    yield from ((f"errors.{name}", thing) for name, thing in vars(errors).items() if _is_ours(thing))


def _is_ours(thing: object) -> bool:
    return isinstance(thing, type) and thing.__module__.startswith("transis.")


def members() -> Iterator[Member]:
    """What a class of ours, or a base of it, defines under a public name."""
    for where, kind in classes():
        ours = [base for base in kind.__mro__ if _is_ours(base)]
        for name in sorted({name for base in ours for name in vars(base) if not name.startswith("_")}):
            member = next(vars(base)[name] for base in ours if name in vars(base))
            if isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member):
                yield f"{where}.{name}", kind, member


def functions() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Functions, methods and constructors that users call, and all that is said about their parameters."""
    for where, kind, member in members():
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if inspect.isfunction(function):
            yield where, function, f"{function.__doc__} {kind.__doc__}"
    for where, kind in classes():
        if kind.__name__ in CONSTRUCTED and inspect.isfunction(kind.__init__) and not hasattr(kind, "__dataclass_fields__"):
            yield where, kind.__init__, str(kind.__doc__)
    yield from ((f"{module.__name__}.connect", module.connect, str(module.connect.__doc__)) for module in (transis, blocking))


@pytest.mark.parametrize(("where", "kind"), [pytest.param(*one, id=one[0]) for one in classes()])
def test_a_class_says_what_it_is(where: str, kind: type) -> None:
    assert "__doc__" in vars(kind)
    assert kind.__doc__, f"{where} has no docstring"
    assert not kind.__doc__.startswith(f"{kind.__name__}("), f"{where} has only what was generated"


@pytest.mark.parametrize(("where", "kind", "member"), [pytest.param(*one, id=one[0]) for one in members()])
def test_a_member_says_what_it_is(where: str, kind: type, member: Any) -> None:
    assert inspect.getdoc(member), f"{where} has no docstring"


@pytest.mark.parametrize(("where", "function", "said"), [pytest.param(*one, id=one[0]) for one in functions()])
def test_a_parameter_is_named_where_it_is_explained(where: str, function: Callable[..., Any], said: str) -> None:
    words = " ".join(re.findall(r"`([^`]*)`", said))
    missing = {name for name in inspect.signature(function).parameters if not re.search(rf"\b{name}\b", words)} - SELF_EVIDENT
    assert not missing, f"{where} says nothing of {', '.join(sorted(missing))}"


@pytest.mark.parametrize(("where", "kind", "member"), [pytest.param(*one, id=one[0]) for one in members()])
def test_what_completion_offers_is_in_the_documents(where: str, kind: type, member: Any) -> None:
    """What is for nobody but us has an underscore."""
    assert re.search(rf"\b{where.rpartition('.')[2]}\b", DOCUMENTS), f"{where}: document it, or give it an underscore"
