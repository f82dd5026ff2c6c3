"""A whole node: its name before its voice (C4), its doors, and what a caller is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from transis.node.node import IDENTITY_TICKET, Node
from transis.types.config import Config, Window
from transis.types.errors import ConfigError, IdentityError, MessageTooLarge, UsageError
from transis.types.ids import NodeId, Place, Service, ViewId, ViewKind
from transis.types.limits import ADDRESS_MAX, MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.outputs import (
    NEVER,
    Accepted,
    Audience,
    Checkpoint,
    Configure,
    GroupDelivered,
    GroupViewInstalled,
    Lane,
    NodeOutput,
    Note,
    Persist,
    Port,
    ProcessConnected,
    ProcessGone,
    Reach,
    Room,
    Stopped,
    Transmit,
)
from transis.types.views import Address, GroupViewId, group_id
from transis.wire.envelope import Segments
from transis.wire.items import encode_address


def node(
    stored: dict[str, int] | None = None, boot: int = 500, window: Window | None = None, *, with_groups: bool = True
) -> Node:
    config = Config(name="ann", address=f"ann:{boot}", window=window or Window(), plaintext=True)
    return Node(config, stored or {}, boot, with_groups=with_groups)


def transmits(outputs: list[NodeOutput]) -> list[Transmit]:
    return [output for output in outputs if isinstance(output, Transmit)]


def wake_until_running(one: Node, now: int = 0) -> tuple[int, list[NodeOutput]]:
    """From a durable incarnation to the first view."""
    outputs = one.outputs()
    while one.state == "Starting":
        now = one.deadline()
        one.wake(now)
        outputs += one.outputs()
    return now, outputs


def run(one: Node) -> int:
    """Start a node that nobody answers; the time at which it runs."""
    one.start(0)
    one.persisted(0, IDENTITY_TICKET)
    now, _ = wake_until_running(one)
    return now


def run_alone(stored: dict[str, int] | None = None, boot: int = 500) -> tuple[int, Node]:
    one = node(stored, boot)
    return run(one), one


def test_the_incarnation_is_durable_before_anything_is_transmitted() -> None:
    one = node({"incarnation": 6})
    one.start(0)
    first, *others = one.outputs()
    assert first == Persist(IDENTITY_TICKET, "incarnation", 7)
    assert all(isinstance(output, Persist) for output in others)
    assert one.id == NodeId("ann", 7, 500)
    for now in (1, 100_000, 10_000_000):
        one.wake(now)
        one.receive(now, Port.CONTROL, [b"?", b""])
        assert one.submit(now, Service.AGREED, [b"early"]) == 0
        assert all(isinstance(output, Note) for output in one.outputs())
    one.persisted(10_000_001, IDENTITY_TICKET)
    one.wake(10_000_001)
    (probe,) = transmits(one.outputs())
    assert (probe.to, probe.port) == (Audience.WORLD, Port.CONTROL)


def test_a_node_without_a_key_must_be_told_so() -> None:
    with pytest.raises(ConfigError, match="give a key of 32 bytes, or set plaintext"):
        Node(Config(name="ann"), {}, boot=1)
    with pytest.raises(ConfigError, match="32 bytes"):
        Node(Config(name="ann"), {}, boot=1, key=b"short")


def test_a_node_runs_after_its_probes_and_takes_messages_then() -> None:
    one = node()
    one.start(0)
    one.persisted(0, IDENTITY_TICKET)
    now, outputs = wake_until_running(one)
    assert now == Config(name="ann").timing.gather_min_us
    kinds = [type(output) for output in outputs]
    assert kinds.index(Configure) > kinds.index(Transmit)
    assert one.submit(now, Service.SAFE, [b"1", b"2"]) == 2
    (accepted,) = [output for output in one.outputs() if isinstance(output, Accepted)]
    assert (accepted.ids.first_counter, accepted.ids.count) == (1, 2)


def test_each_process_counts_its_own_messages() -> None:
    now, one = run_alone()
    one.outputs()
    for process, first in ((1, 1), (2, 1), (1, 2)):
        one.submit(now, Service.AGREED, [b"x"], process=process)
        (accepted,) = [output for output in one.outputs() if isinstance(output, Accepted)]
        assert (accepted.ids.process, accepted.ids.first_counter) == (process, first)


def talk(speaker: Node, listener: Node, now: int) -> None:
    """What the speaker multicasts reaches the listener."""
    for transmit in transmits(speaker.outputs()):
        listener.receive(now, transmit.port, transmit.datagrams)


def test_a_second_node_of_a_live_name_is_stopped_with_the_remedy() -> None:
    now, holder = run_alone({"incarnation": 2})
    holder.outputs()
    second = node({"incarnation": 8}, boot=501)
    second.start(now)
    second.persisted(now, IDENTITY_TICKET)
    second.outputs()
    second.wake(now)
    talk(second, holder, now)
    talk(holder, second, now)
    (stopped,) = [output for output in second.outputs() if isinstance(output, Stopped)]
    assert "choose another name" in stopped.why
    assert (second.state, holder.state) == ("Stopped", "Operational")
    assert second.deadline() == NEVER


def test_a_running_node_that_hears_a_later_life_of_its_name_stops() -> None:
    now, old = run_alone({"incarnation": 2})
    _, new = run_alone({"incarnation": 3}, boot=501)
    old.outputs()
    talk(new, old, now)
    new.wake(new.deadline())
    talk(new, old, now)
    (stopped,) = [output for output in old.outputs() if isinstance(output, Stopped)]
    assert "superseded by ann/4" in stopped.why
    assert old.submit(now, Service.AGREED, [b"too late"]) == 0
    assert old.state == "Stopped"


@pytest.mark.parametrize("key", ["incarnation", "ring_seq"])
@pytest.mark.parametrize("value", [-1, 1 << 62, 1 << 80])
def test_stored_nonsense_is_refused_with_the_remedy(key: str, value: int) -> None:
    """Trap 29: a damaged file is an answer, not an assertion."""
    with pytest.raises(IdentityError, match=f"{key} = {value}.*restore it or start with a new name"):
        node({key: value})


def test_an_empty_directory_is_a_first_life() -> None:
    assert node().id.incarnation == 1


def test_submission_errors_name_the_limit() -> None:
    now, one = run_alone()
    with pytest.raises(MessageTooLarge, match=f"{MESSAGE_MAX + 1} bytes, at most {MESSAGE_MAX} "):
        one.submit(now, Service.AGREED, [bytes(MESSAGE_MAX + 1)])
    with pytest.raises(UsageError, match=f"{ADDRESS_MAX + 1} bytes, at most {ADDRESS_MAX} "):
        one.submit(now, Service.AGREED, [b""], address=bytes(ADDRESS_MAX + 1))
    with pytest.raises(UsageError, match=f"{RUN_MESSAGES_MAX + 1} messages in one call, at most {RUN_MESSAGES_MAX} "):
        one.submit(now, Service.AGREED, [b""] * (RUN_MESSAGES_MAX + 1))
    assert one.submit(now, Service.AGREED, []) == 0


def test_what_is_refused_by_a_limit_uses_no_counter() -> None:
    now, one = run_alone()
    one.outputs()
    with pytest.raises(UsageError):
        one.submit(now, Service.AGREED, [b""] * (RUN_MESSAGES_MAX + 1))
    one.submit(now, Service.AGREED, [b"first"])
    (accepted,) = [output for output in one.outputs() if isinstance(output, Accepted)]
    assert accepted.ids.first_counter == 1


def test_junk_is_counted_and_changes_nothing() -> None:
    now, one = run_alone()
    one.outputs()
    deadline = one.deadline()
    junk = [b"", b"\x00", b"Ts" + bytes(40), bytes(range(256)), b"\xff" * 1400]
    for port in Port:
        one.receive(now, port, junk)
    outputs = one.outputs()
    assert all(isinstance(output, Note) and output.what == "rejected" for output in outputs)
    assert len(outputs) == len(one.rejections), "an operator is told once of each kind of junk"
    assert (one.state, one.deadline()) == ("Operational", deadline)
    assert sum(one.rejections.values()) == len(junk) * len(Port)
    one.receive(now, Port.DATA, [Segments(bytes(100), 30), b"", Segments(b"Ts" * 50, 99)])
    assert sum(one.rejections.values()) == len(junk) * len(Port) + 7


def test_a_graceful_leave_of_a_running_node_stops_it() -> None:
    now, one = run_alone()
    one.submit(now, Service.SAFE, [b"last"])
    one.leave(now)
    outputs = one.outputs()
    while one.state != "Stopped":
        now = one.deadline()
        one.wake(now)
        outputs += one.outputs()
    assert outputs[-1] == Stopped("left")
    assert one.deadline() == NEVER


def test_leaving_before_running_stops_at_once() -> None:
    one = node()
    one.start(0)
    one.outputs()
    one.leave(1)
    assert one.outputs() == [Stopped("left")]
    assert one.state == "Stopped"


def test_nothing_is_transmitted_after_stopped() -> None:
    one = node()
    one.start(0)
    one.persisted(0, IDENTITY_TICKET)
    one.leave(1)
    one.outputs()
    assert one.deadline() == NEVER
    one.wake(10_000_000)
    assert one.outputs() == []


def test_a_submit_that_was_cut_short_is_followed_by_room() -> None:
    one = node(window=Window(outbox_bytes=1024))
    now = run(one)
    assert one.submit(now, Service.AGREED, [bytes(400)] * 4) < 4
    outputs = one.outputs()
    for _ in range(50):
        now = one.deadline()
        one.wake(now)
        outputs += one.outputs()
    assert Room(Lane.APPLICATION) in outputs


# --- groups and processes -----------------------------------------------------------------------------------------------


def test_whom_the_ring_means_is_handed_out_with_groups_only_and_before_the_view() -> None:
    for with_groups in (True, False):
        one = node(with_groups=with_groups)
        one.start(0)
        one.persisted(0, IDENTITY_TICKET)
        _, outputs = wake_until_running(one)
        kinds = [type(output) for output in outputs]
        assert (Reach in kinds) is with_groups
        assert not with_groups or kinds.index(Reach) < kinds.index(Configure)


def test_a_process_comes_before_its_doings_and_goes_before_what_they_cause() -> None:
    now, one = run_alone()
    one.outputs()
    one.connect(1)
    one.join_group(now, 1, "orders")
    assert one.outputs()[0] == ProcessConnected(1)
    one.disconnect(now, 1)
    assert one.outputs()[0] == ProcessGone(1)


def test_a_checkpoint_is_handed_out_as_it_is() -> None:
    _, one = run_alone()
    one.outputs()
    place, view = Place(1, 0), ViewId(ViewKind.REGULAR, 4, one.id)
    told = Checkpoint(1, group_id("orders"), "orders", GroupViewId(view, place), 3, None, 0, place, b"state")
    one.checkpoint(told)
    assert one.outputs() == [told]


def test_without_groups_any_address_is_taken_and_with_them_it_must_be_one() -> None:
    now, one = run_alone()
    with pytest.raises(UsageError, match="not an address"):
        one.submit(now, Service.AGREED, [b"x"], b"forged")
    bare = node(with_groups=False)
    assert bare.submit(run(bare), Service.AGREED, [b"x"], b"forged") == 1


def wake_until(one: Node, now: int, seen: Callable[[NodeOutput], bool]) -> int:
    """Timers come due until something is handed out; the time then."""
    while not any(seen(output) for output in one.outputs()):
        now = one.deadline()
        one.wake(now)
    return now


def test_messages_are_counted_once_and_for_each_process_that_gets_them() -> None:
    now, one = run_alone()
    one.outputs()
    for process in (1, 2):
        one.connect(process)
        one.join_group(now, process, "orders")
        now = wake_until(one, now, lambda output: isinstance(output, GroupViewInstalled))
    address = encode_address(Address((group_id("orders"),), ()))
    assert one.submit(now, Service.AGREED, [b"x"] * 7, address, process=1) == 7
    wake_until(one, now, lambda output: isinstance(output, GroupDelivered))
    counted = one.statistics()
    assert (counted["delivered_messages"], counted["handed_messages"], counted["groups"]) == (7, 14, 1)
