"""From settings to what a daemon will do on this machine: everything is looked up and checked before anything is opened.

The rule about keys is here: on anything but loopback a daemon without a key does not start, unless its settings say
`anybody_may_read_and_write`.
"""

from __future__ import annotations

import os
import pkgutil
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from transis.daemon.metrics import require_library
from transis.net.evidence import FLIGHT, FlightPlan
from transis.net.host import Opening, group_for, require_key
from transis.net.interfaces import PORT_MAX, Endpoint, Interface, choose_interface, configured_endpoint
from transis.net.session_server import UNIX_PATH_MAX
from transis.net.state import read_key
from transis.net.transport import Group
from transis.sessions.host import SessionPolicy
from transis.settings.load import profile_of, pulse_of, renamed, timing_of, window_of
from transis.settings.schema import KB, MB, Settings
from transis.trace.flight import FlightLimits
from transis.types.config import MS, SECOND, Config
from transis.types.errors import ConfigError, MissingExtra
from transis.types.paths import admin_beside, default_state, socket_to_listen_at

LOOPBACK: Final = "127.0.0.1"
KEY_FILE: Final = "security.key_file"
MESH_PORTS: Final = 3


@dataclass(frozen=True)
class Plan:
    """Everything a daemon needs to begin."""

    settings: Settings
    config: Config
    interface: Interface
    state: Path
    clients: Path
    admin: Path
    policy: SessionPolicy
    tcp: Endpoint | None = None
    metrics: Endpoint | None = None
    trace: Path | None = None
    key: bytes | None = field(default=None, repr=False)

    @property
    def mode(self) -> int:
        return int(self.settings.sessions.mode, 8)

    @property
    def opening(self) -> Opening:
        network = self.settings.network
        where = (self.config, self.interface, self.state, network.transport, self.group)
        return Opening(*where, network.port, tuple(network.seeds), self.key, self.flight)

    @property
    def flight(self) -> FlightPlan | None:
        flight = self.settings.flight
        if not flight.enabled:
            return None
        limits = FlightLimits(**{name: getattr(flight, name) for name in FlightLimits._fields})
        return FlightPlan(Path(flight.directory) if flight.directory else self.state / FLIGHT, limits)

    @property
    def group(self) -> Group:
        network = self.settings.network
        return group_for(self.interface, Group(network.group, network.data_port, network.control_port, network.hops))


def make_plan(settings: Settings, environment: Mapping[str, str], found: Sequence[Interface] | None = None) -> Plan:
    """Raises ConfigError for the first thing that would not work."""
    interface = _interface(settings, found)
    key = _key(settings, interface)
    config = _config(settings, interface, plaintext=key is None)
    sessions = settings.sessions
    clients = Path(sessions.socket or socket_to_listen_at(environment))
    state = settings.node.state
    plan = Plan(
        settings,
        config,
        interface,
        state=Path(state) if state else default_state(config.name, environment, root=os.geteuid() == 0),
        clients=clients,
        admin=Path(settings.admin.socket) if settings.admin.socket else admin_beside(clients),
        policy=_policy(settings),
        tcp=configured_endpoint("sessions.tcp", sessions.tcp) if sessions.tcp else None,
        metrics=_listen(settings.metrics.listen),
        trace=Path(settings.trace.directory) if settings.trace.directory else None,
        key=key,
    )
    _check(plan)
    return plan


def _interface(settings: Settings, found: Sequence[Interface] | None) -> Interface:
    which = settings.network.interface
    try:
        return choose_interface(which, found)
    except ConfigError as error:
        raise renamed(error, "network.interface") from error


def _key(settings: Settings, interface: Interface) -> bytes | None:
    security = settings.security
    if security.key_file and security.anybody_may_read_and_write:
        raise ConfigError("security.anybody_may_read_and_write", True, "there is a key_file as well: take one of them out")
    key = read_key(Path(security.key_file), KEY_FILE) if security.key_file else None
    allowed = security.anybody_may_read_and_write
    require_key(KEY_FILE, interface, key, plaintext=allowed, otherwise="security.anybody_may_read_and_write = true")
    return key


