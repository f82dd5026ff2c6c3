"""Throws malformed and foreign datagrams at every port of a cluster, at a bounded rate, until its standard input ends.

    python -m tests.real.thrower '{"interface": ..., "group": ..., "data_port": ..., ...}'

Lines in: `HOST PORT`, one more target each. It listens to the group, so that it can throw what it caught: cut short, changed, on
the wrong port, much later. A last line out says how many of each kind it threw. Everything is drawn from a seed, but what is
caught is not: this is noise, not a scenario.

With the cluster's key it is a rogue too: between the lines `lie` and `silence` it seals under its own name what it caught, with
fields that are not true. Some of it is about itself: it wants to be a member.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from random import Random

from tests.rogue.liar import Liar, Retelling
from transis.net.interfaces import Interface, choose_interface
from transis.net.sockets import aim_multicast, open_group, open_unicast
from transis.sim.streams import RandomStream
from transis.types.errors import Rejection
from transis.types.ids import NodeId
from transis.wire.envelope import ENVELOPE_SIZE, Opener, Sealer

PERIOD_S = 0.02
CAUGHT_MAX = 512
LARGE = 60_000
LIE_LIMIT = 1300
"""Bytes of a datagram that a lie may have."""
STRANGER = NodeId("stranger", 1, 7)
OTHER_KEY = bytes(range(100, 132))
LENGTHS = b"\xff" * 200
"""In place of any length, count or number: the largest."""


@dataclass(frozen=True)
class Aim:
    interface: str
    cluster: str
    group: str = ""
    """Empty where there is no multicast."""
    data_port: int = 0
    control_port: int = 0
    sealed: bool = True
    per_s: int = 200
    """Datagrams a second: a nuisance, or a flood."""
    key: str = ""
    """The cluster's key in hexadecimal digits, of a rogue; empty for a stranger."""
    engine: str = "totem"


class Thrower:
    def __init__(self, aim: Aim) -> None:
        self._random = Random("thrower")
        self._aim = aim
        self._interface = choose_interface(aim.interface)
        self._out = open_unicast(self._interface, 0)
        self._targets: list[tuple[str, int]] = []
        self._caught: deque[bytes] = deque(maxlen=CAUGHT_MAX)
        self._listening: list[socket.socket] = [self._out]
        if aim.group:
            self._listen(aim, self._interface)
        self._sealers = {
            "wrong key": Sealer(aim.cluster, STRANGER, OTHER_KEY),
            "other cluster": Sealer(aim.cluster + "?", STRANGER, None),
        }
        if aim.sealed:
            self._sealers["no key"] = Sealer(aim.cluster, STRANGER, None)
        self._thrown: Counter[str] = Counter()
        self._is_lying = False
        if aim.key:
            key = bytes.fromhex(aim.key)
            self._opener, self._rogue = Opener(aim.cluster, key), Sealer(aim.cluster, STRANGER, key)
            liar, own = Liar(RandomStream("lies"), permille=500), f"{self._interface.address}:{self._out.getsockname()[1]}"
            self._retelling = Retelling(liar, LIE_LIMIT, is_lansis=aim.engine == "lansis", named=(STRANGER, own))

    def _listen(self, aim: Aim, interface: Interface) -> None:
        aim_multicast(self._out, interface)
        for port in (aim.data_port, aim.control_port):
            self._listening.append(open_group(interface, ip_address(aim.group), port))
            self._targets.append((aim.group, port))

    def run(self) -> Counter[str]:
        due = time.monotonic()
        while True:
            readable, _, _ = select.select([sys.stdin, *self._listening], [], [], max(0.001, due - time.monotonic()))
            if sys.stdin in readable and not self._obey(os.read(sys.stdin.fileno(), 65_536)):
                return self._thrown
            for one in self._listening:
                self._catch(one)
            if self._targets and time.monotonic() >= due:
                due = time.monotonic() + PERIOD_S
                for _ in range(round(self._aim.per_s * PERIOD_S)):
                    self._throw()

    def _obey(self, lines: bytes) -> bool:
        for line in lines.decode().splitlines():
            if line in ("lie", "silence"):
                self._is_lying = line == "lie"
            else:
                host, port = line.split()
                self._targets.append((host, int(port)))
        return bool(lines)

    def _catch(self, one: socket.socket) -> None:
        """Some of what there is, old and new."""
        for _ in range(100):
            try:
                datagram, (_, source, *_) = one.recvfrom(65_536)
            except OSError:
                return
            is_own = source == self._out.getsockname()[1]
            if self._is_lying and not is_own:
                self._lie(datagram)
            if not is_own and (len(self._caught) < CAUGHT_MAX or self._random.random() < 0.05):
                self._caught.append(datagram)

    def _throw(self) -> None:
        self._send(*self._junk())

    def _lie(self, datagram: bytes) -> None:
        opened = self._opener.open(datagram)
        for body in () if isinstance(opened, Rejection) else self._retelling.retold(*opened):
            self._send("lie", self._rogue.seal(body))

    def _send(self, kind: str, datagram: bytes) -> None:
        with suppress(OSError):  # A machine that is unplugged, a buffer that is full: the next one, then.
            self._out.sendto(datagram, self._random.choice(self._targets))
            self._thrown[kind] += 1

    def _junk(self) -> tuple[str, bytes]:
        draw = self._random
        kinds = ["random", "large", "head", *self._sealers]
        if self._caught:
            kinds += ["short", "changed", "version"] + ["replayed"] * self._aim.sealed
        kind = draw.choice(kinds)
        if kind == "random":
            return kind, draw.randbytes(draw.choice((0, 1, 35, 36, 37, 100, 1400)))
        if kind == "large":
            return kind, draw.randbytes(draw.randrange(1500, LARGE))
        if kind == "head":
            return kind, b"Ts\x01" + draw.randbytes(draw.randrange(100))
        if kind in self._sealers:
            return kind, self._sealers[kind].seal(draw.choice((LENGTHS, b"\x01" + LENGTHS, draw.randbytes(300))))
        return kind, self._spoilt(kind, draw.choice(self._caught))

    def _spoilt(self, kind: str, caught: bytes) -> bytes:
        """Without a seal nobody can tell a changed or cut body from a true one, so only the envelope is changed there."""
        reach = len(caught) if self._aim.sealed else ENVELOPE_SIZE
        if kind == "short":
            return caught[: self._random.randrange(reach)]
        if kind == "version":
            return caught[:2] + bytes([self._random.choice((0, 2, 255))]) + caught[3:]
        if kind == "changed":
            where = self._random.randrange(reach if self._aim.sealed else 12)
            return caught[:where] + bytes([caught[where] ^ 1 << self._random.randrange(8)]) + caught[where + 1 :]
        return caught


if __name__ == "__main__":
    thrown = Thrower(Aim(**json.loads(sys.argv[1]))).run()
    sys.stdout.write(json.dumps(thrown) + "\n")
