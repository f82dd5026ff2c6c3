"""The page of claims is true: every test it names exists, every worked example is on it, and no numbered item is forgotten."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.sources import PACKAGE, ROOT
from transis.audit.guarantees import ALL_MEANINGS
from transis.sim.play import EXAMPLES
from transis.sim.scripts import parse_script

PAGE = (ROOT / "docs" / "claims.md").read_text()
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.txt"))
NAMED_SCRIPTS = sorted(set(re.findall(r"`(\w+\.txt)`", PAGE)))
NAMED_TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))

TRAPS = 46
SCENARIOS = 57


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def numbers(table: str, kind: str = "") -> set[int]:
    """The numbers in the first column of a table, of the rows that start with a kind."""
    rows = re.findall(rf"^\| {kind}([\d, ]+) \|", table, re.MULTILINE)
    return {int(number) for row in rows for number in row.split(",")}


@pytest.mark.parametrize("name", NAMED_SCRIPTS)
def test_a_named_example_exists(name: str) -> None:
    assert name in SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_example_is_on_the_page(name: str) -> None:
    assert name in NAMED_SCRIPTS


@pytest.mark.parametrize(("path", "function"), NAMED_TESTS, ids=lambda part: part)
def test_a_named_test_exists(path: str, function: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert function in functions if function else any(name.startswith("test_") for name in functions)


@pytest.mark.parametrize(("title", "count"), [("Traps", TRAPS), ("Scenarios", SCENARIOS)])
def test_every_number_is_either_covered_or_said_not_to_be(title: str, count: int) -> None:
    covered = numbers(section(title))
    left_out = numbers(section("Not covered yet, and why"), f"{title.lower()} ")
    assert covered | left_out == set(range(1, count + 1))
    assert not covered & left_out


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_ends_with_all_guarantees_held(name: str) -> None:
    """What `held` is worth there, tests/sim/test_scripts.py asserts."""
    last = parse_script((EXAMPLES / name).read_text())[-1]
    assert last.commands[-1] == "check"
    assert last.expected.splitlines()[-1] == "held"
    assert not [line for line in last.expected.splitlines() if line.partition(":")[0] in ALL_MEANINGS]


# --- numbered deviations of the ring ----------------------------------------------------------------------------------

PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
DEVIATIONS = re.findall(r"^\| (D\d+) \|.*\| ((?:`[\w/]+\.py`(?:, )?)+) \|$", PROTOCOL, re.MULTILINE)


def head(name: str) -> str:
    """What the file says about itself, searched for first among the ring's own."""
    path = next(path for path in (PACKAGE / "totem" / name, PACKAGE / "engine" / name, PACKAGE / name) if path.exists())
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def test_deviations_are_numbered_without_gaps() -> None:
    assert [number for number, _ in DEVIATIONS] == [f"D{number}" for number in range(1, len(DEVIATIONS) + 1)]
    assert len(DEVIATIONS) == PROTOCOL.count("\n| D") >= 30


@pytest.mark.parametrize(("number", "files"), DEVIATIONS, ids=[number for number, _ in DEVIATIONS])
def test_a_deviation_stands_in_the_head_of_a_file_that_makes_it(number: str, files: str) -> None:
    heads = " ".join(head(name) for name in re.findall(r"`([\w/.]+)`", files))
    assert re.search(rf"\b{number}\b", heads)