def _config(settings: Settings, interface: Interface, *, plaintext: bool) -> Config:
    node = settings.node
    config = Config(
        name=node.name or socket.gethostname().partition(".")[0],
        cluster=node.cluster,
        datagram=node.datagram,
        timing=timing_of(settings, loopback=interface.address.is_loopback),
        window=window_of(settings),
        info=node.info.encode(),
        quorum=tuple(node.quorum),
        plaintext=plaintext,
        engine=node.engine,
        order=node.order,
        mode=node.mode,
        pulse=pulse_of(settings, loopback=interface.address.is_loopback),
    )
    try:
        return config.validated()
    except ConfigError as error:
        raise _in_words_of_the_file(error) from error


def _in_words_of_the_file(error: ConfigError) -> ConfigError:
    """The configuration counts microseconds and knows no sections; the file has milliseconds in [timing] and [pulse]."""
    if error.field.startswith(("timing.", "pulse.")):
        return renamed(error, error.field.removesuffix("_us") + "_ms", _in_ms)
    return error if "." in error.field else renamed(error, f"node.{error.field}")


def _in_ms(words: str) -> str:
    """`90000: 4 x alive_us must be at most silence_us (200000): why` with what the file would say: 90, alive_ms, 200."""
    in_ms = re.sub(r"^\d+|(?<=\()\d+(?=\))", lambda found: f"{int(found[0]) / MS:g}", words)
    return re.sub(r"_us\b", "_ms", in_ms)


def _policy(settings: Settings) -> SessionPolicy:
    sessions = settings.sessions
    try:
        return SessionPolicy(
            send_window=sessions.send_window_kb * KB,
            queue_max=sessions.queue_mb * MB,
            patience_us=sessions.patience_s * SECOND,
            sessions_max=sessions.clients_max,
            total_max=sessions.total_mb * MB,
        ).validated()
    except ConfigError as error:
        raise renamed(error, POLICY_NAMES.get(error.field, error.field), "{} (in bytes or microseconds)".format) from error


POLICY_NAMES: Final = {
    "sessions.send_window": "sessions.send_window_kb",
    "sessions.queue_max": "sessions.queue_mb",
    "sessions.patience_us": "sessions.patience_s",
    "sessions.sessions_max": "sessions.clients_max",
    "sessions.total_max": "sessions.total_mb",
}


def _listen(text: str) -> Endpoint | None:
    """A bare port is one of loopback: figures are nobody's business unless somebody says so."""
    if not text:
        return None
    bare = text.removeprefix(":")
    return configured_endpoint("metrics.listen", f"{LOOPBACK}:{bare}" if bare.isdigit() else text)


def _check(plan: Plan) -> None:
    """Relations between settings, and what would only show when it is too late."""
    settings = plan.settings
    network, trace = settings.network, settings.trace
    if network.seeds and network.transport != "mesh":
        raise ConfigError("network.seeds", network.seeds, 'only a mesh has seeds: set transport = "mesh", or take them out')
    for seed in network.seeds:
        configured_endpoint("network.seeds", seed)
    _check_network(plan)
    if plan.tcp is not None and plan.key is None:
        raise ConfigError("sessions.tcp", settings.sessions.tcp, "clients on other hosts need a key: set security.key_file")
    if plan.flight is not None and plan.trace is not None and plan.flight.directory == plan.trace:
        raise ConfigError("flight.directory", str(plan.trace), "this is trace.directory: the two must differ")
    if trace.segment_mb > trace.keep_mb:
        raise ConfigError("trace.segment_mb", trace.segment_mb, f"must be at most trace.keep_mb ({trace.keep_mb})")
    for name, path in (("sessions.socket", plan.clients), ("admin.socket", plan.admin)):
        if len(os.fsencode(path)) > UNIX_PATH_MAX:
            raise ConfigError(name, str(path), f"a Unix socket's path has at most {UNIX_PATH_MAX} bytes: choose a shorter one")
    _check_directories(plan)
    if plan.clients == plan.admin:
        raise ConfigError("admin.socket", str(plan.admin), "this is the clients' socket: the two must differ")
    if plan.metrics is not None:
        require_library()
    if plan.trace is not None and trace.parquet and not _is_installed("pyarrow"):
        raise MissingExtra("trace.parquet", "trace")


