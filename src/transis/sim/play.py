"""`transis play`: worked examples listed, played block by block, held against what they say, and drawn.

1. An example is a script (scripts.py). Those of this package are named by their file; any other file is named by its path.
2. Most examples play on both engines. Where Lansis prints something else than the ring, examples/on_lansis has it; the prose
   stays with the ring's.
3. Nothing is random, so to go back is to play again from the start.
"""

from __future__ import annotations

import os
import re
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated, Final, NamedTuple, Self

import typer
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from transis.audit.draw.layout import Picture
from transis.audit.draw.spacetime import write_diagram
from transis.cli.options import LAYERS_HELP, choice, layers_of, one_of, picture_file, plain_table, say, stdout, unable, wrong
from transis.sim.cluster import show_node, show_view
from transis.sim.defects import broken_engine
from transis.sim.liveness import judged
from transis.sim.picture import Drawing, picture_of
from transis.sim.plan import TOTEM
from transis.sim.runs import broken_of, complete_broken, scenario_of
from transis.sim.scripts import Block, Player, parse_script
from transis.types.config import ENGINES
from transis.types.errors import TransisError, UsageError

# --- examples ---------------------------------------------------------------------------------------------------------

EXAMPLES: Final = Path(__file__).parent / "examples"
ON_LANSIS: Final = EXAMPLES / "on_lansis"
SUFFIX: Final = ".txt"
SCRIPT_MAX: Final = 1_000_000
"""Characters of a script that somebody wrote by hand, many times over."""


OF_THE_RING: Final = {"token", "join", "commit", "commit1", "commit2", "Gather", "Commit", "Recovery", "Persist"}
"""Packets, states and moments that only the ring has."""
SETTINGS_OF_THE_RING: Final = ("config.window.accelerated", "config.timing.token")
OF_LANSIS: Final = "lansis_"
"""How the names of examples begin whose clusters name that engine themselves."""


class WorkedExample(NamedTuple):
    name: str
    blocks: tuple[Block, ...]

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines on which the example means something."""
        words = {word for block in self.blocks for command in block.commands for word in command.split()}
        if self.name.startswith(OF_LANSIS):
            return ("lansis",)
        is_of_ring = bool(words & OF_THE_RING) or any(word.startswith(SETTINGS_OF_THE_RING) for word in words)
        return ("totem",) if is_of_ring else ENGINES

    @property
    def about(self) -> str:
        """The first sentence of its prose."""
        prose = " ".join(line.lstrip("# ") for block in self.blocks[:1] for line in block.prose)
        return prose.partition(". ")[0].rstrip(".")


def example_names() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob(f"*{SUFFIX}"))


def load_example(name: str, engine: str) -> WorkedExample:
    """By its name or by the path of a file."""
    path = EXAMPLES / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
    if Path(name).name == name and not Path(name).exists() and not path.is_file():
        near = get_close_matches(name.removesuffix(SUFFIX), example_names(), n=1)
        hint = f"did you mean {near[0]}?" if near else "`transis play` without a name lists them"
        raise UsageError(f"there is no file and no example {name}: {hint}")
    if Path(name).name != name or Path(name).is_file() or not path.is_file():
        return WorkedExample(Path(name).stem, tuple(_read(Path(name))))
    blocks = _read(path)
    if engine == "lansis" and engine not in (engines := WorkedExample(path.stem, tuple(blocks)).engines):
        raise UsageError(
            f"{path.stem} plays on {' '.join(engines)} only: it is about packets or states that {engine} does not have"
        )
    ours = ON_LANSIS / path.name
    if engine == "lansis" and ours.is_file():
        blocks = list(_with_outcomes(blocks, _read(ours)))
    return WorkedExample(path.stem, tuple(blocks))


def _read(path: Path) -> list[Block]:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(SCRIPT_MAX + 1)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}): name a file, or an example that `transis play` lists"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a script: a script is text in UTF-8") from None
    if len(text) > SCRIPT_MAX:
        raise UsageError(f"{path} is not a script: a script has at most {SCRIPT_MAX:,} characters")
    return parse_script(text)


def _with_outcomes(blocks: Sequence[Block], outcomes: Sequence[Block]) -> Iterator[Block]:
    """The same commands, with what they print on the other engine."""
    on_lansis = iter(outcomes)
    for block in blocks:
        yield block._replace(expected=next(on_lansis).expected) if block.commands else block


def print_examples(out: Console) -> None:
    table = plain_table("example", "engines", "about")
    table.columns[1].justify = table.columns[2].justify = "left"
    for name in example_names():
        example = load_example(name, TOTEM.engine)
        table.add_row(name, " ".join(example.engines), example.about)
    out.print(table)
    say(out, "transis play NAME plays one; --step stops after each block, --show FILE.html draws it")


# --- playing ----------------------------------------------------------------------------------------------------------


class Played(NamedTuple):
    """A block, and what it printed."""

    block: Block
    outcome: str

    @property
    def is_as_written(self) -> bool:
        """A block without a written outcome says nothing about it."""
        return self.outcome == self.block.expected


def played(player: Player, example: WorkedExample) -> Iterator[Played]:
    """Each block when it is asked for. Raises UsageError with the block's number if a command makes no sense."""
    for number, block in enumerate(example.blocks, 1):
        try:
            yield Played(block, player.play(block))
        except ValueError as error:
            raise UsageError(f"{example.name}, block {number}: {error}") from None


