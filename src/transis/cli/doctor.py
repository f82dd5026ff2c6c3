"""`transis doctor`: whether this machine can run a node with these settings, and what to do where it cannot.

1. Every finding is a sentence; what is not fine has a remedy that a person can type. Exit code 1 if a node would not work, or not
   with the others; warnings cost speed or comfort.
2. Nothing is changed and nothing stays: sockets are tried on free ports, directories are only looked at.
3. What one machine cannot know alone, two find out with `--meet`, each running the command at the same time: whether multicasts
   pass between them, whether they have one key, and whether both use one name (doctor_network.py).
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from rich.text import Text

from transis import __version__
from transis.cli.admin import AdminConnection
from transis.cli.doctor_network import Heard, hears_its_multicast, hears_itself, meet, try_buffers
from transis.cli.options import plain_table, say, stdout, unable
from transis.net.host import Opening
from transis.net.interfaces import Interface
from transis.net.sockets import open_unicast
from transis.net.state import LOCK, is_in_use, user_key
from transis.settings.load import load_settings
from transis.settings.resolve import resolve_daemon
from transis.settings.schema import Settings
from transis.types.errors import ConfigError, ConnectError, TransisError

# --- findings ---------------------------------------------------------------------------------------------------------

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
STYLES: Final = {OK: "green", WARNING: "yellow", PROBLEM: "bold red"}


class Diagnosis(NamedTuple):
    subject: str
    level: str
    found: str
    remedy: str = ""


def fine(subject: str, found: str) -> Diagnosis:
    return Diagnosis(subject, OK, found)


def warn(subject: str, found: str, remedy: str) -> Diagnosis:
    return Diagnosis(subject, WARNING, found, remedy)


def problem(subject: str, found: str, remedy: str) -> Diagnosis:
    return Diagnosis(subject, PROBLEM, found, remedy)


# --- this machine -----------------------------------------------------------------------------------------------------

MB: Final = 1024 * 1024
FREE_MB: Final = 256
SPARE_DESCRIPTORS: Final = 64
"""What a daemon opens beside its clients: sockets, traces, ring files."""
STA_UNSYNC: Final = 0x40
"""adjtimex(2): the clock is not synchronised."""
COMMAND_S: Final = 5.0


def check_software() -> Iterator[Diagnosis]:
    python = f"Python {platform.python_version()}"
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        yield fine("software", f"transis {__version__}, {python}, built with optimisation")
    else:
        yield warn(
            "software",
            f"transis {__version__}, {python}, built without optimisation",
            "the Python of your distribution is usually faster: build the virtual environment with it",
        )
    if not _is_installed("uvloop"):
        yield warn("event loop", "asyncio's own", "pip install 'transis[fast]' brings uvloop, with which a node costs less")


def check_limits(settings: Settings) -> Iterator[Diagnosis]:
    needed = settings.sessions.clients_max + SPARE_DESCRIPTORS
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed >= needed or allowed == resource.RLIM_INFINITY:
        yield fine("descriptors", f"{allowed:,} may be open, enough for {settings.sessions.clients_max:,} clients")
    else:
        how = f"ulimit -n {needed}" if most >= needed else f"LimitNOFILE={needed} in the service, or raise the hard limit"
        yield warn("descriptors", f"{allowed:,} may be open, and {settings.sessions.clients_max:,} clients need {needed:,}", how)


def check_clock() -> Iterator[Diagnosis]:
    """No guarantee rests on clocks; measures and people who compare logs do."""
    if _clock_is_kept():
        yield fine("clock", "kept in time")
    else:
        yield warn("clock", "nothing keeps this clock in time", "run chrony or systemd-timesyncd, so that logs can be compared")


def _clock_is_kept() -> bool:
    try:
        status = ctypes.create_string_buffer(512)
        ctypes.CDLL(None, use_errno=True).adjtimex(status)
    except (OSError, AttributeError):
        return True  # Not Linux: nothing is known, so nothing is said.
    offset = 5 * ctypes.sizeof(ctypes.c_long)
    """struct timex: modes (padded), offset, freq, maxerror, esterror, status."""
    return not int.from_bytes(status.raw[offset : offset + 4], sys.byteorder) & STA_UNSYNC


def check_directories(opening: Opening) -> Iterator[Diagnosis]:
    assert opening.clients is not None, "a daemon has a socket for clients"
    for setting, path in _needed(opening, opening.clients):
        there = next(one for one in (path, *path.absolute().parents) if one.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            yield problem(setting, f"this user may not write to {there}", f"run as its owner, or choose another {setting}")
            continue
        free = shutil.disk_usage(there).free // MB
        if free < FREE_MB:
            yield warn(setting, f"{path}: only {free:,} MiB are free", "make room: a node that cannot write its identity stops")
        else:
            yield fine(setting, f"{path}, {free:,} MiB free")


def _needed(opening: Opening, clients: Path) -> Iterator[tuple[str, Path]]:
    yield "node.state", opening.state
    yield "sessions.socket", clients.parent
    if opening.user_key is not None:
        yield "security.key_file", opening.user_key.parent
    if opening.trace is not None:
        yield "trace.directory", opening.trace.directory
    if opening.flight is not None:
        yield "flight.directory", opening.flight.directory


def check_name(opening: Opening) -> Iterator[Diagnosis]:
    """Is a node of this name running here, and is it of this version?"""
    name = opening.config.name
    if not is_in_use(opening.state):
        yield fine("name", f"{name}, and no process here uses {opening.state}")
        return
    try:
        with AdminConnection(opening.admin, None) as connection:
            status = connection.ask("status")
    except ConnectError:
        yield warn(
            "name",
            f"a process uses {opening.state} and does not answer at {opening.admin}",
            f"find it with: fuser {opening.state / LOCK}",
        )
        return
    yield fine("name", f"{status['node']} runs, pid {status['pid']}")
    if status["version"] != __version__:
        yield warn("version", f"the daemon runs transis {status['version']}, installed is {__version__}", "restart the daemon")


def check_key(settings: Settings, opening: Opening) -> Iterator[Diagnosis]:
    if opening.user_key is not None:
        yield _user_key(opening.user_key)
    elif opening.key is not None:
        yield fine("key", f"packets are sealed with {settings.security.key_file}")
    elif opening.interface.address.is_loopback:
        yield warn("key", "none, as the settings ask: every user of this machine may read, write and stop the node", _NO_KEY)
    else:
        yield warn("key", "none, as the settings ask: anybody on this network may read and write", _KEYGEN)


def _user_key(path: Path) -> Diagnosis:
    """Only looks: the first node makes it."""
    try:
        if os.path.lexists(path):
            user_key(path)
    except ConfigError as error:
        return problem("key", str(error), "without this key a node of this user does not start")
    return fine("key", f"packets are sealed with this user's key, {path}")


_NO_KEY: Final = "take out security.anybody_may_read_and_write: then the node has this user's key"
_KEYGEN: Final = "transis keygen --out FILE, copy FILE to every node, and set security.key_file"


# --- the network ------------------------------------------------------------------------------------------------------


def check_interface(opening: Opening) -> Iterator[Diagnosis]:
    interface = opening.interface
    headers = HEADERS[interface.address.version]
    needed = opening.config.datagram + headers
    mtu = _mtu(interface)
    if mtu is not None and mtu < needed:
        yield problem(
            "interface",
            f"{interface} has an MTU of {mtu}, and datagrams of {opening.config.datagram} bytes need {needed}",
            f"set node.datagram = {mtu - headers} on all nodes",
        )
    else:
        yield fine("interface", f"{interface}" + (f", MTU {mtu}" if mtu is not None else ""))
    if hears_itself(interface):
        yield fine("unicast", "datagrams to this machine's own address arrive")
    else:
        yield problem("unicast", f"a datagram to {interface.address} does not arrive", _FIREWALL)


HEADERS: Final = {4: 28, 6: 48}
"""Bytes of IP and UDP before the datagram, by IP version."""


def _mtu(interface: Interface) -> int | None:
    try:
        return int(Path(f"/sys/class/net/{interface.name}/mtu").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


_FIREWALL: Final = "allow the UDP ports that docs/operating.md lists (Ports and firewall)"


def check_transport(opening: Opening, *, is_running: bool) -> Iterator[Diagnosis]:
    group = opening.group
    if opening.transport == "mesh":
        yield fine(
            "multicast", "not needed: this is a mesh" + ("" if opening.seeds else ", and others must name this node as seed")
        )
    elif hears_its_multicast(opening.interface, group):
        yield fine("multicast", f"{group.address} works on {opening.interface.name}, as far as this machine can tell alone")
    else:
        yield problem(
            "multicast",
            f"a datagram to {group.address} by {opening.interface} does not come back",
            f'ip link set {opening.interface.name} multicast on; or set network.transport = "mesh" and seeds',
        )
    if opening.port and not is_running:
        yield _try_port(opening)
    yield from (warn("buffers", found, remedy) for found, remedy in try_buffers(opening.interface))


def _try_port(opening: Opening) -> Diagnosis:
    try:
        open_unicast(opening.interface, opening.port).close()
    except ConfigError as error:
        return problem("network.port", str(error), f"who has it: ss -ulpn 'sport = :{opening.port}'")
    return fine("network.port", f"{opening.port} is free")


def check_firewall(opening: Opening) -> Iterator[Diagnosis]:
    """Look only at the default policy: evaluating the rules is the kernel's business."""
    if opening.interface.address.is_loopback:
        return
    for command, marks in ((("nft", "list", "chains"), ("hook input", "policy drop")), (("iptables", "-S"), ("-P INPUT DROP",))):
        rules = _output(command)
        if rules is not None and any(all(mark in line for mark in marks) for line in rules.splitlines()):
            yield warn("firewall", f"{command[0]} drops what it does not know", _FIREWALL)
            return


