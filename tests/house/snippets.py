"""The Python that the documents show, as modules that can be type-checked.

1. A line of a module has the number that it has in its page, so that an error leads there.
2. What awaits outside of a function (a reader pastes it into `python -m asyncio`) is put into a coroutine.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Final, NamedTuple

from tests.house.sources import ROOT

PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("examples/*/README.md")))

NAMES: Final = {"class Lock:": "lock", "class Accounts:": "accounts"}
"""Snippets that other snippets import, by a line of theirs."""

UNTYPED: Final = "import pyarrow"
"""It has no types of its own, and so pyright cannot be strict with who uses it."""


class Snippet(NamedTuple):
    """Python of a page, and the number of the line that opens it."""

    page: Path
    line: int
    code: str

    @property
    def module(self) -> str:
        named = next((name for line, name in NAMES.items() if line in self.code.splitlines()), "")
        return named or "_".join((*self.page.relative_to(ROOT).with_suffix("").parts, "line", str(self.line))).lower()

    def as_module(self) -> str:
        padding = ("# pyright: standard" if UNTYPED in self.code else "") + "\n" * (self.line - 1)
        if _is_module(self.code):
            return f"{padding}\n{self.code}"
        return f"{padding}async def pasted() -> None:\n{textwrap.indent(self.code, '    ')}"


def _is_module(code: str) -> bool:
    try:
        compile(code, "snippet", "exec")
    except SyntaxError:
        return False
    return True


def snippets() -> list[Snippet]:
    found: list[Snippet] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            found.append(Snippet(page, text.count("\n", 0, match.start()) + 1, match[1]))
    return found


def write_snippets(directory: Path) -> list[Path]:
    """Each as a module in this directory."""
    written: list[Path] = []
    for one in snippets():
        written.append(directory / f"{one.module}.py")
        written[-1].write_text(one.as_module(), encoding="utf-8")
    return written
