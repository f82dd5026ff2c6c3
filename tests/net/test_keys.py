"""Key files: written so that nobody else reads them, and refused when somebody could."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from transis.net.state import key_text, new_key, read_key, user_key, write_key
from transis.types.errors import ConfigError
from transis.types.paths import USER_KEY

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


# --- the key of a user's nodes on loopback ------------------------------------------------------------------------------


def test_the_key_of_a_user_is_made_once_and_only_for_them(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / USER_KEY
    key = user_key(path)
    assert user_key(path) == read_key(path, "key") == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


FIRST = """
import sys
from pathlib import Path
from transis.net.state import user_key
print("here", flush=True)
sys.stdin.readline()
print(user_key(Path(sys.argv[1])).hex())
"""


def test_nodes_that_all_start_first_end_with_one_key(tmp_path: Path) -> None:
    """In processes of their own, let go at the same moment, some times over."""
    for attempt in range(3):
        path = tmp_path / str(attempt) / USER_KEY
        nodes = [
            subprocess.Popen([sys.executable, "-c", FIRST, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(6)
        ]
        for node in nodes:
            assert node.stdout is not None
            assert node.stdout.readline() == "here\n"
        for node in nodes:
            assert node.stdin is not None
            node.stdin.write("go\n")
            node.stdin.flush()
        keys = {node.communicate()[0] for node in nodes}
        assert keys == {user_key(path).hex() + "\n"}
        assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "mode", "remedy"), [(key_text(KEY), 0o640, "chmod 600"), ("", 0o600, "remove it: the next one makes a new key")]
)
def test_a_users_key_that_is_of_no_use_is_told_with_the_remedy(tmp_path: Path, text: str, mode: int, remedy: str) -> None:
    path = write(tmp_path / USER_KEY, text, mode)
    with pytest.raises(ConfigError, match="the key of this user's nodes on loopback") as told:
        user_key(path)
    assert remedy in str(told.value)
    assert path.read_text() == text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_key_that_belongs_to_another_user_is_not_taken(tmp_path: Path) -> None:
    path = write(tmp_path / USER_KEY, key_text(KEY))
    os.chown(path, 12345, -1)
    with pytest.raises(ConfigError, match="it belongs to user 12345, not to user 0: set XDG_STATE_HOME"):
        user_key(path)


def test_where_no_key_can_be_made_the_way_out_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"Not a directory.*: set XDG_STATE_HOME to a directory of this user, or give"):
        user_key(tmp_path / "file" / "below" / USER_KEY)
