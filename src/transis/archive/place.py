"""The directory of an archive, as one archiver of one group uses it.

    PATH/archive.json                         format and cluster, for all who write there
    PATH/stream/GROUP-NAME-LIFE-NUMBER.parquet     published; never changed
    PATH/open/GROUP-NAME-LIFE-NUMBER.journal       being written, or not published yet
    PATH/open/GROUP-NAME-LIFE-NUMBER.journal.damaged   published as far as it could be read
    PATH/open/GROUP-NAME.life                      the number of the last life
    PATH/open/GROUP-NAME.lock                      held while an archiver of that name runs

GROUP is the id of the group in hex, as its name may hold any character; the true name is a column. Names have nothing in front
that Spark passes over, and nothing that it takes for a pattern. Everything that an archiver does there, it does under its lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from transis.archive.journal import SUFFIX
from transis.archive.schema import FORMAT
from transis.model.errors import ArchiveError
from transis.model.groups import group_id
from transis.trace.durable import replace_durably, sync

PARQUET: Final = ".parquet"
ASIDE: Final = ".tmp"
DAMAGED: Final = ".damaged"
_NAME: Final = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,63}")
_STEM: Final = re.compile(r"(?P<whose>[0-9a-f]{16}-.+)-(?P<life>\d{6,})-(?P<number>\d{6,})")


class Number(NamedTuple):
    """Of a file: the life of its archiver, and which of that life's files it is."""

    life: int
    number: int


class Place:
    def __init__(self, directory: Path, group: str, archiver: str) -> None:
        self.group, self.archiver = group, require_name(archiver)
        self.directory = directory
        self.stream, self.open_files = directory / "stream", directory / "open"
        self._whose = f"{group_id(group):016x}-{archiver}"
        self._lock = -1

    def open(self, cluster: str) -> None:
        """Make it if it is new, see that it is an archive of this cluster, and be the only one of this name."""
        try:
            for directory in (self.stream, self.open_files):
                _make_durably(directory)
            self._write_description(cluster)
            self.require_cluster(cluster)
            self._take_lock()
        except OSError as error:
            raise ArchiveError(f"{str(self.directory)!r} cannot hold an archive: {error.strerror or error}") from error

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _write_description(self, cluster: str) -> None:
        """Written aside and linked to its name: whoever comes first, the others find it whole."""
        target = self.directory / "archive.json"
        if target.exists():
            return
        aside = self.directory / f".archive.{os.getpid()}.json"
        with aside.open("w") as file:
            json.dump({"format": FORMAT, "cluster": cluster}, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(aside, target)
        except FileExistsError:
            pass  # Another one was faster, and its word counts.
        finally:
            aside.unlink()
        sync(self.directory)

    def require_cluster(self, cluster: str) -> None:
        """Whoever writes here writes of one cluster, also when a node of another one answers at the old address."""
        target = self.directory / "archive.json"
        try:
            found = json.loads(target.read_text())
            its_format, its_cluster = found["format"], found["cluster"]
        except (ValueError, KeyError, TypeError):
            raise ArchiveError(f"{target} is not the description of an archive: give another --to") from None
        holds = f"{str(self.directory)!r} holds"
        if its_format != FORMAT:
            raise ArchiveError(f"{holds} an archive of format {its_format}, this release writes {FORMAT}: give another --to")
        if its_cluster != cluster:
            raise ArchiveError(f"{holds} the archive of cluster {its_cluster!r}, this node is of {cluster!r}: give another --to")

    def _take_lock(self) -> None:
        lock = os.open(self.open_files / f"{self._whose}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            text = f"an archiver named {self.archiver!r} writes {self.group!r} there already: give this one another --name"
            raise ArchiveError(text) from None
        self._lock = lock

    # --- names ------------------------------------------------------------------------------------------------------

    def journal(self, number: Number) -> Path:
        return self.open_files / f"{self._stem(number)}{SUFFIX}"

    def published_as(self, journal: Path) -> Path:
        return self.stream / f"{journal.stem}{PARQUET}"

    def aside(self, target: Path) -> Path:
        """Where a file is written before it has its name."""
        return target.with_name(f".{target.name}{ASIDE}")

    def damaged(self, journal: Path) -> Path:
        """Where a journal is kept that could not be read as a whole."""
        return journal.with_name(f"{journal.name}{DAMAGED}")

    def _stem(self, number: Number) -> str:
        return f"{self._whose}-{number.life:06d}-{number.number:06d}"

    def journals(self) -> list[Path]:
        """This archiver's, in the order in which they were written."""
        return self._mine(self.open_files, SUFFIX)

    def published(self) -> list[Path]:
        return self._mine(self.stream, PARQUET)

    def damaged_journals(self) -> list[Path]:
        return sorted(
            path for path in self.open_files.glob(f"{self._whose}-*{SUFFIX}{DAMAGED}") if self._is_mine(Path(path.stem))
        )

    def half_published(self) -> list[Path]:
        """What is left of publishing that did not come to its end."""
        found = self.stream.glob(f".{self._whose}-*{PARQUET}{ASIDE}")
        return sorted(path for path in found if self._is_mine(Path(path.name.removeprefix(".").removesuffix(ASIDE))))

    def begin_life(self) -> int:
        """The number of a life that begins. It is never given again, also if all files of that life are moved away."""
        life = self.next_life()
        replace_durably(self._life_file, b"%d\n" % life)
        return life

    def next_life(self) -> int:
        """Above all that ever began here."""
        numbers = [_number(path) for path in self.journals() + self.published()]
        return 1 + max([self._last_begun(), *(number.life for number in numbers)])

    def _last_begun(self) -> int:
        try:
            return int(self._life_file.read_bytes())
        except FileNotFoundError:
            return 0
        except ValueError:
            text = f"{self._life_file} does not hold the number of a life"
            raise ArchiveError(f"{text}: write the highest one there that this archiver ever had") from None

    @property
    def _life_file(self) -> Path:
        return self.open_files / f"{self._whose}.life"

    def _mine(self, directory: Path, suffix: str) -> list[Path]:
        found = [path for path in directory.glob(f"{self._whose}-*{suffix}") if self._is_mine(path)]
        return sorted(found, key=_number)

    def _is_mine(self, path: Path) -> bool:
        """A name may be the beginning of another name."""
        match = _STEM.fullmatch(path.stem)
        return match is not None and match["whose"] == self._whose

    # --- room -------------------------------------------------------------------------------------------------------

    def free_bytes(self) -> int:
        """What this user may still write there."""
        found = os.statvfs(self.open_files)
        return found.f_bavail * found.f_frsize


def _make_durably(directory: Path) -> None:
    """With those above it. A power cut does not take a directory that something durable was put into."""
    if not directory.is_dir():
        _make_durably(directory.parent)
        directory.mkdir(exist_ok=True)
        sync(directory.parent)


def _number(path: Path) -> Number:
    match = _STEM.fullmatch(path.stem)
    assert match is not None, "only names of this form are looked at"
    return Number(int(match["life"]), int(match["number"]))


def require_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ArchiveError(
            f"{name!r} cannot be the name of an archiver: letters, digits, dot, dash and underline, at most 64, "
            f"not beginning with dot or underline"
        )
    return name


def local_directory(text: str) -> Path:
    if "://" in text:
        raise ArchiveError(f"{text!r} is no local directory: an archive is written to a mounted one, and copied from there")
    return Path(text)
