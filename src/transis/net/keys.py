"""The key file of a cluster: 32 random bytes as text, readable by nobody but its owner.

1. A key that others can read is no key: such a file is refused, with the command that mends it.
2. Errors say what is wrong with a file, never what is in it.
3. A new key never replaces an old file: the old key may be in use.
"""

from __future__ import annotations

import binascii
import os
import stat
from base64 import b64decode
from pathlib import Path
from typing import Final

from transis.types.errors import ConfigError
from transis.wire.envelope import KEY_SIZE

FILE_BYTES_MAX: Final = 4096
PRIVATE: Final = 0o600
OTHERS: Final = 0o077
HEX_LETTERS: Final = 2 * KEY_SIZE


def new_key() -> bytes:
    return os.urandom(KEY_SIZE)


def key_text(key: bytes) -> str:
    return f"# A transis cluster key: the same on every node, and a secret.\n{key.hex()}\n"


def write_key(path: Path, key: bytes) -> None:
    """Made with its permissions, so that there is no moment at which others can read it; durable, for it is needed tomorrow."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        raise ConfigError(
            "--out", str(path), "there is such a file already, and its key may be in use: choose another name"
        ) from None
    except OSError as error:
        raise ConfigError("--out", str(path), f"cannot be written ({error.strerror})") from error
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(key_text(key))
        file.flush()
        os.fsync(file.fileno())


def read_key(path: Path, field: str) -> bytes:
    """`field` is what the file is called where it was named, for the errors."""
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


def _check_permissions(path: Path, found: os.stat_result, field: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(field, str(path), "must be a regular file")
    if found.st_mode & OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigError(field, str(path), f"others may read or write it (mode {mode:04o}): chmod 600 {path}")


def _decode(content: bytes) -> bytes | None:
    """The key in a file's one line that is no comment, or None."""
    lines = [line.strip() for line in content.splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    if len(lines) != 1 or len(content) > FILE_BYTES_MAX:
        return None
    try:
        key = bytes.fromhex(lines[0].decode()) if len(lines[0]) == HEX_LETTERS else b64decode(lines[0], validate=True)
    except (ValueError, binascii.Error):
        return None
    return key if len(key) == KEY_SIZE else None
