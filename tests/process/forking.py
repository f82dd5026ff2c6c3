"""Children that are really forked, and what happened in them."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from transis.types.errors import ForkedError


class Child:
    """A child that does its work, says what came of it, and lives on until it is let go."""

    def __init__(self, work: Callable[[], Any]) -> None:
        heard, said = os.pipe()
        waits, self._let_go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _live(work, said, waits, self._let_go)
        os.close(said)
        os.close(waits)
        with open(heard, "rb") as told:
            self.result: Any = msgspec.json.decode(told.read())

    def end(self) -> None:
        os.close(self._let_go)
        os.waitpid(self.pid, 0)


def _live(work: Callable[[], Any], said: int, waits: int, let_go: int) -> None:
    """Never returns: what else the test's process would do is not for its child."""
    try:
        try:
            result = work()
        except BaseException:
            result = traceback.format_exc()
        os.close(let_go)
        with open(said, "wb") as told:
            told.write(msgspec.json.encode(result))
        os.read(waits, 1)
    finally:
        os._exit(0)


def in_child(work: Callable[[], Any]) -> Any:
    child = Child(work)
    child.end()
    return child.result


def refusals(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """What each call says in a child; "" for one that does not refuse. A coroutine must refuse at its first step."""
    return {name: _refusal(call) for name, call in calls.items()}


def _refusal(call: Callable[[], Any]) -> str:
    try:
        begun = call()
        if inspect.isawaitable(begun):
            begun.__await__().send(None)
    except ForkedError as refused:
        return str(refused)
    except (Exception, StopIteration) as other:
        return f"{type(other).__name__}: {other}"
    return ""


def not_refused(told: dict[str, str]) -> dict[str, str]:
    """The calls that did not say the one sentence, which names the parent."""
    words = f"belongs to process {os.getpid()}, and this process was forked from it"
    return {name: said for name, said in told.items() if words not in said}


def own_links() -> set[str]:
    """What the descriptors of this process lead to: sockets by their inodes, files by their paths."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue  # That of this very listing.
    return found
