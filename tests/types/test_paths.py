"""Where clients look for a node and where a daemon listens are one rule."""

from __future__ import annotations

import pytest

from transis.types.paths import (
    MACHINE_SOCKET,
    default_state,
    find_socket,
    socket_candidates,
    socket_to_listen_at,
    user_key_file,
)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (MACHINE_SOCKET,)),
        ({"XDG_RUNTIME_DIR": "/run/user/7/"}, ("/run/user/7/transis/transis.sock", MACHINE_SOCKET)),
        ({"XDG_RUNTIME_DIR": "/run/user/7", "TRANSIS_SOCKET": "/tmp/mine"}, ("/tmp/mine",)),
        ({"XDG_RUNTIME_DIR": "", "TRANSIS_SOCKET": ""}, (MACHINE_SOCKET,)),
    ],
)
def test_the_order_of_places(environment: dict[str, str], expected: tuple[str, ...]) -> None:
    assert socket_candidates(environment) == expected
    assert socket_to_listen_at(environment) == expected[0]
    assert find_socket(environment, lambda path: True) == expected[0]
    assert find_socket(environment, lambda path: path == expected[-1]) == expected[-1]
    assert find_socket(environment, lambda path: False) is None


@pytest.mark.parametrize(
    ("environment", "root", "directory"),
    [
        ({"HOME": "/h"}, False, "/h/.local/state/transis"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/s"}, False, "/s/transis"),
        ({"HOME": "/root"}, True, "/var/lib/transis"),
        ({"HOME": "/root", "XDG_STATE_HOME": "/s"}, True, "/s/transis"),
        ({"HOME": "/h", "STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, False, "/var/lib/a"),
    ],
)
def test_the_key_of_a_user_is_in_one_place_for_all_nodes(environment: dict[str, str], root: bool, directory: str) -> None:
    assert str(user_key_file(environment, root=root).parent) == directory


def test_no_node_and_no_cluster_has_its_state_where_the_key_is() -> None:
    environment = {"HOME": "/h"}
    key = user_key_file(environment, root=False)
    assert default_state("n1", environment, root=False).parent == key.parent
    assert default_state(key.name, environment, root=False) != key
