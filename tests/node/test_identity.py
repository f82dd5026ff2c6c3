"""Who may run under a name (protocols C4), rule by rule."""

from __future__ import annotations

import pytest

from transis.node.identity import PROBES, Identity, Stage
from transis.totem.packets import Join
from transis.types.ids import NodeId, RingId
from transis.types.limits import KNOWN_NAMES_MAX
from transis.types.outputs import NEVER
from transis.wire.control import Beacon, Probe, ProbeAnswer

PROBE_US = 50_000
ANN = NodeId("ann", 3, 500)
LATER = NodeId("ann", 4, 600)
EARLIER = NodeId("ann", 2, 400)
COPY_LOW = NodeId("ann", 3, 100)
COPY_HIGH = NodeId("ann", 3, 900)
BOB = NodeId("bob", 2, 70)


def starting(me: NodeId = ANN) -> Identity:
    return Identity(me, "here", PROBE_US)


def probing(me: NodeId = ANN) -> Identity:
    identity = starting(me)
    identity.durable(0)
    return identity


def running(me: NodeId = ANN) -> Identity:
    identity = probing(me)
    assert identity.wake(PROBE_US) is None
    assert identity.stage is Stage.RUNNING
    return identity


def beacon(sender: NodeId) -> Beacon:
    return Beacon(sender, "there", RingId(4, sender), frozenset({sender}), frozenset(), 1, b"12345678", (1, 1))


def join(sender: NodeId) -> Join:
    own = frozenset({sender})
    return Join(sender, "there", b"", 4, own, frozenset(), own, (), 0, 0, False, 1, b"12345678", (1, 1))


def hello(identity: Identity, sender: NodeId) -> tuple[bool, ProbeAnswer | None]:
    """A beacon and a Join must be judged alike."""
    answers = {identity.inspect(beacon(sender)), identity.inspect(join(sender))}
    assert len(answers) == 1
    return answers.pop()


# --- starting -------------------------------------------------------------------------------------------------------


def test_nothing_is_asked_before_the_incarnation_is_durable() -> None:
    identity = starting()
    assert identity.deadline() == NEVER
    assert identity.wake(10 * PROBE_US) is None
    assert identity.stage is Stage.PERSISTING


def test_the_question_is_repeated_and_then_the_node_runs() -> None:
    identity = starting()
    identity.durable(7)
    asked = []
    now = 7
    while identity.stage is Stage.PROBING:
        now = identity.deadline()
        if identity.wake(now) is not None:
            asked.append(now)
    assert now == 7 + PROBE_US
    assert len(asked) >= PROBES
    assert asked[0] == 7
    assert identity.deadline() == NEVER


def test_a_node_that_is_still_writing_hears_nothing() -> None:
    identity = starting()
    assert identity.inspect(Probe(COPY_LOW, "there")) == (False, None)
    hello(identity, LATER)
    identity.inspect(ProbeAnswer(ANN, BOB, "taken", LATER))
    assert identity.stage is Stage.PERSISTING


# --- taken, copied, stale -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newcomer", [LATER, EARLIER])
def test_a_live_holder_answers_and_the_newcomer_stops(newcomer: NodeId) -> None:
    holder, late = running(ANN), probing(newcomer)
    passes, answer = holder.inspect(Probe(newcomer, "there"))
    assert (passes, answer) == (False, ProbeAnswer(newcomer, ANN, "taken", ANN))
    assert answer is not None
    late.inspect(answer)
    assert (holder.stage, late.stage) == (Stage.RUNNING, Stage.REFUSED)
    assert "choose another name" in late.refusal


@pytest.mark.parametrize("copy", [COPY_LOW, COPY_HIGH])
def test_a_copied_state_directory_stops_the_later_starter(copy: NodeId) -> None:
    holder, late = running(ANN), probing(copy)
    _, answer = holder.inspect(Probe(copy, "there"))
    assert answer == ProbeAnswer(copy, ANN, "copied", ANN)
    assert answer is not None
    late.inspect(answer)
    assert (holder.stage, late.stage) == (Stage.RUNNING, Stage.REFUSED)
    assert "state directory is a copy" in late.refusal


