"""What a program says about the node it embeds, checked, and what that means on this machine.

1. Every mistake names the argument, before anything is opened.
2. Settings travel to a child process as one line of JSON on its standard input: the key is never in an argument or in the
   environment, where others could read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Final, Literal, TypedDict
from urllib.parse import quote

from transis.net.evidence import FLIGHT, FlightPlan
from transis.net.host import REAL_WINDOW, Opening, TransportKind, group_for, pulse_for, require_key, timing_for
from transis.net.interfaces import Interface, choose_interface, configured_endpoint
from transis.net.state import read_key
from transis.net.transport import GROUP, Group
from transis.sessions.host import SessionPolicy
from transis.types.config import Config, Pulse, Timing, Window
from transis.types.errors import ConfigError

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
