"""`transis archive --publish`: publish what archivers left that do not run, and say what became of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from transis.console.payloads import printable
from transis.console.printing import complain, say, stdout
from transis.console.talking import PROBLEM
from transis.types.errors import MissingExtra

if TYPE_CHECKING:
    from transis.archive.publish import Outcome


def publish_and_tell(directory: str, as_json: bool) -> int:
    try:
        from transis.archive.directory import local_directory
        from transis.archive.publish import publish_directory
    except ImportError as error:
        raise MissingExtra("transis archive", "archive") from error
    path = local_directory(directory)
    found = publish_directory(path)
    if as_json:
        print(json.dumps({"archive": str(path), "archivers": [one.as_json() for one in found]}))
    else:
        for one in found:
            say(stdout(), printable(sentence(one)))
        if not found:
            say(stdout(), f"no journal waits in {path / 'open'}")
    for one in found:
        _complain_of(one)
    return 0 if all(one.is_fine for one in found) else PROBLEM


def sentence(one: Outcome) -> str:
    who = f"{one.group}, archived by {one.archiver}: {one.journals} journal{'' if one.journals == 1 else 's'}"
    if one.left is None:
        return f"{who}, left alone: that archiver runs"
    files = f"{one.files} file{'' if one.files == 1 else 's'}, {one.size / 1e6:.1f} MB"
    return f"{who}, of which {len(one.left.published)} published as {files}"


def _complain_of(one: Outcome) -> None:
    for journal in one.damaged:
        complain("archive", f"a part of {journal} could not be read: its rows are a gap; move it away when you have seen to it")
    for error in one.refused:
        complain("archive", f"of {one.archiver}, not published: {error}")
