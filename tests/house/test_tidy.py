"""The habits of the house, held by reading the source.

Each rule is a small function from a syntax tree to the lines that break it, and each has a test that it can see: a rule that
never fires proves nothing. Limits are ratchets: lower them when the code allows it, never raise them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house.sources import PACKAGE, ROOMS_WITHOUT_IO, ROOT, dotted, python_files, room_files, shown, tree

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
BANNED_FILE_NAMES = {"util", "utils", "misc", "common", "helper", "helpers", "stuff"}

BANNED_MODULES = {"time", "datetime", "random", "secrets", "uuid", "socket", "select", "selectors", "threading", "asyncio"}
# The simulator draws from seeded generators, and a sweep runs many simulations side by side and says how long they took;
# neither reaches into a run.
EXCUSED_MODULES = {
    "sim": {"random"},
    "sim/sweep.py": {"time"},
    # Commands and the demo with real daemons: they talk to people and processes, and reach into no run.
    **{
        f"sim/{name}.py": {"asyncio", "datetime", "threading", "time", "uuid"}
        for name in ("cli", "demo", "real_demo", "runs", "spark_sweep", "build")
    },
}
BANNED_CALLS = {"os.urandom", "os.getrandom", "os.getpid", "id", "hash"}

Rule = Callable[[ast.Module], Iterator[int]]


def files_without_io() -> list[Path]:
    return [path for room in ROOMS_WITHOUT_IO if (PACKAGE / room).is_dir() for path in room_files(room)]


def banned_modules(module: ast.Module, excused: set[str]) -> Iterator[int]:
    for node in ast.walk(module):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        if any(name.split(".")[0] in BANNED_MODULES - excused for name in names):
            yield node.lineno


def unseeded_randomness(module: ast.Module) -> Iterator[int]:
    """Anything of `random` but `random.Random(seed)`: the generator of the module is shared and seeded by the machine."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == "random" and {alias.name for alias in node.names} != {"Random"}:
            yield node.lineno
        if isinstance(node, ast.Attribute) and dotted(node).startswith("random.") and dotted(node) != "random.Random":
            yield node.lineno
        if isinstance(node, ast.Call) and dotted(node.func) in {"random.Random", "Random"} and not node.args:
            yield node.lineno


def banned_calls(module: ast.Module) -> Iterator[int]:
    """Calls whose answer differs from one process to the next."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and dotted(node.func) in BANNED_CALLS:
            yield node.lineno


def is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return is_set(node.left) or is_set(node.right)
    return isinstance(node, ast.Call) and dotted(node.func) in {"set", "frozenset"}


ORDERED_BY_LOOKING = {"list", "tuple", "enumerate", "iter", "next", "zip", "map", "filter", "reversed"}


def unsorted_sets(module: ast.Module) -> Iterator[int]:
    """A set whose order becomes visible: the same seed would give another trace under another PYTHONHASHSEED."""
    for node in ast.walk(module):
        if isinstance(node, ast.For | ast.comprehension) and is_set(node.iter):
            yield node.iter.lineno
        if isinstance(node, ast.Call) and dotted(node.func) in ORDERED_BY_LOOKING:
            yield from (argument.lineno for argument in node.args if is_set(argument))
        if isinstance(node, ast.Starred) and is_set(node.value):
            yield node.lineno


FORGETTING_ORDER = {"sorted", "set", "frozenset", "sum", "min", "max", "any", "all", "len"}


def harmless_set_comprehensions(module: ast.Module) -> set[int]:
    """Lines where a set is walked only to build another set or to be sorted at once; there the order is lost again."""
    lines: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.SetComp):
            lines.update(part.iter.lineno for part in node.generators)
        if isinstance(node, ast.Call) and dotted(node.func) in FORGETTING_ORDER:
            inner = [argument for argument in node.args if isinstance(argument, ast.GeneratorExp)]
            lines.update(part.iter.lineno for one in inner for part in one.generators)
    return lines


def visible_set_order(module: ast.Module) -> Iterator[int]:
    harmless = harmless_set_comprehensions(module)
    yield from (line for line in unsorted_sets(module) if line not in harmless)


def patching_and_sleeping(module: ast.Module) -> Iterator[int]:
    """Fakes are verified twins, never patches; and nothing waits on the wall clock."""
    for node in ast.walk(module):
        if isinstance(node, ast.arg) and node.arg in {"monkeypatch", "mocker"}:
            yield node.lineno
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", "") or "", *(alias.name for alias in node.names)]
            if any("mock" in name.split(".") for name in names):
                yield node.lineno
        if isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in {"sleep", "MonkeyPatch"}:
            yield node.lineno


def assertions_that_cannot_fail(module: ast.Module) -> Iterator[int]:
    """A true constant, or a non-empty tuple: the parentheses around a condition and its message."""
    for node in ast.walk(module):
        if isinstance(node, ast.Assert):
            constant = isinstance(node.test, ast.Constant) and bool(node.test.value)
            if constant or (isinstance(node.test, ast.Tuple) and node.test.elts):
                yield node.lineno


PUBLIC_IN_SPITE = {"_replace", "_asdict", "_fields", "_make", "_exit"}
"""Names with an underscore that their makers document: of NamedTuples and of `os`."""


def private_attributes_of_others(module: ast.Module) -> Iterator[int]:
    """What a class keeps to itself is free to change. A test looks at what an object shows, or has it show more."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transis"):
            yield from (node.lineno for alias in node.names if alias.name.startswith("_") and not alias.name.startswith("__"))
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        own = dotted(node.value) in {"self", "cls"} or (isinstance(node.value, ast.Call) and dotted(node.value.func) == "super")
        if not own and node.attr not in PUBLIC_IN_SPITE:
            yield node.lineno


