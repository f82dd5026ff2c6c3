"""Configuration: profiles are valid, and what is wrong is named with its field, its range or its relation."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.audit.guarantees import UNPROMISED
from transis.types.config import LAN, LAN_PULSE, PROFILES, PULSES, Config, Pulse, Timing, Window, profile, pulse_profile
from transis.types.errors import ConfigError
from transis.types.limits import DATAGRAM_MAX, DATAGRAM_MIN, MEMBERS_MAX, NAME_MAX
from transis.wire.burst import body_max
from transis.wire.items import FRAGMENT_HEAD_SIZE


def refusal(config: Config) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config.validated()
    return caught.value


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_valid(name: str) -> None:
    config = Config(name="n", timing=profile(name))
    assert config.validated() is config


def test_an_unknown_profile_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="lan, local, wan") as caught:
        profile("moon")
    assert caught.value.field == "profile"
    assert "'moon'" in str(caught.value)


RELATIONS = [
    ("token_retransmit_us", "token_loss_us", {"token_retransmit_us": 15_000}),
    ("token_hold_us", "token_retransmit_us", {"token_hold_us": 9_501}),
    ("join_us", "consensus_us", {"join_us": 25_000}),
    ("join_coalesce_us", "join_us", {"join_coalesce_us": 10_001}),
    ("token_loss_us", "consensus_us", {"token_loss_us": 50_000, "consensus_us": 49_000}),
    ("token_loss_us", "fail_to_receive_us", {"fail_to_receive_us": 39_999}),
    ("quarantine_us", "quarantine_max_us", {"quarantine_us": 60_000_001}),
]


@pytest.mark.parametrize(("small", "large", "change"), RELATIONS, ids=[f"{small}-{large}" for small, large, _ in RELATIONS])
def test_a_broken_relation_names_both_fields_and_the_reason(small: str, large: str, change: dict[str, int]) -> None:
    timing = replace(LAN, **change)
    error = refusal(Config(name="n", timing=timing))
    assert error.field == f"timing.{small}"
    assert str(error).startswith(f"timing.{small} = {getattr(timing, small)}: ")
    assert f"{small} must be at most {large} ({getattr(timing, large)}): " in str(error)


@pytest.mark.parametrize("field", [field.name for field in fields(Timing)])
@pytest.mark.parametrize("value", [0, -1, 3_600_000_001])
def test_every_timeout_has_a_range(field: str, value: int) -> None:
    error = refusal(Config(name="n", timing=replace(LAN, **{field: value})))
    assert error.field == f"timing.{field}"
    assert "must be from 1 to 3600000000 microseconds" in str(error)


RANGES = [
    ("window", {"window": 0}, "from 1 to 100000"),
    ("window", {"window": 100_001}, "from 1 to 100000"),
    ("visit_max", {"visit_max": 0}, "from 1 to 300"),
    ("visit_max", {"visit_max": 301}, "at most window.window"),
    ("gap_max", {"gap_max": 300 + MEMBERS_MAX - 1}, "at least window + members"),
    ("gap_max", {"gap_max": 1_000_001}, "to 1000000"),
    ("outbox_bytes", {"outbox_bytes": 1023}, "from 1024"),
    ("accelerated", {"accelerated": -1}, "from 0"),
    ("accelerated", {"accelerated": 121}, "at most window.visit_max"),
    ("fail_to_receive_rotations", {"fail_to_receive_rotations": 1}, "from 2"),
    ("unicast_retries", {"unicast_retries": 101}, "from 0 to 100"),
]


@pytest.mark.parametrize(("field", "change", "allowed"), RANGES)
def test_every_window_has_a_range(field: str, change: dict[str, int], allowed: str) -> None:
    window = replace(Window(), **change)
    error = refusal(Config(name="n", window=window))
    assert error.field == f"window.{field}"
    assert repr(getattr(window, field)) in str(error)
    assert allowed in str(error)


@pytest.mark.parametrize("field", ["name", "cluster"])
@pytest.mark.parametrize("value", ["", "x" * (NAME_MAX + 1), "ü" * (NAME_MAX // 2 + 1), "line\nbreak", "\ud800"])
def test_names_are_short_and_printable(field: str, value: str) -> None:
    error = refusal(Config(**({"name": "n"} | {field: value})))  # type: ignore[arg-type]
    assert error.field == field


LETTERS = st.characters(categories=("L", "N", "P"), exclude_characters="/\\")


@given(st.text(LETTERS, min_size=1, max_size=NAME_MAX // 4).filter(lambda name: name not in {".", ".."}))
def test_any_short_printable_name_that_is_no_path_will_do(name: str) -> None:
    assert Config(name=name, cluster=name).validated().name == name


@pytest.mark.parametrize("size", [DATAGRAM_MIN - 1, DATAGRAM_MAX + 1])
def test_the_datagram_has_a_range(size: int) -> None:
    error = refusal(Config(name="n", datagram=size))
    assert error.field == "datagram"
    assert f"from {DATAGRAM_MIN} to {DATAGRAM_MAX} bytes" in str(error)


@pytest.mark.parametrize("size", [DATAGRAM_MIN, DATAGRAM_MAX])
def test_both_ends_of_the_datagram_s_range_leave_room_for_messages(size: int) -> None:
    assert Config(name="n", datagram=size).validated().datagram == size
    assert body_max(size) >= 2 * FRAGMENT_HEAD_SIZE


def test_what_all_members_must_share_is_in_the_digest_and_nothing_of_one_node_is() -> None:
    mine, yours = Config(name="a", address="1", info=b"x"), Config(name="b", timing=PROFILES["wan"])
    assert mine.digest_fields() == yours.digest_fields()
    assert mine.digest_fields() != replace(mine, datagram=9000).digest_fields()


# --- engines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PULSES)
def test_every_pulse_is_valid_and_belongs_to_a_profile(name: str) -> None:
    config = Config(name="n", engine="lansis", timing=profile(name), pulse=pulse_profile(name))
    assert config.validated() is config
    assert set(PULSES) == set(PROFILES)


def test_an_unknown_pulse_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="lan, local, wan"):
        pulse_profile("moon")


PULSE_RELATIONS = [
    ("alive_us", "silence_us", {"alive_us": 25_001}),
    ("repeat_us", "agree_us", {"repeat_us": 116_667}),
    ("nack_us", "ack_lag_us", {"nack_us": 150_001}),
    ("alpha_us", "agree_us", {"alpha_us": 50_001}),
]


@pytest.mark.parametrize(("small", "large", "change"), PULSE_RELATIONS, ids=[one[0] for one in PULSE_RELATIONS])
def test_a_broken_relation_of_the_pulse_names_both_fields(small: str, large: str, change: dict[str, int]) -> None:
    pulse = replace(LAN_PULSE, **change)
    error = refusal(Config(name="n", pulse=pulse))
    assert error.field == f"pulse.{small}"
    assert f"must be at most {large} ({getattr(pulse, large)}): " in str(error)
    config = Config(name="n", pulse=replace(pulse, **{small: getattr(pulse, small) - 1}))
    assert config.validated() is config, "the bound itself is allowed"


@pytest.mark.parametrize("field", [field.name for field in fields(Pulse)])
@pytest.mark.parametrize("value", [0, 3_600_000_001])
def test_every_field_of_the_pulse_has_a_range(field: str, value: int) -> None:
    error = refusal(Config(name="n", pulse=replace(LAN_PULSE, **{field: value})))
    assert error.field == f"pulse.{field}"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"engine": "spread"}, "engine"),
        ({"engine": "lansis", "order": "votes"}, "order"),
        ({"engine": "lansis", "mode": "virtual"}, "mode"),
        ({"order": "toto"}, "order"),
        ({"mode": "transis"}, "mode"),
    ],
)
def test_engine_order_and_mode_must_fit(change: dict[str, str], field: str) -> None:
    assert refusal(replace(Config(name="n"), **change)).field == field  # type: ignore[arg-type]


def test_the_digest_tells_engines_orders_and_modes_apart_and_the_ring_s_is_what_it_was() -> None:
    ring = Config(name="n")
    lansis = Config(name="n", engine="lansis")
    toto, flowing = replace(lansis, order="toto"), replace(lansis, mode="transis")
    every = [ring, lansis, toto, flowing, replace(toto, mode="transis").validated(), replace(lansis, datagram=1000)]
    assert ring.digest_fields() == ("totem", 1400)
    assert len({config.digest_fields() for config in every}) == len(every)
    assert replace(lansis, pulse=PULSES["wan"]).digest_fields() == lansis.digest_fields()


def test_what_views_promise_and_how_soon_silence_is_noticed() -> None:
    lansis = Config(name="n", engine="lansis")
    assert Config(name="n").guarantees == lansis.guarantees == "evs"
    assert replace(lansis, order="toto").guarantees == "toto"
    assert replace(lansis, mode="transis").guarantees == "transis"
    assert replace(lansis, order="toto", mode="transis").guarantees == "toto"
    assert {"evs", "toto", "transis"} <= set(UNPROMISED)
    assert Config(name="n").detection_us == LAN.token_loss_us
    assert lansis.detection_us == LAN_PULSE.silence_us + 3 * LAN_PULSE.probe_us
