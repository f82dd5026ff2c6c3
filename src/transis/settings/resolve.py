"""From settings to what a node will do on this machine: everything is looked up and checked before anything is opened.

1. A node runs without a key only if its settings say so. On loopback it has its user's key if it was given none; anywhere else it
   is refused.
2. Errors about a file use the file's names and units, errors about arguments those of the arguments (SettingsSource).
3. `resolve` is enough for a node in a program; `resolve_daemon` adds the sockets, metrics and retention of a daemon.
"""

from __future__ import annotations

import os
import pkgutil
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace as with_fields

from transis.net.evidence import FLIGHT, FlightPlan, TraceLimits, TracePlan
from transis.net.host import Opening
from transis.net.interfaces import PORT_MAX, Endpoint, Interface, choose_interface, configured_endpoint
from transis.net.listeners import UNIX_PATH_MAX
from transis.net.state import check_key, read_key
from transis.net.transport import GROUP, GROUP_IPV6, Group
from transis.sessions.host import SessionPolicy
from transis.settings.load import renamed
from transis.settings.schema import KEYWORDS, PULSE_NAMES, REAL_WINDOW, TIMING_NAMES, SessionsSection, Settings
from transis.trace.flight import FlightLimits
from transis.types.config import MS, SECOND, Config, Pulse, Timing, Window, profile, pulse_profile
from transis.types.errors import ConfigError, MissingExtra
from transis.types.paths import admin_beside, default_state, socket_to_listen_at, user_key_file

LOOPBACK: Final = "127.0.0.1"
KB: Final = 1024
MB: Final = 1024 * 1024
MESH_PORTS: Final = 3
DAY_S: Final = 86_400

# --- how errors are worded ------------------------------------------------------------------------------------------------


class SettingsSource(NamedTuple):
    """Where settings come from, which decides how errors about them are worded."""

    names: Mapping[str, str]
    """What a setting is called there, if not by its own name."""
    choose_mesh: str
    allow_plaintext: str
    of_config: Callable[[ConfigError], ConfigError]
    """Rewords an error that the protocol's configuration raised."""
    of_policy: Callable[[ConfigError], ConfigError]

    def name(self, setting: str) -> str:
        return self.names.get(setting, setting)


def _in_words_of_the_file(error: ConfigError) -> ConfigError:
    """The configuration counts microseconds and knows no sections; the file has milliseconds in [timing] and [pulse]."""
    if error.field.startswith(("timing.", "pulse.")):
        return renamed(error, error.field.removesuffix("_us") + "_ms", _in_ms)
    return error if "." in error.field else renamed(error, f"node.{error.field}")


def _in_ms(words: str) -> str:
    """`90000: 4 x alive_us must be at most silence_us (200000): why` with what the file would say: 90, alive_ms, 200."""
    in_ms = re.sub(r"^\d+|(?<=\()\d+(?=\))", lambda found: f"{int(found[0]) / MS:g}", words)
    return re.sub(r"_us\b", "_ms", in_ms)


POLICY_NAMES: Final = {
    "sessions.send_window": "sessions.send_window_kb",
    "sessions.queue_max": "sessions.queue_mb",
    "sessions.patience_us": "sessions.patience_s",
    "sessions.sessions_max": "sessions.clients_max",
    "sessions.total_max": "sessions.total_mb",
}


def _policy_in_words_of_the_file(error: ConfigError) -> ConfigError:
    return renamed(error, POLICY_NAMES[error.field], "{} (in bytes or microseconds)".format)


def _as_it_is(error: ConfigError) -> ConfigError:
    return error


FILE: Final = SettingsSource(
    {},
    'set transport = "mesh"',
    "security.anybody_may_read_and_write = true",
    _in_words_of_the_file,
    _policy_in_words_of_the_file,
)
ARGUMENTS: Final = SettingsSource(
    {setting: keyword for keyword, setting in KEYWORDS.items()}, 'add transport="mesh"', "plaintext=True", _as_it_is, _as_it_is
)

# --- any node -----------------------------------------------------------------------------------------------------------


