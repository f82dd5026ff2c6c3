"""Every setting once: its place in a file, its name in a program, its default and its purpose.

1. A setting exists here and nowhere else. The reader (load.py), `transis daemon --example` and the tables of docs/operating.md
   are made from these classes.
2. A description is one line for an operator, and every field has a default, so that an empty file is valid on a single machine.
3. The arguments of `transis.Node` fill the same classes (KEYWORDS). What only a program can set is in ProgramSection.
4. Settings travel to a child process as one line of JSON on its standard input: a key is never in an argument or in the
   environment, where others could read it.

Deviation: (D30) the ring of a node on real sockets is the Accelerated Ring unless its settings say `window.accelerated = 0`: a
node passes the token on before the last half of a full visit's datagrams, so that its successor begins to send while these are
on their way. The order and the guarantees are those of the original ring; D6 and D7 keep them (totem/visit.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypedDict, get_type_hints

import msgspec
from msgspec import Meta

from transis.net.interfaces import PORT_MAX
from transis.net.transport import GROUP, Group
from transis.sessions.host import SessionPolicy
from transis.types.config import (
    LAN,
    LAN_PULSE,
    MS,
    EngineName,
    Mode,
    Order,
    ProfileName,
    Pulse,
    Timing,
    TransportName,
    Window,
    WithoutQuorum,
)

REAL_WINDOW: Final = Window(window=800, visit_max=200, accelerated=100, outbox_bytes=1 << 20)
"""The default of a node on real sockets (D30). `Window()`, with which the simulator starts, is smaller, and the original ring."""

TIMING_NAMES: Final = {field.name.removesuffix("_us") + "_ms": field.name for field in fields(Timing)}
"""The keys of [timing], and the field of the configuration that each sets."""
PULSE_NAMES: Final = {field.name.removesuffix("_us") + "_ms": field.name for field in fields(Pulse)}
WINDOW_NAMES: Final = tuple(field.name for field in fields(Window))

RunPlace = Literal["thread", "process"]

# --- sections ---------------------------------------------------------------------------------------------------------

PortNumber = Annotated[int, Meta(ge=0, le=PORT_MAX)]
Text = Annotated[str, Meta(max_length=4096)]
Positive = Annotated[int, Meta(ge=1, le=1 << 30)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class NodeSection(Section, frozen=True):
    """Who this node is."""

    name: Annotated[Text, Meta(description="The node's name, unique in its cluster. Empty: the host's name.")] = ""
    cluster: Annotated[Text, Meta(description="Name of the cluster: a node hears only the nodes of its own cluster.")] = "transis"
    quorum: Annotated[
        Sequence[str],
        Meta(description="Names of the nodes that count; each view then says whether it holds a majority of them."),
    ] = msgspec.field(default_factory=list)
    quorum_before: Annotated[
        Sequence[str],
        Meta(description="Only while the quorum is being changed: the list before. Then a majority of both is needed."),
    ] = msgspec.field(default_factory=list)
    without_quorum: Annotated[
        WithoutQuorum,
        Meta(description="In a view that is not primary: continue; or nothing is sent or delivered, and sends wait, or raise."),
    ] = "continue"
    info: Annotated[Text, Meta(description="Up to 256 bytes that others see beside this node in every view.")] = ""
    state: Annotated[
        Text, Meta(description="Directory of the node's identity: never copy or share it. Empty: the default place.")
    ] = ""
    profile: Annotated[
        ProfileName,
        Meta(description="Timeouts: local (one machine), lan, wan (tens of milliseconds apart), or auto (by the interface)."),
    ] = "auto"
    engine: Annotated[
        EngineName,
        Meta(description="Ordering engine, the same on all nodes: totem (a token ring) or lansis (acknowledgements, no token)."),
    ] = "totem"
    order: Annotated[
        Order,
        Meta(
            description="lansis only, the same on all nodes: all-ack (wait for all members) or toto (a majority; experimental)."
        ),
    ] = "all-ack"
    mode: Annotated[
        Mode,
        Meta(description="lansis only, the same on all nodes: evs, or transis (sends go on during view changes; experimental)."),
    ] = "evs"
    datagram: Annotated[
        int, Meta(description="Bytes of UDP payload, the same on all nodes. Raise it only where every link has jumbo frames.")
    ] = 1400


class NetworkSection(Section, frozen=True):
    """How datagrams travel."""

    transport: Annotated[
        TransportName,
        Meta(description="multicast on a LAN; mesh (unicast) where there is none: clouds, containers."),
    ] = "multicast"
    interface: Annotated[
        Text, Meta(description="Name, address or network of the interface. Empty: the only one besides loopback.")
    ] = "127.0.0.1"
    group: Annotated[Text, Meta(description="Multicast address, the same on all nodes. An IPv6 interface needs an IPv6 one.")] = (
        GROUP.address
    )
    data_port: Annotated[PortNumber, Meta(description="UDP port of the multicast data socket.")] = GROUP.data_port
    control_port: Annotated[PortNumber, Meta(description="UDP port of the multicast control socket.")] = GROUP.control_port
    hops: Annotated[int, Meta(ge=0, le=255, description="Hops that multicast may travel; 1 stays on the LAN.")] = GROUP.hops
    port: Annotated[
        PortNumber,
        Meta(description="UDP port of the token socket; a mesh node also takes the two after it. 0: the system chooses."),
    ] = 0
    seeds: Annotated[
        Sequence[str], Meta(description="Addresses (host:port) of mesh nodes to contact first; may include this node.")
    ] = msgspec.field(default_factory=list)


class SecuritySection(Section, frozen=True):
    """Who may read and write."""

    key_file: Annotated[
        Text,
        Meta(description="The cluster's key as `transis keygen` writes it, mode 0600. Empty: on loopback this user's own key."),
    ] = ""
    anybody_may_read_and_write: Annotated[
        bool,
        Meta(description="Run without a key: anyone on the network (any user, on loopback) can read, forge, destroy everything."),
    ] = False


class SessionsSection(Section, frozen=True):
    """Clients of this daemon."""

    socket: Annotated[Text, Meta(description="Unix socket for clients. Empty: the default place, where clients look too.")] = ""
    mode: Annotated[
        str, Meta(pattern="^0?[0-7]{3}$", description="Permissions of that socket: anyone who may write to it can be a client.")
    ] = "0660"
    tcp: Annotated[
        Text, Meta(description="Address (host:port) for clients on other hosts, sealed with the cluster's key. Empty: none.")
    ] = ""
    send_window_kb: Annotated[
        Positive, Meta(description="KiB of a client's messages that may wait here to be sent; beyond that the client waits.")
    ] = 1024
    queue_mb: Annotated[
        Positive, Meta(description="MiB that may wait for a client that does not read; beyond that it is disconnected.")
    ] = 32
    total_mb: Annotated[
        Positive,
        Meta(description="MiB that may wait for all clients together; beyond that the one with the most is disconnected."),
    ] = 512
    patience_s: Annotated[
        Positive, Meta(description="Seconds that messages may wait for a client that takes nothing; then it is disconnected.")
    ] = 30
    clients_max: Annotated[Positive, Meta(description="Clients at a time; any more are turned away, with the reason.")] = 4096


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
    segment_mb: Annotated[Positive, Meta(description="A segment is sealed when it reaches this size in MiB")] = 64
    segment_minutes: Annotated[Positive, Meta(description="or this age in minutes.")] = 60
    keep_mb: Annotated[Positive, Meta(description="MiB of this node's segments to keep; the oldest sealed ones are deleted.")] = (
        1024
    )
    keep_days: Annotated[Positive, Meta(description="Days to keep a segment.")] = 7
    free_mb: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 30)],
        Meta(description="Recording pauses while the disk has fewer MiB free than this."),
    ] = 256
    parquet: Annotated[bool, Meta(description="Also convert sealed segments to Parquet, in a process beside the daemon.")] = False


class FlightSection(Section, frozen=True):
    """The flight recorder: digests to compare nodes by, and ring files with the last minutes of deliveries."""

    enabled: Annotated[
        bool,
        Meta(description="Leave it on unless you have a reason; `transis bench flight` measures its cost (docs/watching.md)."),
    ] = True
    directory: Annotated[
        Text,
        Meta(description="A directory for this node alone, which a follower can read. Empty: flight in the state directory."),
    ] = ""
    seal_s: Annotated[Positive, Meta(description="Seconds after which digests are sealed, so that a follower sees them.")] = 10
    minutes: Annotated[Positive, Meta(description="Minutes of deliveries to keep in ring files")] = 5
    films_mb: Annotated[
        Annotated[int, Meta(ge=16, le=1 << 20)], Meta(description="and the most MiB these may take (16 or more).")
    ] = 64
    kept_mb: Annotated[Positive, Meta(description="MiB of exports around view changes to keep; the oldest are deleted.")] = 256
    before_s: Annotated[Positive, Meta(description="Seconds to export before a view change")] = 30
    after_s: Annotated[Positive, Meta(description="and after it.")] = 10
    digests_hours: Annotated[Positive, Meta(description="Hours to keep sealed digests.")] = 24
    free_mb: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 30)],
        Meta(description="The recorder pauses while the disk has fewer MiB free than this."),
    ] = 256


class LogSection(Section, frozen=True):
    """What the daemon says on stderr."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least important lines to write; can be changed while the daemon runs."),
    ] = "info"
    json: Annotated[bool, Meta(description="One JSON object per line instead of text.")] = False


