"""Every help at every width: nothing cut off, the choices of each option, and examples one a line."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from typer.main import get_command

from tests.house.wordings import help_of, paths
from transis.cli.main import PANEL_OF, PANELS, app

PATHS = {" ".join(path): path for path in paths()}
WIDE = 200


def options_of(path: tuple[str, ...]) -> list[Any]:
    command: Any = get_command(app)
    context = command.context_class(command)
    for name in path:
        command = command.get_command(context, name)
    return [param for param in command.get_params(context) if param.param_type_name == "option"]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_nothing_is_cut_off_at_any_width(width: int) -> None:
    for path in PATHS.values():
        text = help_of(path, width)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width
        for option in options_of(path):
            assert all(name in text for name in (*option.opts, *option.secondary_opts))


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_values_have_names_and_switches_have_none(path: tuple[str, ...]) -> None:
    lines = help_of(path, WIDE).splitlines()
    for option in options_of(path):
        if option.is_flag:
            assert any(f" {(option.opts or option.secondary_opts)[0]} " in line for line in lines)
        else:
            name = option.metavar or "N"
            assert any(f"{option.opts[0]} {name} " in line for line in lines)
            assert option.metavar or option.type_descriptor.annotation in (int, float, int | None, float | None)
    assert not any(f"<{kind}" in line for line in lines for kind in ("str", "int", "float", "bool", "list"))


def test_choices_are_shown_and_completed() -> None:
    chosen: set[str] = set()
    for path in PATHS.values():
        for option in options_of(path):
            if "|" in (option.metavar or ""):
                chosen.add(option.opts[0])
                offered = [item.value for item in option.shell_complete(None, "")]
                assert sorted(offered) == sorted(option.metavar.split("|"))
                assert option.default is None or option.default in offered
    of_engines = {"--engine", "--order", "--mode", "--judge", "--layer", "--ordering"}
    assert chosen == of_engines | {"--service", "--path", "--transport", "--profile", "--policy"}


@pytest.mark.parametrize("command", PANEL_OF)
def test_examples_are_one_a_line(command: str) -> None:
    module = import_module(PANELS[PANEL_OF[command]][command])
    examples = getattr(module, f"{command.replace('-', '_').upper()}_EXAMPLES").splitlines()
    shown = help_of((command,), WIDE).partition("Examples:\n")[2].rstrip().splitlines()
    assert len(shown) == len(examples) - 1
    assert all(line.strip() for line in shown)
    assert all(
        line.startswith(f" {example.partition('[dim]')[0].rstrip()}") for line, example in zip(shown, examples[1:], strict=True)
    )


def test_a_long_example_goes_on_further_to_the_right() -> None:
    shown = help_of(("keygen",), 40).partition("Examples:\n")[2].splitlines()
    assert shown[:3] == ["   transis keygen --out transis.key", "       # readable only by you; copy it", "       to every node"]