def test_of_two_running_copies_the_one_with_the_lower_boot_id_goes_on() -> None:
    low, high = running(COPY_LOW), running(COPY_HIGH)
    hello(low, COPY_HIGH)
    hello(high, COPY_LOW)
    assert (low.stage, high.stage) == (Stage.RUNNING, Stage.REFUSED)


def test_an_incarnation_below_a_known_one_is_a_lost_directory() -> None:
    witness, lost = running(BOB), probing(EARLIER)
    assert hello(witness, ANN) == (True, None)
    passes, answer = witness.inspect(Probe(EARLIER, "there"))
    assert (passes, answer) == (False, ProbeAnswer(EARLIER, BOB, "stale", ANN))
    assert answer is not None
    lost.inspect(answer)
    assert lost.stage is Stage.REFUSED
    assert "restore the newest directory" in lost.refusal


def test_a_stale_node_that_runs_already_is_told_too() -> None:
    witness, lost = running(BOB), running(EARLIER)
    hello(witness, ANN)
    passes, answer = witness.inspect(beacon(EARLIER))
    assert not passes, "the engine never sees an earlier life"
    assert answer is not None
    lost.inspect(answer)
    assert lost.stage is Stage.REFUSED


def test_a_question_alone_makes_no_name_known() -> None:
    """A prober may be refused: remembering its incarnation would make the live holder stale."""
    witness = running(BOB)
    witness.inspect(Probe(LATER, "there"))
    assert hello(witness, ANN) == (True, None)


def test_witnesses_on_both_sides_of_a_healed_partition_leave_one_of_two_copies_running() -> None:
    low, high = running(COPY_LOW), running(COPY_HIGH)
    beside_low, beside_high = running(BOB), running(NodeId("cid", 1, 1))
    hello(beside_low, COPY_LOW)
    hello(beside_high, COPY_HIGH)
    for witness, stranger in ((beside_low, high), (beside_high, low)):
        _, answer = witness.inspect(beacon(stranger.me))
        if answer is not None:
            stranger.inspect(answer)
    hello(high, COPY_LOW)
    assert (low.stage, high.stage) == (Stage.RUNNING, Stage.REFUSED)


# --- superseded -----------------------------------------------------------------------------------------------------


def test_an_older_life_that_hears_a_newer_one_stops() -> None:
    identity = running(ANN)
    assert hello(identity, LATER) == (False, None)
    assert identity.stage is Stage.REFUSED
    assert "superseded by ann/4" in identity.refusal


def test_two_that_start_at_once_agree_who_goes_on() -> None:
    for one, other, winner in (
        (ANN, LATER, LATER),
        (COPY_LOW, COPY_HIGH, COPY_LOW),
        (EARLIER, ANN, ANN),
    ):
        first, second = probing(one), probing(other)
        _, to_other = first.inspect(Probe(other, "there"))
        _, to_one = second.inspect(Probe(one, "there"))
        assert (to_other is None) == (one != winner)
        assert (to_one is None) == (other != winner)
        for asked, answer in ((first, to_one), (second, to_other)):
            if answer is not None:
                asked.inspect(answer)
        stages = {one: first.stage, other: second.stage}
        assert stages.pop(winner) is Stage.PROBING
        assert list(stages.values()) == [Stage.REFUSED]


# --- what must do no harm -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", [COPY_LOW, LATER])
def test_a_question_that_somebody_recorded_and_plays_again_stops_nobody_who_starts(recorded: NodeId) -> None:
    """Seen in CI: a refused copy had asked as bob/2, and its question, replayed, kept the true bob/2 from starting."""
    identity = probing(ANN)
    for _ in range(PROBES):
        assert identity.inspect(Probe(recorded, "there")) == (False, None)
    assert identity.stage is Stage.PROBING


def test_delayed_packets_of_my_own_earlier_lives_do_no_harm() -> None:
    for identity in (probing(ANN), running(ANN)):
        before = identity.stage
        assert hello(identity, EARLIER) == (False, None)
        assert hello(identity, ANN) == (False, None)
        assert identity.inspect(Probe(ANN, "here")) == (False, None)
        assert identity.stage is before