def _check_directories(plan: Plan) -> None:
    """Who may write there shows when the daemon runs as its user; that a file is in the way shows now."""
    needed = {"node.state": plan.state, "sessions.socket": plan.clients.parent, "admin.socket": plan.admin.parent}
    needed |= {"trace.directory": plan.trace} if plan.trace is not None else {}
    needed |= {"flight.directory": plan.flight.directory} if plan.flight is not None else {}
    for name, path in needed.items():
        there = next(one for one in (path, *path.absolute().parents) if os.path.lexists(one))
        if not os.path.isdir(there):
            raise ConfigError(name, str(path), f"{there} is no directory, so nothing can be kept there")


def _check_network(plan: Plan) -> None:
    network, address = plan.settings.network, plan.interface.address
    if network.transport == "mesh":
        if network.port > PORT_MAX - MESH_PORTS + 1:
            raise ConfigError("network.port", network.port, "a mesh node needs three ports in a row from this one on")
        return
    if not _is_group(plan.group.address, address.version):
        raise ConfigError("network.group", network.group, f"must be a multicast address of IPv{address.version}")
    for name in ("data_port", "control_port"):
        if getattr(network, name) == 0:  # The system would choose another one on every node, and nobody would hear anybody.
            raise ConfigError(f"network.{name}", 0, f"must be from 1 to {PORT_MAX}, and equal on all nodes")
    if network.data_port == network.control_port:
        raise ConfigError("network.control_port", network.control_port, "this is the data_port: the two must differ")


def _is_group(text: str, version: int) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return address.is_multicast and address.version == version


def _is_installed(package: str) -> bool:
    """Without importing it: only the converter needs it, in a process of its own."""
    return any(module.name == package for module in pkgutil.iter_modules())


# --- in words -------------------------------------------------------------------------------------------------------


def describe(plan: Plan) -> list[tuple[str, str]]:
    """What the daemon would do, for `--check` and for the first lines of the log."""
    return list(_descriptions(plan))


def _descriptions(plan: Plan) -> Iterator[tuple[str, str]]:
    settings, config = plan.settings, plan.config
    yield "node", f"{config.name} of cluster {config.cluster}, state in {plan.state}"
    yield "engine", config.engine if config.engine == "totem" else f"{config.engine}, order {config.order}, mode {config.mode}"
    yield "timing", f"profile {profile_of(settings, loopback=plan.interface.address.is_loopback)}: {_detection(config)}"
    yield "quorum", f"majority of {' '.join(config.quorum)}" if config.quorum else "none: both sides of a partition go on"
    yield "network", _network(plan)
    yield "seal", _seal(plan)
    yield "clients", f"{plan.clients} (mode {plan.mode:04o})" + (f" and TCP {plan.tcp}, sealed" if plan.tcp else "")
    yield "admin", f"{plan.admin}" + (", may cut links" if settings.admin.allow_faults else "")
    yield "metrics", f"http://{plan.metrics}/metrics" if plan.metrics else "none"
    trace = settings.trace
    yield "trace", f"{plan.trace}, {trace.keep_mb} MiB or {trace.keep_days} days" if plan.trace else "none"
    flight = plan.flight
    kept = f"{settings.flight.minutes} minutes or {settings.flight.films_mb} MiB"
    yield "flight", f"{flight.directory}, {kept}" if flight is not None else "none"
    yield "log", f"{settings.log.level} and above{' as JSON lines' if settings.log.json else ''}, to stderr"


def _detection(config: Config) -> str:
    return f"{'a lost token' if config.engine == 'totem' else 'silence'} is noticed after {config.detection_us // MS} ms"


def _network(plan: Plan) -> str:
    network = plan.settings.network
    port = f"port {network.port}" if network.port else "a port that the system chooses"
    if network.transport == "mesh":
        return f"mesh on {plan.interface}, {port} and the two after it, seeds {' '.join(network.seeds) or 'none'}"
    group, own = plan.group, "token" if plan.config.engine == "totem" else "what is for this node alone"
    return f"multicast {group.address} ports {group.data_port} and {group.control_port} on {plan.interface}, {own} on {port}"


def _seal(plan: Plan) -> str:
    if plan.key is not None:
        return f"key from {plan.settings.security.key_file}"
    return "none: loopback only" if plan.interface.address.is_loopback else "NONE: anybody on this network may read and write"
