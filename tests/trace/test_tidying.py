"""What a flight recorder leaves on its disk is bounded, by age and by size, and nobody else's files are touched."""

import os
from pathlib import Path

from transis.trace.flight import KEPT, MB, RING_FILE_BYTES, FlightLimits, Tidier

HOUR_S = 3600


def digests(directory: Path, number: int, written_s: int, size: int = 100, name: str = "n1") -> Path:
    return aged(directory / f"life-{name}-1-7-{number:06d}.digests", written_s, size)


def aged(path: Path, written_s: int, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (written_s, written_s))
    return path


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("life-*"))


def test_a_day_of_digests_is_kept_and_no_more(tmp_path: Path) -> None:
    for hour in range(30):
        digests(tmp_path, hour, hour * HOUR_S)
    tidier = Tidier(tmp_path, "n1", FlightLimits())
    for now, oldest in ((24, 0), (26, 2), (40, 16)):
        found = tidier.tidy(frozenset(), now * HOUR_S)
        assert left(tmp_path)[0].endswith(f"{oldest:06d}.digests")
        assert found.bytes == 100 * (30 - oldest) == 100 * len(left(tmp_path))


def test_what_is_too_much_goes_from_its_oldest_end(tmp_path: Path) -> None:
    for number in range(4):
        digests(tmp_path, number, 1000 - number, size=MB // 2)
    assert Tidier(tmp_path, "n1", FlightLimits(kept_mb=1)).tidy(frozenset(), 1000).bytes == MB
    assert [name[-9] for name in left(tmp_path)] == ["0", "1"]


def test_files_that_come_and_go_between_two_looks(tmp_path: Path) -> None:
    tidier = Tidier(tmp_path, "n1", FlightLimits())
    first = digests(tmp_path, 1, 1000)
    assert tidier.tidy(frozenset(), 1000).bytes == 100
    first.unlink()
    digests(tmp_path, 2, 1000, size=7)
    assert tidier.tidy(frozenset(), 1000).bytes == 7


def test_a_ring_file_is_known_by_the_size_it_has_when_it_is_over(tmp_path: Path) -> None:
    tidier = Tidier(tmp_path, "n1", FlightLimits())
    ring_file = aged(tmp_path / "life-n1-1-7-000001.film", 1000, 10)
    assert tidier.tidy(frozenset({ring_file.name}), 1000).bytes == 10
    aged(ring_file, 1000, RING_FILE_BYTES)
    assert tidier.tidy(frozenset({ring_file.name}), 1000).bytes == RING_FILE_BYTES
    assert tidier.tidy(frozenset(), 1000).bytes == RING_FILE_BYTES


def test_nothing_of_others_is_deleted_or_counted(tmp_path: Path) -> None:
    others = [
        digests(tmp_path, 1, 0, name="n10"),
        aged(tmp_path / "life-n1-1-7-000002.digests.open", 0, 100),
        aged(tmp_path / "notes.txt", 0, 100),
        aged(tmp_path / KEPT / ".exporting-000001-R4-a" / "n1.trace", 0, 100),
    ]
    found = Tidier(tmp_path, "n1", FlightLimits(kept_mb=0)).tidy(frozenset(), 1e9)
    assert (found.bytes, found.kept) == (0, 0)
    assert all(path.exists() for path in others)


def test_what_is_said_to_be_written_and_is_not_there_counts_nothing(tmp_path: Path) -> None:
    found = Tidier(tmp_path, "n1", FlightLimits()).tidy(frozenset({"life-n1-1-7-000001.film"}), 1e9)
    assert (found.bytes, found.kept) == (0, 0)
    assert found.free_bytes > 0