def print_played(out: Console, number: int, of: int, one: Played) -> None:
    """Prose, commands, and what they printed; what should have come instead, if it did not."""
    out.print(Rule(f"{number} of {of}", align="left", style="dim"))
    for paragraph in paragraphs(one.block.prose):
        out.print(Text(paragraph, style="italic"))
    for command in one.block.commands:
        say(out, f"> {command}", "bold")
    if one.outcome:
        out.print(Padding(Text(one.outcome, style="green" if one.is_as_written else "red"), (0, 0, 0, 2)))
    if not one.is_as_written:
        say(out, "  but the script says:", "red")
        out.print(Padding(Text(one.block.expected or "nothing", style="yellow"), (0, 0, 0, 2)))
    say(out, "")


def paragraphs(prose: Sequence[str]) -> Iterator[str]:
    """Prose without the breaks that its file has: a terminal has other ones."""
    for has_words, lines in groupby((line.lstrip("# ") for line in prose), key=bool):
        if has_words:
            yield " ".join(lines)


def where_nodes_are(player: Player) -> Text:
    """State and view of each living node, without changing what the script's own commands show."""
    if player.cluster is None:
        return Text("no cluster")
    lives = judged(player.cluster.world)
    parts = (f"{show_node(life.id)}: {life.node.state} in {show_view(life.view) if life.view else 'no view'}" for life in lives)
    return Text("   ".join(parts) or "nobody is alive", style="dim")


# --- stepping ---------------------------------------------------------------------------------------------------------

KEY: Final = re.compile(r"\x1b\[.|.", re.DOTALL)
"""An arrow, or one character."""
NEXT: Final = (" ", "n", "\r", "\n", "\x1b[C", "\x1b[B")
BACK: Final = ("b", "p", "\x1b[D", "\x1b[A")
QUIT: Final = ("q", "\x04")
KEYS_AT_ONCE: Final = 256


def step_through(out: Console, example: WorkedExample, engine: str, keys: KeyReader) -> tuple[Player, bool]:
    """Stop after each block; returns the player where the reader stopped, and whether all was as written."""
    shown, as_written = 0, True
    player, blocks = _from_start(example, engine)
    count = len(example.blocks)
    while shown < count:
        one = next(blocks)
        shown += 1
        as_written = as_written and one.is_as_written
        print_played(out, shown, count, one)
        out.print(where_nodes_are(player))
        say(out, "Enter: next   b: back   q: quit" if shown < count else "Enter: end   b: back", "dim")
        key = keys.next()
        if key in QUIT:
            break
        if key in BACK:
            shown = max(0, shown - 2)
            player, blocks = _from_start(example, engine)
            for _ in islice(blocks, shown):
                pass
    return player, as_written


def _from_start(example: WorkedExample, engine: str) -> tuple[Player, Iterator[Played]]:
    player = Player(engine)
    return player, played(player, example)