def _output(command: tuple[str, ...]) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def judge_meeting(opening: Opening, heard: list[Heard], seconds: float) -> Iterator[Diagnosis]:
    """What the machines that ran this command at the same time have found."""
    if not heard:
        yield problem(
            "meeting",
            f"nobody was heard within {seconds:g} s",
            f"run `transis doctor --meet {seconds:g}` on another machine of the cluster at the same time; {_FIREWALL}",
        )
    for one in heard:
        yield from _judge(opening, one)


def _judge(opening: Opening, one: Heard) -> Iterator[Diagnosis]:
    who = f"{one.name} at {one.address}"
    if one.name == opening.config.name:
        yield problem("meeting", f"{who} has the name of this node", "give each node a node.name of its own")
    if one.has_key is False:
        yield problem("meeting", f"{who} has another key, or none", "copy one key file to all nodes")
    if one.version != __version__:
        yield warn("meeting", f"{who} runs transis {one.version}, this is {__version__}", "install one version everywhere")
    if not one.answers:
        yield problem("meeting", f"{who} is heard by multicast, and its unicasts do not arrive", _FIREWALL)
    elif not one.hears_us:
        yield problem("meeting", f"{who} does not hear this node's multicasts", _FIREWALL)
    else:
        yield fine("meeting", f"{who}: heard both ways, its clock is {abs(one.clock_off_s):.1f} s off")


