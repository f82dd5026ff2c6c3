"""The arguments of a node: every mistake is named before anything is opened."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from transis import Node
from transis.net.state import write_key
from transis.sessions.host import SessionPolicy
from transis.settings.load import default_state, read_settings, settings_of
from transis.settings.resolve import resolve, resolve_daemon
from transis.settings.schema import Settings
from transis.types.config import LAN, PULSES, Config, Pulse, Timing, Window
from transis.types.errors import ConfigError

KEY = bytes(range(32))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"name": ""}, "name"),
        ({"cluster": "x" * 1000}, "cluster"),
        ({"transport": "pigeons"}, "transport"),
        ({"interface": "no-such-card"}, "interface"),
        ({"seeds": ["192.0.2.1:5405"]}, "seeds"),
        ({"seeds": ["somewhere"], "transport": "mesh"}, "seeds"),
        ({"profile": "fast"}, "profile"),
        ({"profile": Timing(token_loss_us=1)}, "timing.token_retransmit_us"),
        ({"window": Window(window=0)}, "window.window"),
        ({"quorum": ["ann", "ann"]}, "quorum"),
        ({"info": bytes(1000)}, "info"),
        ({"policy": SessionPolicy(sessions_max=0)}, "sessions.sessions_max"),
        ({"key": b"short"}, "key"),
        ({"key": KEY, "plaintext": True}, "key"),
        ({"key": "no/such/file"}, "key"),
        ({"run": "fiber"}, "run"),
        ({"engine": "spread"}, "engine"),
        ({"order": "toto"}, "order"),
        ({"engine": "lansis", "pulse": Pulse(alive_us=1 << 30)}, "pulse.alive_us"),
        ({"engine": "lansis", "pulse": "x"}, "pulse"),
        ({"window": 300}, "window"),
        ({"policy": None}, "policy"),
        ({"quorum": "abc"}, "quorum"),
        ({"quorum": [1, 2]}, "quorum"),
        ({"seeds": "192.0.2.1:5405", "transport": "mesh"}, "seeds"),
    ],
)
def test_a_mistake_names_its_argument(tmp_path: Path, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Node(**{"name": "ann", "state": tmp_path / "state", **arguments})
    assert refused.value.field == field
    assert not (tmp_path / "state").exists()


def test_a_key_may_be_a_file(tmp_path: Path) -> None:
    write_key(tmp_path / "key", KEY)
    Node("ann", key=tmp_path / "key", state=tmp_path)
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Node("ann", key=str(tmp_path / "key"), state=tmp_path)


def test_the_state_of_a_node_lies_under_the_users_own() -> None:
    assert default_state("c", "ann", {"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/transis/c/ann")
    assert default_state("c", "ann", {"HOME": "/h"}) == Path("/h/.local/state/transis/c/ann")
    assert default_state("a/b", "c d", {"HOME": "/h"}) == Path("/h/.local/state/transis/a%2Fb/c%20d")
    assert default_state("..", ".x", {"HOME": "/h"}) == Path("/h/.local/state/transis/%2E./%2Ex")


def test_settings_pass_to_a_child_and_back() -> None:
    settings = settings_of(
        "änn",
        key=KEY,
        transport="mesh",
        seeds=["192.0.2.1:5405"],
        state="/s",
        profile=LAN,
        window=Window(window=7, visit_max=7),
        quorum=("a", "b"),
        info=b"\0\xff",
        engine="lansis",
        order="toto",
        policy=SessionPolicy(queue_max=100_001, trickle_us=7_000),
        pulse=Pulse(alive_us=1_001),
    )
    line = msgspec.json.encode(settings)
    assert b"\n" not in line
    opening = resolve(settings)
    assert resolve(msgspec.json.decode(line, type=Settings)) == opening
    assert opening.config.timing == LAN
    assert opening.config.pulse == Pulse(alive_us=1_001)
    assert opening.config.window == Window(window=7, visit_max=7)
    assert (opening.config.info, opening.key, opening.policy.queue_max) == (b"\0\xff", KEY, 100_001)


def test_the_engine_and_its_pulse_reach_the_configuration() -> None:
    def config(**arguments: Any) -> Config:
        return resolve(settings_of("ann", state="/s", **arguments)).config

    assert (config().engine, config().pulse) == ("totem", PULSES["local"])
    chosen = config(engine="lansis", mode="transis", profile="wan")
    assert (chosen.engine, chosen.mode, chosen.pulse) == ("lansis", "transis", PULSES["wan"])
    assert config(profile=LAN).pulse == PULSES["local"]
    assert config(pulse=Pulse(prompt_us=7)).pulse.prompt_us == 7


def test_an_argument_without_a_word_is_the_default_of_a_daemon(tmp_path: Path) -> None:
    """But for its place and its evidence, which belong to the program."""
    daemon = resolve_daemon(read_settings(f'[node]\nname = "ann"\nstate = "{tmp_path}"'.encode(), "x"), os.environ)
    node = resolve(settings_of("ann", state=tmp_path))
    its_own = {"clients": None, "mode": 0o600, "admin": None}
    assert replace(daemon, **its_own) == node


def test_a_key_is_not_shown() -> None:
    settings = settings_of("ann", key=KEY, state="/s")
    for shown in (repr(settings), repr(resolve(settings))):
        assert KEY.hex() not in shown
        assert repr(KEY) not in shown


def test_an_unknown_argument_is_an_error_of_the_call() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Node("ann", colour="blue")  # type: ignore[call-arg]
