"""Runs of a cluster in which one member lies, and what becomes of the honest ones.

    python -m tests.rogue.lying totem 0:200             lies about anything, and how often each field was lied about
    python -m tests.rogue.lying totem 0:6 --by-field    field by field
    python -m tests.rogue.lying totem 0:200 --stays     it lies on while the others are waited for, and is not killed first
    python -m tests.rogue.lying totem 0:200 --stranger  it is in no view, and retells what the others say

1. There are no other faults. After the safety phase the liar dies, and the others must come to rest: each message that they took
   is delivered at its own node or was refused.
2. Whatever an honest node sends, whatever it was told, can be read by its peers.
3. The honest nodes' traces are judged too. Two-faced members break more than that in any protocol without signatures of authors
   (docs/limits.md), so what is broken there is shown and not asserted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tests.rogue.liar import Liar, LyingNode, StrangerNode
from transis.audit.guarantees import check
from transis.node.node import Node
from transis.sim.faults import CrashNode
from transis.sim.liveness import unrest
from transis.sim.plan import Plan, Scenario
from transis.sim.run import SLICE_GROUPS, SimulatedRun
from transis.sim.streams import RandomStream
from transis.sim.swarm import draw, draw_groups
from transis.trace.events import History, NodeTrace
from transis.types.config import Config
from transis.types.errors import Rejection
from transis.types.outputs import NodeOutput, Transmit
from transis.wire.burst import KIND_DATA
from transis.wire.control import KIND_PART, decode_control
from transis.wire.envelope import Opener

WITH_GROUPS_PERMILLE: Final = 300
OF_ONE_KIND_PERMILLE: Final = 500
"""How often a liar touches only one kind of packet."""

HEADER: Final = ("ring", "seq", "round", "timestamp", "index", "last", "encapsulated")
BEACON: Final = ("ring", "members", "heard", "timestamp")
STATEMENT: Final = (
    "version", "view", "view_seq", "j", "f_before", "f_after", "recv", "delivered", "clock", "leaving",
)  # fmt: skip
FIELDS: Final[dict[str, dict[tuple[str, ...], tuple[str, ...]]]] = {
    "totem": {
        ("Token",): (
            "ring", "sender", "target", "token_seq", "round", "seq", "aru", "aru_id", "fcc", "backlog", "retrans_flg",
            "timestamp", "rtr",
        ),
        ("Join",): (
            "ring_seq", "proc_set", "fail_set", "proposal", "rows", "attempt_seq", "attempt_index", "leaving", "timestamp",
        ),
        ("Commit",): ("ring", "rotation", "token_seq", "sender", "target", "attempt", "entries"),
        ("Wake",): ("ring", "token_seq"),
        ("Beacon",): BEACON,
        ("DataHeader",): HEADER,
    },
    "lansis": {
        ("Alive",): ("tag", "frozen", "sent", "clock", "recv", "nacks"),
        ("Attempt", "Joining", "Faults"): STATEMENT,
        ("Flushed",): ("view", "proposal", "next_view"),
        ("Query",): ("tag", "is_reply"),
        ("Acks",): ("dep", "acks", "nacks"),
        ("Beacon",): BEACON,
        ("DataHeader",): HEADER,
    },
}  # fmt: skip


class HonestNode(Node):
    """Asserts that whatever it sends can be read."""

    def __init__(self, config: Config, stored: Mapping[str, int], boot: int, key: bytes | None = None, **others: Any) -> None:
        super().__init__(config, stored, boot, key, **others)
        self._envelopes = Opener(config.cluster, key)

    def outputs(self) -> list[NodeOutput]:
        outputs = super().outputs()
        for output in outputs:
            for datagram in output.datagrams if isinstance(output, Transmit) else ():
                opened = self._envelopes.open(datagram)
                assert not isinstance(opened, Rejection)
                packet = None if opened[1][0] in (KIND_DATA, KIND_PART) else decode_control(opened[1])
                assert not isinstance(packet, Rejection), f"{self.id} says what nobody reads: {packet}"
        return outputs


class LyingRun(NamedTuple):
    plan: Plan
    liar: str
    told: Mapping[str, int]
    """How many lies about each field."""
    mishaps: Sequence[str]
    unrest: str
    broken: Sequence[str]
    """What the honest ones' traces break, of what is not only about the liar's own messages."""

    @property
    def words(self) -> str:
        worst = sorted(self.told.items(), key=lambda one: -one[1])[:5]
        told = ", ".join(f"{field} {times}" for field, times in worst)
        return f"{self.plan.scenario.options} --seed {self.plan.seed}, {self.liar} of {len(self.plan.names)} lies ({told}): " + (
            "; ".join([*self.mishaps[:1], *filter(None, [self.unrest]), *self.broken]) or "nothing"
        )


def lying_run(
    seed: int,
    scenario: Scenario,
    kinds: Sequence[str] = (),
    names: Sequence[str] = (),
    permille: int = 0,
    *,
    stays: bool = False,
    stranger: bool = False,
) -> LyingRun:
    """`kinds` of packets and `names` of fields that are lied about; any if there are none. A stranger is in no view."""
    stream = RandomStream(f"{seed}:liar {scenario.engine}")
    drawn = draw_groups if stream.chance(WITH_GROUPS_PERMILLE) else draw
    plan = drawn(seed, stream.between(3, 5), scenario)
    plan = replace(plan, schedule=(), rivalry=False, foreign=False, revive=False, sealed=False)
    name = stream.pick(plan.names)
    every = [kind for known in FIELDS[scenario.engine] for kind in known]
    one_kind = stream.chance(OF_ONE_KIND_PERMILLE)
    liar = Liar(stream, kinds or ((stream.pick(every),) if one_kind else ()), names, permille)

    def make(config: Config, stored: Mapping[str, int], boot: int, key: bytes | None = None) -> Node:
        if config.name == name:
            lying = StrangerNode if stranger else LyingNode
            return lying(liar, config, stored, boot, key, with_groups=plan.has_groups)
        return HonestNode(config, stored, boot, key, with_groups=plan.has_groups, slice_groups=SLICE_GROUPS)

    run = SimulatedRun(plan, make)
    run.safety()
    if not stays and run.world.hosts[name].life is not None:
        run.world.strike(CrashNode(name))
    run.liveness()
    crashes = [mishap.explanation.strip().splitlines()[-1] for mishap in run.world.mishaps if mishap.property == "no_crash"]
    return LyingRun(plan, name, liar.told, crashes, unrest(run.world), _broken(run, name))


def _broken(run: SimulatedRun, liar: str) -> list[str]:
    lives = [life for life in run.world.lives.values() if life.host != liar]
    config = run.world.hosts[liar].config
    history = History([NodeTrace(life.id, life.recorder.events) for life in lives], False, config.guarantees, config.engine)
    found = [
        violation.property
        for violation in check(history).violations
        if not violation.messages or any(message.process.node.name != liar for message in violation.messages)
    ]
    return list(dict.fromkeys(found))


def main(arguments: list[str]) -> None:
    scenario, seeds = Scenario(arguments[0]), range(*map(int, arguments[1].split(":")))
    stays, stranger = "--stays" in arguments, "--stranger" in arguments
    if "--by-field" in arguments:
        for kinds, names in FIELDS[scenario.engine].items():
            for name in names:
                found = [
                    lying_run(seed, scenario, kinds, (name,), (30, 300, 1000)[seed % 3], stays=stays, stranger=stranger)
                    for seed in seeds
                ]
                _show("/".join(kinds) + "." + name, found)
    else:
        found = []
        for seed in seeds:
            found.append(lying_run(seed, scenario, stays=stays, stranger=stranger))
            if found[-1].mishaps or found[-1].unrest or found[-1].broken:
                _say(found[-1].words)
        _show("all", found)
        _say(str(sum((Counter(one.told) for one in found), Counter())))


def _show(what: str, found: Sequence[LyingRun]) -> None:
    lies = sum(sum(one.told.values()) for one in found)
    crashed, open_, broken = sum(bool(one.mishaps) for one in found), sum(bool(one.unrest) for one in found), Counter[str]()
    for one in found:
        broken.update(one.broken)
    _say(f"{what}: {len(found)} runs, {lies} lies, {crashed} crashed, {open_} not at rest, broken {dict(broken)}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
