"""`transis play`: examples are found, played as they are written, stepped through, and drawn; mistakes are named."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.running import environment
from tests.daemon.running import PATIENCE_S
from tests.house.sources import ROOT
from transis.audit.draw.spacetime import draw_html, draw_svg
from transis.cli.main import app
from transis.sim.faults import READERS
from transis.sim.picture import DAG_LAYER, TOKEN_LAYER
from transis.sim.play import EXAMPLES, example_names, load_example, paragraphs, picture_of_play, played
from transis.sim.scripts import COMMANDS, Player, parse_script
from transis.types.errors import UsageError

RUNNER = CliRunner()
PAGE = (ROOT / "docs" / "play.md").read_text(encoding="utf-8")


def player_of(name: str, engine: str = "totem") -> Player:
    player = Player(engine)
    assert all(one.is_as_written for one in played(player, load_example(name, engine)))
    return player


def test_the_examples_are_listed_with_a_sentence() -> None:
    listed = RUNNER.invoke(app, ["play"], env={"COLUMNS": "300"})
    assert listed.exit_code == 0
    for name in example_names():
        assert re.search(rf"^{name} +(totem|lansis|totem lansis) +\w", listed.stdout, re.MULTILINE), name


def test_an_example_comes_out_as_written_on_both_engines() -> None:
    for engine in ("totem", "lansis"):
        outcome = RUNNER.invoke(app, ["play", "scenario_13_causal_chain", "--engine", engine])
        assert outcome.exit_code == 0, outcome.output
        assert outcome.stdout.endswith("Everything came out as written.\n")


def test_what_comes_out_differently_is_shown_beside_what_the_script_says(tmp_path: Path) -> None:
    script = tmp_path / "mine.txt"
    script.write_text("# Two nodes.\ncluster a b\nsettle\n----\nat rest in R99{a,b}\n")
    outcome = RUNNER.invoke(app, ["play", str(script)])
    assert outcome.exit_code == 1
    lines = [line.strip() for line in outcome.stdout.splitlines()]
    assert lines[1:6] == ["Two nodes.", "> cluster a b", "> settle", "at rest in R4{a,b}", "but the script says:"]
    assert lines[6] == "at rest in R99{a,b}"


def test_a_defect_shows_in_an_example_that_is_about_it() -> None:
    outcome = RUNNER.invoke(app, ["play", "f1_safe_message_of_a_lost_sender", "--broken", "transitional_only_deliver_memb"])
    assert outcome.exit_code == 1
    assert "but the script says:" in outcome.stdout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("views", "'views': a script starts with a cluster"),
        ("cluster a a", "a cluster needs nodes with names that differ"),
        ("cluster", "a cluster needs nodes with names that differ"),
        ("cluster a config.nothing=1", "'nothing' is not there"),
        ("cluster a config.window.window=0", "window.window = 0"),
        ("cluster a profile=slow", "profile = 'slow'"),
        ("cluster a\nfly", "block 1: 'fly' is not a fault"),
        ("cluster a\ncrash b", "'crash b' leaves something out, or names a node that is not there; there are a"),
        ("cluster a\nrun", "'run' leaves something out"),
        ("cluster a\nrun 5", "'5' is not a duration"),
        ("simulate\nnothing 3", "'nothing' is not there"),
        ("simulate\nnames a\nat 5us fly", "'fly' is not a fault"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_block(tmp_path: Path, text: str, complaint: str) -> None:
    script = tmp_path / "mine.txt"
    script.write_text(f"{text}\n----\n")
    outcome = RUNNER.invoke(app, ["play", str(script)])
    assert outcome.exit_code == 2, outcome.output
    assert complaint in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_what_is_no_script_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for name, complaint in ((tmp_path, "cannot be read"), ("no_such", "lists them"), (binary, "text in UTF-8")):
        with pytest.raises(UsageError, match=complaint):
            load_example(str(name), "totem")
    with pytest.raises(UsageError, match="plays on totem only"):
        load_example("w9_old_first_rotation_token", "lansis")
    outcome = RUNNER.invoke(app, ["play", "f6_singleton", "--step"], env={"COLUMNS": "200"})
    assert (outcome.exit_code, "so it needs a terminal" in outcome.stderr) == (2, True)


def test_a_misspelt_example_gets_its_right_name() -> None:
    outcome = RUNNER.invoke(app, ["play", "paper_close_of_bussines"])
    assert (outcome.exit_code, outcome.stderr.count("\n")) == (2, 1)
    assert "did you mean paper_close_of_business?" in outcome.stderr


def test_prose_has_the_breaks_of_the_terminal_and_not_those_of_its_file() -> None:
    assert list(paragraphs(["# one", "# two", "#", "# three"])) == ["one two", "three"]


def test_a_file_is_preferred_to_an_example_of_its_name(tmp_path: Path) -> None:
    text = "cluster mine\nsettle\n----\nat rest in R0{mine}\n"
    (tmp_path / "f6_singleton.txt").write_text(text)
    with chdir(tmp_path):
        assert load_example("f6_singleton.txt", "totem").blocks == tuple(parse_script(text))
        assert load_example("f6_singleton", "totem").blocks != tuple(parse_script(text))


class Terminal:
    """A command on a terminal of its own: keys in, what is shown out."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "transis", *arguments]
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(TERM="xterm"))
        os.close(theirs)
        self._shown = ""

    def until(self, words: str) -> str:
        """What was shown since the last call, up to these words."""
        while words not in self._shown:
            assert select.select([self._ours], [], [], PATIENCE_S)[0], self._shown
            self._shown += os.read(self._ours, 65_536).decode()
        before, _, self._shown = self._shown.partition(words)
        return before

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._ours)


