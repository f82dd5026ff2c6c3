"""What `transis doctor` tries on the network: does a machine hear itself, and do two that look for each other meet?

Machines that meet multicast a hello twice a second and answer each hello that they hear by unicast. A hello names its sender and
the machines that its sender has heard; a code, made with the cluster's key, shows whether both have the same key, and says
nothing else about it. Nodes that run on the same group drop hellos as foreign packets.
"""

from __future__ import annotations

import hmac
import os
import select
import socket
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from time import monotonic, time
from typing import Final

import msgspec

from transis import __version__
from transis.net.host import Opening
from transis.net.interfaces import Endpoint, Interface, IPAddress, SocketAddress, configured_endpoint
from transis.net.sockets import BUFFER_BYTES, aim_multicast, open_group, open_unicast, size_buffers
from transis.net.transport import Group
from transis.types.errors import ConfigError

# --- this machine alone -----------------------------------------------------------------------------------------------

ARRIVAL_S: Final = 1.0
NONCE: Final = 16


def hears_itself(interface: Interface) -> bool:
    """A datagram to the interface's own address arrives."""
    try:
        with open_unicast(interface, 0) as receiver, open_unicast(interface, 0) as sender:
            return _arrives(sender, receiver, Endpoint(interface.address, receiver.getsockname()[1]), interface)
    except (ConfigError, OSError):
        return False


def hears_its_multicast(interface: Interface, group: Group) -> bool:
    """A datagram to the group, on a free port, comes back by the interface."""
    try:
        with ExitStack() as stack:
            sender = stack.enter_context(open_unicast(interface, 0))
            port = sender.getsockname()[1]
            receiver = stack.enter_context(open_group(interface, _address(group), port))
            aim_multicast(sender, interface, group.hops)
            return _arrives(sender, receiver, Endpoint(_address(group), port), interface)
    except (ConfigError, OSError):
        return False


def _arrives(sender: socket.socket, receiver: socket.socket, to: Endpoint, interface: Interface) -> bool:
    word = os.urandom(NONCE)
    sender.sendto(word, to.for_socket(interface.index))
    deadline = monotonic() + ARRIVAL_S
    while select.select([receiver], [], [], max(0.0, deadline - monotonic()))[0]:
        if receiver.recv(NONCE) == word:
            return True
    return False


def _address(group: Group) -> IPAddress:
    return ip_address(group.address)


def try_buffers(interface: Interface) -> list[tuple[str, str]]:
    """What the kernel refuses to give, with the remedy."""
    with open_unicast(interface, 0) as tried:
        warning = size_buffers(tried, BUFFER_BYTES, "data")
    found, _, remedy = warning.partition("; ")
    return [(found, remedy)] if warning else []


# --- several machines ---------------------------------------------------------------------------------------------------

EVERY_S: Final = 0.5
HELLO_MAX: Final = 8_192
MACHINES_MAX: Final = 128
NAME_MAX: Final = 255


class MeetingHello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="transis", tag="doctor"):
    name: str
    run: str
    """Random, for each run of the command."""
    version: str
    clock_s: float
    code: str
    """Made with the key; empty without one."""
    heard: list[str]
    """The runs whose hellos arrived by multicast."""
    answers: str = ""
    """The run that is answered, by unicast."""


@dataclass
class Heard:
    """Another machine, as far as it was heard."""

    name: str
    address: str
    version: str
    has_key: bool
    """The same key as here, or none as here."""
    clock_off_s: float
    answers: bool = False
    """Its unicasts arrive here."""
    hears_us: bool = False


class Meeting:
    """What this machine says, and what it has heard."""

    def __init__(self, name: str, key: bytes | None) -> None:
        self.heard: dict[str, Heard] = {}
        self._name = name
        self._key = key
        self._run = os.urandom(NONCE).hex()

    def hello(self, answers: str = "") -> bytes:
        return msgspec.json.encode(
            MeetingHello(self._name, self._run, __version__, time(), self._code(self._run), sorted(self.heard), answers)
        )

    def take(self, datagram: bytes, source: str) -> str | None:
        """The run to answer, if this is a hello of another machine. Anything else is somebody else's."""
        try:
            hello = msgspec.json.decode(datagram, type=MeetingHello)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if hello.run == self._run or (hello.run not in self.heard and len(self.heard) >= MACHINES_MAX):
            return None
        has_key = hmac.compare_digest(hello.code.encode(), self._code(hello.run).encode())
        one = self.heard.setdefault(
            hello.run, Heard(hello.name[:255], source, hello.version[:32], has_key, hello.clock_s - time())
        )
        one.hears_us = one.hears_us or self._run in hello.heard
        one.answers = one.answers or hello.answers == self._run
        return None if hello.answers else hello.run

    def _code(self, run: str) -> str:
        return hmac.digest(self._key, b"transis doctor " + run.encode(), "sha256").hex() if self._key is not None else ""


def meet(opening: Opening, seconds: float) -> list[Heard]:
    """Say hello, and listen for this long. Raises ConfigError if the sockets of the settings cannot be opened."""
    meeting = Meeting(opening.config.name, opening.key)
    scope = opening.interface.index
    with ExitStack() as stack:
        receivers, targets = _sockets(opening, stack)
        sender = receivers[0]
        over = monotonic() + seconds
        due = 0.0
        while (now := monotonic()) < over:
            if now >= due:
                due = now + EVERY_S
                for target in targets:
                    _send(sender, meeting.hello(), target.for_socket(scope))
            for ready in select.select(receivers, [], [], min(due, over) - now if min(due, over) > now else 0.0)[0]:
                datagram, source = ready.recvfrom(HELLO_MAX)
                run = meeting.take(datagram, str(source[0]))
                if run is not None:
                    _send(sender, meeting.hello(answers=run), source)
    return sorted(meeting.heard.values(), key=lambda one: (one.name, one.address))


def _sockets(opening: Opening, stack: ExitStack) -> tuple[list[socket.socket], list[Endpoint]]:
    """To listen at, the first of them to speak from; and where to say hello: to the group, or in a mesh to the seeds."""
    interface, group = opening.interface, opening.group
    if opening.transport == "mesh":
        own = stack.enter_context(open_unicast(interface, opening.port))
        return [own], [configured_endpoint("network.seeds", seed) for seed in opening.seeds]
    own = stack.enter_context(open_unicast(interface, 0))
    aim_multicast(own, interface, group.hops)
    shared = stack.enter_context(open_group(interface, _address(group), group.control_port, "network.control_port"))
    return [own, shared], [Endpoint(_address(group), group.control_port)]


def _send(sender: socket.socket, datagram: bytes, target: SocketAddress) -> None:
    """What cannot be sent is lost, as on the wire: the findings say who was not heard."""
    with suppress(OSError):
        sender.sendto(datagram, target)
