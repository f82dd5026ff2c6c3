"""What the documents name is there: files, and other documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.sources import ROOT, python_files, shown
from transis.sim.play import EXAMPLES

PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "README.md", *ROOT.glob("examples/*/README.md")])
FOLDERS = ("src", "tests", "bench", "examples", "scripts")

ELSEWHERE = {"lock.py"}
"""Programs of users, in examples of the pages."""


def files_named(text: str) -> set[str]:
    """Python files in backticks: by their name, or by the end of their path."""
    return {name.removeprefix("./") for name in re.findall(r"`([\w./-]+\.py)(?:::\w+)?`", text)}


def there(name: str) -> bool:
    return any(f"/{shown(path)}".endswith(f"/{name}") for path in python_files(*FOLDERS))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = files_named(page.read_text(encoding="utf-8")) - ELSEWHERE
    assert sorted(name for name in named if not there(name)) == []


def test_a_file_that_is_gone_is_seen() -> None:
    (gone,) = files_named("see `stack/hearing.py` and `transis`")
    assert not there(gone)
    assert there("sim/run.py")


CITED = re.compile(r"\b(?:protocols|design|traces|perf|prsl) \d")
"""Notes that are not in the repository, cited by section. What they said is in docs/ or in the papers; cite those."""


def test_nothing_cites_what_a_reader_does_not_have() -> None:
    files = [*python_files(*FOLDERS), *PAGES, *EXAMPLES.rglob("*.txt")]
    texts = {path: path.read_text(encoding="utf-8") for path in files if path != Path(__file__)}
    found = [f"{shown(path)}: {one.group()}" for path, text in texts.items() for one in CITED.finditer(text)]
    assert found == []


def test_a_citation_is_seen() -> None:
    assert CITED.search("the order of recovery (protocols 1.8)")
    assert not CITED.search("the protocol's section 1.8")
