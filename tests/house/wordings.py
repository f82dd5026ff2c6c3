"""What people read about commands and settings, as text: every help, the example of settings, errors about settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, Final

from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from transis import Node
from transis.cli.main import app
from transis.net.interfaces import Interface
from transis.sessions.host import SessionPolicy
from transis.settings.load import read_settings
from transis.settings.resolve import resolve_daemon
from transis.types.config import LAN, LAN_PULSE, Pulse, Timing, Window
from transis.types.errors import ConfigError

WIDTH: Final = 120
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
LONG: Final = re.compile("x{50,}")
RULE: Final = "=" * WIDTH

# --- helps ------------------------------------------------------------------------------------------------------------


def helps() -> str:
    """The help of every command and of every command below it, at a fixed width and without colours."""
    return "\n".join(f"{RULE}\n{' '.join(('transis', *path))} --help\n{RULE}\n{help_of(path)}" for path in paths())


def paths() -> Iterator[tuple[str, ...]]:
    """Of every command, the words that lead to it."""
    yield from _below(get_command(app), ())


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, TyperGroup):
        context = command.context_class(command)
        for name in command.list_commands(context):
            yield from _below(command.get_command(context, name), (*path, name))


def help_of(path: tuple[str, ...], width: int = WIDTH) -> str:
    environment = {"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1", "FORCE_COLOR": None}
    told = CliRunner().invoke(app, [*path, "--help"], prog_name="transis", env=environment, color=False)
    assert told.exit_code == 0, told.output
    return "".join(f"{line.rstrip()}\n" for line in COLOUR.sub("", told.stdout).splitlines())


# --- the example --------------------------------------------------------------------------------------------------------


def example_of_settings() -> str:
    told = CliRunner().invoke(app, ["daemon", "--example"])
    assert told.exit_code == 0, told.output
    return told.stdout


# --- errors about settings ------------------------------------------------------------------------------------------------

LO: Final = Interface("lo", 1, ip_address("127.0.0.1"))
ETH: Final = Interface("eth0", 2, ip_address("192.0.2.7"))
ETH6: Final = Interface("eth0", 2, ip_address("2001:db8::7"))

WRONG_FILES: Final = (
    # That cannot be read.
    "[node",
    "node = 1",
    '[node]\nname = "ann"\nname = "bob"',
    # Names that there are not.
    "[nodes]",
    "[zebra]",
    'name = "ann"',
    '[node]\nnam = "ann"',
    '[network]\nlevel = "info"',
    "[timing]\ntoken_loss = 40",
    "[pulse]\nalive = 40",
    "[window]\nwindows = 3",
    # Values of the wrong kind, or too small, or too large.
    "[node]\nname = 7",
    '[node]\nquorum = "ann"',
    '[node]\nengine = "lansys"',
    '[node]\nprofile = "moon"',
    '[node]\norder = "random"',
    '[node]\nmode = "vs"',
    '[network]\ntransport = "tcp"',
    "[network]\nport = 70000",
    "[network]\nport = -1",
    "[network]\nhops = 256",
    "[network]\nseeds = [1]",
    "[security]\nanybody_may_read_and_write = 1",
    '[sessions]\nmode = "rw-rw----"',
    "[sessions]\nqueue_mb = 0",
    '[timing]\ntoken_loss_ms = "fast"',
    "[timing]\ntoken_loss_ms = nan",
    "[timing]\nhop_ms = true",
    "[pulse]\nalive_ms = 0",
    "[window]\nwindow = 1.5",
    "[trace]\nkeep_days = 0",
    "[flight]\nfilms_mb = 1",
    '[log]\njson = "yes"',
    '[log]\nlevel = "loud"',
    # What would not work together, or on this machine.
    '[node]\nname = ""\ncluster = ""',
    '[node]\nname = "a\\nb"',
    f'[node]\ninfo = "{"x" * 257}"',
    '[node]\nquorum = ["a", "a"]',
    '[node]\nwithout_quorum = "wait"',
    '[node]\nquorum = ["a"]\nwithout_quorum = "stop"',
    "[node]\ndatagram = 1",
    '[node]\norder = "toto"',
    '[node]\nmode = "transis"',
    '[node]\nengine = "lansis"\norder = "toto"\nmode = "transis"',
    '[node]\nstate = "/dev/null"',
    "[timing]\ntoken_retransmit_ms = 90",
    "[timing]\ntoken_hold_ms = 80",
    "[timing]\njoin_ms = 3000",
    "[timing]\nquarantine_ms = 3000000",
    "[pulse]\nalive_ms = 90",
    "[pulse]\nrepeat_ms = 3000",
    "[pulse]\nnack_ms = 3000",
    "[pulse]\nalpha_ms = 3000",
    "[window]\nvisit_max = 9999",
    "[window]\ngap_max = 1",
    "[window]\noutbox_bytes = 1",
    "[window]\naccelerated = 100000",
    "[window]\nunicast_retries = 101",
    '[network]\ninterface = "eth9"',
    '[network]\ninterface = "eth0"',
    '[network]\nseeds = ["192.0.2.1:5405"]',
    '[network]\ntransport = "mesh"\nseeds = ["ann"]',
    '[network]\ntransport = "mesh"\nport = 65534',
    '[network]\ngroup = "192.0.2.1"',
    '[network]\ngroup = "everybody"',
    "[network]\ndata_port = 0",
    "[network]\ncontrol_port = 5410",
    '[security]\nkey_file = "/nowhere/key"',
    '[security]\nkey_file = "k"\nanybody_may_read_and_write = true',
    '[sessions]\ntcp = "192.0.2.7"',
    '[sessions]\ntcp = "192.0.2.7:5500"',
    "[sessions]\ntotal_mb = 1",
    f'[sessions]\nsocket = "/{"x" * 200}"',
    '[sessions]\nsocket = "/dev/null/s"',
    '[sessions]\nsocket = "/a"\n[admin]\nsocket = "/a"',
    '[metrics]\nlisten = "localhost"',
    '[trace]\ndirectory = "/dev/null"',
    "[trace]\nsegment_mb = 9\nkeep_mb = 8",
    '[trace]\ndirectory = "/nowhere/t"\n[flight]\ndirectory = "/nowhere/t"',
    '[flight]\ndirectory = "/dev/null"',
)

WRONG_ARGUMENTS: Final[tuple[dict[str, Any], ...]] = (
    {"name": ""},
    {"name": "a\nb"},
    {"name": "x" * 300},
    {"cluster": ""},
    {"datagram": 1400},
    {"key": b"short"},
    {"key": "/nowhere/key"},
    {"key": bytes(32), "plaintext": True},
    {"transport": "tcp"},
    {"transport": "mesh", "seeds": ["ann"]},
    {"transport": "mesh", "port": 65534},
    {"seeds": "192.0.2.1:5405"},
    {"seeds": ["192.0.2.1:5405"]},
    {"group": "239.0.0.1"},
    {"port": 70000},
    {"profile": "moon"},
    {"profile": 7},
    {"profile": Timing(token_retransmit_us=LAN.token_loss_us)},
    {"profile": Timing(join_us=0)},
    {"pulse": "fast"},
    {"pulse": Pulse(alive_us=LAN_PULSE.silence_us)},
    {"window": 300},
    {"window": Window(window=0)},
    {"window": Window(visit_max=100_000)},
    {"quorum": "ann"},
    {"quorum": ["ann", "ann"]},
    {"quorum": [""]},
    {"info": b"x" * 257},
    {"policy": 1},
    {"policy": SessionPolicy(send_window=0)},
    {"policy": SessionPolicy(queue_max=1)},
    {"policy": SessionPolicy(patience_us=0)},
    {"policy": SessionPolicy(sessions_max=0)},
    {"policy": SessionPolicy(total_max=1)},
    {"policy": SessionPolicy(trickle_us=0)},
    {"engine": "lansys"},
    {"order": "toto"},
    {"engine": "lansis", "order": "random"},
    {"mode": "transis"},
    {"engine": "lansis", "mode": "vs"},
    {"engine": "lansis", "order": "toto", "mode": "transis"},
    {"run": "fibre"},
)


def errors_of_settings() -> str:
    """What is said to wrong settings files, and to wrong arguments of a node, each with what was given."""
    told = "".join(_of_files()) + "".join(_of_arguments())
    return LONG.sub(lambda found: f"x times {len(found[0])}", told)


def _of_files() -> Iterator[str]:
    for content in WRONG_FILES:
        yield f"{content}\n    -> {_told_of_file(content)}\n\n"


def _told_of_file(content: str) -> str:
    try:
        resolve_daemon(read_settings(content.encode(), "transis.toml"), {"HOME": "/nowhere"}, [LO, ETH, ETH6])
    except ConfigError as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


def _of_arguments() -> Iterator[str]:
    for given in WRONG_ARGUMENTS:
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
        yield f"transis.Node({shown})\n    -> {_told_of_arguments(given)}\n\n"


def _told_of_arguments(given: dict[str, Any]) -> str:
    try:
        Node(**{"name": "ann", "state": "/nowhere", **given})
    except (ConfigError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "fine"
