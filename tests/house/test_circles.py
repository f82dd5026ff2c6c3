"""Files import each other in no circle: whoever reads a file can read what it stands on first.

Imports inside functions count; those that only a type checker reads do not, because they name what is handed in.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from tests.house.sources import PACKAGE, dotted, imports, package_of, python_files, tree

LAZY_ROOTS = {"__init__", "testing/__init__"}
"""They hand out public names, and import what they are asked for; nothing of theirs is needed below."""


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def file_of(module: str, names: set[str]) -> str | None:
    """The file that an imported name leads to: a module, or what is in one."""
    parts = module.split(".")[1:]
    while parts:
        for name in ("/".join(parts), "/".join([*parts, "__init__"])):
            if name in names:
                return name
        parts.pop()
    return None


def graph() -> dict[str, set[str]]:
    files = {name_of(path): path for path in python_files("src")}
    names = set(files) - LAZY_ROOTS
    return {name: leads_to(files[name], names) - {name} for name in names}


def leads_to(path: Path, names: set[str]) -> set[str]:
    modules = [one.module for one in imports(needed(tree(path)), package_of(path)) if one.module.startswith("transis.")]
    return {file for file in (file_of(module, names) for module in modules) if file is not None}


def needed(module: ast.Module) -> ast.Module:
    """A file without what stands under `if TYPE_CHECKING`."""
    typing_only = [node for node in module.body if isinstance(node, ast.If) and dotted(node.test) == "TYPE_CHECKING"]
    return ast.Module([node for node in module.body if node not in typing_only], [])


def circles(leads: Mapping[str, set[str]]) -> list[list[str]]:
    """What is left when files that import nothing that is left are taken away, again and again; likewise from above."""
    left = {name: set(targets) for name, targets in leads.items()}
    while done := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in done}
    while left and (unused := left.keys() - set().union(*left.values())):
        left = {name: targets for name, targets in left.items() if name not in unused}
    return [[name, *sorted(targets & left.keys())] for name, targets in sorted(left.items())]


def test_files_import_each_other_in_no_circle() -> None:
    assert circles(graph()) == []


def test_the_graph_is_that_of_the_package() -> None:
    leads = graph()
    assert "engine/base" in leads["totem/engine"]
    assert sum(map(len, leads.values())) > 1000


def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"], ["c", "b"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
