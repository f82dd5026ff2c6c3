"""A follower between batches and before Spark runs: what could not be read is tried again, what cannot be listed is told, and an
alert stays while it starts. None of it needs Spark."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from urllib.request import urlopen

import pytest

from tests.audit.digests import seal
from tests.audit.test_fold import A, B, at
from transis.audit.follow.divergence import ONE_SEQUENCE
from transis.audit.follow.evidence import EvidenceExport
from transis.audit.follow.follower import FollowedBatch, Follower, FollowRequest, directories_of, figures_of, follow
from transis.audit.follow.ledger import FollowLedger, opened
from transis.audit.follow.source import read_back, row_of
from transis.types.errors import PipelineError

FILE = "life-b-1-0000000000000008-000001.digests"
NOBODY = 65_534


def refused(directory: Path) -> Path:
    """A file that the system does not open, whoever asks: a link to itself."""
    path = directory / FILE
    path.symlink_to(path)
    return path


def too_deep(directory: Path) -> None:
    """Directories of which the innermost has no path that the system takes."""
    at = os.open(directory, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=at)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


class Beside:
    """A follower on directories, and what it said."""

    def __init__(self, ledger: FollowLedger, *directories: Path) -> None:
        self.said: list[FollowedBatch | str] = []
        places = [str(one) for one in directories]
        evidence = EvidenceExport(ledger.checkpoint.parent, places, self.said.append)
        self.follower = Follower(ledger, None, evidence, places, self.said.append)


@pytest.fixture
def flight(tmp_path: Path) -> Path:
    (tmp_path / "flight").mkdir()
    return tmp_path / "flight"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FollowLedger]:
    with opened(tmp_path / "ledger") as one:
        yield one


# -- files that the system refuses -------------------------------------------------------------------------------------------


def test_only_what_the_system_refuses_is_worth_another_try(flight: Path) -> None:
    (flight / "life-c-1-0000000000000009-000001.digests").write_bytes(b"what")
    rows = [row_of(str(path)) for path in (refused(flight), flight / "life-c-1-0000000000000009-000001.digests")]
    _, troubles = read_back(rows)
    assert [one.may_pass for one in troubles] == [True, False]
    assert "symbolic links" in troubles[0].why


def test_a_file_whose_read_failed_is_read_when_it_can_be(flight: Path, ledger: FollowLedger) -> None:
    path = refused(flight)
    ledger.add("q", 7, ledger.fold.add([at(A, 1, 2)]), owed=[str(path)])
    beside = Beside(ledger, flight)
    beside.follower.look()
    beside.follower.look()
    assert (beside.said, ledger.kept.owed) == ([], [str(path)]), "it was told when it was met first"
    assert beside.follower.lacking() is not None
    path.unlink()
    seal(flight, at(B, 1, 2))
    beside.follower.look()
    (batch,) = beside.said
    assert isinstance(batch, FollowedBatch)
    assert (batch.files, batch.verdicts[0].property, batch.verdicts[0].checked) == (1, ONE_SEQUENCE, 2)
    assert (ledger.kept.owed, ledger.kept.batch) == ([], 7)
    assert beside.follower.lacking() is None


def test_a_file_that_is_gone_is_not_owed_any_more(flight: Path, ledger: FollowLedger) -> None:
    ledger.add("q", 0, [], owed=[str(flight / FILE)])
    Beside(ledger, flight).follower.look()
    assert ledger.kept.owed == []


# -- directories -------------------------------------------------------------------------------------------------------------


def test_a_directory_that_cannot_be_listed_is_told_once(flight: Path, ledger: FollowLedger) -> None:
    too_deep(flight)
    beside = Beside(ledger, flight)
    beside.follower.look()
    beside.follower.look()
    (said,) = beside.said
    assert "cannot be listed (File name too long): digests there are not followed" in str(said)


@contextmanager
def without_rights() -> Iterator[None]:
    """Root may read everything, so it becomes nobody for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_directory_that_may_not_be_read_is_refused() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        Path(place, "flight").mkdir(mode=0)
        with without_rights(), pytest.raises(PipelineError, match=r"flight cannot be listed \(Permission denied\)"):
            directories_of([str(Path(place, "flight"))])


# -- the metric while it starts ----------------------------------------------------------------------------------------------


def test_an_alert_stays_while_the_follower_starts(flight: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "kept") as ledger:
        ledger.add("q", 0, ledger.fold.add([at(A, 1, 2), at(B, 2, 1)]))
        looked_s = ledger.kept.looked_s
    scraped: list[str] = []

    def tell(what: FollowedBatch | str) -> None:
        """The first thing it says is its port, before there is Spark, and that is enough."""
        with urlopen(f"http://127.0.0.1:{str(what).rpartition(' ')[2]}/metrics") as answer:
            scraped.extend(answer.read().decode().splitlines())
        raise PipelineError("that is enough")

    with pytest.raises(PipelineError, match="enough"):
        follow(FollowRequest((str(flight),), tmp_path / "kept", metrics=("127.0.0.1", 0)), tell, Event(), lambda: None)
    assert 'transis_audit_broken{cluster="simulated",property="one_sequence"} 1.0' in scraped
    with opened(tmp_path / "kept") as ledger:
        assert figures_of(ledger).looked_s == looked_s, "when it last looked, not when it began"