# --- command ----------------------------------------------------------------------------------------------------------

DOCTOR_EXAMPLES = """Examples:
  transis doctor [dim]# with the defaults, on loopback[/dim]
  transis doctor --config transis.toml
  transis doctor --config transis.toml --meet 20 [dim]# on two machines at the same time[/dim]
"""
UNHEALTHY: Final = 1


def doctor(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings file of the daemon; without one, the default settings.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--meet",
            metavar="S",
            min=1,
            max=600,
            help="Also look, for S seconds, for other machines that run this at the same time.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Check whether this machine can run a node: network, multicast, buffers, directories, key, name. Changes nothing.

    Exit code 1 if something would keep the node, or the cluster, from working.
    """
    try:
        found = list(examine(config, seconds))
    except (TransisError, OSError) as error:
        raise unable("doctor", error) from None
    _show(found, as_json)
    raise typer.Exit(UNHEALTHY if any(one.level == PROBLEM for one in found) else 0)


def examine(config: Path | None, seconds: float | None = None) -> Iterator[Diagnosis]:
    yield from check_software()
    settings = load_settings(config)
    yield from check_limits(settings)
    yield from check_clock()
    try:
        opening = resolve_daemon(settings, os.environ)
    except ConfigError as error:
        yield problem("settings", str(error), "correct the settings, then run this again")
        return
    yield from check_directories(opening)
    yield from check_name(opening)
    yield from check_key(settings, opening)
    yield from check_interface(opening)
    yield from check_transport(opening, is_running=is_in_use(opening.state))
    yield from check_firewall(opening)
    if seconds is not None:
        yield from judge_meeting(opening, meet(opening, seconds), seconds)


def _show(found: list[Diagnosis], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"findings": [one._asdict() for one in found]}))
        return
    console = stdout()
    table = plain_table("", "", "")
    table.columns[1].justify = table.columns[2].justify = "left"
    for one in found:
        sentence = Text(one.found) + Text(f"\n→ {one.remedy}" if one.remedy else "", style="bold")
        table.add_row(Text(one.level, style=STYLES[one.level]), one.subject, sentence)
    console.print(table)
    count = {level: sum(one.level == level for one in found) for level in (PROBLEM, WARNING)}
    say(console, _summary(count[PROBLEM], count[WARNING]))


def _summary(problems: int, warnings: int) -> str:
    if not problems and not warnings:
        return "Everything is fine."
    if not problems:
        return f"A node can run here; {warnings} finding{'s' if warnings > 1 else ''} could be better."
    return f"{problems} problem{'s' if problems > 1 else ''} to solve before a node works here."


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
