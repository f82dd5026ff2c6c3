"""Every worked example in sim/examples still comes out as written; `--rewrite` writes down what happens instead."""

from pathlib import Path

import pytest

from transis.audit.guarantees.property import HELD, NOT_EXERCISED, NOT_PROMISED
from transis.sim.cluster import SimulatedCluster
from transis.sim.play import EXAMPLES
from transis.sim.scripts import Player, parse_script, run_script
from transis.trace.events import Delivery

SCRIPTS = sorted(EXAMPLES.glob("*.txt"))


ALWAYS = {"configuration_2_2", "structure", "agreement_on_views", "partial_order_1_1", "total_order_6_1"}
OF_MESSAGES = {"no_creation", "no_duplicates", "sent_once_1_4", "fifo", "self_delivery_3", "causal_5"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:
    text, player = path.read_text(), Player()
    blocks = [block._replace(expected=player.play(block)) for block in parse_script(text)]
    outcome = "\n\n".join(block.text() for block in blocks) + "\n"
    if rewrite:
        path.write_text(outcome)
        return
    assert outcome == text
    assert player.cluster is not None
    assert_held(player.cluster)


def assert_held(cluster: SimulatedCluster) -> None:
    """That an example ends with `held` says something: nothing else went wrong, it came to rest, and there was much to check."""
    history = cluster.history()
    verdicts = {verdict.property: verdict.verdict for verdict in cluster.check().verdicts.values()}
    has_messages = any(isinstance(event, Delivery) for trace in history.nodes for event in trace.events)
    assert not cluster.world.mishaps
    assert history.closed
    assert set(verdicts.values()) <= {HELD, NOT_EXERCISED, NOT_PROMISED}
    assert {name for name, verdict in verdicts.items() if verdict == HELD} >= ALWAYS | (OF_MESSAGES if has_messages else set())


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5


def test_a_script_reads_back() -> None:
    text = "# prose\ncluster a\nsettle\n----\nat rest in R4{a}\n"
    (block,) = parse_script(text)
    assert block.commands == ("cluster a", "settle")
    assert block.text() + "\n" == text


def test_a_wrong_outcome_is_seen() -> None:
    text = "cluster a\nsettle\nstates\n----\na: Gather\n"
    assert run_script(text) != text


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("views", "starts with a cluster"),
        ("cluster a\nfly", "'fly' is not a fault"),
        ("cluster a\ndrop a->b fog", "not a kind of packet"),
    ],
)
def test_what_is_not_understood_is_named(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        run_script(line)


def outcome_of(commands: str) -> str:
    return run_script(f"{commands}\n----\n").split("----\n", 1)[1]


def test_until_stops_at_a_state_a_view_or_a_delivery() -> None:
    assert outcome_of("cluster a b\nuntil b Commit\nstates") == "a b: Commit\n"
    assert outcome_of("cluster a b\nuntil b R4\nviews").endswith("b: R0{b} T2{b} R4{a,b}\n")
    assert outcome_of("cluster a\nsettle\nsend a agreed 2\nuntil a delivers a2\ntotals") == "at rest in R0{a}\na: a 2\n"


def test_until_says_that_it_waited_in_vain() -> None:
    assert outcome_of("cluster a\nuntil a R8") == "a never came to R8\n"


def test_what_is_kept_arrives_when_it_is_released_and_not_before() -> None:
    kept = "cluster a b\nsettle\nkeep a->b data\nsend a agreed 1\nuntil a delivers a1\nrun 500us\ndeliveries"
    assert outcome_of(kept).endswith("}\na: R4: a1\n")
    assert outcome_of(f"{kept}\nrelease\nrun 10us\ndeliveries").endswith("\nreleased 1\nb: R4: a1\n")


def test_a_filter_lets_some_pass_first() -> None:
    lost = "cluster a b config.datagram=512\nsettle\ndrop a->b data 1 after=2\nsend a agreed 4 300\nsettle\nnotes retransmitted"
    assert outcome_of(lost).endswith("\na: retransmitted 1\n")


def test_packets_are_counted_from_watch_on() -> None:
    assert outcome_of("cluster a b\nsettle\nwatch\nsend a agreed 1\nrun 1ms\npackets data join").endswith("data 1, join 0\n")