def long_functions(module: ast.Module) -> Iterator[int]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if (node.end_lineno or first) - first + 1 > FUNCTION_LINES_MAX:
                yield first


def excused_modules(path: Path) -> set[str]:
    inside = path.relative_to(PACKAGE)
    return EXCUSED_MODULES.get(inside.parts[0], set()) | EXCUSED_MODULES.get(inside.as_posix(), set())


def broken(paths: list[Path], rule: Rule) -> list[str]:
    return [f"{shown(path)}:{line}" for path in paths for line in rule(tree(path))]


@pytest.mark.parametrize("rule", [unseeded_randomness, banned_calls, visible_set_order], ids=lambda rule: rule.__name__)
def test_rooms_without_io(rule: Rule) -> None:
    assert broken(files_without_io(), rule) == []


def test_rooms_without_io_import_no_clock_no_socket_no_thread() -> None:
    for path in files_without_io():
        assert list(banned_modules(tree(path), excused_modules(path))) == [], shown(path)


@pytest.mark.parametrize("rule", [patching_and_sleeping, assertions_that_cannot_fail], ids=lambda rule: rule.__name__)
def test_tests(rule: Rule) -> None:
    assert broken(python_files("tests"), rule) == []


def test_tests_reach_into_nobody() -> None:
    assert broken(python_files("tests", "bench", "examples"), private_attributes_of_others) == []


def test_functions_are_short() -> None:
    assert broken(python_files("src", "tests", "bench", "examples"), long_functions) == []


