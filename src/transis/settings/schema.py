"""Every setting once: TOML section, Node argument, default, help.

The settings file of a daemon: its sections and fields, with what each is for.

This file is the one place where a setting exists: the reader (loading.py), `transis daemon --example`, and the tables of
docs/operating.md are made from it. A field's description is one line for an operator, and every field has a default, so that an
empty file is a valid one for a single machine.

The settings file with all fields, their meaning and their defaults: what `transis daemon --example` prints.

Every field is commented out, so that the file says nothing until somebody takes a comment sign away.

What a program says about the node it embeds, checked, and what that means on this machine.

1. Every mistake names the argument, before anything is opened.
2. Settings travel to a child process as one line of JSON on its standard input: the key is never in an argument or in the
   environment, where others could read it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypedDict, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec import Meta

from transis.net.evidence import FLIGHT, FlightPlan
from transis.net.host import REAL_WINDOW, Opening, TransportKind, group_for, pulse_for, require_key, timing_for
from transis.net.interfaces import PORT_MAX, Interface, choose_interface, configured_endpoint
from transis.net.state import read_key
from transis.net.transport import GROUP, Group
from transis.sessions.host import SessionPolicy
from transis.types.config import LAN, LAN_PULSE, MS, Config, Pulse, Timing, Window
from transis.types.errors import ConfigError

TIMING_NAMES: Final = {field.name.removesuffix("_us") + "_ms": field.name for field in fields(Timing)}
"""The keys of [timing], and the field of the configuration that each sets."""
PULSE_NAMES: Final = {field.name.removesuffix("_us") + "_ms": field.name for field in fields(Pulse)}

# --- settings ---------------------------------------------------------------------------------------------------------

KB: Final = 1024
MB: Final = 1024 * 1024

Port = Annotated[int, Meta(ge=0, le=PORT_MAX)]
Text = Annotated[str, Meta(max_length=4096)]
Positive = Annotated[int, Meta(ge=1, le=1 << 30)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class NodeSection(Section, frozen=True):
    """Who this node is."""

    name: Annotated[Text, Meta(description="The node's name, unique in its cluster. Empty: the host's name.")] = ""
    cluster: Annotated[Text, Meta(description="Nodes of one cluster find each other; others do not even read them.")] = "transis"
    quorum: Annotated[
        list[str],
        Meta(description="Names of nodes; views then say whether they hold a majority of them. Empty: they say nothing."),
    ] = msgspec.field(default_factory=list)
    info: Annotated[Text, Meta(description="Up to 256 bytes that others see beside this node in every view.")] = ""
    state: Annotated[
        Text, Meta(description="Directory of the node's identity: never copy or share it. Empty: the default place.")
    ] = ""
    profile: Annotated[
        Literal["auto", "local", "lan", "wan"],
        Meta(description="Timeouts for one machine, one LAN, or tens of milliseconds between members. auto: by the interface."),
    ] = "auto"
    engine: Annotated[
        Literal["totem", "lansis"],
        Meta(description="Who orders, equal on all nodes: the token ring, or acknowledgements without a token."),
    ] = "totem"
    order: Annotated[
        Literal["all-ack", "toto"],
        Meta(description="lansis only, equal on all nodes: order by everybody's word, or by a majority's (toto, experimental)."),
    ] = "all-ack"
    mode: Annotated[
        Literal["evs", "transis"],
        Meta(description="lansis only, equal on all nodes: extended virtual synchrony, or sends that never stop (experimental)."),
    ] = "evs"
    datagram: Annotated[
        int, Meta(description="Bytes of UDP payload, equal on all nodes; more only where every link has jumbo frames.")
    ] = 1400


class NetworkSection(Section, frozen=True):
    """How datagrams travel."""

    transport: Annotated[
        Literal["multicast", "mesh"],
        Meta(description="multicast on a LAN; mesh (unicast) where there is none: clouds, containers."),
    ] = "multicast"
    interface: Annotated[
        Text, Meta(description="Name, address or network of the interface. Empty: the only one that leads somewhere.")
    ] = "127.0.0.1"
    group: Annotated[Text, Meta(description="Multicast address, equal on all nodes. IPv6 interfaces need one of IPv6.")] = (
        GROUP.address
    )
    data_port: Annotated[Port, Meta(description="UDP port of the multicast data socket.")] = GROUP.data_port
    control_port: Annotated[Port, Meta(description="UDP port of the multicast control socket.")] = GROUP.control_port
    hops: Annotated[int, Meta(ge=0, le=255, description="Hops that multicast may travel; 1 stays on the LAN.")] = GROUP.hops
    port: Annotated[
        Port, Meta(description="UDP port of the token socket; a mesh node also takes the two after it. 0: the system chooses.")
    ] = 0
    seeds: Annotated[
        list[str], Meta(description="Addresses (host:port) of mesh nodes to meet first; this node may be one of them.")
    ] = msgspec.field(default_factory=list)


class SecuritySection(Section, frozen=True):
    """Who may read and write."""

    key_file: Annotated[
        Text, Meta(description="The cluster's key as `transis keygen` writes it, mode 0600. Needed on anything but loopback.")
    ] = ""
    anybody_may_read_and_write: Annotated[
        bool, Meta(description="Run without a key on a real network: whoever reaches it can read, forge and destroy everything.")
    ] = False


class SessionsSection(Section, frozen=True):
    """Clients of this daemon."""

    socket: Annotated[Text, Meta(description="Unix socket for clients. Empty: the default place, where clients look too.")] = ""
    mode: Annotated[
        str, Meta(pattern="^0?[0-7]{3}$", description="Permissions of that socket: who may write to it may be a client.")
    ] = "0660"
    tcp: Annotated[
        Text, Meta(description="Address (host:port) for clients on other hosts, sealed with the cluster's key. Empty: none.")
    ] = ""
    send_window_kb: Annotated[
        Positive, Meta(description="KiB of messages a client may have handed over that the ring has not taken; then it waits.")
    ] = 1024
    queue_mb: Annotated[
        Positive, Meta(description="MiB that may wait for one client that does not read; above, it is disconnected.")
    ] = 32
    total_mb: Annotated[
        Positive, Meta(description="MiB that may wait for all clients together; above, the one with the most is disconnected.")
    ] = 512
    patience_s: Annotated[
        Positive, Meta(description="Seconds that messages may wait for a client that takes nothing; then it is disconnected.")
    ] = 30
    clients_max: Annotated[Positive, Meta(description="Clients at a time; one more is told so and turned away.")] = 4096


class AdminSection(Section, frozen=True):
    """The socket of `transis status`, `groups` and `leave`."""

    socket: Annotated[Text, Meta(description="Unix socket for administration, mode 0600. Empty: beside the clients' socket.")] = (
        ""
    )
    allow_faults: Annotated[
        bool, Meta(description="Let an administrator cut links to other nodes, for tests. Never in production.")
    ] = False


class MetricsSection(Section, frozen=True):
    """Figures for Prometheus."""

    listen: Annotated[
        Text, Meta(description="host:port or a port on loopback, served over HTTP without a password. Empty: none.")
    ] = ""


class TraceSection(Section, frozen=True):
    """Recording what happened, as evidence."""

    directory: Annotated[Text, Meta(description="Where segments are written. Empty: nothing is recorded.")] = ""
    segment_mb: Annotated[Positive, Meta(description="A segment is sealed when it has so many MiB")] = 64
    segment_minutes: Annotated[Positive, Meta(description="or when it is so old.")] = 60
    keep_mb: Annotated[Positive, Meta(description="MiB of this node's segments to keep; the oldest sealed ones are deleted.")] = (
        1024
    )
    keep_days: Annotated[Positive, Meta(description="Days to keep a segment.")] = 7
    free_mb: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 30)],
        Meta(description="With less than so many MiB free on the disk recording pauses, and goes on when there is room."),
    ] = 256
    parquet: Annotated[bool, Meta(description="Also convert sealed segments to Parquet, in a process beside the daemon.")] = False


class FlightSection(Section, frozen=True):
    """The flight recorder: digests to compare nodes by, and films of the last minutes."""

    enabled: Annotated[
        bool,
        Meta(
            description="Always on unless there is a reason; `transis bench flight` tells what it costs here (docs/watching.md)."
        ),
    ] = True
    directory: Annotated[
        Text,
        Meta(description="One for each node, where `transis audit --follow` can read. Empty: flight in the state directory."),
    ] = ""
    seal_s: Annotated[Positive, Meta(description="Seconds after which digests are sealed, so that a follower sees them.")] = 10
    minutes: Annotated[Positive, Meta(description="Minutes of what was delivered to keep on films,")] = 5
    films_mb: Annotated[
        Annotated[int, Meta(ge=16, le=1 << 20)], Meta(description="and at most so many MiB of them (16 or more).")
    ] = 64
    kept_mb: Annotated[
        Positive, Meta(description="MiB of films developed around changes of the view; the oldest are deleted.")
    ] = 256
    before_s: Annotated[Positive, Meta(description="Seconds before a change of the view that are developed")] = 30
    after_s: Annotated[Positive, Meta(description="and after it.")] = 10
    digests_hours: Annotated[Positive, Meta(description="Hours to keep sealed digests.")] = 24
    free_mb: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 30)],
        Meta(description="With less than so many MiB free on the disk it pauses, and goes on when there is room."),
    ] = 256


class LogSection(Section, frozen=True):
    """What the daemon says on stderr."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The least important lines to write; changeable while running."),
    ] = "info"
    json: Annotated[bool, Meta(description="One JSON object a line instead of text.")] = False


