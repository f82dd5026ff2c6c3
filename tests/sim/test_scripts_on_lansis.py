"""Every worked example that has no token in it holds on Lansis too, command by command.

Where something comes out differently from the ring (other numbers of views, other causes, other messages that were just on their
way), sim/examples/on_lansis has the commands and what they print there; the prose stays with the ring's. `--rewrite` writes it.
"""

from pathlib import Path

import pytest

from transis.sim.play import EXAMPLES, ON_LANSIS, example_names, load_example
from transis.sim.scripts import Block, parse_script, run_script
from transis.types.config import ENGINES


def bare(text: str) -> list[Block]:
    return [block._replace(prose=()) for block in parse_script(text) if block.commands]


def commands(text: str) -> list[str]:
    return [command for block in parse_script(text) for command in block.commands]


SHARED = [EXAMPLES / f"{name}.txt" for name in example_names() if load_example(name, "totem").engines == ENGINES]


def played(path: Path) -> str:
    return run_script("\n\n".join(block.text() for block in bare(path.read_text())), "lansis")


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.stem)
def test_a_script_of_the_ring_is_played_on_lansis(path: Path, rewrite: bool) -> None:
    ours = ON_LANSIS / path.name
    outcome = played(path)
    as_on_the_ring = bare(outcome) == bare(path.read_text())
    if rewrite:
        ours.unlink(missing_ok=True) if as_on_the_ring else ours.write_text(outcome)
        return
    assert as_on_the_ring if not ours.exists() else outcome == ours.read_text()


def test_files_of_differences_are_of_scripts_and_hold_every_guarantee() -> None:
    found = sorted(ON_LANSIS.glob("*.txt"))
    assert {path.name for path in found} <= {path.name for path in SHARED}
    for path in found:
        text = path.read_text()
        assert commands(text) == commands((EXAMPLES / path.name).read_text())
        assert parse_script(text)[-1].expected.splitlines()[-1] == "held"
        assert "not at rest" not in text
        assert "never came to" not in text


def test_most_scripts_need_no_token() -> None:
    assert len(SHARED) >= 40