def test_files_are_short() -> None:
    lengths = {
        shown(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files("src", "tests", "bench", "examples")
    }
    assert {name: length for name, length in lengths.items() if length > FILE_LINES_MAX} == {}


def test_files_are_named_by_what_they_do() -> None:
    assert [shown(path) for path in python_files("src", "tests", "bench", "examples") if path.stem in BANNED_FILE_NAMES] == []


def test_files_open_with_their_job() -> None:
    files = [path for path in python_files("src") if path.name != "__init__.py"]
    assert [shown(path) for path in files if not ast.get_docstring(tree(path))] == []


def tracked_texts() -> list[Path]:
    """What a clone holds: the files at the top and the folders that are ours, without what tools leave in them."""
    inside = [
        path for folder in ("src", "tests", "docs", "bench", "examples", "scripts", ".ci") for path in (ROOT / folder).rglob("*")
    ]
    files = [path for path in [*ROOT.iterdir(), *inside] if path.is_file() and "__pycache__" not in path.parts]
    return sorted(path for path in files if b"\0" not in path.read_bytes()[:4096])


def place_of_this_clone() -> list[str]:
    """The folder of this clone and the one it lies in, unless that is a folder every machine has."""
    usual = {"/", "/tmp", "/home", "/opt", "/srv", "/usr", "/var", "/src", "/root", "/mnt", "/app", "/build"}
    return [str(path) for path in (ROOT, ROOT.parent) if str(path) not in usual]


ABSOLUTE = r"(?<![\w.~/-])"  # Not in the middle of a longer path or of an address.
HOMES = ABSOLUTE + r"/(?:home|Users)/\w+|" + ABSOLUTE + r"/root/"
REGISTRIES = r"index[-_]url|find[-_]links|trusted[-_]host|https?://\S*/simple\b|\"resolved\": \"http|registry = \"http"


def leaks(text: str, places: list[str]) -> list[str]:
    patterns = [HOMES, REGISTRIES, *(ABSOLUTE + re.escape(place) + r"(?![\w-])" for place in places)]
    return [found.group() for pattern in patterns for found in re.finditer(pattern, text)]


def test_nothing_names_this_machine_or_a_registry() -> None:
    own = Path(__file__)
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in tracked_texts() if path != own}
    found = {shown(path): leaks(text, place_of_this_clone()) for path, text in texts.items()}
    assert {name: where for name, where in found.items() if where} == {}


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (unseeded_randomness, "import random\nx = random.random()"),
        (unseeded_randomness, "import random\nx = random.Random()"),
        (unseeded_randomness, "from random import shuffle"),
        (banned_calls, "import os\nos.urandom(8)"),
        (banned_calls, "place = hash(name)"),
        (visible_set_order, "for x in {1, 2}: print(x)"),
        (visible_set_order, "y = [x for x in set(z)]"),
        (visible_set_order, "y = list(set(z))"),
        (visible_set_order, "for x in set(a) - b: print(x)"),
        (visible_set_order, "y = [*frozenset(z)]"),
        (patching_and_sleeping, "def test(monkeypatch): pass"),
        (patching_and_sleeping, "from unittest.mock import patch"),
        (patching_and_sleeping, "from unittest import mock"),
        (patching_and_sleeping, "import time\ntime.sleep(1)"),
        (assertions_that_cannot_fail, "assert True"),
        (assertions_that_cannot_fail, "assert (x == 1, 'x is one')"),
        (private_attributes_of_others, "assert engine._core.ring == 1"),
        (private_attributes_of_others, "def f(self): self.engine._handle(1)"),
        (private_attributes_of_others, "from transis.totem.commit import _order"),
        (long_functions, "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    ],
)
def test_rule_sees(rule: Rule, source: str) -> None:
    assert list(rule(ast.parse(source)))


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (unseeded_randomness, "import random\nx = random.Random('1:faults').random()"),
        (visible_set_order, "for x in sorted({1, 2}): print(x)"),
        (visible_set_order, "y = sorted(x + 1 for x in set(z))"),
        (visible_set_order, "y = {x + 1 for x in set(z)}"),
        (visible_set_order, "y = len(set(z))"),
        (patching_and_sleeping, "text = 'time.sleep(1) and monkeypatch'"),
        (assertions_that_cannot_fail, "assert x == 1, 'x is one'"),
        (private_attributes_of_others, "def f(self): return self._core, super()._core, view._replace(seq=1), cls._make(x)"),
        (private_attributes_of_others, "assert engine.__class__ is Engine"),
        (long_functions, "def f():\n" + "    x = 1\n" * (FUNCTION_LINES_MAX - 1)),
    ],
)
def test_rule_spares(rule: Rule, source: str) -> None:
    assert list(rule(ast.parse(source))) == []


def test_banned_module_is_seen_unless_excused() -> None:
    module = ast.parse("import time\nfrom random import Random\nimport json")
    assert list(banned_modules(module, set())) == [1, 2]
    assert list(banned_modules(module, {"random"})) == [1]


def test_leaks_are_seen() -> None:
    home = "/" + "home/somebody/transis"
    assert leaks(f"see {home} there", []) == ["/" + "home/somebody"]
    assert leaks("--" + "index" + "-url https://mirror.example/" + "simple", []) != []
    assert leaks("open('/place/of/clone/x')", ["/place/of/clone"]) == ["/place/of/clone"]
    assert leaks("docs/place/of/clone and src/home/x.py", ["/place/of/clone"]) == []