class Settings(Section, frozen=True):
    node: NodeSection = NodeSection()
    timing: dict[str, float] = msgspec.field(default_factory=dict)
    """Differences from the profile, in milliseconds: the fields of model.config.Timing with _ms in place of _us."""
    pulse: dict[str, float] = msgspec.field(default_factory=dict)
    """The same for lansis: the fields of model.config.Pulse with _ms in place of _us."""
    window: dict[str, int] = msgspec.field(default_factory=dict)
    """Differences from the defaults: the fields of model.config.Window."""
    network: NetworkSection = NetworkSection()
    security: SecuritySection = SecuritySection()
    sessions: SessionsSection = SessionsSection()
    admin: AdminSection = AdminSection()
    metrics: MetricsSection = MetricsSection()
    trace: TraceSection = TraceSection()
    flight: FlightSection = FlightSection()
    log: LogSection = LogSection()


SECTIONS: Final[dict[str, type[Section]]] = {
    "node": NodeSection,
    "network": NetworkSection,
    "security": SecuritySection,
    "sessions": SessionsSection,
    "admin": AdminSection,
    "metrics": MetricsSection,
    "trace": TraceSection,
    "flight": FlightSection,
    "log": LogSection,
}


def default_of(section: type[Section], name: str) -> Any:
    return getattr(section(), name)


