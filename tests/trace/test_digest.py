"""The digest says what happened and nothing else: not the order of traces, not the hash seed of the process."""

import os
import subprocess
import sys

from tests.guarantees.oracle import good_history
from transis.trace.segment import digest

PRINT_DIGEST = (
    "from tests.guarantees.oracle import good_history as g; from transis.trace.segment import digest as d; print(d(g(7)))"
)


def test_the_same_under_any_hash_seed() -> None:
    digests = set()
    for seed in ("0", "1", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", PRINT_DIGEST], env=environment, capture_output=True, text=True, check=True)
        digests.add(done.stdout.strip())
    assert digests == {digest(good_history(7))}


def test_the_order_of_traces_does_not_matter() -> None:
    history = good_history(7)
    assert digest(history._replace(nodes=history.nodes[::-1])) == digest(history)


def test_any_change_of_an_event_matters() -> None:
    history = good_history(7)
    before = digest(history)
    trace = history.nodes[0]
    for place in range(0, len(trace.events), 10):
        events = list(trace.events)
        events[place] = events[place]._replace(time_us=events[place].time_us + 1)
        assert digest(history._replace(nodes=[trace._replace(events=events), *history.nodes[1:]])) != before
