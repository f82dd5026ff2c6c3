"""The directory of an archive: the files of one archiver of one group, their names, their lock, and the numbers of lives.

    PATH/archive.json                                format and cluster, shared by everybody who writes there
    PATH/stream/GROUP-NAME-LIFE-NUMBER.parquet       published; never changed
    PATH/open/GROUP-NAME-LIFE-NUMBER.journal         being written, or not published yet
    PATH/open/GROUP-NAME-LIFE-NUMBER.journal.damaged published as far as it could be read
    PATH/open/GROUP-NAME.life                        the number of the last life
    PATH/open/GROUP-NAME.lock                        held while an archiver of that name runs
    PATH/open/NODE.node                              the last life of a node that rows came from

1. GROUP is the id of the group in hex, because a group name may hold any character; the name itself is a column.
2. File names do not start with a character that makes Spark skip them, and contain none that Spark takes for a pattern.
3. Whatever an archiver does with its files, it does under its lock.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from transis.archive.rows import FORMAT
from transis.process.fork import stays_here
from transis.trace.files import is_locked, make_directory, replace_durably, sync, take_lock, unlock
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
    """The life of the archiver that wrote a file, and the number of the file within that life."""

    life: int
    number: int


class ArchiverFiles:
    """The files of one archiver of one group, and their lock."""

    def __init__(self, directory: Path, group_id: int, archiver: str) -> None:
        self.directory, self.group_id, self.archiver = directory, group_id, archiver
        self.stream, self.open_files = directory / "stream", directory / "open"
        self._whose = f"{group_id:016x}-{archiver}"
        self._lock = -1
        stays_here(self)

    # --- the lock ---------------------------------------------------------------------------------------------------

    def take_lock(self) -> bool:
        """Try to take the lock; False if somebody else holds it."""
        try:
            self._lock = take_lock(self._lock_file)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        if self._lock >= 0:
            unlock(self._lock)
            self._lock = -1

    def descriptors(self) -> list[int]:
        return [self._lock] if self._lock >= 0 else []

    def is_locked(self) -> bool:
        return is_locked(self._lock_file)

    @property
    def _lock_file(self) -> Path:
        return self.open_files / f"{self._whose}.lock"

    # --- names ------------------------------------------------------------------------------------------------------

    def journal(self, number: FileNumber) -> Path:
        return self.open_files / f"{self._stem(number)}{JOURNAL}"

    def published_as(self, journal: Path) -> Path:
        return self.stream / f"{journal.stem}{PARQUET}"

    def aside(self, target: Path) -> Path:
        """Where a file is written before it gets its name."""
        return target.with_name(f".{target.name}{ASIDE}")

    def damaged(self, journal: Path) -> Path:
        """Where a journal is kept that could not be read completely."""
        return journal.with_name(f"{journal.name}{DAMAGED}")

    def _stem(self, number: FileNumber) -> str:
        return f"{self._whose}-{number.life:06d}-{number.number:06d}"

    def journals(self) -> list[Path]:
        """This archiver's journals, in the order in which they were written."""
        return self._mine(self.open_files, JOURNAL)

    def published(self) -> list[Path]:
        return self._mine(self.stream, PARQUET)

    def damaged_journals(self) -> list[Path]:
        return sorted(
            path for path in self.open_files.glob(f"{self._whose}-*{JOURNAL}{DAMAGED}") if self._is_mine(Path(path.stem))
        )

    def half_published(self) -> list[Path]:
        """Files left over from publishing that was interrupted."""
        found = self.stream.glob(f".{self._whose}-*{PARQUET}{ASIDE}")
        return sorted(path for path in found if self._is_mine(Path(path.name.removeprefix(".").removesuffix(ASIDE))))

    def _mine(self, directory: Path, suffix: str) -> list[Path]:
        found = [path for path in directory.glob(f"{self._whose}-*{suffix}") if self._is_mine(path)]
        return sorted(found, key=number_of)

    def _is_mine(self, path: Path) -> bool:
        """One name may be a prefix of another."""
        match = _STEM.fullmatch(path.stem)
        return match is not None and match["whose"] == self._whose


def number_of(path: Path) -> FileNumber:
    match = _STEM.fullmatch(path.stem)
    assert match is not None, "only names of this form are passed"
    return FileNumber(int(match["life"]), int(match["number"]))


def files_with_journals(directory: Path) -> list[ArchiverFiles]:
    """The files of all archivers that have journals in an archive, whether they run or not."""
    stems = (_STEM.fullmatch(path.stem) for path in (directory / "open").glob(f"*{JOURNAL}"))
    whose = sorted({match["whose"] for match in stems if match is not None})
    return [ArchiverFiles(directory, int(one[:16], 16), one[17:]) for one in whose]


def waiting_journals(directory: Path, group_id: int) -> dict[str, int]:
    """By archiver, the number of journals of a group that nobody will publish, because their archiver does not run."""
    found = [files for files in files_with_journals(directory) if files.group_id == group_id and not files.is_locked()]
    return {files.archiver: len(files.journals()) for files in found}


