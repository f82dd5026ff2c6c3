"""Opening a node on this machine: from what was decided to a driver that is ready to start.

The daemon and the embedded node decide in their own ways (a settings file, arguments) and meet here.
1. On anything but loopback a node without a key is refused, unless somebody said that it shall be so.
2. State directory first (its lock keeps a second process out), then sockets, then the node. What cannot be opened leaves
   nothing open behind.
3. The window is what the receive buffers really given can hold: a larger one would be sent, lost and sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from transis.net.driver import Driver, Event
from transis.net.evidence import FlightPlan, open_flight
from transis.net.interfaces import Interface
from transis.net.state import StateDirectory
from transis.net.transport import GROUP, GROUP_IPV6, Group, MeshTransport, MulticastTransport, Transport
from transis.trace.recorder import Sink
from transis.types.config import Config, Pulse, Timing, Window, profile, pulse_profile
from transis.types.errors import ConfigError
from transis.types.ids import NodeId
from transis.types.limits import BURST_DATAGRAMS_MAX
from transis.types.outputs import Note
from transis.wire.envelope import KEY_SIZE

TransportKind = Literal["multicast", "mesh"]

REAL_WINDOW: Final = Window(window=800, visit_max=200, accelerated=100, outbox_bytes=1 << 20)
"""What a node on real sockets uses unless told otherwise: twice as fast as the cautious default that the simulator explores."""
ROOM_PARTS: Final = (3, 4)
"""The window may fill this part of a receive buffer; the rest is for retransmissions and for who sends ahead of the token."""


@dataclass(frozen=True)
class Opening:
    """Everything a node needs to begin. `port` 0 leaves the choice to the system; seeds are for a mesh only."""

    config: Config
    interface: Interface
    state: Path
    transport: TransportKind = "multicast"
    group: Group = GROUP
    port: int = 0
    seeds: tuple[str, ...] = ()
    key: bytes | None = field(default=None, repr=False)
    flight: FlightPlan | None = None
    """None: no flight recorder."""


def require_key(name: str, interface: Interface, key: bytes | None, *, plaintext: bool, otherwise: str) -> None:
    """Rule 1. `name` is what the key is called where it is given, `otherwise` how to say that there shall be none."""
    if key is not None and plaintext:
        raise ConfigError(name, "a key", f"there is {otherwise} as well: take one of them out")
    if key is not None and len(key) != KEY_SIZE:
        raise ConfigError(name, f"{len(key)} bytes", f"a key has {KEY_SIZE} bytes: make one with `transis keygen --out FILE`")
    if key is None and not plaintext and not interface.address.is_loopback:
        raise ConfigError(
            name,
            None,
            f"{interface} is not loopback, and without a key anybody there could read and write everything: "
            f"make one with `transis keygen --out FILE` and give it to every node; or, if nobody else is there, {otherwise}",
        )


def group_for(interface: Interface, group: Group = GROUP) -> Group:
    """The address that nobody chose fits the interface."""
    if group.address == GROUP.address and interface.address.version == 6:
        return group._replace(address=GROUP_IPV6.address)
    return group


def timing_for(name: str, interface: Interface) -> Timing:
    return profile(_profile_for(name, interface))


def pulse_for(name: str, interface: Interface) -> Pulse:
    return pulse_profile(_profile_for(name, interface))


def _profile_for(name: str, interface: Interface) -> str:
    """`auto` is slow to suspect on one machine, where the scheduler is the network."""
    return name if name != "auto" else "local" if interface.address.is_loopback else "lan"


def window_for(config: Config, room: int) -> Window:
    """What a node of this configuration may use where so many datagrams fit a receive buffer.

    A visit of Lansis is a burst, which has a limit of its own.
    """
    window = fitted(config.window, room)
    if config.engine != "lansis" or window.visit_max <= BURST_DATAGRAMS_MAX:
        return window
    return replace(window, visit_max=BURST_DATAGRAMS_MAX, accelerated=min(window.accelerated, BURST_DATAGRAMS_MAX))


def fitted(window: Window, room: int) -> Window:
    """The window, no larger than `room` datagrams allow (rule 3)."""
    most = max(1, room * ROOM_PARTS[0] // ROOM_PARTS[1])
    if window.window <= most:
        return window
    visit_max = min(window.visit_max, max(1, most // 2))
    return replace(window, window=most, visit_max=visit_max, accelerated=min(window.accelerated, visit_max // 2))


def open_transport(opening: Opening) -> Transport:
    if opening.transport == "mesh":
        return MeshTransport(opening.interface, opening.config, opening.key, opening.seeds, opening.port)
    if opening.seeds:
        raise ConfigError("seeds", opening.seeds, "only a mesh has seeds: choose that transport, or take them out")
    return MulticastTransport(opening.interface, opening.group, opening.port)


def open_node(
    opening: Opening,
    on_events: Callable[[Sequence[Event]], None],
    *,
    make_sink: Callable[[NodeId], Sink] | None = None,
    on_note: Callable[[Note], None] | None = None,
    transport_for: Callable[[Opening], Transport] = open_transport,
) -> Driver:
    """A driver that can be started, in a running loop. `transport_for` opens its sockets; benchmarks lose datagrams there."""
    state = StateDirectory(opening.state, opening.config.name)
    try:
        transport = transport_for(opening)
    except BaseException:
        state.close()
        raise
    try:
        window = window_for(opening.config, transport.datagrams_that_fit(opening.config.datagram))
        config = replace(opening.config, window=window)
        make_flight = partial(open_flight, opening.flight, config) if opening.flight is not None else None
        return Driver(
            config, transport, state, on_events, key=opening.key, make_sink=make_sink, on_note=on_note, make_flight=make_flight
        )
    except BaseException:
        transport.close()
        state.close()
        raise