class ProgramSection(Section, frozen=True):
    """What a program can say of the node inside it, and no file. None: what the sections say."""

    key: bytes | None = None
    info: bytes | None = None
    policy: SessionPolicy | None = None
    run: RunPlace = "thread"

    def __repr__(self) -> str:
        return f"ProgramSection({'with' if self.key is not None else 'without'} a key, {self.policy}, run={self.run!r})"


class Settings(Section, frozen=True):
    node: NodeSection = NodeSection()
    timing: dict[str, float] = msgspec.field(default_factory=dict)
    """Differences from the profile, in milliseconds: the fields of Timing with _ms in place of _us."""
    pulse: dict[str, float] = msgspec.field(default_factory=dict)
    """The same for lansis: the fields of Pulse with _ms in place of _us."""
    window: dict[str, int] = msgspec.field(default_factory=dict)
    """Differences from the defaults: the fields of Window."""
    network: NetworkSection = NetworkSection()
    security: SecuritySection = SecuritySection()
    sessions: SessionsSection = SessionsSection()
    admin: AdminSection = AdminSection()
    metrics: MetricsSection = MetricsSection()
    trace: TraceSection = TraceSection()
    flight: FlightSection = FlightSection()
    log: LogSection = LogSection()
    program: ProgramSection = ProgramSection()


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
"""The sections of a file."""
CLASSES: Final[dict[str, type[Section]]] = {**SECTIONS, "program": ProgramSection}