# --- directory --------------------------------------------------------------------------------------------------------

_NAME: Final = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,63}")


class ArchiveDirectory(ArchiverFiles):
    """The directory as one running archiver uses it: opened, locked, and checked to belong to its cluster."""

    def __init__(self, directory: Path, group: str, archiver: str) -> None:
        super().__init__(directory, group_id(require_group_name(group)), require_name(archiver))
        self.group = group

    def open(self, cluster: str, node: NodeId) -> None:
        """Create the archive if it is new, check that it belongs to this node's cluster, and take the lock of this name."""
        try:
            for directory in (self.stream, self.open_files):
                make_directory(directory)
            self._write_description(cluster)
            self.require_cluster(cluster, node)
            if not self.take_lock():
                text = (
                    f"an archiver named {self.archiver!r} is already writing {self.group!r} there: give this one another --name"
                )
                raise ArchiveError(text)
        except OSError as error:
            raise ArchiveError(f"{str(self.directory)!r} cannot hold an archive: {error.strerror or error}") from error

    # --- cluster and node -------------------------------------------------------------------------------------------

    def _write_description(self, cluster: str) -> None:
        """Hard-linked into place, so that one of several archivers wins and the others find a complete file."""
        target = self.directory / "archive.json"
        if target.exists():
            return
        aside = _written_aside(target, json.dumps({"format": FORMAT, "cluster": cluster}))
        try:
            os.link(aside, target)
        except FileExistsError:
            pass  # Another archiver was faster, and its description counts.
        finally:
            aside.unlink()
        sync(self.directory)

    def require_cluster(self, cluster: str, node: NodeId) -> None:
        """An archive holds one cluster, even if a node of another cluster answers at the old address."""
        its_cluster = cluster_of(self.directory)
        if its_cluster != cluster:
            holds = f"{str(self.directory)!r} holds the archive of cluster {its_cluster!r}"
            raise ArchiveError(f"{holds}, but this node belongs to {cluster!r}: give another --to")
        self._require_life(node)

    def _require_life(self, node: NodeId) -> None:
        """Refuse a node whose incarnation went back.

        Two clusters may have the same name, but within one the lives of a node only go forward (node/identity.py): a node that
        goes back has lost its state. Its rings would be numbered from the start again, and new rows would land in the past.
        """
        path = self.open_files / f"{quote(node.name, safe='')}.node"
        known = _life_in(path)
        if known is not None and known != node[1:] and known[0] >= node.incarnation:
            text = f"{str(self.directory)!r} holds rows from {node.name} as {node_name(NodeId(node.name, *known))}"
            now = f"the node that answers now is {node_name(node)}, which is not a later life"
            remedy = (
                "if the cluster was started anew, give another --to; if only this node lost its state, start it with a new name"
            )
            raise ArchiveError(f"{text}; {now}: {remedy}")
        if known != node[1:]:
            os.replace(_written_aside(path, f"{node.incarnation} {node.boot:016x}\n"), path)
            sync(path.parent)

    # --- lives ------------------------------------------------------------------------------------------------------

    def begin_life(self) -> int:
        """The number of a new life. It is never used again, even if all files of that life are moved away."""
        life = self.next_life()
        replace_durably(self._life_file, b"%d\n" % life)
        return life

    def next_life(self) -> int:
        """A number above every life that ever began here."""
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
        """Bytes that this user may still write there."""
        found = os.statvfs(self.open_files)
        return found.f_bavail * found.f_frsize


def _written_aside(target: Path, content: str) -> Path:
    """Complete and synced, under a unique name, because processes on several machines may write at the same time."""
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
        raise ArchiveError(f"{path} does not hold the life of a node: remove the file") from None


def cluster_of(directory: Path) -> str:
    """The cluster whose archive this is. Raises ArchiveError if this release does not write such an archive."""
    target = directory / "archive.json"
    try:
        found = json.loads(target.read_text())
        its_format, cluster = found["format"], str(found["cluster"])
    except (ValueError, KeyError, TypeError):
        raise ArchiveError(f"{target} does not describe an archive: give another directory") from None
    if its_format != FORMAT:
        holds = f"{str(directory)!r} holds an archive of format {its_format}"
        raise ArchiveError(f"{holds}, but this release writes format {FORMAT}: give another directory")
    return cluster


def require_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ArchiveError(
            f"{name!r} cannot be the name of an archiver: use up to 64 letters, digits, dots, dashes and underscores, "
            f"not starting with a dot or an underscore"
        )
    return name


def local_directory(text: str) -> Path:
    """A path or file: URL, as `transis reconcile` also takes it."""
    path = unquote(urlsplit(text).path) if text.startswith("file:") else text
    if not path:
        raise ArchiveError(f"{text!r} names no directory: give its path, or . for the current one")
    if "://" in path:
        raise ArchiveError(f"{text!r} is not a local directory: write the archive to a mounted one, and copy it from there")
    return Path(path)
