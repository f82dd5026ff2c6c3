"""The airline runs with one command, and what comes out is what its README shows."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from examples.airline.__main__ import main
from examples.airline.script import AGAIN, APART, FLIGHTS, TOGETHER, Request
from tests.cli.running import environment
from tests.house.sources import ROOT

README = (ROOT / "examples" / "airline" / "README.md").read_text(encoding="utf-8")


def tables(text: str) -> dict[str, str]:
    """By their titles."""
    return dict(re.findall(r"^### ([\w ]+)\n\n((?:\|.*\|\n?)+)", text, re.MULTILINE))


@pytest.mark.slow
def test_the_tables_are_those_of_the_readme(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.airline", "--keep", str(tmp_path / "kept")]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    shown, wanted = tables(ended.stdout), tables(README)
    assert list(shown) == ["Sold together", "Sold apart", "Oversold", "Proposals"]
    for title, table in shown.items():
        assert table.strip() == wanted[title].strip()
    assert (tmp_path / "kept" / "archive" / "archive.json").is_file()
    assert pq.read_table(tmp_path / "kept" / "tables" / "proposals").num_rows == len(wanted["Proposals"].splitlines()) - 2


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_place_to_keep_it_that_cannot_be_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / "file").touch()
    assert main(["--keep", str(tmp_path / name)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"airline: --keep '{tmp_path / name}' cannot be a directory (")
    assert told.endswith("): give a new one\n")


def test_without_pyspark_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['pyspark'] = None\nfrom examples.airline.__main__ import main\nsys.exit(main([]))"
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "airline: the pipeline needs an optional part: pip install 'transis[spark]'\n"


def test_the_tables_of_the_readme_follow_from_the_script() -> None:
    """By a plain replay: each side goes on from what all saw; then the majority's history, the other one, and what followed when
    they had told each other."""
    seats = {one.flight: one.seats for one in FLIGHTS}
    alone, others = APART.values()
    together = replay([], TOGETHER, seats)
    by_side = [replay(together, requests, seats)[len(together) :] for requests in (others, alone)]
    met = [*together, *by_side[0], *by_side[1]]
    history = replay(met, AGAIN, seats)
    rows = [line.split("|") for line in tables(README)["Sold together"].splitlines()[2:]]
    answers = {row[2].strip(): row[5].strip() for row in rows}
    assert answers == {one.passenger: "sold" if one in history else "full" for one in (*TOGETHER, *AGAIN)}
    assert "full" in answers.values(), "somebody is refused for what only the other side had sold"
    over = {flight: sum(one.flight == flight for one in history) - room for flight, room in seats.items()}
    rows = [line.split("|") for line in tables(README)["Oversold"].splitlines()[2:]]
    assert {row[1].strip(): int(row[6]) for row in rows} == {flight: count for flight, count in over.items() if count > 0}
    beyond = [
        one.passenger for at, one in enumerate(history) if [x.flight for x in history[:at]].count(one.flight) >= seats[one.flight]
    ]
    proposed = [line.split("|")[1].strip() for line in tables(README)["Proposals"].splitlines()[2:]]
    assert proposed == beyond


def replay(sold: list[Request], requests: Sequence[Request], seats: dict[str, int]) -> list[Request]:
    """What was sold before, and those that got a seat."""
    found = list(sold)
    for request in requests:
        if sum(one.flight == request.flight for one in found) < seats[request.flight]:
            found.append(request)
    return found