def resolve(
    settings: Settings,
    source: SettingsSource = ARGUMENTS,
    found: Sequence[Interface] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Opening:
    """Raises ConfigError for the first setting that would not work. `found` are this machine's interfaces, if they are known."""
    network = settings.network
    interface = _interface(settings, source, found)
    key = _key(settings, interface, source)
    _check_seeds(settings, source)
    policy = _policy(settings, source)
    plaintext = settings.security.anybody_may_read_and_write
    config = _config(settings, interface, source, plaintext=plaintext)
    state = Path(settings.node.state)
    return Opening(
        config,
        interface,
        state,
        network.transport,
        group_for(interface, Group(network.group, network.data_port, network.control_port, network.hops)),
        network.port,
        tuple(network.seeds),
        key,
        user_key_file(environment, root=os.geteuid() == 0) if key is None and not plaintext else None,
        policy,
        trace=TracePlan(Path(settings.trace.directory)) if settings.trace.directory else None,
        flight=_flight(settings, state),
    )


def _interface(settings: Settings, source: SettingsSource, found: Sequence[Interface] | None) -> Interface:
    try:
        return choose_interface(settings.network.interface, found)
    except ConfigError as error:
        raise renamed(error, source.name("network.interface")) from error


def _key(settings: Settings, interface: Interface, source: SettingsSource) -> bytes | None:
    security, key = settings.security, settings.program.key
    if source is FILE and security.key_file and security.anybody_may_read_and_write:
        raise ConfigError("security.anybody_may_read_and_write", True, "there is a key_file as well: take one of them out")
    name = source.name("security.key_file")
    if security.key_file:
        key = read_key(Path(security.key_file), name)
    require_key(name, interface, key, plaintext=security.anybody_may_read_and_write, otherwise=source.allow_plaintext)
    return key


def require_key(name: str, interface: Interface, key: bytes | None, *, plaintext: bool, otherwise: str) -> None:
    """Enforce rule 1. `name` is what the key is called where it is given, `otherwise` how to allow a node without one."""
    if key is not None and plaintext:
        raise ConfigError(name, "a key", f"there is {otherwise} as well: take one of them out")
    if key is not None:
        check_key(key, name)
    if key is None and not plaintext and not interface.address.is_loopback:
        raise ConfigError(
            name,
            None,
            f"{interface} is not loopback, and without a key anybody there could read and write everything: "
            f"make one with `transis keygen --out FILE` and give it to every node; or, if nobody else is there, {otherwise}",
        )


def _check_seeds(settings: Settings, source: SettingsSource) -> None:
    network, name = settings.network, source.name("network.seeds")
    if network.seeds and network.transport != "mesh":
        raise ConfigError(name, network.seeds, f"only a mesh has seeds: {source.choose_mesh}, or take them out")
    for seed in network.seeds:
        configured_endpoint(name, seed)


def _policy(settings: Settings, source: SettingsSource) -> SessionPolicy:
    try:
        return (settings.program.policy or policy_of(settings.sessions)).validated()
    except ConfigError as error:
        raise source.of_policy(error) from error


def policy_of(sessions: SessionsSection) -> SessionPolicy:
    """The [sessions] section in the units of SessionPolicy."""
    return SessionPolicy(
        send_window=sessions.send_window_kb * KB,
        queue_max=sessions.queue_mb * MB,
        patience_us=sessions.patience_s * SECOND,
        sessions_max=sessions.clients_max,
        total_max=sessions.total_mb * MB,
    )


def _config(settings: Settings, interface: Interface, source: SettingsSource, *, plaintext: bool) -> Config:
    node, info = settings.node, settings.program.info
    config = Config(
        name=node.name,
        cluster=node.cluster,
        datagram=node.datagram,
        timing=timing_of(settings, interface),
        window=window_of(settings),
        info=node.info.encode() if info is None else info,
        quorum=tuple(node.quorum),
        quorum_before=tuple(node.quorum_before),
        without_quorum=node.without_quorum,
        plaintext=plaintext,
        engine=node.engine,
        order=node.order,
        mode=node.mode,
        pulse=pulse_of(settings, interface),
    )
    try:
        return config.validated()
    except ConfigError as error:
        raise source.of_config(error) from error


def profile_of(settings: Settings, interface: Interface) -> str:
    """The name of the profile; `auto` becomes `local` on loopback, where delays come from the scheduler, and else `lan`."""
    chosen = settings.node.profile
    return chosen if chosen != "auto" else "local" if interface.address.is_loopback else "lan"


def timing_of(settings: Settings, interface: Interface) -> Timing:
    """The profile's timing with the settings' differences; Config checks the relations between timeouts."""
    return replace(profile(profile_of(settings, interface)), **_in_us(settings.timing, TIMING_NAMES))


def pulse_of(settings: Settings, interface: Interface) -> Pulse:
    """The profile's pulse with the settings' differences."""
    return replace(pulse_profile(profile_of(settings, interface)), **_in_us(settings.pulse, PULSE_NAMES))


def _in_us(given_ms: Mapping[str, float], names: Mapping[str, str]) -> dict[str, int]:
    return {names[name]: round(value_ms * MS) for name, value_ms in given_ms.items()}


def window_of(settings: Settings) -> Window:
    """The window of a node on real sockets, with the settings' differences."""
    return replace(REAL_WINDOW, **settings.window)


def group_for(interface: Interface, group: Group = GROUP) -> Group:
    """The group, with the default address changed to fit the interface's IP version."""
    if group.address == GROUP.address and interface.address.version == 6:
        return group._replace(address=GROUP_IPV6.address)
    return group


def _flight(settings: Settings, state: Path) -> FlightPlan | None:
    flight = settings.flight
    if not flight.enabled:
        return None
    limits = FlightLimits(**{name: getattr(flight, name) for name in FlightLimits._fields})
    return FlightPlan(Path(flight.directory) if flight.directory else state / FLIGHT, limits)


# --- a daemon -----------------------------------------------------------------------------------------------------------


def resolve_daemon(settings: Settings, environment: Mapping[str, str], found: Sequence[Interface] | None = None) -> Opening:
    """As `resolve`, and where a daemon listens for clients and administrators. The environment fills in what the file omits."""
    opening = resolve(_completed(settings, environment), FILE, found, environment)
    sessions, trace = settings.sessions, settings.trace
    clients = Path(sessions.socket or socket_to_listen_at(environment))
    opening = replace(
        opening,
        clients=clients,
        mode=int(sessions.mode, 8),
        tcp=configured_endpoint("sessions.tcp", sessions.tcp) if sessions.tcp else None,
        admin=Path(settings.admin.socket) if settings.admin.socket else admin_beside(clients),
        metrics=_listen(settings.metrics.listen),
    )
    if opening.trace is not None:
        limits = TraceLimits(trace.keep_mb * MB, trace.keep_days * DAY_S, trace.free_mb * MB, trace.parquet)
        kept = TracePlan(opening.trace.directory, trace.segment_mb * MB, trace.segment_minutes * 60 * SECOND, limits)
        opening = replace(opening, trace=kept)
    _check_daemon(settings, opening)
    return opening


def _completed(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """The settings with a name and a state directory filled in."""
    node = settings.node
    name = node.name or socket.gethostname().partition(".")[0]
    state = node.state or str(default_state(name, environment, root=os.geteuid() == 0))
    return with_fields(settings, node=with_fields(node, name=name, state=state))


def _listen(text: str) -> Endpoint | None:
    """Where to serve metrics. A bare port means loopback, so that figures are not public by default."""
    if not text:
        return None
    bare = text.removeprefix(":")
    return configured_endpoint("metrics.listen", f"{LOOPBACK}:{bare}" if bare.isdigit() else text)


def _check_daemon(settings: Settings, opening: Opening) -> None:
    """Check relations between settings, and what would otherwise show only when the daemon runs."""
    trace = settings.trace
    _check_network(settings, opening)
    if opening.tcp is not None and opening.key is None:  # Other hosts do not have this user's key.
        raise ConfigError("sessions.tcp", settings.sessions.tcp, "clients on other hosts need a key: set security.key_file")
    if opening.flight is not None and opening.trace is not None and opening.flight.directory == opening.trace.directory:
        raise ConfigError("flight.directory", str(opening.flight.directory), "this is trace.directory: the two must differ")
    if trace.segment_mb > trace.keep_mb:
        raise ConfigError("trace.segment_mb", trace.segment_mb, f"must be at most trace.keep_mb ({trace.keep_mb})")
    _check_sockets(opening)
    if opening.metrics is not None and not _is_installed("prometheus_client"):
        raise MissingExtra("metrics.listen", "metrics")
    if opening.trace is not None and trace.parquet and not (_is_installed("pyarrow") and _is_installed("numpy")):
        raise MissingExtra("trace.parquet", "trace")


def _check_network(settings: Settings, opening: Opening) -> None:
    network, address = settings.network, opening.interface.address
    if network.transport == "mesh":
        if network.port > PORT_MAX - MESH_PORTS + 1:
            raise ConfigError("network.port", network.port, "a mesh node needs three ports in a row from this one on")
        return
    if not _is_group(opening.group.address, address.version):
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


def _check_sockets(opening: Opening) -> None:
    assert opening.clients is not None, "a daemon has a socket for clients"
    assert opening.admin is not None, "a daemon has a socket for administrators"
    for name, path in (("sessions.socket", opening.clients), ("admin.socket", opening.admin)):
        if len(os.fsencode(path)) > UNIX_PATH_MAX:
            raise ConfigError(name, str(path), f"a Unix socket's path has at most {UNIX_PATH_MAX} bytes: choose a shorter one")
    needed = {"node.state": opening.state, "sessions.socket": opening.clients.parent, "admin.socket": opening.admin.parent}
    needed |= {"trace.directory": opening.trace.directory} if opening.trace is not None else {}
    needed |= {"flight.directory": opening.flight.directory} if opening.flight is not None else {}
    for name, path in needed.items():
        _check_directory(name, path)
    if opening.clients == opening.admin:
        raise ConfigError("admin.socket", str(opening.admin), "this is the clients' socket: the two must differ")


def _check_directory(name: str, path: Path) -> None:
    """Refuse a path that a file blocks. Whether this user may write there shows only when the daemon runs."""
    there = next(one for one in (path, *path.absolute().parents) if os.path.lexists(one))
    if not os.path.isdir(there):
        raise ConfigError(name, str(path), f"{there} is not a directory, so nothing can be kept there")


def _is_installed(package: str) -> bool:
    """Whether a package is installed, without importing it, which would slow the start."""
    return any(module.name == package for module in pkgutil.iter_modules())


# --- in words -------------------------------------------------------------------------------------------------------


def _quorum(config: Config) -> str:
    if not config.quorum:
        return "none: both sides of a partition go on"
    without = {"continue": "applications go on", "wait": "sends wait", "raise": "sends raise NoQuorum"}[config.without_quorum]
    return f"majority of {' '.join(config.quorum)}; without it {without}"


def describe(settings: Settings, opening: Opening) -> list[tuple[str, str]]:
    """What the daemon would do, for `--check` and for the first lines of the log."""
    return list(_descriptions(settings, opening))


def _descriptions(settings: Settings, opening: Opening) -> Iterator[tuple[str, str]]:
    config, trace, flight = opening.config, opening.trace, opening.flight
    yield "node", f"{config.name} of cluster {config.cluster}, state in {opening.state}"
    yield "engine", config.engine if config.engine == "totem" else f"{config.engine}, order {config.order}, mode {config.mode}"
    yield "timing", f"profile {profile_of(settings, opening.interface)}: {_detection(config)}"
    yield "quorum", _quorum(config)
    yield "network", _network(opening)
    yield "seal", _seal(settings, opening)
    yield "clients", f"{opening.clients} (mode {opening.mode:04o})" + (f" and TCP {opening.tcp}, sealed" if opening.tcp else "")
    yield "admin", f"{opening.admin}" + (", may cut links" if settings.admin.allow_faults else "")
    yield "metrics", f"http://{opening.metrics}/metrics" if opening.metrics else "none"
    yield "trace", f"{trace.directory}, {settings.trace.keep_mb} MiB or {settings.trace.keep_days} days" if trace else "none"
    yield "flight", f"{flight.directory}, {flight.limits.minutes} minutes or {flight.limits.films_mb} MiB" if flight else "none"
    yield "log", f"{settings.log.level} and above{' as JSON lines' if settings.log.json else ''}, to stderr"


def _detection(config: Config) -> str:
    return f"{'a lost token' if config.engine == 'totem' else 'silence'} is noticed after {config.detection_us // MS} ms"


def _network(opening: Opening) -> str:
    port = f"port {opening.port}" if opening.port else "a port that the system chooses"
    if opening.transport == "mesh":
        return f"mesh on {opening.interface}, {port} and the two after it, seeds {' '.join(opening.seeds) or 'none'}"
    group, own = opening.group, "token" if opening.config.engine == "totem" else "what is for this node alone"
    return f"multicast {group.address} ports {group.data_port} and {group.control_port} on {opening.interface}, {own} on {port}"


def _seal(settings: Settings, opening: Opening) -> str:
    if opening.key is not None:
        return f"key from {settings.security.key_file}"
    if opening.user_key is not None:
        return f"this user's key, {opening.user_key}"
    return f"NONE: anybody {_where(opening)} may read and write"


def _where(opening: Opening) -> str:
    return "on this machine" if opening.interface.address.is_loopback else "on this network"
