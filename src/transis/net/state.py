"""The state directory of a node (its identity, durable, used by one process at a time) and the key files of clusters and users.

1. A lock (flock) is held as long as the directory is open; it goes with the process, however that ends.
2. A value is replaced whole: written beside, synced, renamed, and the directory synced. After a crash at any point it is the old
   one or the new one, and leftovers beside it are swept away at the next opening.
3. The directory belongs to one name: its incarnations are that name's.
4. It names the life that uses it. The next life knows by the lock that this one is over; in a copy of the directory, where the
   lock is another file, it cannot know.
5. A cluster's key is 32 random bytes as text. A file that others can read is refused, with the command that repairs it; errors
   say what is wrong with a file, never what is in it; a new key never replaces an old file, whose key may be in use.
6. On loopback a node without a key of its own has that of its user, in one place for all nodes of the user; the first makes it.
"""

from __future__ import annotations

import binascii
import os
import stat
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from transis.process.fork import stays_here
from transis.trace.files import TEMPORARY, is_locked, replace_durably, sync, take_lock, unlock
from transis.types.errors import ConfigError, IdentityError, InternalError, plainly
from transis.types.ids import NodeId
from transis.wire.envelope import KEY_SIZE

# --- the state directory ----------------------------------------------------------------------------------------------

KEYS: Final = ("incarnation", "ring_seq")
VALUE_BYTES_MAX: Final = 32
LIFE: Final = "life"
LOCK: Final = "lock"


class StateDirectory:
    """Open it once per life of a node; `write` may be called from another thread, one call at a time."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._closed = False
        stays_here(self)
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(path)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            self._sweep()
            self._belong_to(name)
            self.stored: Mapping[str, int] = {key: self._read(key) for key in KEYS if (path / key).exists()}
            self.previous = self._read_life(name)
        except OSError as error:
            self.close()
            raise _unusable(path, error) from error
        except BaseException:
            self.close()
            raise

    def write(self, key: str, value: int) -> None:
        """Write a value; return when it is durable."""
        if key not in KEYS:
            raise InternalError(f"{key} is not a key of a state directory")
        if self._closed:
            raise InternalError("a write into a state directory that was closed")
        replace_durably(self.path / key, f"{value}\n".encode())

    def begin(self, node: NodeId) -> None:
        """From now on this life uses the directory; the life before is `previous`, if it is known."""
        try:
            replace_durably(self.path / LIFE, msgspec.json.encode(_LastLife(node, self._lock_file)))
        except OSError as error:
            raise _unusable(self.path, error) from error

    def close(self) -> None:
        self._closed = True
        if self._lock >= 0:
            unlock(self._lock)
            self._lock = -1

    def descriptors(self) -> list[int]:
        return [] if self._closed else [self._lock]

    def _sweep(self) -> None:
        for left_over in sorted(self.path.glob(f"*{TEMPORARY}")):
            left_over.unlink()

    def _belong_to(self, name: str) -> None:
        owner = self.path / "name"
        if not owner.exists():
            replace_durably(owner, name.encode())
        elif (found := owner.read_text(encoding="utf-8", errors="replace")) != name:
            raise IdentityError(f"the state directory {self.path} belongs to {found!r}, not to {name!r}: give each its own")

    def _read(self, key: str) -> int:
        with (self.path / key).open("rb") as file:
            content = file.read(VALUE_BYTES_MAX + 1)
        text = content.strip()
        if len(content) > VALUE_BYTES_MAX or not text.isdigit():
            raise IdentityError(
                f"{self.path / key} holds no number, so it was damaged: restore the directory or start with a new name"
            )
        return int(text)

    def _read_life(self, name: str) -> NodeId | None:
        try:
            life = msgspec.json.decode((self.path / LIFE).read_bytes(), type=_LastLife)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        return life.node if life.lock == self._lock_file and life.node.name == name else None

    @property
    def _lock_file(self) -> tuple[int, int]:
        """What identifies the lock's file: a copy has another number or was made later."""
        found = os.fstat(self._lock)
        return found.st_ino, found.st_ctime_ns


def _unusable(path: Path, error: OSError) -> ConfigError:
    return ConfigError("state directory", str(path), f"cannot be used: {plainly(error)}")


class _LastLife(msgspec.Struct, frozen=True):
    node: NodeId
    lock: tuple[int, int]


def new_boot_id() -> int:
    """64 random bits: two lives never have the same, even when they run from copies of one directory."""
    return int.from_bytes(os.urandom(8))