# --- example ----------------------------------------------------------------------------------------------------------


class Field(NamedTuple):
    name: str
    default: str
    """As the file spells it."""
    description: str


def fields_of(section: type[Section]) -> list[Field]:
    hints = get_type_hints(section, include_extras=True)
    return [Field(name, as_toml(default_of(section, name)), _description(kind)) for name, kind in hints.items()]


def timing_fields() -> list[Field]:
    """The keys of [timing] with the defaults of the profile `lan`."""
    values = asdict(LAN)
    return [Field(name, as_toml(values[field] / MS), "") for name, field in TIMING_NAMES.items()]


def pulse_fields() -> list[Field]:
    """The keys of [pulse], likewise."""
    values = asdict(LAN_PULSE)
    return [Field(name, as_toml(values[field] / MS), "") for name, field in PULSE_NAMES.items()]


def window_fields() -> list[Field]:
    return [Field(name, as_toml(value), "") for name, value in asdict(REAL_WINDOW).items()]


def example() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Settings of a transis daemon. Every field is optional; what stands here are the defaults."
    for name, section in SECTIONS.items():
        yield from ("", f"# {section.__doc__}", f"[{name}]")
        for one in fields_of(section):
            yield from (f"# {one.description}", f"# {one.name} = {one.default}")
        if name == "node":
            yield from _further("timing", "Milliseconds; differences from the profile (these are those of lan).", timing_fields())
            yield from _further("pulse", "Milliseconds, for the engine lansis; differences from the profile.", pulse_fields())
            yield from _further("window", "Flow control, in datagrams unless a name says bytes.", window_fields())


def _further(name: str, title: str, named: list[Field]) -> Iterator[str]:
    yield from ("", f"# {title}", f"[{name}]")
    yield from (f"# {one.name} = {one.default}" for one in named)


def _description(kind: Any) -> str:
    """Of the descriptions along a field's type, the outermost: the others belong to the type."""
    found = [one.description for one in kind.__metadata__ if one.description]
    assert found, "every setting says what it is for"
    return str(found[-1])


