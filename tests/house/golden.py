"""Every byte string that a test writes out in hexadecimal digits: the golden bytes of packets, frames and files.

Read from the source of the tests, whichever file they are in, so that a test may move and none may be adjusted in silence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.sources import python_files, tree

DIGITS_MIN = 12
HEX = re.compile(r"[0-9a-f ]+")


def golden_bytes() -> str:
    found = {text for path in python_files("tests") for text in _written_out(tree(path))}
    return "".join(f"{text}\n" for text in sorted(found))


def _written_out(module: ast.Module) -> Iterator[str]:
    """Texts of hexadecimal digits, in the spacing that shows their fields; of one with names in it the parts between them."""
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.strip()
            if HEX.fullmatch(text) and len(text.replace(" ", "")) >= DIGITS_MIN and re.search("[0-9]", text):
                yield text
