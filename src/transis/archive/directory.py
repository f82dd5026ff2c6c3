"""The directory of an archive, names, locks, lives.

The directory of an archive, as one archiver of one group uses it.

    PATH/archive.json                         format and cluster, for all who write there
    PATH/stream/GROUP-NAME-LIFE-NUMBER.parquet     published; never changed
    PATH/open/GROUP-NAME-LIFE-NUMBER.journal       being written, or not published yet
    PATH/open/GROUP-NAME-LIFE-NUMBER.journal.damaged   published as far as it could be read
    PATH/open/GROUP-NAME.life                      the number of the last life
    PATH/open/GROUP-NAME.lock                      held while an archiver of that name runs
    PATH/open/NODE.node                            the last life of a node that rows came from

Everything that an archiver does there, it does under its lock.

The files of one archiver of one group in the directory of an archive: what they are called, and who may touch them.

GROUP is the id of the group in hex, as its name may hold any character; the true name is a column. Names have nothing in front
that Spark passes over, and nothing that it takes for a pattern. Everything that is done to these files is done under their lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from transis.archive.rows import FORMAT
from transis.trace.files import replace_durably, sync
from transis.trace.reader import node_name
from transis.types.errors import ArchiveError
from transis.types.ids import NodeId
from transis.types.views import group_id, require_group_name

# --- files ------------------------------------------------------------------------------------------------------------

JOURNAL: Final = ".journal"
PARQUET: Final = ".parquet"
ASIDE: Final = ".tmp"
DAMAGED: Final = ".damaged"
_STEM: Final = re.compile(r"(?P<whose>[0-9a-f]{16}-.+)-(?P<life>\d{6,})-(?P<number>\d{6,})")


class FileNumber(NamedTuple):
    """Of a file: the life of its archiver, and which of that life's files it is."""

    life: int
    number: int


class ArchiverFiles:
    def __init__(self, directory: Path, group_id: int, archiver: str) -> None:
        self.directory, self.group_id, self.archiver = directory, group_id, archiver
        self.stream, self.open_files = directory / "stream", directory / "open"
        self._whose = f"{group_id:016x}-{archiver}"
        self._lock = -1

    # --- the lock ---------------------------------------------------------------------------------------------------

    def take_lock(self) -> bool:
        """Whether nobody else has it."""
        lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def is_locked(self) -> bool:
        """Whether somebody has the lock, at a glance: it is shared for a moment, and nothing is made."""
        try:
            lock = os.open(self._lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # Nobody made it yet, or it is not for us to see.
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    @property
    def _lock_file(self) -> Path:
        return self.open_files / f"{self._whose}.lock"

    # --- names ------------------------------------------------------------------------------------------------------

    def journal(self, number: FileNumber) -> Path:
        return self.open_files / f"{self._stem(number)}{JOURNAL}"

    def published_as(self, journal: Path) -> Path:
        return self.stream / f"{journal.stem}{PARQUET}"

    def aside(self, target: Path) -> Path:
        """Where a file is written before it has its name."""
        return target.with_name(f".{target.name}{ASIDE}")

    def damaged(self, journal: Path) -> Path:
        """Where a journal is kept that could not be read as a whole."""
        return journal.with_name(f"{journal.name}{DAMAGED}")

    def _stem(self, number: FileNumber) -> str:
        return f"{self._whose}-{number.life:06d}-{number.number:06d}"

    def journals(self) -> list[Path]:
        """This archiver's, in the order in which they were written."""
        return self._mine(self.open_files, JOURNAL)

    def published(self) -> list[Path]:
        return self._mine(self.stream, PARQUET)

    def damaged_journals(self) -> list[Path]:
        return sorted(
            path for path in self.open_files.glob(f"{self._whose}-*{JOURNAL}{DAMAGED}") if self._is_mine(Path(path.stem))
        )

    def half_published(self) -> list[Path]:
        """What is left of publishing that did not come to its end."""
        found = self.stream.glob(f".{self._whose}-*{PARQUET}{ASIDE}")
        return sorted(path for path in found if self._is_mine(Path(path.name.removeprefix(".").removesuffix(ASIDE))))

    def _mine(self, directory: Path, suffix: str) -> list[Path]:
        found = [path for path in directory.glob(f"{self._whose}-*{suffix}") if self._is_mine(path)]
        return sorted(found, key=number_of)

    def _is_mine(self, path: Path) -> bool:
        """A name may be the beginning of another name."""
        match = _STEM.fullmatch(path.stem)
        return match is not None and match["whose"] == self._whose


def number_of(path: Path) -> FileNumber:
    match = _STEM.fullmatch(path.stem)
    assert match is not None, "only names of this form are looked at"
    return FileNumber(int(match["life"]), int(match["number"]))


def files_with_journals(directory: Path) -> list[ArchiverFiles]:
    """Of all archivers that have journals in an archive, whether they run or not."""
    stems = (_STEM.fullmatch(path.stem) for path in (directory / "open").glob(f"*{JOURNAL}"))
    whose = sorted({match["whose"] for match in stems if match is not None})
    return [ArchiverFiles(directory, int(one[:16], 16), one[17:]) for one in whose]


def waiting_journals(directory: Path, group_id: int) -> dict[str, int]:
    """By archiver, how many journals of a group nobody publishes: their archivers do not run."""
    found = [files for files in files_with_journals(directory) if files.group_id == group_id and not files.is_locked()]
    return {files.archiver: len(files.journals()) for files in found}


# --- place ------------------------------------------------------------------------------------------------------------

_NAME: Final = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,63}")