def test_a_reader_steps_to_the_next_block_and_back() -> None:
    terminal = Terminal("play", "paper_close_of_business", "--step")
    try:
        first = terminal.until("q: quit")
        assert "1 of 4" in first
        assert "boston: Operational in R8{boston,ny}" in first, "where the nodes are"
        terminal.press("x\r")
        assert "2 of 4" in terminal.until("q: quit"), "a key that means nothing is ignored"
        terminal.press("b")
        assert "1 of 4" in terminal.until("q: quit")
        for block in (2, 3, 4):
            terminal.press("n")
            assert f"{block} of 4" in terminal.until("Enter: end" if block == 4 else "q: quit")
        terminal.press("\r")
        assert terminal.process.wait(PATIENCE_S) == 0
    finally:
        terminal.close()


# --- drawings -----------------------------------------------------------------------------------------------------------


def test_the_token_is_followed_from_node_to_node() -> None:
    picture = picture_of_play(player_of("paper_order_of_the_token"), "a run")
    hops = [link for link in picture.links if link.layer == TOKEN_LAYER]
    assert hops
    assert all(link.start < link.end and link.lane != link.to_lane for link in hops)
    assert {picture.lanes[link.lane] for link in hops} == set(picture.lanes)
    assert any("seq 3" in link.tip for link in hops), "three messages were given a place"


def test_the_dag_has_the_edges_of_the_chain() -> None:
    """A1 A2 a2B1 B2 B3 b3C1: b's first burst follows a's second, c's first follows b's third."""
    edges = [link for link in picture_of_play(player_of("lansis_paper_chain"), "a run").links if link.layer == DAG_LAYER]
    said = {re.sub(r"\d+ to (\d+)", r"\1", link.tip) for link in edges}
    assert {"b's 1 acknowledges a's 2", "c's 1 acknowledges b's 3"} <= said
    assert all(link.start >= link.end for link in edges), "nobody acknowledges what is not sent yet"


def test_layers_are_hidden_until_they_are_wanted() -> None:
    player = player_of("paper_order_of_the_token")
    hidden, shown = (picture_of_play(player, "a run", layers) for layers in ((), (TOKEN_LAYER,)))
    assert 'class="token off"' in draw_svg(hidden)
    assert 'class="token"' in draw_svg(shown)
    assert 'data-layer="token"' in draw_html(hidden), "the page has a switch"
    assert 'data-layer="dag"' not in draw_html(hidden), "and none for what is not there"


def test_a_drawing_is_written_and_unknown_layers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "chain.html"
    outcome = RUNNER.invoke(app, ["play", "lansis_paper_chain", "--show", str(file), "--layers", "dag"])
    assert (outcome.exit_code, f"Drawn: {file}" in outcome.stdout) == (0, True)
    assert 'id="layer-dag"' in file.read_text()
    assert RUNNER.invoke(app, ["play", "f6_singleton", "--show", str(file), "--layers", "fog"]).exit_code == 2
    for command in (["play", "f6_singleton"], ["simulate", "--seed", "1"]):
        outcome = RUNNER.invoke(app, [*command, "--layers", "token"], env={"COLUMNS": "200"})
        assert (outcome.exit_code, "give --show FILE, too" in outcome.stderr) == (2, True)


# --- the page -----------------------------------------------------------------------------------------------------------


def test_the_page_explains_every_command_and_every_fault() -> None:
    explained = set(re.findall(r"`([a-z]+)", "".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))))
    assert explained == {*COMMANDS, *READERS, "cluster", "simulate"}


def test_examples_are_in_the_package() -> None:
    assert EXAMPLES.is_relative_to(ROOT / "src" / "transis")
    assert len(example_names()) >= 80
