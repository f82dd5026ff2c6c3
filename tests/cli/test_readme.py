"""The README is run: what it tells people to paste works as it stands there, and every command in it exists with its options."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.running import Command, Up, brought_up
from tests.house.sources import ROOT
from transis.cli.main import app

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_pictures_are_what_the_script_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "scripts/pictures.py", tmp_path], cwd=ROOT, check=True)
    drawn = {path.relative_to(tmp_path): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.svg")}
    kept = {path: (ROOT / "docs" / path).read_text(encoding="utf-8") for path in drawn}
    assert kept == drawn, "draw them again: .venv/bin/python scripts/pictures.py"
    pages = README + (ROOT / "docs" / "play.md").read_text(encoding="utf-8")
    assert all(path.name in pages for path in drawn), "each is shown somewhere"


def test_documents_that_are_named_exist() -> None:
    """Of the README and of the index of documents, which names every page there is."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    named = {ROOT / name for name in links(README)} | {ROOT / "docs" / name for name in links(index)}
    assert [path for path in named if not path.exists()] == []
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= links(index)


def links(page: str) -> set[str]:
    """Files that a page links to."""
    return {name.partition("#")[0] for name in re.findall(r"\]\(([^)#][^)]*)\)", page)}


def lines() -> list[list[str]]:
    return [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]


def pasted(up: Up, block: str) -> Command:
    """Into `python -m asyncio`, with the empty line that ends it, and nothing after: the terminal stays open."""
    return Command([sys.executable, "-m", "asyncio"], up.env, f"{block}\n".encode())


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """The README's own cluster."""
    command = next(line for line in lines() if line[1] == "up")
    with brought_up(*command[2:], "--faults") as cluster:
        cluster.until("whole")
        yield cluster


@pytest.mark.slow
def test_the_example_works_in_two_terminals(up: Up) -> None:
    example = blocks("python")[1]
    first = pasted(up, example)
    try:
        mine = first.out.until(r"says b'new order'").split("says")[0].split()[-1]
        second = pasted(up, example)
        try:
            theirs = next(name for name in first.out.until(r"members now: .* n1/1#").split() if "#" in name and name != mine)
            assert theirs in first.out.until(rf"{theirs} says b'new order'")
            second.out.until(rf"members now: .*{mine}.*{theirs}|members now: .*{theirs}.*{mine}")
            second.out.until(rf"{theirs} says b'new order'")
        finally:
            second.clean_up()
        first.out.until(rf"members now: {mine}$")
    finally:
        first.clean_up()


@pytest.mark.slow
def test_two_terminals_of_the_shell(up: Up) -> None:
    recv, send = (next(line for line in lines() if line[1] == name) for name in ("recv", "send"))
    listening = up.start(*recv[1:])
    listening.out.until("1 member")
    assert up.run(*send[1:])[0] == 0
    listening.out.until(f": {send[-1]}$")
    listening.signal(signal.SIGINT)
    assert listening.ended()[0] == 0


@pytest.mark.slow
def test_a_program_can_be_a_node_itself(up: Up) -> None:
    up.env["XDG_STATE_HOME"] = str(up.directory)
    terminal = pasted(up, blocks("python")[0])
    try:
        terminal.out.until(r"members: ann/1#\d+")
        terminal.out.until(r"ann/1#\d+ b'new order'")
    finally:
        terminal.clean_up()


@pytest.mark.parametrize("line", lines(), ids=" ".join)
def test_every_command_and_option_exists(line: list[str]) -> None:
    assert line[0] == "transis"
    outcome = CliRunner().invoke(app, [line[1], "--help"], env={"COLUMNS": "200"})
    assert outcome.exit_code == 0
    for word in line[2:]:
        if word.startswith("--"):
            assert re.search(rf"{word}\b", outcome.stdout), f"{word} is no option of {line[1]}"