class KeyReader:
    """A terminal that gives each key when it is pressed, and loses none that is pressed too early."""

    def __init__(self) -> None:
        self._waiting: list[str] = []

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def next(self) -> str:
        """The next key that means something; at the end of input, the one that quits."""
        while True:
            while self._waiting:
                key = self._waiting.pop(0)
                if key in (*NEXT, *BACK, *QUIT):
                    return key
            found = os.read(sys.stdin.fileno(), KEYS_AT_ONCE).decode(errors="replace")
            self._waiting = KEY.findall(found) or [QUIT[0]]


# --- command ----------------------------------------------------------------------------------------------------------

PLAY_EXAMPLES = """Examples:
  transis play [dim]# list the examples[/dim]
  transis play paper_close_of_business
  transis play paper_close_of_business --step
  transis play f1_safe_message_of_a_lost_sender --show f1.html
  transis play scenario_13_causal_chain --engine lansis
  transis play mine.txt --broken safe_one_rotation_early
"""
DIFFERENT: Final = 1


def complete_example(incomplete: str) -> list[str]:
    return [name for name in example_names() if name.startswith(incomplete)]


def play(
    example: Annotated[
        str | None,
        typer.Argument(metavar="NAME|FILE", help="Which example; without one they are listed.", autocompletion=complete_example),
    ] = None,
    engine: Annotated[str, choice(ENGINES, "Engine of clusters that name none.")] = TOTEM.engine,
    step: Annotated[bool, typer.Option("--step", help="Stop after each block: next, back or quit.")] = False,
    show: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the last cluster as a space-time diagram: FILE.html or FILE.svg.")
    ] = None,
    layers: Annotated[str, typer.Option(metavar="LAYERS", help=LAYERS_HELP)] = "",
    broken: Annotated[
        str,
        typer.Option(
            metavar="DEFECT",
            help="Play it with a deliberate defect; `transis simulate --broken list` names them.",
            autocompletion=complete_broken,
        ),
    ] = "",
) -> None:
    """Play a worked example: a small simulated cluster, what is done to it, and what comes out.

    Exit code 1 if something else comes out than the script says.
    """
    one_of("--engine", engine, ENGINES)
    drawing = Drawing(picture_file(show, "--show"), layers_of(layers, show))
    if example is None:
        print_examples(stdout())
        return
    if step and not (stdout().is_terminal and sys.stdin.isatty()):
        raise wrong("--step", "here", "it waits for keys, so it needs a terminal")
    try:
        with broken_engine(broken_of(broken, scenario_of(engine, TOTEM.order, TOTEM.mode, True, TOTEM.judge))):
            as_written = _carry_out_play(stdout(), load_example(example, engine), engine, drawing, step=step)
    except (TransisError, OSError) as error:
        raise unable("play", error) from None
    raise typer.Exit(0 if as_written else DIFFERENT)


def _carry_out_play(out: Console, example: WorkedExample, engine: str, drawing: Drawing, *, step: bool) -> bool:
    if step:
        with KeyReader() as keys:
            player, as_written = step_through(out, example, engine, keys)
    else:
        player, as_written = Player(engine), True
        for number, one in enumerate(played(player, example), 1):
            print_played(out, number, len(example.blocks), one)
            as_written = as_written and one.is_as_written
        say(
            out,
            "Everything came out as written." if as_written else "Something came out differently.",
            "" if as_written else "red",
        )
    if drawing.file is not None:
        write_diagram(drawing.file, picture_of_play(player, example.name, drawing.layers))
        say(out, f"Drawn: {drawing.file}")
    return as_written


def picture_of_play(player: Player, title: str, layers: Sequence[str] = ()) -> Picture:
    """Of the last cluster, or of the last run that was simulated from a plan."""
    cluster, outcome = player.cluster, player.outcome
    if cluster is None and outcome is not None:
        return picture_of(outcome.history, outcome.log, title, (), outcome.violations, player.wire, layers)
    if cluster is None:
        raise UsageError(f"{title} has no cluster, so there is nothing to draw")
    facts = (f"{cluster.plan.config.engine}, {len(cluster.plan.names)} nodes",)
    return picture_of(cluster.history(), cluster.world.log, title, facts, cluster.check().violations, player.wire, layers)
