"""The directory of an archive: whose it is, who may write there, and what files are called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.archive.events import NODES
from tests.house.sources import ROOT
from transis.archive.directory import ArchiveDirectory, FileNumber, local_directory, waiting_journals
from transis.types.errors import ArchiveError
from transis.types.ids import NodeId
from transis.types.views import group_id


def opened(
    directory: Path, group: str = "orders", archiver: str = "ann", cluster: str = "blue", node: NodeId = NODES[0]
) -> ArchiveDirectory:
    place = ArchiveDirectory(directory, group, archiver)
    place.open(cluster, node)
    return place


def test_a_new_directory_says_what_it_is(tmp_path: Path) -> None:
    opened(tmp_path / "deep" / "archive")
    assert json.loads((tmp_path / "deep/archive/archive.json").read_text()) == {"format": 1, "cluster": "blue"}
    assert sorted(path.name for path in (tmp_path / "deep/archive").iterdir()) == ["archive.json", "open", "stream"]


def test_several_archivers_and_groups_share_it(tmp_path: Path) -> None:
    places = [opened(tmp_path, group, name) for group in ("orders", "tills") for name in ("ann", "ann-2", "bob")]
    for number, place in enumerate(places, 1):
        place.journal(FileNumber(number, 1)).touch()
    assert [place.next_life() for place in places] == [2, 3, 4, 5, 6, 7], "nobody takes another one's files for his own"


def test_what_another_one_is_publishing_is_left_to_it(tmp_path: Path) -> None:
    """Its name may begin with ours."""
    ours, other = opened(tmp_path, archiver="ann"), opened(tmp_path, archiver="ann-2")
    begun = [place.aside(place.published_as(place.journal(FileNumber(1, 1)))) for place in (ours, other)]
    for path in begun:
        path.touch()
    assert [place.half_published() for place in (ours, other)] == [[path] for path in begun]


def test_a_life_is_never_used_again_also_if_its_files_are_gone(tmp_path: Path) -> None:
    place = opened(tmp_path)
    assert [place.begin_life() for _ in range(2)] == [1, 2]
    place.journal(FileNumber(7, 1)).touch()
    assert place.begin_life() == 8
    place.journal(FileNumber(7, 1)).unlink()
    place.close()
    assert opened(tmp_path).begin_life() == 9
    assert opened(tmp_path, archiver="bob").begin_life() == 1


def test_a_number_of_a_life_that_is_none_is_named(tmp_path: Path) -> None:
    place = opened(tmp_path)
    place.begin_life()
    [path] = tmp_path.glob("open/*.life")
    path.write_text("many")
    with pytest.raises(ArchiveError, match=f"{path.name} does not hold the number of a life: write the highest one there"):
        place.begin_life()


MADE = """
import os, sys
from pathlib import Path
from transis.archive.directory import ArchiveDirectory
from transis.types.ids import NodeId
def told(event, arguments):
    if event in ("os.mkdir", "open") and Path(os.fsdecode(arguments[0])).is_relative_to(sys.argv[1]):
        print(event, Path(arguments[0]).relative_to(sys.argv[1]))
