"""Configuration of a node, with profiles and errors that name the field, the range and the relation.

Times are integer microseconds and end in `_us`. Profiles are written as differences from `lan`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final, Literal

from transis.types.errors import ConfigError
from transis.types.limits import (
    CLIENT_SHARE,
    CLIENT_TURN_US_MAX,
    DATAGRAM_MAX,
    DATAGRAM_MIN,
    INFO_MAX,
    MEMBERS_MAX,
    NAME_MAX,
    NETWORK_ADDRESS_MAX,
    QUORUM_MAX,
    VISIT_DATAGRAMS_MAX,
)

MS: Final = 1_000
SECOND: Final = 1_000_000

EngineName = Literal["totem", "lansis"]
Order = Literal["all-ack", "toto"]
Mode = Literal["evs", "transis"]
ProfileName = Literal["auto", "local", "lan", "wan"]
TransportName = Literal["multicast", "mesh"]
WithoutQuorum = Literal["continue", "wait", "raise"]
ENGINES: Final[tuple[EngineName, ...]] = ("totem", "lansis")
ORDERS: Final[tuple[Order, ...]] = ("all-ack", "toto")
MODES: Final[tuple[Mode, ...]] = ("evs", "transis")
PROFILE_NAMES: Final[tuple[ProfileName, ...]] = ("auto", "local", "lan", "wan")
TRANSPORTS: Final[tuple[TransportName, ...]] = ("multicast", "mesh")
GroupWithoutQuorum = Literal["wait", "raise"]
"""What sends to a group do in a view that is not primary, where the node itself goes on."""

GROUP_WITHOUT_QUORUM: Final[tuple[GroupWithoutQuorum, ...]] = ("wait", "raise")
WITHOUT_QUORUM: Final[tuple[WithoutQuorum, ...]] = ("continue", "wait", "raise")


@dataclass(frozen=True, slots=True)
class Timing:
    """Every timeout of the protocol, with the relations between them checked at start."""

    token_loss_us: int = 40 * MS
    """T_loss: a member that sees no token for this long takes the ring for lost (W17)."""
    token_retransmit_us: int = 9_500
    """T_retx: the forwarded token is sent again after this long without evidence of progress (T_loss / 4.2)."""
    token_hold_us: int = 7 * MS
    """How long the representative keeps the token of an idle ring (W15); below T_retx, so that nobody resends it."""
    hop_us: int = 1 * MS
    """What one hop of the token is assumed to take until rotations have been measured."""
    retransmission_pace_us: int = 1 * MS
    """A rotation takes at least this long while only retransmissions are pending (L4: rate-limit, not hold)."""
    join_us: int = 10 * MS
    """In Gather, Joins are sent again at this interval."""
    join_coalesce_us: int = 2 * MS
    """Changes to a Join within this time leave as one packet (W10)."""
    consensus_us: int = 48 * MS
    """After this long without consensus, the nodes that did not answer are left out (1.2 T_loss)."""
    gather_min_us: int = 50 * MS
    """A Gather that has met strangers forms no ring before this, so that nodes that start together do not merge pairwise."""
    beacon_us: int = 200 * MS
    """T_merge: how often the representative says that its ring exists (L1)."""
    fail_to_receive_us: int = 80 * MS
    """The aru must have stood still for this long before the member that holds it back is accused (L4: at least 2 T_loss)."""
    leave_us: int = 500 * MS
    """How long a graceful leave waits for its last message to become safe (W16)."""
    quarantine_us: int = 1 * SECOND
    """The first back-off of a peer that we and it could not both hear; until it ends, the peer triggers no Gather (W7)."""
    quarantine_max_us: int = 60 * SECOND
    """Largest back-off of the quarantine."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """The timeouts of Lansis, which has no token to count by. Beacons, leave and quarantine are those of Timing."""

    alive_us: int = 20 * MS
    """How often an idle member says that it is alive and what it has; in a view ten times as large, a tenth as often."""
    prompt_us: int = 100
    """When others wait for its acknowledgement of something ordered, it says so at once, but not twice within this time."""
    nack_us: int = 2 * MS
    """A missing datagram is asked for after this long, as it may only be late; also the turn of each member that could answer."""
    silence_us: int = 100 * MS
    """A member not heard for this long is asked whether it is alive."""
    probe_us: int = 20 * MS
    """It is asked three times, at this interval."""
    ack_lag_us: int = 300 * MS
    """A member that acknowledges nothing new for this long while others wait for it is left out, alive or not (L9)."""
    alpha_us: int = 50 * MS
    """How long Stage 1 collects names before a membership is proposed."""
    repeat_us: int = 10 * MS
    """Statements about the next membership are repeated at this interval."""
    coalesce_us: int = 2 * MS
    """Changes to a statement within this time leave as one packet (W10)."""
    agree_us: int = 350 * MS
    """A member that does not agree within this time is left out."""


@dataclass(frozen=True, slots=True)
class Window:
    """Flow control and memory, in datagrams unless a name says bytes."""

    window: int = 300
    """Datagrams on the ring per rotation, all senders together; sized to the receive buffers."""
    visit_max: int = 120
    """New datagrams of one node in one token visit (the paper's max_messages)."""
    gap_max: int = 4_000
    """With this many datagrams on the ring that are not yet safe, nobody sends anything new: bounds the store."""
    outbox_bytes: int = 8 * 1024 * 1024
    """Bytes a node queues for sending before `submit` takes no more."""
    accelerated: int = 0
    """Accelerated Ring: datagrams of a visit sent after the token. 0 is the original protocol."""
    fail_to_receive_rotations: int = 50
    """The aru must also have stood still for this many rotations before the member that holds it back is accused (L4)."""
    unicast_retries: int = 2
    """After this many unicast retransmissions the token goes by multicast, addressed to the successor (W8)."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that configures a node. `digest_fields` must be equal on all nodes of a cluster."""

    name: str
    cluster: str = "transis"
    address: str = ""
    datagram: int = 1400
    timing: Timing = Timing()
    window: Window = Window()
    info: bytes = b""
    quorum: tuple[str, ...] = ()
    """Names of nodes. Views say whether their configuration holds a majority of them (`primary`); if empty, they say None."""
    quorum_before: tuple[str, ...] = ()
    """While the list is being changed: the list before. Then a majority of both is needed."""
    without_quorum: WithoutQuorum = "continue"
    """What applications can do while their view is not primary: continue, or send and receive nothing. Then a `send` waits, or
    raises NoQuorum."""
    plaintext: bool = False
    """Run without a key: anybody on the network may then speak and listen. For simulation, loopback and teaching."""
    engine: str = "totem"
    """What orders messages: the Totem ring, or Lansis, which orders by acknowledgements."""
    order: str = "all-ack"
    """How Lansis agrees on an order: by everybody's acknowledgement, or by the votes of a majority (ToTo)."""
    mode: str = "evs"
    """What Lansis promises across views: extended virtual synchrony, or, as the original Transis did, that sends never stop."""
    pulse: Pulse = Pulse()

    @property
    def guarantees(self) -> str:
        """The name of what views promise; `audit/guarantees` knows which properties each name leaves out."""
        return "toto" if self.order == "toto" else self.mode

    @property
    def detection_us(self) -> int:
        """How long a silent member goes unnoticed in a small, healthy view. Other durations are scaled by it."""
        if self.engine == "totem":
            return self.timing.token_loss_us
        return self.pulse.silence_us + 3 * self.pulse.probe_us

    @property
    def client_turn_us(self) -> int:
        """How long one turn of the node may spend on frames from clients; frames to clients may take as long again."""
        timeout_us = self.timing.token_loss_us if self.engine == "totem" else self.pulse.silence_us
        return min(timeout_us // CLIENT_SHARE, CLIENT_TURN_US_MAX)

    def shared(self) -> dict[str, object]:
        """What must be equal on all members: otherwise they could not read each other's datagrams."""
        choices = {} if self.engine == "totem" else {"order": self.order, "mode": self.mode}
        return {"engine": self.engine, **choices, "datagram": self.datagram}

    def digest_fields(self) -> tuple[object, ...]:
        return tuple(self.shared().values())

    def validated(self) -> Config:
        """Check every range and relation; return self, so that a caller can chain."""
        _check_name("name", self.name)
        _check_name("cluster", self.cluster)
        _check_bytes("address", self.address.encode("utf-8", "surrogatepass"), NETWORK_ADDRESS_MAX)
        _check_quorum("quorum", self.quorum)
        _check_quorum("quorum_before", self.quorum_before)
        if self.quorum_before and not self.quorum:
            raise ConfigError("quorum_before", self.quorum_before, "there is no quorum that this was before: set quorum too")
        _check_without_quorum(self)
        _check_bytes("info", self.info, INFO_MAX)
        _between("datagram", self.datagram, DATAGRAM_MIN, DATAGRAM_MAX, "bytes of UDP payload")
        _check_engine(self)
        _check_timing(self.timing)
        _check_pulse(self.pulse)
        _check_window(self.window)
        return self


def _check_quorum(field: str, names: tuple[str, ...]) -> None:
    for name in names:
        _check_name(field, name)
    if len(set(names)) < len(names):
        raise ConfigError(field, names, "names a node twice: a majority would count it twice")
    if len(names) > QUORUM_MAX:
        raise ConfigError(field, f"{len(names)} names", f"may have at most {QUORUM_MAX}")


def _check_without_quorum(config: Config) -> None:
    value = config.without_quorum
    _one_of("without_quorum", value, WITHOUT_QUORUM)
    if value != "continue" and not config.quorum:
        raise ConfigError("without_quorum", value, "there is no quorum to be without: set quorum too")
    if value != "continue" and config.mode == "transis":
        raise ConfigError("without_quorum", value, "the mode transis lets sends go on during view changes: use the mode evs")


def _check_name(field: str, value: str) -> None:
    size = len(value.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= NAME_MAX:
        raise ConfigError(field, value, f"must have 1 to {NAME_MAX} bytes in UTF-8, has {size}")
    if not value.isprintable():
        raise ConfigError(field, value, "must consist of printable characters")
    if value in {".", ".."} or set("/\\") & set(value):
        raise ConfigError(field, value, "must not be a path, for directories get this name: no / or \\, and not . or ..")


def _check_bytes(field: str, value: bytes, most: int) -> None:
    if len(value) > most:
        raise ConfigError(field, value, f"must have at most {most} bytes, has {len(value)}")


def _between(field: str, value: int, low: int, high: int, unit: str) -> None:
    if not low <= value <= high:
        raise ConfigError(field, value, f"must be from {low} to {high} {unit}")


def _check_engine(config: Config) -> None:
    _one_of("engine", config.engine, ENGINES)
    _one_of("order", config.order, ORDERS)
    _one_of("mode", config.mode, MODES)
    for field, usual in (("order", ORDERS[0]), ("mode", MODES[0])):
        if config.engine != "lansis" and getattr(config, field) != usual:
            raise ConfigError(field, getattr(config, field), f"only the engine lansis has a choice of {field}s")


def _one_of(field: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(field, value, f"must be one of {', '.join(choices)}")


def _check_pulse(pulse: Pulse) -> None:
    for field in fields(pulse):
        _between(f"pulse.{field.name}", getattr(pulse, field.name), 1, 3_600 * SECOND, "microseconds")
    _ordered(pulse, "alive_us", 4, "silence_us", "a few signs of life may be lost before a member counts as silent")
    _ordered(pulse, "repeat_us", 3, "agree_us", "statements must be repeated before agreement is given up")
    _ordered(pulse, "nack_us", 2, "ack_lag_us", "a member must be able to ask for what it misses before it counts as lagging")
    if pulse.alpha_us + pulse.ack_lag_us > pulse.agree_us:
        why = f"alpha_us + ack_lag_us must be at most agree_us ({pulse.agree_us}): agreement must outlast Stage 1 and any lag"
        raise ConfigError("pulse.alpha_us", pulse.alpha_us, why)


def _check_timing(timing: Timing) -> None:
    for field in fields(timing):
        _between(f"timing.{field.name}", getattr(timing, field.name), 1, 3_600 * SECOND, "microseconds")
    _ordered(timing, "token_retransmit_us", 3, "token_loss_us", "a lost token needs a few retries before it counts as lost")
    _ordered(timing, "token_hold_us", 1, "token_retransmit_us", "a held token must not be sent again by its predecessor")
    _ordered(timing, "retransmission_pace_us", 1, "token_retransmit_us", "a paced token must not be sent again either")
    _ordered(timing, "join_us", 2, "consensus_us", "Joins must repeat before consensus is given up")
    _ordered(timing, "join_coalesce_us", 1, "join_us", "coalescing must not outlast a Join")
    _ordered(timing, "token_loss_us", 1, "consensus_us", "consensus must outlast a token loss")
    _ordered(timing, "token_loss_us", 1, "fail_to_receive_us", "failure to receive must outlast a token loss")
    _ordered(timing, "quarantine_us", 1, "quarantine_max_us", "the first back-off is the smallest")


def _ordered(times: Timing | Pulse, small: str, factor: int, large: str, why: str) -> None:
    given, limit = getattr(times, small), getattr(times, large)
    if given * factor > limit:
        multiple = f"{factor} x " if factor > 1 else ""
        section = type(times).__name__.lower()
        raise ConfigError(f"{section}.{small}", given, f"{multiple}{small} must be at most {large} ({limit}): {why}")


def _check_window(window: Window) -> None:
    _between("window.window", window.window, 1, 100_000, "datagrams")
    _between(
        "window.visit_max", window.visit_max, 1, min(window.window, VISIT_DATAGRAMS_MAX), "datagrams (at most window.window)"
    )
    _between("window.gap_max", window.gap_max, window.window + MEMBERS_MAX, 1_000_000, "datagrams (at least window + members)")
    _between("window.outbox_bytes", window.outbox_bytes, 1024, 1 << 32, "bytes")
    _between("window.accelerated", window.accelerated, 0, window.visit_max, "datagrams (at most window.visit_max)")
    _between("window.fail_to_receive_rotations", window.fail_to_receive_rotations, 2, 1_000_000, "rotations")
    _between("window.unicast_retries", window.unicast_retries, 0, 100, "retries")


LAN: Final = Timing()
LOCAL: Final = replace(
    LAN,
    token_loss_us=100 * MS,
    token_retransmit_us=23_800,
    token_hold_us=18 * MS,
    consensus_us=120 * MS,
    fail_to_receive_us=200 * MS,
)
"""Many processes on one machine: delays come from the scheduler rather than the network, so suspicion is slower."""
WAN: Final = replace(
    LAN,
    token_loss_us=2 * SECOND,
    token_retransmit_us=400 * MS,
    token_hold_us=200 * MS,
    join_us=200 * MS,
    hop_us=40 * MS,
    join_coalesce_us=20 * MS,
    consensus_us=2_400 * MS,
    gather_min_us=1 * SECOND,
    beacon_us=2 * SECOND,
    fail_to_receive_us=4 * SECOND,
    leave_us=5 * SECOND,
    quarantine_us=5 * SECOND,
)
"""Tens of milliseconds between members."""

PROFILES: Final = {"local": LOCAL, "lan": LAN, "wan": WAN}

LAN_PULSE: Final = Pulse()
LOCAL_PULSE: Final = replace(
    LAN_PULSE,
    alive_us=30 * MS,
    nack_us=4 * MS,
    silence_us=120 * MS,
    probe_us=30 * MS,
    ack_lag_us=750 * MS,
    repeat_us=20 * MS,
    agree_us=800 * MS,
)
WAN_PULSE: Final = replace(
    LAN_PULSE,
    alive_us=400 * MS,
    prompt_us=5 * MS,
    nack_us=100 * MS,
    silence_us=2 * SECOND,
    probe_us=300 * MS,
    ack_lag_us=5 * SECOND,
    alpha_us=1 * SECOND,
    repeat_us=200 * MS,
    coalesce_us=20 * MS,
    agree_us=6 * SECOND,
)

PULSES: Final = {"local": LOCAL_PULSE, "lan": LAN_PULSE, "wan": WAN_PULSE}


def profile(name: str) -> Timing:
    """The timing of a named profile; an unknown name lists the known ones."""
    _one_of("profile", name, tuple(sorted(PROFILES)))
    return PROFILES[name]


def pulse_profile(name: str) -> Pulse:
    """The pulse of a named profile."""
    _one_of("profile", name, tuple(sorted(PULSES)))
    return PULSES[name]