def _locked(path: Path) -> int:
    try:
        return take_lock(path / LOCK)
    except BlockingIOError:
        raise IdentityError(
            f"another process uses the state directory {path}: stop it, or give this node a directory and a name of its own"
        ) from None


def is_in_use(path: Path) -> bool:
    """Whether a process has the state directory at `path` open now. Changes nothing there."""
    return is_locked(path / LOCK)


# --- the key file -----------------------------------------------------------------------------------------------------

FILE_BYTES_MAX: Final = 4096
PRIVATE: Final = 0o600
OTHERS: Final = 0o077
USER_KEY_FIELD: Final = "the key of this user's nodes on loopback"
OWN_KEY: Final = (
    "set XDG_STATE_HOME to a directory of this user, or give the node a key_file of its own (`transis keygen --out FILE`)"
)
HEX_LETTERS: Final = 2 * KEY_SIZE


def new_key() -> bytes:
    return os.urandom(KEY_SIZE)


def check_key(key: bytes, field: str) -> None:
    if len(key) != KEY_SIZE:
        raise ConfigError(field, f"{len(key)} bytes", f"a key has {KEY_SIZE} bytes: make one with `transis keygen --out FILE`")


def key_text(key: bytes) -> str:
    return f"# A transis cluster key: the same on every node, and a secret.\n{key.hex()}\n"


def write_key(path: Path, key: bytes) -> None:
    """Create the file with its permissions, so that others can never read it, and make it durable."""
    try:
        _write_private(path, key)
    except FileExistsError:
        raise ConfigError(
            "--out", str(path), "there is such a file already, and its key may be in use: choose another name"
        ) from None
    except OSError as error:
        raise ConfigError("--out", str(path), f"cannot be written ({error.strerror})") from error


def _write_private(path: Path, key: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(key_text(key))
        file.flush()
        os.fsync(file.fileno())


def read_key(path: Path, field: str) -> bytes:
    """Read a key file. `field` names the setting or option that gave the path, for errors."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        make = "make one with `transis keygen --out FILE` and copy it to every node"
        raise ConfigError(field, str(path), f"cannot be read ({error.strerror}): {make}") from error
    try:
        _check_permissions(path, os.fstat(descriptor), field)
        content = os.read(descriptor, FILE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    key = _decode(content)
    if key is None:
        raise ConfigError(
            field,
            str(path),
            f"holds no key: {KEY_SIZE} bytes as {HEX_LETTERS} hexadecimal digits or in base64, as `transis keygen` writes",
        )
    return key


def user_key(path: Path) -> bytes:
    """The key of this user's nodes on loopback; whoever comes first makes it (rule 6)."""
    try:
        if not os.path.lexists(path):
            _make_user_key(path)
        owner = path.lstat().st_uid
    except OSError as error:
        raise ConfigError(USER_KEY_FIELD, str(path), f"cannot be used: {plainly(error)}: {OWN_KEY}") from error
    if owner != os.geteuid():
        raise ConfigError(USER_KEY_FIELD, str(path), f"it belongs to user {owner}, not to user {os.geteuid()}: {OWN_KEY}")
    try:
        return read_key(path, USER_KEY_FIELD)
    except ConfigError as error:
        error.args = (f"{error}; or stop this user's nodes and remove it: the next one makes a new key",)
        raise


def _make_user_key(path: Path) -> None:
    """Written aside and linked: of several that begin at once one wins, and nobody reads half a key."""
    aside = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write_private(aside, new_key())
        with suppress(FileExistsError):
            path.hardlink_to(aside)
    finally:
        aside.unlink(missing_ok=True)
    sync(path.parent)


def _check_permissions(path: Path, found: os.stat_result, field: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(field, str(path), "must be a regular file")
    if found.st_mode & OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigError(field, str(path), f"others may read or write it (mode {mode:04o}): chmod 600 {path}")


def _decode(content: bytes) -> bytes | None:
    """The key in the file's only line that is not a comment, or None."""
    lines = [line.strip() for line in content.splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    if len(lines) != 1 or len(content) > FILE_BYTES_MAX:
        return None
    try:
        key = bytes.fromhex(lines[0].decode()) if len(lines[0]) == HEX_LETTERS else b64decode(lines[0], validate=True)
    except (ValueError, binascii.Error):
        return None
    return key if len(key) == KEY_SIZE else None
