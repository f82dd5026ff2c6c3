"""Spark's checkpoint as a power cut leaves it: what Spark would refuse is thrown away, what it takes is not touched."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from transis.audit.follow.ledger import discard_if_damaged, id_of
from transis.types.errors import PipelineError

OFFSET = b'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"life-a-1-0000000000000007": "1"}'
COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


def write(path: Path, content: bytes) -> None:
    """With its sums beside it, as Java does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    sums = b"".join(zlib.crc32(content[at : at + 512]).to_bytes(4, "big") for at in range(0, len(content), 512))
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4, "big") + sums)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    place = tmp_path / "checkpoint"
    write(place / "metadata", b'{"id":"0d39e579"}')
    for number in (8, 9, 10):
        write(place / "offsets" / str(number), OFFSET + b" " * 600)
    for number in (8, 9):
        write(place / "commits" / str(number), COMMIT)
    (place / "offsets" / ".11.5f.tmp").write_bytes(b"")
    return place


def test_a_sound_one_stays(checkpoint: Path) -> None:
    assert not discard_if_damaged(checkpoint)
    assert id_of(checkpoint) == "0d39e579"
    assert not discard_if_damaged(checkpoint.with_name("none"))


def test_one_without_commits_or_sums_is_sound(checkpoint: Path) -> None:
    for path in {*checkpoint.glob("commits/*"), *checkpoint.glob("*/.*.crc")}:
        path.unlink()
    assert not discard_if_damaged(checkpoint)


@pytest.mark.parametrize("name", ["metadata", "offsets/10", "offsets/8", "commits/9", "offsets/.10.crc"])
@pytest.mark.parametrize("content", [b"", b"\0" * 100, OFFSET[:20]])
def test_a_damaged_one_is_thrown_away(checkpoint: Path, name: str, content: bytes) -> None:
    (checkpoint / name).write_bytes(content)
    assert discard_if_damaged(checkpoint)
    assert [path.name for path in checkpoint.parent.iterdir()] == []
    with pytest.raises(PipelineError, match="has lost Spark's checkpoint"):
        id_of(checkpoint)


def test_one_that_lacks_where_its_last_batch_began_is_thrown_away(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "9").unlink()
    assert discard_if_damaged(checkpoint)