class ArchiveDirectory(ArchiverFiles):
    def __init__(self, directory: Path, group: str, archiver: str) -> None:
        super().__init__(directory, group_id(require_group_name(group)), require_name(archiver))
        self.group = group

    def open(self, cluster: str, node: NodeId) -> None:
        """Make it if it is new, see that it is an archive of this node's cluster, and be the only one of this name."""
        try:
            for directory in (self.stream, self.open_files):
                _make_durably(directory)
            self._write_description(cluster)
            self.require_cluster(cluster, node)
            if not self.take_lock():
                text = f"an archiver named {self.archiver!r} writes {self.group!r} there already: give this one another --name"
                raise ArchiveError(text)
        except OSError as error:
            raise ArchiveError(f"{str(self.directory)!r} cannot hold an archive: {error.strerror or error}") from error

    # --- whose it is ------------------------------------------------------------------------------------------------

    def _write_description(self, cluster: str) -> None:
        """Linked to its name: whoever comes first, the others find it whole."""
        target = self.directory / "archive.json"
        if target.exists():
            return
        aside = _written_aside(target, json.dumps({"format": FORMAT, "cluster": cluster}))
        try:
            os.link(aside, target)
        except FileExistsError:
            pass  # Another one was faster, and its word counts.
        finally:
            aside.unlink()
        sync(self.directory)

    def require_cluster(self, cluster: str, node: NodeId) -> None:
        """Whoever writes here writes of one cluster, also when a node of another one answers at the old address."""
        its_cluster = cluster_of(self.directory)
        if its_cluster != cluster:
            holds = f"{str(self.directory)!r} holds the archive of cluster {its_cluster!r}"
            raise ArchiveError(f"{holds}, this node is of {cluster!r}: give another --to")
        self._require_life(node)

    def _require_life(self, node: NodeId) -> None:
        """Clusters may be called the same, but within one no life of a node comes after a later one (node/identity.py): a node
        that goes back lost its state. Then its rings are numbered from the start, too, and rows would be put into the past."""
        path = self.open_files / f"{quote(node.name, safe='')}.node"
        known = _life_in(path)
        if known is not None and known != node[1:] and known[0] >= node.incarnation:
            text = f"{str(self.directory)!r} holds what came from {node.name} as {node_name(NodeId(node.name, *known))}"
            now = f"the one that answers now is {node_name(node)} and knows nothing of that"
            remedy = "if its cluster was begun anew, give another --to; if only its state was lost, start it with a new name"
            raise ArchiveError(f"{text}; {now}: {remedy}")
        if known != node[1:]:
            os.replace(_written_aside(path, f"{node.incarnation} {node.boot:016x}\n"), path)
            sync(path.parent)

    # --- lives ------------------------------------------------------------------------------------------------------

    def begin_life(self) -> int:
        """The number of a life that begins. It is never given again, also if all files of that life are moved away."""
        life = self.next_life()
        replace_durably(self._life_file, b"%d\n" % life)
        return life

    def next_life(self) -> int:
        """Above all that ever began here."""
        numbers = [number_of(path) for path in self.journals() + self.published()]
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


def _written_aside(target: Path, content: str) -> Path:
    """Whole and synced, under a name that nobody else can have: processes of several machines may be at it."""
    aside = target.with_name(f".{target.name}.{token_hex(8)}")
    with aside.open("x") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return aside


def _life_in(path: Path) -> tuple[int, int] | None:
    """Incarnation and boot id."""
    try:
        incarnation, boot = path.read_text().split()
        return int(incarnation), int(boot, 16)
    except FileNotFoundError:
        return None
    except ValueError:
        raise ArchiveError(f"{path} does not hold the life of a node: remove it") from None


def cluster_of(directory: Path) -> str:
    """Whose archive this is, if it is one that this release writes."""
    target = directory / "archive.json"
    try:
        found = json.loads(target.read_text())
        its_format, cluster = found["format"], str(found["cluster"])
    except (ValueError, KeyError, TypeError):
        raise ArchiveError(f"{target} is not the description of an archive: give another directory") from None
    if its_format != FORMAT:
        holds = f"{str(directory)!r} holds an archive of format {its_format}"
        raise ArchiveError(f"{holds}, this release writes {FORMAT}: give another directory")
    return cluster


def require_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ArchiveError(
            f"{name!r} cannot be the name of an archiver: letters, digits, dot, dash and underline, at most 64, "
            f"not beginning with dot or underline"
        )
    return name


def local_directory(text: str) -> Path:
    """As `transis reconcile` reads it, too."""
    path = unquote(urlsplit(text).path) if text.startswith("file:") else text
    if not path:
        raise ArchiveError(f"{text!r} names no directory: give its path, or . for the one where you are")
    if "://" in path:
        raise ArchiveError(f"{text!r} is no local directory: an archive is written to a mounted one, and copied from there")
    return Path(path)
