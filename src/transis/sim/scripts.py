"""Worked examples as text: a block of commands, a line `----`, and what they print.

    cluster a b c
    settle
    ----
    at rest in R8{a,b,c}

1. Blocks are separated by an empty line; lines that start with # are prose and stay where they are.
2. A block's commands run one after the other in the same cluster; what they print is its outcome.
3. Every fault's line (faults.py) is a command. The others are in COMMANDS: what they do is at their functions, here or in
   reading.py. Some let time pass (run, until, settle), some lay hands on packets (drop, duplicate, keep, record, release,
   pass, watch), and the rest tell what happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from transis.model.guarantees import HELD, PENDING
from transis.sim.checkers.verdict import Report
from transis.sim.cluster import ALWAYS, Cluster, show_view
from transis.sim.durations import parse_duration
from transis.sim.faults import parse as parse_fault
from transis.sim.liveness import judged
from transis.sim.plan import Plan, parse_plan, with_setting
from transis.sim.reading import awaited, causes, delivering, endings, notes, packets, refused, sent, totals
from transis.sim.run import simulate
from transis.types.config import profile, pulse_profile

SEPARATOR: Final = "----"

SHORT: Final = {"engine": "config.engine", "order": "config.order", "mode": "config.mode"}
"""Settings that a cluster may be given by a short name."""


class Block(NamedTuple):
    prose: tuple[str, ...]
    commands: tuple[str, ...]
    expected: str

    def text(self) -> str:
        return "\n".join((*self.prose, *self.commands, *((SEPARATOR, self.expected) if self.commands else ()))).rstrip()


def parse_script(text: str) -> list[Block]:
    return [_block(chunk) for chunk in text.strip().split("\n\n") if chunk.strip()]


def _block(chunk: str) -> Block:
    before, _, expected = chunk.partition(f"\n{SEPARATOR}")
    lines = before.strip("\n").split("\n")
    prose = tuple(line for line in lines if line.startswith("#"))
    return Block(prose, tuple(line for line in lines if not line.startswith("#")), expected.strip("\n"))


def run_script(text: str, engine: str = "totem") -> str:
    """The script with every expected outcome replaced by what happened; on that engine, where a cluster names no other."""
    player = Player(engine)
    return "\n\n".join(block._replace(expected=player.play(block)).text() for block in parse_script(text)) + "\n"


@dataclass(slots=True)
class Player:
    """Runs blocks; the cluster lives from block to block."""

    engine: str = "totem"
    cluster: Cluster | None = None

    def play(self, block: Block) -> str:
        if block.commands and block.commands[0] == "simulate":
            return _simulate("\n".join(block.commands[1:]))
        outputs = (self._command(line) for line in block.commands)
        return "\n".join(output for output in outputs if output)

    def _command(self, line: str) -> str:
        verb, _, rest = line.partition(" ")
        if verb == "cluster":
            self.cluster = _cluster(rest.split(), self.engine)
            return ""
        if self.cluster is None:
            raise ValueError(f"{line!r}: a script starts with a cluster")
        command = COMMANDS.get(verb)
        if command is not None:
            return command(self.cluster, rest.split())
        self.cluster.strike(parse_fault(line))
        return ""


def _cluster(words: list[str], engine: str) -> Cluster:
    """cluster a b c later=c seed=7 engine=lansis profile=wan config.window.window=10"""
    names = tuple(word for word in words if "=" not in word)
    plan = with_setting(replace(Plan(0, names), stagger_us=0), "config.engine", engine)
    later: list[str] = []
    for word in words:
        setting, equals, value = word.partition("=")
        if setting == "later":
            later = value.split(",")
        elif setting == "profile":
            plan = replace(plan, config=replace(plan.config, timing=profile(value), pulse=pulse_profile(value)))
        elif equals:
            plan = with_setting(plan, SHORT.get(setting, setting), value.replace(",", " "))
    return Cluster(plan, later)


def _run(cluster: Cluster, words: list[str]) -> str:
    """run 50ms"""
    cluster.run(parse_duration(words[0]))
    return ""


def _start(cluster: Cluster, words: list[str]) -> str:
    """start c"""
    for name in words:
        cluster.start(name)
    return ""


def _until(cluster: Cluster, words: list[str]) -> str:
    """until b Recovery, until b Stage 2, until b R8, until b delivers a3"""
    name, what = words[0], " ".join(words[1:]).removeprefix("delivers ")
    reached = delivering(cluster, name, what) if words[1] == "delivers" else awaited(cluster, name, what)
    return "" if cluster.until(reached) else f"{name} never came to {what}"


Selection = tuple[str, str, str, int, int]


def _packets(words: list[str]) -> Selection:
    """a->b data 2 after=3: of the data from a to b three pass, then two are meant; without a number all of them."""
    source, _, target = words[0].partition("->")
    counts = [word for word in words[2:] if "=" not in word]
    skips = [word.removeprefix("after=") for word in words[2:] if "=" in word]
    return words[1], source, target, int(counts[0]) if counts else ALWAYS, int(skips[0]) if skips else 0


def _drop(cluster: Cluster, words: list[str]) -> str:
    """drop a->b data 2"""
    cluster.drop_next(*_packets(words))
    return ""


def _duplicate(cluster: Cluster, words: list[str]) -> str:
    """duplicate *->* commit"""
    cluster.duplicate(*_packets(words))
    return ""


def _keep(cluster: Cluster, words: list[str]) -> str:
    """keep a->b data 1: it arrives at `release` and not before"""
    cluster.keep(*_packets(words))
    return ""


def _record(cluster: Cluster, words: list[str]) -> str:
    """record a->b commit1 1: it arrives, and once more at `release`"""
    cluster.copy(*_packets(words))
    return ""


def _release(cluster: Cluster, words: list[str]) -> str:
    count = cluster.release()
    return f"released {count}"


def _pass(cluster: Cluster, words: list[str]) -> str:
    cluster.let_pass()
    return ""


def _watch(cluster: Cluster, words: list[str]) -> str:
    cluster.watch()
    return ""


def _settle(cluster: Cluster, words: list[str]) -> str:
    restless = cluster.settle()
    if restless:
        return f"not at rest: {restless}"
    lives = judged(cluster.world)
    return f"at rest in {show_view(lives[0].view)}" if lives and lives[0].view is not None else "nobody is alive"


def _check(cluster: Cluster, words: list[str]) -> str:
    """check, or check evs: judged by all of extended virtual synchrony, promised or not"""
    mishaps = [f"{mishap.property}: {mishap.explanation}" for mishap in cluster.world.mishaps]
    return "\n".join((*mishaps, _verdict(cluster.check(words == ["evs"]))))


def _verdict(report: Report) -> str:
    """`held`, or what broke and why; what is still open is named."""
    if report.broken:
        return "\n".join(f"{violation.property}: {violation.explanation}" for violation in report.violations)
    pending = [name for name, verdict in report.verdicts.items() if verdict.verdict == PENDING]
    return f"held, pending {', '.join(pending)}" if pending else HELD


def _simulate(text: str) -> str:
    """simulate, then a plan: a setting or `at TIME FAULT` a line."""
    plan = parse_plan(text)
    outcome = simulate(plan.seed, plan)
    return _verdict(outcome.report) if outcome.report.broken else HELD


COMMANDS: Final[dict[str, Callable[[Cluster, list[str]], str]]] = {
    "run": _run,
    "start": _start,
    "until": _until,
    "drop": _drop,
    "duplicate": _duplicate,
    "keep": _keep,
    "record": _record,
    "release": _release,
    "pass": _pass,
    "watch": _watch,
    "settle": _settle,
    "views": lambda cluster, words: cluster.views(),
    "deliveries": lambda cluster, words: cluster.deliveries(),
    "states": lambda cluster, words: cluster.states(),
    "causes": lambda cluster, words: causes(cluster),
    "totals": lambda cluster, words: totals(cluster),
    "sent": lambda cluster, words: sent(cluster),
    "refused": lambda cluster, words: refused(cluster),
    "endings": lambda cluster, words: endings(cluster),
    "notes": lambda cluster, words: notes(cluster, " ".join(words)),
    "packets": packets,
    "check": _check,
}
