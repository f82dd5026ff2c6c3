"""Keeps the tree and the arrows in docs/architecture.md as they are in the code; the walks, and a sentence for each room, are
written by hand.

python -m tests.house.architecture            # says whether the page is true
python -m tests.house.architecture --write    # writes the tree and the arrows anew
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.house.sources import PACKAGE, ROOT, python_files, rooms
from tests.house.test_imports import ARROWS

PAGE: Final = ROOT / "docs" / "architecture.md"

END: Final = "<!-- end -->"

HALVES: Final = {
    "The core: no I/O, no clock, no randomness": "types wire engine totem lansis groups node sessions prsl",
    "The core on a machine": "process trace net settings client blocking replication embed daemon archive cli",
    "The bridge to Spark": "spark",
    "Observers: they read what the product does, and it never looks at them": "audit sim testing bench",
}
"""Every room of the package, in the order in which a reader needs them."""


def first_line(path: Path) -> str:
    """What a file says its job is."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".")


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.name not in {"__init__.py", "__main__.py"})


def folders() -> list[str]:
    """Every room, and the rooms inside `audit`, as a path."""
    return [folder for names in HALVES.values() for name in names.split() for folder in _folders(name)]


def _folders(room: str) -> Iterator[str]:
    for folder in [PACKAGE / room, *sorted(path for path in (PACKAGE / room).iterdir() if path.is_dir())]:
        if files_of(folder):
            yield folder.relative_to(PACKAGE).as_posix()


def sentences(page: str) -> dict[str, str]:
    """What the page says of each room."""
    return dict(re.findall(r"^\*\*`([\w/]+)/`\*\* (.+)$", page, re.MULTILINE))


def tree(said: dict[str, str]) -> str:
    """Room by room, each file with its job; the sentences about the rooms stay as they are."""
    return "\n\n".join(
        part
        for title, names in HALVES.items()
        for part in (f"### {title}", *(_room(folder, said) for name in names.split() for folder in _folders(name)))
    )


def _room(folder: str, said: dict[str, str]) -> str:
    files = files_of(PACKAGE / folder)
    return "\n".join([f"**`{folder}/`** {said.get(folder, '')}", "", *(f"- `{path.name}` {first_line(path)}" for path in files)])


def arrows() -> str:
    """A line for each room that exists, with what it may import."""
    there = rooms()
    return "\n".join(
        ["| room | may import, beside `types` |", "|---|---|", *(_arrow(room, there) for room in ARROWS if room in there)]
    )


def _arrow(room: str, there: list[str]) -> str:
    return f"| `{room}` | {' '.join(f'`{one}`' for one in sorted(ARROWS[room] - {room}) if one in there) or '–'} |"


def written(page: str) -> str:
    """The page with its made parts as they must be."""
    for name, text in (("tree", tree(sentences(page))), ("arrows", arrows())):
        page = re.sub(
            rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", lambda found, text=text: found[1] + text + found[2], page, flags=re.S
        )
    return page


def walked_files(page: str) -> set[str]:
    """The files that the walks name, as `room/file`."""
    walks = page.partition("## The seven walks")[2]
    return set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+)`", walks))


def missing(page: str) -> list[str]:
    """Files in the walks that do not exist."""
    there = {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in python_files("src")}
    return sorted(walked_files(page) - there)


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8")
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(written(before), encoding="utf-8")
    sys.exit(bool(missing(before)) or (written(before) != before and sys.argv[1:] != ["--write"]))
