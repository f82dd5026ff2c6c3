"""Programs that use the package pass the type checkers of their authors: mypy --strict, and pyright as editors run it.

1. Every Python snippet of README and docs is checked as it stands.
2. `typed/programs.py` says which types users get; where a call is wrong on purpose, both checkers must say so.
3. What pyright calls type-complete: no public name, and nothing that it leads to, has a type that is unknown or only inferred.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import transis
from tests.house.snippets import snippets, write_snippets
from tests.house.sources import ROOT
from transis import blocking, testing

PROGRAMS = ROOT / "tests" / "house" / "typed" / "programs.py"
BIN = Path(sys.executable).parent


def mypy(files: Sequence[Path]) -> str:
    """What it has to say; nothing if all is well. `make types` leaves a cache for src."""
    command = [BIN / "mypy", "--strict", "--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache"]
    ran = subprocess.run(
        [*command, "--no-error-summary", *files], capture_output=True, text=True, cwd=files[0].parent, check=False
    )
    assert not ran.stderr, ran.stderr
    return ran.stdout


def pyright(directory: Path, files: Sequence[Path]) -> str:
    config = {
        "include": list(map(str, files)),
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "enableTypeIgnoreComments": False,
        "reportUnnecessaryTypeIgnoreComment": True,
        "reportMissingTypeStubs": False,  # pyarrow has none.
    }
    (directory / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    report = run_pyright("--project", directory, "--pythonpath", sys.executable)
    found = [one for one in report["generalDiagnostics"] if one["severity"] != "information"]
    return "".join(f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}\n" for one in found)


def run_pyright(*arguments: str | Path, path: str = "") -> Any:
    """basedpyright is pyright with its own node in the wheel: it downloads nothing."""
    command = [BIN / "basedpyright", "--outputjson", *arguments]
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}" if path else os.environ["PATH"]}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT / "tests", check=False)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.slow
def test_every_snippet_passes_both_checkers(tmp_path: Path) -> None:
    written = write_snippets(tmp_path)
    assert len(written) == len(set(written)) == len(snippets()) >= 16
    assert mypy(written) == ""
    assert pyright(tmp_path, written) == ""


@pytest.mark.slow
def test_both_checkers_see_what_is_wrong(tmp_path: Path) -> None:
    """A snippet with a mistake is told by both, with its line."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text('import transis\n\nnode = transis.Node("ann", engine="paxos")\n', encoding="utf-8")
    assert "wrong.py:3: error" in mypy([wrong])
    assert "wrong.py:3: " in pyright(tmp_path, [wrong])


@pytest.mark.slow
def test_users_get_the_types_that_they_expect(tmp_path: Path) -> None:
    assert mypy([PROGRAMS]) == ""
    assert pyright(tmp_path, [PROGRAMS]) == ""


@pytest.mark.slow
def test_the_public_names_are_type_complete(tmp_path: Path) -> None:
    """pyright looks for the package among what is installed: here it is, in an environment that has nothing else."""
    venv.create(tmp_path, with_pip=False, symlinks=True)
    packages = next(tmp_path.glob("lib/python*/site-packages"))
    (packages / "transis").symlink_to(ROOT / "src" / "transis")
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")), encoding="utf-8")
    report = run_pyright("--verifytypes", "transis", "--ignoreexternal", path=str(tmp_path / "bin"))
    symbols = {one["name"]: one for one in report["typeCompleteness"]["symbols"]}
    rooms = {"transis": transis, "transis.blocking": blocking, "transis.testing": testing}
    public = {f"{room}.{name}" for room, module in rooms.items() for name in module.__all__} - {"transis.__version__"}
    assert public - {*symbols, "transis.blocking", "transis.errors"} == set()
    vague = [one["name"] for one in symbols.values() if not one["isTypeKnown"] or one["isTypeAmbiguous"]]
    assert sorted(public & {*vague}) == []
