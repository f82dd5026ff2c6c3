"""Every worked example under tests/scripts still comes out as written; `--rewrite` writes down what happens instead."""

from pathlib import Path

import pytest

from transis.sim.scripts import parse_script, run_script

SCRIPTS = sorted(Path(__file__).parent.parent.joinpath("scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:
    text = path.read_text()
    outcome = run_script(text)
    if rewrite:
        path.write_text(outcome)
        return
    assert outcome == text


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5


def test_a_script_reads_back() -> None:
    text = "# prose\ncluster a\nsettle\n----\nat rest in R4{a}\n"
    (block,) = parse_script(text)
    assert block.commands == ("cluster a", "settle")
    assert block.text() + "\n" == text


def test_a_wrong_outcome_is_seen() -> None:
    text = "cluster a\nsettle\nstates\n----\na: Gather\n"
    assert run_script(text) != text


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("views", "starts with a cluster"),
        ("cluster a\nfly", "'fly' is no fault"),
        ("cluster a\ndrop a->b fog", "no kind"),
    ],
)
def test_what_is_not_understood_is_named(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        run_script(line)
