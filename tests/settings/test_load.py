"""The settings file: everything in it is checked, and every mistake is told with the field and what is allowed."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.net.host import Opening
from transis.net.interfaces import Interface
from transis.settings.load import SettingsError, load_settings, read_settings
from transis.settings.resolve import describe, pulse_of, resolve_daemon, timing_of
from transis.settings.schema import (
    CLASSES,
    KEYWORDS,
    REAL_WINDOW,
    SECTIONS,
    Settings,
    default_of,
    example,
    fields_of,
    pulse_fields,
    timing_fields,
    window_fields,
)
from transis.types.config import LAN, LAN_PULSE, LOCAL, PROFILES, PULSES, Window
from transis.types.errors import ConfigError
from transis.types.paths import USER_KEY

LO = Interface("lo", 1, ip_address("127.0.0.1"))
ETH = Interface("eth0", 2, ip_address("192.0.2.7"))
ETH6 = Interface("eth0", 2, ip_address("2001:db8::7"))
KEY = bytes(range(32))


def read(text: str) -> Settings:
    return read_settings(text.encode(), "transis.toml")


def opening_of(text: str) -> Opening:
    return resolve_daemon(read(text), {"HOME": "/nowhere"}, [LO, ETH, ETH6])


def described(text: str) -> dict[str, str]:
    return dict(describe(read(text), opening_of(text)))


def key_file(directory: Path) -> Path:
    path = directory / "key"
    path.write_text(KEY.hex())
    path.chmod(0o600)
    return path


# --- reading ----------------------------------------------------------------------------------------------------------


def test_an_empty_file_is_all_defaults() -> None:
    assert read("") == Settings() == load_settings(None)


def test_the_example_says_nothing_until_its_comments_are_taken_away() -> None:
    assert read(example()) == Settings()


def test_the_example_without_comment_signs_is_the_defaults_spelt_out() -> None:
    spelt = read(re.sub(r"^# (\w+ = )", r"\1", example(), flags=re.MULTILINE))
    for name in SECTIONS:
        assert getattr(spelt, name) == getattr(Settings(), name)
    assert timing_of(spelt, ETH) == LAN
    assert len(spelt.timing) == len(timing_fields())
    assert pulse_of(spelt, ETH) == LAN_PULSE
    assert len(spelt.pulse) == len(pulse_fields())
    assert len(spelt.window) == len(window_fields())


def test_every_setting_has_a_description_that_ends() -> None:
    for section in SECTIONS.values():
        for field in fields_of(section):
            assert len(field.description) > 10


@pytest.mark.parametrize(
    ("text", "field", "allowed"),
    [
        ('[node]\nnam = "ann"', "node.nam", "did you mean name?"),
        ("[nodes]", "nodes", "did you mean node?"),
        ('name = "ann"', "name", "belongs in [node]"),
        ('[network]\nlevel = "info"', "network.level", "belongs in [log]"),
        ("[timing]\ntoken_loss = 40", "timing.token_loss", "did you mean token_loss_ms?"),
        ('[timing]\ntoken_loss_ms = "fast"', "timing.token_loss_ms", "must be a number"),
        ("[timing]\ntoken_loss_ms = nan", "timing.token_loss_ms", "milliseconds"),
        ("[pulse]\nalive = 40", "pulse.alive", "did you mean alive_ms?"),
        ("[pulse]\nalive_ms = 0", "pulse.alive_ms", "milliseconds"),
        ('[node]\nengine = "lansys"', "node.engine", "must be one of totem, lansis"),
        ("[window]\nwindow = 1.5", "window.window", "must be a whole number"),
        ('[node]\nprofile = "moon"', "node.profile", "must be one of auto, local, lan, wan"),
        ('[network]\ntransport = "tcp"', "network.transport", "must be one of multicast, mesh"),
        ("[network]\nport = 70000", "network.port", "<= 65535"),
        ("[network]\nseeds = [1]", "network.seeds[0]", "must be text in quotes"),
        ('[sessions]\nmode = "rw-rw----"', "sessions.mode", "three octal digits"),
        ("[trace]\nkeep_days = 0", "trace.keep_days", ">= 1"),
        ('[log]\njson = "yes"', "log.json", "must be true or false"),
        ("node = 1", "node", "write [node] on a line of its own"),
        ("[node", "text", "end of document: Expected ']' at the end of a table declaration; this is not TOML: compare"),
        ('[node]\nname = "ann', "text", "end of document: Unterminated string; this is not TOML"),
        ("[node]\nname = ann # " + "x" * 100, "text", "line 2, column 8: "),
        ("[node]\nname\t" + "x" * 100 + "= 1", "text", "line 2, column 6: "),
    ],
)
def test_a_mistake_is_told_with_its_field_and_what_is_allowed(text: str, field: str, allowed: str) -> None:
    with pytest.raises(SettingsError) as told:
        read(text)
    assert told.value.field == field
    assert str(told.value).startswith("transis.toml: " if field == "text" else f"transis.toml: {field} = ")
    assert allowed in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_is_no_text_is_told() -> None:
    with pytest.raises(SettingsError, match="must be UTF-8"):
        read_settings(b"\xff\xfe", "x")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path / "none.toml")


NAMES = [(section, field.name) for section, kind in SECTIONS.items() for field in fields_of(kind)]
WRONG: list[Any] = [-1, 1 << 40, 3.5, "\x00", {"a": 1}, [[1]], True, ""]


@given(st.sampled_from(NAMES), st.sampled_from(WRONG))
def test_any_wrong_value_is_refused_by_the_name_of_its_field(name: tuple[str, str], value: Any) -> None:
    """Or it is a value that the field may have: then the settings hold it."""
    section, field = name
    spelt = {True: "true"}.get(value) if isinstance(value, bool) else _toml(value)
    try:
        settings = read(f"[{section}]\n{field} = {spelt}")
    except ConfigError as error:
        assert error.field.startswith(f"{section}.{field}")
    else:
        assert getattr(getattr(settings, section), field) == value
        assert type(value) is type(default_of(SECTIONS[section], field))


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\x00", "\\u0000") + '"'
    return "{ a = 1 }" if isinstance(value, dict) else str(value)


@given(st.binary(max_size=200))
def test_any_bytes_are_settings_or_one_sentence(content: bytes) -> None:
    try:
        read_settings(content, "f")
    except ConfigError as error:
        assert str(error).startswith("f: ")


@given(st.text(alphabet='[]node.tigs="\n 0123456789ab#{}', max_size=120))
def test_any_text_is_settings_or_one_sentence(text: str) -> None:
    try:
        read(text)
    except ConfigError as error:
        assert str(error).startswith("transis.toml: ")


# --- arguments of a node ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keyword", "path"), KEYWORDS.items())
def test_every_argument_fills_a_setting_that_there_is(keyword: str, path: str) -> None:
    section, _, field = path.partition(".")
    assert section in get_type_hints(Settings)
    assert not field or field in get_type_hints(CLASSES[section])


def test_what_only_a_program_can_say_is_no_setting_of_a_file() -> None:
    with pytest.raises(SettingsError, match="there is no such setting"):
        read('[program]\nrun = "process"')


# --- what comes of it ---------------------------------------------------------------------------------------------------


def test_the_defaults_run_alone_on_loopback() -> None:
    opening = opening_of("")
    assert opening.user_key == Path("/var/lib/transis" if os.geteuid() == 0 else "/nowhere/.local/state/transis") / USER_KEY
    assert not opening.config.plaintext
    assert opening.config.timing == LOCAL
    assert opening.interface == LO
    assert opening.tcp is None
    assert opening.metrics is None
    assert opening.trace is None


def test_timing_is_the_profile_with_differences_in_milliseconds() -> None:
    opening = opening_of('[node]\nprofile = "wan"\n[timing]\nhop_ms = 12.5\n[window]\nwindow = 400')
    assert opening.config.timing.hop_us == 12_500
    assert opening.config.timing.token_loss_us == PROFILES["wan"].token_loss_us
    assert opening.config.window == replace(REAL_WINDOW, window=400)


def test_the_ring_is_accelerated_by_default_and_the_original_one_is_a_setting_away() -> None:
    """D30: half of a visit goes out after the token. docs/protocol.md says the figures."""
    default = opening_of("").config.window
    assert (default.accelerated, default.visit_max) == (100, 200)
    assert opening_of("[window]\naccelerated = 0").config.window == replace(default, accelerated=0)
    assert Window().accelerated == 0


def test_lansis_is_chosen_with_a_pulse_in_milliseconds_and_told() -> None:
    text = '[node]\nengine = "lansis"\nprofile = "wan"\n[pulse]\nprobe_ms = 250.5'
    config = opening_of(text).config
    assert (config.engine, config.order, config.mode) == ("lansis", "all-ack", "evs")
    assert config.pulse.probe_us == 250_500
    assert config.pulse.silence_us == PULSES["wan"].silence_us
    told = described(text)
    assert told["engine"] == "lansis, order all-ack, mode evs"
    assert told["timing"] == "profile wan: silence is noticed after 2751 ms"
    assert "token" not in told["network"]
    assert described("")["timing"] == "profile local: a lost token is noticed after 100 ms"


def test_a_network_without_a_key_is_refused_with_the_way_to_make_one() -> None:
    with pytest.raises(ConfigError) as told:
        opening_of('[network]\ninterface = "eth0"')
    assert told.value.field == "security.key_file"
    assert "transis keygen" in str(told.value)


def test_a_network_without_a_key_can_be_allowed_in_so_many_words() -> None:
    text = '[network]\ninterface = "eth0"\n[security]\nanybody_may_read_and_write = true'
    assert opening_of(text).config.plaintext
    assert "NONE: anybody" in described(text)["seal"]


def test_loopback_without_a_key_is_asked_for_in_so_many_words_too() -> None:
    text = "[security]\nanybody_may_read_and_write = true"
    opening = opening_of(text)
    assert opening.config.plaintext
    assert (opening.key, opening.user_key) == (None, None)
    assert described(text)["seal"] == "NONE: anybody on this machine may read and write"
    assert described("")["seal"].startswith("this user's key, /")


def test_a_key_seals_on_loopback_too_and_is_never_shown(tmp_path: Path) -> None:
    opening = opening_of(f'[security]\nkey_file = "{key_file(tmp_path)}"')
    assert opening.key == KEY
    assert not opening.config.plaintext
    assert KEY.hex() not in repr(opening)
    assert repr(KEY) not in repr(opening)


def test_the_group_fits_the_interface(tmp_path: Path) -> None:
    sealed = f'[security]\nkey_file = "{key_file(tmp_path)}"\n'
    assert opening_of(sealed + '[network]\ninterface = "2001:db8::7"').group.address.startswith("ff")
    assert opening_of(sealed + '[network]\ninterface = "192.0.2.0/24"').group.address.startswith("239.")


def test_a_bare_port_of_metrics_is_one_of_loopback() -> None:
    assert str(opening_of('[metrics]\nlisten = "9464"').metrics) == "127.0.0.1:9464"
    assert str(opening_of('[metrics]\nlisten = "192.0.2.7:9464"').metrics) == "192.0.2.7:9464"


@pytest.mark.parametrize(
    ("text", "field", "allowed"),
    [
        ('[network]\ninterface = "eth9"', "network.interface", "this machine has"),
        ('[node]\nname = "a\\nb"', "node.name", "printable"),
        ('[node]\nname = "../../x"', "node.name", "must not be a path, for directories get this name"),
        ('[node]\nname = ".."', "node.name", "must not be a path"),
        ('[node]\ncluster = "a/b"', "node.cluster", "must not be a path"),
        ('[node]\nquorum = ["a", "a"]', "node.quorum", "twice"),
        ('[node]\nquorum_before = ["a"]', "node.quorum_before", "set quorum too"),
        ('[node]\nwithout_quorum = "wait"', "node.without_quorum", "set quorum too"),
        (
            '[node]\nquorum = ["a"]\nwithout_quorum = "raise"\nengine = "lansis"\nmode = "transis"',
            "node.without_quorum",
            "use the mode evs",
        ),
        (
            '[network]\ninterface = "192.0.2.0/24"',
            "security.key_file",
            "security.key_file is not set: eth0 192.0.2.7 is not loopback",
        ),
        ("[node]\ndatagram = 1", "node.datagram", "from 512"),
        (
            "[timing]\ntoken_retransmit_ms = 90",
            "timing.token_retransmit_ms",
            "3 x token_retransmit_ms must be at most token_loss_ms (100)",
        ),
        ("[pulse]\nalive_ms = 90", "pulse.alive_ms", "= 90: 4 x alive_ms must be at most silence_ms (120): a few"),
        ('[node]\norder = "toto"', "node.order", "only the engine lansis"),
        ("[window]\nvisit_max = 9999", "window.visit_max", "at most window.window"),
        ('[network]\nseeds = ["192.0.2.1:5405"]', "network.seeds", "only a mesh has seeds"),
        ('[network]\ntransport = "mesh"\nseeds = ["ann"]', "network.seeds", "numeric address and a port"),
        ('[network]\ntransport = "mesh"\nport = 65534', "network.port", "three ports in a row"),
        ('[network]\ngroup = "192.0.2.1"', "network.group", "multicast address of IPv4"),
        ('[network]\ngroup = "everybody"', "network.group", "multicast address of IPv4"),
        ("[network]\ndata_port = 0", "network.data_port", "from 1 to 65535"),
        ("[network]\ndata_port = 5411", "network.control_port", "must differ"),
        ('[sessions]\ntcp = "192.0.2.7:5420"', "sessions.tcp", "need a key"),
        ('[sessions]\ntcp = "somewhere"', "sessions.tcp", "numeric address and a port"),
        ("[sessions]\ntotal_mb = 1", "sessions.total_mb", "at least sessions.queue_max"),
        ('[sessions]\nsocket = "/' + "x" * 120 + '"', "sessions.socket", "at most 107 bytes"),
        ('[sessions]\nsocket = "/a"\n[admin]\nsocket = "/a"', "admin.socket", "must differ"),
        ('[node]\nstate = "/etc/passwd"', "node.state", "/etc/passwd is not a directory"),
        ('[node]\nstate = "/etc/passwd/below/it"', "node.state", "/etc/passwd is not a directory"),
        ('[trace]\ndirectory = "/etc/passwd"', "trace.directory", "/etc/passwd is not a directory"),
        ('[sessions]\nsocket = "/etc/passwd/s"', "sessions.socket", "/etc/passwd is not a directory"),
        ("[trace]\nsegment_mb = 9\nkeep_mb = 8", "trace.segment_mb", "at most trace.keep_mb"),
        ('[metrics]\nlisten = "localhost"', "metrics.listen", "numeric address and a port"),
        ('[security]\nkey_file = "/nowhere/key"', "security.key_file", "transis keygen"),
        ('[security]\nkey_file = "k"\nanybody_may_read_and_write = true', "security.anybody_may_read_and_write", "take one"),
    ],
)
def test_what_would_not_work_is_refused_by_the_field(text: str, field: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as told:
        opening_of(text)
    assert told.value.field == field
    assert str(told.value).startswith((f"{field} = ", f"{field} is not set: "))
    assert allowed in str(told.value)


# --- the page -----------------------------------------------------------------------------------------------------------


PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_has_every_setting_as_it_is_in_the_code(section: str) -> None:
    for field in fields_of(SECTIONS[section]):
        assert f"| `{field.name}` | `{field.default}` | {field.description} |" in PAGE, f"[{section}] {field.name}"


def test_the_page_has_the_timing_of_every_profile() -> None:
    for name, timing in PROFILES.items():
        assert name in PAGE
        for field in timing_fields():
            value = getattr(timing, field.name.removesuffix("_ms") + "_us") / 1000
            row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{field.name}` |"))
            assert f"{value:g}" in row.replace("|", " ").split(), (name, field.name)


def test_the_page_has_the_pulse_of_every_profile() -> None:
    for name, pulse in PULSES.items():
        for field in pulse_fields():
            value = getattr(pulse, field.name.removesuffix("_ms") + "_us") / 1000
            row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{field.name}` |"))
            assert f"{value:g}" in row.replace("|", " ").split(), (name, field.name)


def test_the_page_has_the_window() -> None:
    for field in window_fields():
        assert f"| `{field.name}` | `{field.default}` |" in PAGE


def test_the_settings_on_the_page_are_read() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        assert tomllib.loads(block)
        read(block)
