"""Replicated objects on real nodes: one order of actions, results for who called, and queries of each kind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.embed.party import until
from tests.replica.accounts import Accounts, NotEnough
from tests.replica.site import NAMES, Site, tell
from transis import Json, context, once, replica, within
from transis.types.errors import NoPrimary, UsageError


def test_actions_run_everywhere_and_answer_where_they_were_called(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        ann, bob, cyd = await site.start_machines(Accounts)
        await ann.open("7", 100)
        assert await bob.move("7", "9", 30) == 70
        assert await cyd.of("9") == 30 and await ann.of("7") == 70
        with pytest.raises(NotEnough, match="9"):
            await cyd.move("9", "7", 1000)
        assert await ann.call(Accounts.move, "9", "7", amount=10) == 20
        assert await bob.ask(Accounts.of, "7") == 80
        assert 0 <= await (await bob.post(Accounts.draw)).result() < 1

    tell(tmp_path, story)


def test_thousands_of_concurrent_actions_agree(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        machines = await site.start_machines(Accounts)
        await machines[0].open("7", 10_000)
        left = await asyncio.gather(*(machines[number % 3].move("7", "9", 1) for number in range(1500)))
        assert sorted(left) == list(range(8_500, 10_000))
        drawn = await asyncio.gather(*(machine.draw() for machine in machines))
        assert len(set(drawn)) == 3
        await asyncio.gather(*(machine.all() for machine in machines))
        states = [vars(thing) for thing in site.things.values()]
        assert states[0] == states[1] == states[2]
        assert sorted(states[0]["lots"]) == sorted(drawn) and states[0]["balance"] == {"7": 8_500, "9": 1_500}

    tell(tmp_path, story)


def test_a_minority_answers_what_it_can(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        ann, _, _ = await site.start_machines(Accounts)
        await ann.open("7", 100)
        for name in ("bob", "cyd"):
            await site.close_log(name)
        await until(lambda: ann.status().here == ("ann",))
        with pytest.raises(NoPrimary, match=r"2 of 3 needed, here: ann; bob .*; it stays posted as 1:2") as raised, within(0.1):
            await ann.move("7", "9", 1)
        with pytest.raises(NoPrimary), within(0.1):
            await ann.of("7")
        await until(lambda: ann.read("dirty").of("7") == 99)
        assert ann.read("local").of("7") == 100
        assert await ann.read(at_least=0).of("7") == 100
        bob = await site.open_machine("bob", Accounts())
        assert await raised.value.receipt.result() == 99
        assert await bob.of("9") == 1

    tell(tmp_path, story)


def test_a_machine_comes_back_as_it_was(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        machines = await site.start_machines(Accounts)
        await machines[0].open("7", 100)
        await machines[1].move("7", "9", 30)
        await machines[2].draw()
        await asyncio.gather(*(machine.all() for machine in machines))
        before = [dict(vars(thing)) for thing in site.things.values()]
        for name in NAMES:
            await site.close_log(name)
        machines = [await site.open_machine(name, Accounts()) for name in NAMES]
        assert await machines[0].all() == {"7": 70, "9": 30}
        await asyncio.gather(*(machine.all() for machine in machines))
        assert [vars(thing) for thing in site.things.values()] == before

    tell(tmp_path, story)


def test_a_repeated_call_runs_once(tmp_path: Path) -> None:
    """From another replica, after a crash, with its result; within one `once` each call has a key of its own."""

    async def story(site: Site) -> None:
        ann, bob, _ = await site.start_machines(Accounts)
        await ann.open("7", 100)
        with once("transfer 17", at=0):
            assert await ann.move("7", "9", 30) == 70
            assert await ann.move("7", "9", 30) == 40
        await site.close_log("ann")
        with once("transfer 17", at=0):
            assert await bob.move("7", "9", 30) == 70
            assert await bob.move("7", "9", 30) == 40
        assert await bob.move("7", "9", 30) == 10
        with once("too much", at=0), pytest.raises(NotEnough):
            await bob.move("7", "9", 30)
        await bob.open("7", 100)
        with once("too much", at=0), pytest.raises(NotEnough):
            await bob.move("7", "9", 30)
        assert await bob.of("7") == 100

    tell(tmp_path, story)


def test_nobody_holds_a_piece_of_the_state(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        await site.start_node("ann")
        machine = await site.open_machine("ann", Accounts(), replicas=["ann"])
        await machine.open("7", 1)
        for got in (await machine.everything(), await machine.all(), machine.read("local").all()):
            got["7"] = 1_000_000
        assert await machine.of("7") == 1

    tell(tmp_path, story, ["ann"])


def test_calls_that_no_method_understands_change_nothing(tmp_path: Path) -> None:
    """Another release posted them: the log goes on."""

    async def story(site: Site) -> None:
        await site.start_node("ann")
        log = await site.open_log("ann", replicas=["ann"])
        for nonsense in (b"", b"\xc1", b"\x92\xa4gone\x90", b"\x92\xa4move\x91\x01", b"\x92\xa2of\x91\xa17"):
            await (await log.post(nonsense)).ordered()
        await site.close_log("ann")
        machine = await site.open_machine("ann", Accounts(), replicas=["ann"])
        await machine.open("7", 1)
        assert await machine.all() == {"7": 1}

    tell(tmp_path, story, ["ann"])


def test_wrong_calls_are_refused_where_they_are_made(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        machine = await site.open_machine("ann", Accounts())
        with pytest.raises(UsageError, match=r"Accounts.move: Expected `int`, got `str` - at `amount`"):
            await machine.move("7", "9", "x")
        with pytest.raises(TypeError, match="missing a required argument: 'b'"):
            await machine.move("9")
        with pytest.raises(UsageError, match=r"of .* is no action of Accounts"):
            await machine.call(Accounts.of, "7")
        with pytest.raises(AttributeError, match="have no 'balance'"):
            _ = machine.balance
        with pytest.raises(AttributeError, match="Accounts has no query 'move'"):
            _ = machine.read("local").move
        with pytest.raises(UsageError, match=r"write read\('local'\)"):
            machine.read("remote")
        with pytest.raises(UsageError, match=r"within\(0\): give a number of seconds above 0"), within(0):
            pass

    tell(tmp_path, story)


def test_the_context_is_inside_actions_only() -> None:
    with pytest.raises(UsageError, match="inside an action"):
        _ = context.time


def test_a_machine_is_an_object_of_a_replicated_class(tmp_path: Path) -> None:
    for machine, why in ((Accounts, "this is a class, write Accounts()"), (7, "int is no replicated class: write @replicated")):
        with pytest.raises(UsageError) as raised:
            replica("accounts", me="ann", directory=tmp_path, machine=machine)
        assert why in str(raised.value)
    with pytest.raises(UsageError, match="a codec or a machine, not both"):
        replica("accounts", me="ann", directory=tmp_path, machine=Accounts(), codec=Json())  # type: ignore[call-overload]
