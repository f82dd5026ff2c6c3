"""Only trace/files.py syncs, renames and locks files, so that what survives a kill or a power cut is decided in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.sources import PACKAGE, dotted, python_files, tree

HOME = "trace/files.py"
DURABLE = {"os.fsync", "os.fdatasync", "os.rename", "os.replace", "os.renames", "shutil.move", "fcntl.flock", "fcntl.lockf"}
PATHS = {"rename", "replace"}
"""Methods of a path, which have one argument; the `replace` of a string has more."""

EXCUSED = {
    "archive/directory.py": "what was written aside has a name that no other writer uses",
    "archive/publish.py": "what was written aside is renamed only if its size is right",
    "bench/replicate.py": "it measures what a bare sync costs",
    "net/state.py": "a key is created, never replaced",
}


def durable_operations(module: ast.Module) -> Iterator[int]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_of_path = node.func.attr in PATHS and len(node.args) == 1 and not node.keywords
            if dotted(node.func) in DURABLE or is_of_path:
                yield node.lineno


def test_the_rule_sees_what_it_forbids() -> None:
    source = "os.fsync(1)\nname.replace('a', 'b')\npath.rename(other)\nstruct.replace(x, y=1)"
    assert list(durable_operations(ast.parse(source))) == [1, 3]


def test_one_file_syncs_renames_and_locks() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in python_files(PACKAGE) if list(durable_operations(tree(path)))}
    assert found == {HOME, *EXCUSED}
