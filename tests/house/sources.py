"""Reading our own source text: which files there are, in which room, and what they import.

Shared by the tests of the house. Everything is read from the syntax tree, so a name in a string or a comment is never mistaken
for its use.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "transis"

# Rooms that two machines must agree on: no clock, no randomness of their own, no sockets, no threads.
ROOMS_WITHOUT_IO = (
    "types",
    "wire",
    "engine",
    "totem",
    "lansis",
    "groups",
    "node",
    "sessions",
    "domains",
    "prsl",
    "trace",
    "sim",
    "audit/guarantees",
    "audit/draw",
)


class Import(NamedTuple):
    module: str  # dotted, absolute
    line: int


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def room_files(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def rooms() -> list[str]:
    """The rooms that exist: folders of the package that hold code."""
    return sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("**/*.py")))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(module: ast.Module, package: str) -> Iterator[Import]:
    """Every import in the file, also inside functions and under TYPE_CHECKING: an arrow is an arrow wherever it stands.

    `package` is the dotted package the file lies in, to make relative imports absolute. `from a import b` yields `a.b`,
    because b may be a module; a caller that looks at the first parts only does not mind when it is not.
    """
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            yield from (Import(f"{base}.{alias.name}", node.lineno) for alias in node.names)


def absolute(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    parts = package.split(".")
    above = parts[: len(parts) - (node.level - 1)]
    return ".".join([*above, node.module] if node.module else above)


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").parent.parts)


def dotted(node: ast.expr) -> str:
    """`a.b.c` for a chain of names, the empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""
