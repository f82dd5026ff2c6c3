"""Traces as they are found in the field: cut off, damaged, foreign, not all there, mixed up, and with names that mean harm."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.audit.contents import wounded
from tests.audit.written import longest
from tests.cli.running import environment
from tests.daemon.running import Lines
from tests.guarantees.oracle import good_history
from transis.sim.run import simulate
from transis.sim.runs import write_trace
from transis.trace.events import History, NodeTrace
from transis.trace.segment import MAGIC, SCHEMA, Header, SegmentWriter, decode_rows, encode_rows, frame, segment_name

HISTORY = good_history(5, steps=100)
LIFE = longest(HISTORY)
OTHERS = HISTORY._replace(nodes=[trace for trace in HISTORY.nodes if trace is not LIFE])

BATCH = 10
CLUSTER = "simulated"
"""Whose clocks nobody compares with true time."""

EVIL_NODE = "<img src=x onerror=alert(1)>"
EVIL_GROUP = "</script><script>alert(2)</script>"

RECORDING = """
import sys
from heapq import merge
from pathlib import Path
from transis.sim.run import simulate
from transis.trace.segment import Header, SegmentWriter

history = simulate(5, nodes=3).history
writers = {trace.node: SegmentWriter(Path(sys.argv[1]), Header("simulated", sys.argv[2], trace.node)) for trace in history.nodes}
lives = [[(event.time_us, trace.node, event) for event in trace.events] for trace in history.nodes]
for number, (_, node, event) in enumerate(merge(*lives, key=lambda one: one[0])):
    assert writers[node].write([event])
    if number == 400:
        print("recording", flush=True)
        sys.stdin.read()
"""
"""Nodes that record what happens when it happens, and never get to the end."""


def good(directory: Path, run: str) -> None:
    write_trace(HISTORY, directory, run)


def cut_off(directory: Path, run: str) -> None:
    """The last file of a node that was writing when the power went."""
    write_trace(OTHERS, directory, run)
    path = _left_open(directory, LIFE, run)
    path.write_bytes(path.read_bytes()[:-3])


def damaged(directory: Path, run: str) -> None:
    """A byte in the middle of a file is another one."""
    good(directory, run)
    path = next(directory.glob(f"{LIFE.node.name}-*.trace"))
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)


def foreign(directory: Path, run: str) -> None:
    """Of a version that does not exist yet, and nothing else of its run."""
    header = Header(CLUSTER, run, LIFE.node, SCHEMA + 1)
    directory.mkdir(parents=True)
    (directory / segment_name(header)).write_bytes(MAGIC + frame(b"H", msgspec.msgpack.encode(header)) + b"whatever it has")


def with_a_letter(directory: Path, run: str) -> None:
    good(directory, run)
    (directory / "letter.trace").write_text("dear reader")


def mixed(directory: Path, run: str) -> None:
    good(directory, run)
    SegmentWriter(directory, Header(CLUSTER, f"{run}, too", LIFE.node._replace(name="other"))).close(True)


def without_a_node(directory: Path, run: str) -> None:
    write_trace(OTHERS, directory, run)


def killed(directory: Path, run: str) -> None:
    """kill -9 in the middle of recording."""
    command = [sys.executable, "-c", RECORDING, str(directory), run]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
    assert process.stdout is not None
    Lines(process.stdout).until("recording")
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def begun(directory: Path, run: str) -> None:
    """kill -9 between creating a file and writing into it; another one was cut in its header by a power loss."""
    good(directory, run)
    later = LIFE.node._replace(incarnation=LIFE.node.incarnation + 1)
    (directory / segment_name(Header(CLUSTER, run, later))).touch()
    (directory / segment_name(Header(CLUSTER, run, later._replace(name="other")))).write_bytes(MAGIC + b"\0\0\0")


def evil(directory: Path, run: str) -> None:
    """A node and a group whose names a browser would obey; the node's trace is not sealed, so that it is spoken of."""
    history = simulate(1, nodes=3, groups=True).history
    renamed = history._replace(nodes=[_renamed(trace) for trace in history.nodes])
    node = next(trace for trace in renamed.nodes if trace.node.name == EVIL_NODE)
    write_trace(History([trace for trace in renamed.nodes if trace is not node], True), directory, run)
    _left_open(directory, node, run)


CASES = (good, cut_off, damaged, foreign, with_a_letter, mixed, without_a_node, killed, begun, evil)
"""Each is a run of its own, in a directory of its own, both named after it."""

WOUNDED = wounded(HISTORY, "swapped_deliveries")
WOUNDED_RUN = "wounded"
"""The one whose evidence is whole: a guarantee is broken in it."""


def write_all(root: Path) -> None:
    for case in CASES:
        case(root / case.__name__, case.__name__)
    write_trace(WOUNDED, root / WOUNDED_RUN, WOUNDED_RUN)


def add_what_comes_late(root: Path) -> None:
    """The trace of the node that `without_a_node` does not have; and something that is no trace, where all was good."""
    write_trace(HISTORY._replace(nodes=[LIFE]), root / without_a_node.__name__, without_a_node.__name__)
    (root / good.__name__ / "later.trace").write_text("dear reader, too")


def _left_open(directory: Path, trace: NodeTrace, run: str) -> Path:
    """The file of a node that nobody sealed."""
    writer = SegmentWriter(directory, Header(CLUSTER, run, trace.node))
    for place in range(0, len(trace.events), BATCH):
        assert writer.write(trace.events[place : place + BATCH])
    path = directory / writer.current
    writer.release()
    return path


def _renamed(trace: NodeTrace) -> NodeTrace:
    """Node a is the first of all under its new name, too."""
    plain = _evil_names(msgspec.msgpack.decode(encode_rows(trace.events)))
    node = trace.node._replace(name=EVIL_NODE) if trace.node.name == "a" else trace.node
    return NodeTrace(node, decode_rows(msgspec.msgpack.encode(plain)))


def _evil_names(value: Any) -> Any:
    if isinstance(value, list):
        return [_evil_names(one) for one in value]
    return {"a": EVIL_NODE, "g0": EVIL_GROUP}.get(value, value) if isinstance(value, str) else value