def default_of(section: type[Section], name: str) -> Any:
    return getattr(section(), name)


# --- arguments --------------------------------------------------------------------------------------------------------


class NodeArguments(TypedDict, total=False):
    """The arguments of `transis.Node` other than its name."""

    cluster: str
    key: bytes | str | Path | None
    plaintext: bool
    interface: str
    transport: TransportName
    group: Group
    port: int
    seeds: Sequence[str]
    state: str | Path | None
    profile: ProfileName | Timing
    window: Window
    quorum: Sequence[str]
    quorum_before: Sequence[str]
    without_quorum: WithoutQuorum
    info: bytes
    trace: str | Path | None
    flight: bool
    policy: SessionPolicy
    engine: EngineName
    order: Order
    mode: Mode
    pulse: Pulse | None
    run: RunPlace


KEYWORDS: Final = {
    "name": "node.name",
    "cluster": "node.cluster",
    "key": "security.key_file",
    "plaintext": "security.anybody_may_read_and_write",
    "interface": "network.interface",
    "transport": "network.transport",
    "group": "network.group",
    "port": "network.port",
    "seeds": "network.seeds",
    "state": "node.state",
    "profile": "node.profile",
    "window": "window",
    "quorum": "node.quorum",
    "quorum_before": "node.quorum_before",
    "without_quorum": "node.without_quorum",
    "info": "program.info",
    "trace": "trace.directory",
    "flight": "flight.enabled",
    "policy": "program.policy",
    "engine": "node.engine",
    "order": "node.order",
    "mode": "node.mode",
    "pulse": "pulse",
    "run": "program.run",
}
"""The arguments of a node, and the setting that each fills."""


# --- example ----------------------------------------------------------------------------------------------------------


class SettingField(NamedTuple):
    name: str
    default: str
    """As the file spells it."""
    description: str


def fields_of(section: type[Section]) -> list[SettingField]:
    hints = get_type_hints(section, include_extras=True)
    return [SettingField(name, as_toml(default_of(section, name)), _description(kind)) for name, kind in hints.items()]


def timing_fields() -> list[SettingField]:
    """The keys of [timing] with the defaults of the profile `lan`."""
    values = asdict(LAN)
    return [SettingField(name, as_toml(values[field] / MS), "") for name, field in TIMING_NAMES.items()]


def pulse_fields() -> list[SettingField]:
    """The keys of [pulse], likewise."""
    values = asdict(LAN_PULSE)
    return [SettingField(name, as_toml(values[field] / MS), "") for name, field in PULSE_NAMES.items()]


def window_fields() -> list[SettingField]:
    return [SettingField(name, as_toml(value), "") for name, value in asdict(REAL_WINDOW).items()]


def example() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Settings of a transis daemon. Every field is optional; the values shown are the defaults."
    for name, section in SECTIONS.items():
        yield from ("", f"# {section.__doc__}", f"[{name}]")
        for one in fields_of(section):
            yield from (f"# {one.description}", f"# {one.name} = {one.default}")
        if name == "node":
            yield from _further("timing", "Milliseconds; each field overrides the profile. Shown: profile lan.", timing_fields())
            yield from _further(
                "pulse",
                "Milliseconds, for the engine lansis; each field overrides the profile. Shown: profile lan.",
                pulse_fields(),
            )
            yield from _further("window", "Flow control, in datagrams unless a name says bytes.", window_fields())


def _further(name: str, title: str, named: list[SettingField]) -> Iterator[str]:
    yield from ("", f"# {title}", f"[{name}]")
    yield from (f"# {one.name} = {one.default}" for one in named)


def _description(kind: Any) -> str:
    """The outermost description in a field's type: inner ones belong to the type itself."""
    found = [one.description for one in kind.__metadata__ if one.description]
    assert found, "every setting says what it is for"
    return str(found[-1])


def as_toml(value: object) -> str:
    """Strings, numbers, booleans and lists of strings are spelt alike in JSON and TOML."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)
