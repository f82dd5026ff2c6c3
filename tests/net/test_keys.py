"""Key files: written so that nobody else reads them, and refused when somebody could."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from transis.net.state import key_text, new_key, read_key, write_key
from transis.types.errors import ConfigError

KEY = bytes(range(32))


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_written_key_is_read_again_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = new_key()
    write_key(path, key)
    assert read_key(path, "key") == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_key_never_replaces_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "key", "precious")
    with pytest.raises(ConfigError, match="choose another name"):
        write_key(path, KEY)
    assert path.read_text() == "precious"


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        write_key(tmp_path / "no" / "key", KEY)


@pytest.mark.parametrize(
    "text", [key_text(KEY), KEY.hex(), base64.b64encode(KEY).decode() + "\n", f"# mine\n\n  {KEY.hex()}  \n"]
)
def test_hexadecimal_and_base64_are_read(tmp_path: Path, text: str) -> None:
    assert read_key(write(tmp_path / "key", text), "key") == KEY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620])
def test_a_key_that_others_can_reach_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "key", KEY.hex(), mode)
    with pytest.raises(ConfigError) as told:
        read_key(path, "key")
    assert told.value.field == "key"
    assert f"chmod 600 {path}" in str(told.value)
    assert f"{mode:04o}" in str(told.value)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_of_the_owner_alone_is_taken(tmp_path: Path, mode: int) -> None:
    assert read_key(write(tmp_path / "key", KEY.hex(), mode), "key") == KEY


@pytest.mark.parametrize(
    "text", ["", "# only a comment\n", KEY.hex()[:-2], KEY.hex() + "00", "zz" * 32, KEY.hex() + "\n" + KEY.hex(), "x" * 9000]
)
def test_what_is_no_key_is_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as told:
        read_key(write(tmp_path / "key", text), "key")
    assert "holds no key" in str(told.value)
    assert KEY.hex()[:16] not in str(told.value)


def test_a_directory_and_a_missing_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="regular file"):
        read_key(tmp_path, "key")
    with pytest.raises(ConfigError, match="transis keygen"):
        read_key(tmp_path / "none", "key")