def test_a_delayed_question_of_my_own_earlier_life_is_answered_but_concerns_nobody() -> None:
    identity = running(ANN)
    _, answer = identity.inspect(Probe(EARLIER, "there"))
    assert answer is not None
    assert answer.about == EARLIER
    identity.inspect(answer)
    assert identity.stage is Stage.RUNNING


def test_a_delayed_packet_of_another_node_s_earlier_life_is_kept_from_the_engine() -> None:
    witness = running(NodeId("cid", 1, 1))
    assert hello(witness, BOB) == (True, None)
    older = BOB._replace(incarnation=1, boot=9)
    passes, answer = witness.inspect(join(older))
    assert not passes
    assert answer is not None
    assert answer.about == older, "the answer does not concern the later life"
    assert hello(witness, BOB) == (True, None)


def test_a_new_life_of_another_node_is_welcome() -> None:
    witness = running(NodeId("cid", 1, 1))
    hello(witness, BOB)
    assert hello(witness, BOB._replace(incarnation=3, boot=9)) == (True, None)


@pytest.mark.parametrize("verdict", ["taken", "copied", "stale"])
def test_an_answer_about_somebody_else_changes_nothing(verdict: str) -> None:
    for about in (BOB, EARLIER, COPY_LOW):
        identity = probing(ANN)
        identity.inspect(ProbeAnswer(about, BOB, verdict, LATER))
        assert identity.stage is Stage.PROBING


@pytest.mark.parametrize("verdict", ["taken", "copied"])
def test_a_namesake_s_late_answer_to_a_question_of_the_past_changes_nothing(verdict: str) -> None:
    identity = running(ANN)
    identity.inspect(ProbeAnswer(ANN, EARLIER, verdict, EARLIER))
    assert identity.stage is Stage.RUNNING


def test_a_witness_who_knows_the_copy_that_goes_on_stops_the_other() -> None:
    identity = running(ANN)
    identity.inspect(ProbeAnswer(ANN, BOB, "copied", COPY_LOW))
    assert identity.stage is Stage.REFUSED
    assert "state directory is a copy" in identity.refusal


def test_a_witness_who_knows_only_the_copy_that_has_to_stop_stops_nobody_else() -> None:
    """Seen in CI: its question was replayed to somebody who had never heard it but its copy, and both copies stopped."""
    identity, witness = running(ANN), running(BOB)
    hello(witness, COPY_HIGH)
    _, answer = witness.inspect(Probe(ANN, "there"))
    assert answer == ProbeAnswer(ANN, BOB, "copied", COPY_HIGH)
    assert answer is not None
    identity.inspect(answer)
    assert identity.stage is Stage.RUNNING


@pytest.mark.parametrize("known", [EARLIER, ANN, COPY_HIGH])
@pytest.mark.parametrize("verdict", ["taken", "copied", "stale"])
def test_no_answer_stops_a_running_node_for_a_life_that_does_not_outrank_it(verdict: str, known: NodeId) -> None:
    identity = running(ANN)
    identity.inspect(ProbeAnswer(ANN, BOB, verdict, known))
    assert identity.stage is Stage.RUNNING


def test_a_refused_node_stays_refused_and_answers_nobody() -> None:
    identity = running(ANN)
    hello(identity, LATER)
    assert identity.inspect(Probe(COPY_LOW, "there")) == (False, None)
    identity.durable(0)
    assert identity.wake(10 * PROBE_US) is None
    assert (identity.stage, identity.deadline()) == (Stage.REFUSED, NEVER)


def test_the_memory_of_names_is_bounded_and_keeps_the_latest() -> None:
    witness = running(BOB)
    for number in range(KNOWN_NAMES_MAX + 10):
        witness.inspect(beacon(NodeId(f"n{number}", 5, number)))
    _, forgotten = witness.inspect(Probe(NodeId("n0", 1, 0), ""))
    _, remembered = witness.inspect(Probe(NodeId(f"n{KNOWN_NAMES_MAX + 9}", 1, 0), ""))
    assert forgotten is None
    assert remembered is not None
