"""Contexts that were not entered: whoever uses one as if it were the session, the group or the node is told what to write.

Type checkers see nothing of this: they say it in their own way, and before the program runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from transis.types.errors import UsageError


class Unentered:
    """`_remedy` is what to write. A name that is missing stays an AttributeError, so `hasattr` answers as ever."""

    _remedy: ClassVar[str] = ""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self).__name__
            remedy = f": {self._remedy}" if not name.startswith("_") else ""
            raise AttributeError(f"{kind!r} has no attribute {name!r}{remedy}", name=name, obj=self)

        def _refuse(self, *_: object) -> NoReturn:
            raise UsageError(self._remedy)

        __iter__ = __aiter__ = __await__ = _refuse


class UnenteredAsync(Unentered):
    """What `async with` enters, and `with` does not."""

    if not TYPE_CHECKING:
        __enter__ = __exit__ = Unentered._refuse


class UnenteredBlocking(Unentered):
    """What `with` enters, and `async with` does not."""

    if not TYPE_CHECKING:
        __aenter__ = __aexit__ = Unentered._refuse