def as_toml(value: object) -> str:
    """Strings, numbers, booleans and lists of strings are spelt alike in JSON and TOML."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


# --- settings ---------------------------------------------------------------------------------------------------------

RunIn = Literal["thread", "process"]

DEFAULT_POLICY: Final = SessionPolicy()
TRANSPORTS: Final = ("multicast", "mesh")
RUNS: Final = ("thread", "process")
KINDS: Final[dict[str, tuple[type, ...]]] = {
    "profile": (str, Timing),
    "window": (Window,),
    "group": (Group,),
    "policy": (SessionPolicy,),
    "pulse": (Pulse, NoneType),
}
"""Arguments that are more than a text or a number; what somebody gives instead would fail far from here."""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """The arguments of `transis.Node`, as plain values. `key` is the key itself."""

    name: str
    cluster: str = "transis"
    key: bytes | None = field(default=None, repr=False)
    plaintext: bool = False
    interface: str = "127.0.0.1"
    transport: TransportKind = "multicast"
    group: Group = GROUP
    port: int = 0
    seeds: tuple[str, ...] = ()
    state: str
    profile: str | Timing = "auto"
    window: Window = REAL_WINDOW
    quorum: tuple[str, ...] = ()
    info: bytes = b""
    trace: str = ""
    flight: bool = True
    policy: SessionPolicy = DEFAULT_POLICY
    engine: str = "totem"
    order: str = "all-ack"
    mode: str = "evs"
    pulse: Pulse | None = None
    """None: that of the profile, or of `auto` where the profile is a Timing."""

    def opening(self) -> Opening:
        """What this means here. Raises ConfigError for the first argument that would not work."""
        for name, kinds in KINDS.items():
            if not isinstance(getattr(self, name), kinds):
                allowed = " or ".join(kind.__name__.replace("NoneType", "None") for kind in kinds)
                raise ConfigError(name, getattr(self, name), f"must be {allowed}")
        _one_of("transport", self.transport, TRANSPORTS)
        interface = choose_interface(self.interface)
        require_key("key", interface, self.key, plaintext=self.plaintext, otherwise="plaintext=True")
        if self.seeds and self.transport != "mesh":
            raise ConfigError("seeds", self.seeds, 'only a mesh has seeds: add transport="mesh", or take them out')
        for seed in self.seeds:
            configured_endpoint("seeds", seed)
        self.policy.validated()
        config = Config(
            name=self.name,
            cluster=self.cluster,
            timing=self.profile if isinstance(self.profile, Timing) else timing_for(self.profile, interface),
            window=self.window,
            info=self.info,
            quorum=self.quorum,
            plaintext=self.key is None,
            engine=self.engine,
            order=self.order,
            mode=self.mode,
            pulse=self._pulse(interface),
        ).validated()
        group = group_for(interface, self.group)
        state = Path(self.state)
        flight = FlightPlan(state / FLIGHT) if self.flight else None
        return Opening(config, interface, state, self.transport, group, self.port, self.seeds, self.key, flight)

    def _pulse(self, interface: Interface) -> Pulse:
        if self.pulse is not None:
            return self.pulse
        return pulse_for(self.profile if isinstance(self.profile, str) else "auto", interface)


class NodeArguments(TypedDict, total=False):
    """What may be said about a node beside its name, for who passes it on."""

    cluster: str
    key: bytes | str | Path | None
    plaintext: bool
    interface: str
    transport: str
    group: Group
    port: int
    seeds: Sequence[str]
    state: str | Path | None
    profile: str | Timing
    window: Window
    quorum: Sequence[str]
    info: bytes
    trace: str | Path | None
    flight: bool
    policy: SessionPolicy
    engine: str
    order: str
    mode: str
    pulse: Pulse | None
    run: str


def key_of(given: bytes | str | Path | None) -> bytes | None:
    """The key itself, or the name of a file as `transis keygen` writes it."""
    return read_key(Path(given), "key") if isinstance(given, str | Path) else given


def texts_of(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """One text is a sequence of texts too, of its letters; nobody means that."""
    if isinstance(given, str | bytes) or not all(isinstance(one, str) for one in given):
        raise ConfigError(name, given, 'must be a list of texts, such as ["ann", "bob", "cid"]')
    return tuple(given)


def run_of(given: str) -> RunIn:
    _one_of("run", given, RUNS)
    return "process" if given == "process" else "thread"


def default_state(cluster: str, name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Under the user's own directory for state; one directory per node, as an identity has one owner."""
    home = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(home) / "transis" / _file_name(cluster) / _file_name(name)


def _file_name(text: str) -> str:
    """One that cannot lead anywhere else: no slash, and no dot in front."""
    quoted = quote(text, safe="")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def _one_of(name: str, given: object, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise ConfigError(name, given, f"must be one of {', '.join(choices)}")
