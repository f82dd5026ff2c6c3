"""Where clients look for a node and where a daemon listens are one rule."""

from __future__ import annotations

import pytest

from transis.types.paths import MACHINE_SOCKET, find_socket, socket_candidates, socket_to_listen_at


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