sys.addaudithook(told)
ArchiveDirectory(Path(sys.argv[1], "deep", "archive"), "orders", "ann").open("blue", NodeId("a", 1, 7))
"""
"""Tells which directories are made and which files and directories are opened."""


def test_directories_that_are_made_are_synced_in_those_above_them(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MADE, str(tmp_path)]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True)
    begun = [tuple(line.split()) for line in done.stdout.splitlines()]
    made = [Path(path) for event, path in begun if event == "os.mkdir"]
    assert made == [Path("deep"), Path("deep/archive"), Path("deep/archive/stream"), Path("deep/archive/open")]
    for path in made:
        assert begun[begun.index(("os.mkdir", str(path))) + 1] == ("open", str(path.parent)), path


def test_one_name_writes_once_at_a_time(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(
        ArchiveError, match="an archiver named 'ann' is already writing 'orders' there: give this one another --name"
    ):
        opened(tmp_path)
    first.close()
    opened(tmp_path)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            '{"format": 1, "cluster": "red"}',
            "holds the archive of cluster 'red', but this node belongs to 'blue': give another --to",
        ),
        ('{"format": 2, "cluster": "blue"}', "an archive of format 2, but this release writes format 1"),
        ("{}", "does not describe an archive"),
        ("[1]", "does not describe an archive"),
        ("\x00", "does not describe an archive"),
    ],
)
def test_what_belongs_to_others_is_left_alone(tmp_path: Path, found: str, said: str) -> None:
    (tmp_path / "archive.json").write_text(found)
    with pytest.raises(ArchiveError, match=said):
        opened(tmp_path)


def test_lives_of_a_node_go_on_and_never_back(tmp_path: Path) -> None:
    """One that goes back was made anew, and so was its cluster, or its state was lost; others know nothing of that."""
    for node in (NodeId("a/b", 1, 5), NodeId("a/b", 1, 5), NodeId("a/b", 3, 9), NodeId("c", 1, 2)):
        opened(tmp_path, node=node).close()
    for node in (NodeId("a/b", 1, 5), NodeId("a/b", 2, 9), NodeId("a/b", 3, 8)):
        with pytest.raises(ArchiveError, match=f"rows from a/b as a/b/3/0{{15}}9; the node that answers now is {node}/"):
            opened(tmp_path, node=node)
    opened(tmp_path, node=NodeId("a/b", 4, 8)).close()
    assert sorted(path.name for path in (tmp_path / "open").glob("*.node")) == ["a%2Fb.node", "c.node"]


def test_a_life_of_a_node_that_is_none_is_named(tmp_path: Path) -> None:
    opened(tmp_path).close()
    [path] = tmp_path.glob("open/*.node")
    path.write_text("many")
    with pytest.raises(ArchiveError, match=f"{path.name} does not hold the life of a node: remove the file"):
        opened(tmp_path)


def test_a_description_that_somebody_else_is_writing_is_left_to_him(tmp_path: Path) -> None:
    """Processes of two containers may have one number."""
    other = tmp_path / f".archive.{os.getpid()}.json"
    other.write_text("half")
    opened(tmp_path)
    assert other.read_text() == "half"


def test_journals_wait_unless_their_archiver_runs(tmp_path: Path) -> None:
    runs, ended, other = (opened(tmp_path, *whose) for whose in (("orders", "ann"), ("orders", "ann-2"), ("tills", "ann")))
    for place in (runs, ended, other):
        place.journal(FileNumber(1, 1)).touch()
    ended.journal(FileNumber(2, 1)).touch()
    ended.close()
    other.close()
    assert waiting_journals(tmp_path, group_id("orders")) == {"ann-2": 2}
    assert waiting_journals(tmp_path / "nowhere", group_id("orders")) == {}
    opened(tmp_path, archiver="ann-2")
    assert waiting_journals(tmp_path, group_id("orders")) == {}


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArchiveError, match=r"cannot hold an archive: (Not a directory|File exists)"):
        opened(tmp_path / "file")


@pytest.mark.parametrize("name", ["", ".x", "_x", "a b", "a/b", "ä", "x" * 65, "a\n"])
def test_names_that_cannot_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot be the name of an archiver: use up to 64 letters"):
        ArchiveDirectory(tmp_path, "orders", name)


def test_names_of_files_sort_in_the_order_of_lives_beyond_their_width(tmp_path: Path) -> None:
    place = opened(tmp_path)
    numbers = [FileNumber(2, 9), FileNumber(2, 10), FileNumber(999_999, 1), FileNumber(1_000_000, 1)]
    for number in reversed(numbers):
        place.journal(number).touch()
    assert place.journals() == [place.journal(number) for number in numbers]
    assert place.next_life() == 1_000_001


def test_an_archive_is_local() -> None:
    with pytest.raises(ArchiveError, match="'s3://x' is not a local directory"):
        local_directory("s3://x")
    assert local_directory("some/where") == Path("some/where")
    assert local_directory("file:///some/wh%20ere") == Path("/some/wh ere")
    for nothing in ("", "file:", "file://"):
        with pytest.raises(ArchiveError, match=r"names no directory: give its path, or . for the current one"):
            local_directory(nothing)
