"""The pages of claims are true: sections are the papers' own, every test they name runs, and no numbered item is forgotten."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.sources import PACKAGE, ROOT, python_files, shown, tree
from transis.audit.guarantees import ALL_MEANINGS
from transis.sim.play import EXAMPLES
from transis.sim.scripts import parse_script

PAPERS_PAGE = (ROOT / "docs" / "claims.md").read_text()
TRAPS_PAGE = (ROOT / "docs" / "traps.md").read_text()
PAGE = PAPERS_PAGE + TRAPS_PAGE
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


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """What pytest finds in the files that are named, long tests included."""
    files = sorted({path for path, _ in NAMED_TESTS} | {"tests/sim/test_scripts.py"})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider", *files]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout[-2000:] + told.stderr[-2000:]
    return {line.strip() for line in told.stdout.splitlines() if "::" in line}


@pytest.mark.slow
def test_every_named_test_and_example_is_collected(collected: set[str]) -> None:
    functions = {line.partition("[")[0] for line in collected} | {line.partition("::")[0] for line in collected}
    named = {f"{path}::{function}" if function else path for path, function in NAMED_TESTS}
    assert named - functions == set()
    assert {f"tests/sim/test_scripts.py::test_script[{name.removesuffix('.txt')}]" for name in NAMED_SCRIPTS} - collected == set()


def skips_without_reason(path: Path) -> list[int]:
    """Lines that skip a test, or all of a file, and do not say why."""
    found = []
    nodes = list(ast.walk(tree(path)))
    called = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif") and ast.unparse(node).startswith("pytest."):
            call = called.get(id(node))
            keywords = {keyword.arg for keyword in call.keywords} if call else set()
            is_told = call is not None and ("reason" in keywords or (node.attr == "skip" and call.args))
            found += [] if is_told else [node.lineno]
    return found


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED_TESTS}))
def test_a_named_test_is_not_skipped_without_a_reason(path: str) -> None:
    assert skips_without_reason(ROOT / path) == []


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("@pytest.mark.skip\ndef test_x(): pass", False),
        ("@pytest.mark.skip()\ndef test_x(): pass", False),
        ("@pytest.mark.skipif(WINDOWS)\ndef test_x(): pass", False),
        ("pytest.skip()", False),
        ("@pytest.mark.skipif(WINDOWS, reason='no fork')\ndef test_x(): pass", True),
        ("pytest.skip('needs root')", True),
        ("pytest.skip(reason='needs root')", True),
    ],
)
def test_a_skip_without_a_reason_is_seen(line: str, is_told: bool, tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(line)
    assert (skips_without_reason(path) == []) == is_told


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


# --- the five papers ------------------------------------------------------------------------------------------------

PAPERS = tomllib.loads((ROOT / "tests" / "house" / "papers.toml").read_text())

KEPT = ("kept", "otherwise", "in part")
WITHOUT_TEST = ("measured", "not yet", "no claim")


class Claim(NamedTuple):
    paper: str
    section: str
    claim: str
    state: str
    where: str
    numbers: str
    tests: str

    @property
    def sections(self) -> list[str]:
        return self.section.split("; ")


def claims(paper: str) -> list[Claim]:
    table = re.findall(r"^\| (.*)\|$", section(paper), re.MULTILINE)[1:]
    return [Claim(paper, *map(str.strip, row.split("|"))) for row in table]


CLAIMS = [claim for paper in PAPERS for claim in claims(paper)]


@pytest.mark.parametrize("paper", PAPERS)
def test_the_sections_of_claims_are_those_of_the_paper_and_none_is_forgotten(paper: str) -> None:
    named = {section for claim in claims(paper) for section in claim.sections}
    assert named == set(PAPERS[paper]["sections"])


@pytest.mark.parametrize("paper", PAPERS)
def test_the_figures_of_claims_exist(paper: str) -> None:
    figures = {int(number) for number in re.findall(r"[Ff]igures? (\d+)", section(paper))}
    figures |= {int(number) for number in re.findall(r"[Ff]igures \d+ (?:to|and) (\d+)", section(paper))}
    assert figures
    assert max(figures) <= PAPERS[paper]["figures"]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.paper} {claim.section}")
def test_a_claim_that_is_kept_names_its_file_and_its_test(claim: Claim) -> None:
    assert claim.state in (*KEPT, *WITHOUT_TEST)
    has_test = bool(re.search(r"`(?:tests/[\w/]+\.py|\w+\.txt)", claim.tests))
    assert has_test == (claim.state in KEPT)
    if claim.state in KEPT or claim.state == "measured":
        assert claim.where
    if claim.state == "otherwise":
        assert claim.numbers
    assert all(path.is_file() for path in (PACKAGE / name for name in re.findall(r"`([\w/]+\.py)`", claim.where)))


def citations(text: str) -> list[tuple[str, str]]:
    """Papers with a section, such as lansis-1992 3.1."""
    return re.findall(rf"\b({'|'.join(PAPERS)})`?,? (?:section )?(\d(?:\.\d)?)\b", text)


def test_what_is_cited_anywhere_is_a_section_of_that_paper() -> None:
    files = {*python_files("src", "tests"), *(ROOT / "docs").glob("*.md"), *EXAMPLES.rglob("*.txt")} - {Path(__file__)}
    found = {(shown(path), paper, number) for path in files for paper, number in citations(path.read_text(encoding="utf-8"))}
    assert [one for one in sorted(found) if one[2] not in PAPERS[one[1]]["sections"]] == []
    assert len(found) > 20


def test_a_wrong_section_is_seen() -> None:
    ((paper, number),) = citations("as transis-1992 section 7.1 says")
    assert number not in PAPERS[paper]["sections"]


# --- numbered deviations ----------------------------------------------------------------------------------------------

PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
LANSIS = (ROOT / "docs" / "lansis.md").read_text()
DEVIATIONS = re.findall(r"^\| (D\d+) \|.*\| ((?:`[\w/]+\.py`(?:, )?)+) \|$", PROTOCOL, re.MULTILINE)
NUMBERS = [number for number, _ in DEVIATIONS] + re.findall(r"^\| ([MPTS]\d+[a-z]?) \|", LANSIS, re.MULTILINE)


def named_in(text: str) -> set[str]:
    return set(re.findall(r"\b[DMPTS]\d+[a-z]?\b", text))


def deviations_with_a_test() -> set[str]:
    """Those in the first column of a table whose last column names a test."""
    tables = section("Numbered deviations") + section("Lansis, the mode `transis`")
    rows = re.findall(r"^\| ([^|]*) \|(?:.*\|)? .*`(?:tests/[\w/]+\.py|\w+\.txt).* \|$", tables, re.MULTILINE)
    return set().union(*map(named_in, rows))


def test_every_deviation_has_a_test_or_is_said_to_have_none() -> None:
    tested, without = deviations_with_a_test(), named_in(section("Not covered yet, and why"))
    assert [number for number in NUMBERS if number not in tested | without] == []
    assert tested <= set(NUMBERS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.paper} {claim.section}")
def test_the_numbers_of_a_claim_are_those_of_deviations(claim: Claim) -> None:
    assert named_in(claim.numbers) <= set(NUMBERS)


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
