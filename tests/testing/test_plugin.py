"""The plugin as people have it: pytest runs in a directory of its own, on small tests that use the fixture."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[2] / "docs" / "testing.md"


def example_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_it_is_announced() -> None:
    assert [one.value for one in entry_points(group="pytest11", name="transis")] == ["transis.testing.plugin"]


def test_the_examples_of_the_page_run(pytester: pytest.Pytester) -> None:
    service, test, plain = example_blocks()
    pytester.makepyfile(lock=service, test_lock=test, test_plain=plain)
    pytester.syspathinsert()
    pytester.runpytest("--transis-seeds", "7:9").assert_outcomes(passed=4)


def test_a_coroutine_runs_in_virtual_time(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio, pytest

        async def test_function(cluster):
            c = cluster(2)
            now = asyncio.get_running_loop().time
            began, began_there = now(), c.now
            await asyncio.wait_for(asyncio.sleep(3), 4)
            assert now() - began == 3
            assert round(c.now - began_there, 6) == 3
            async with c.connect("a") as session:
                await (await session.send("g", b"x"))

        class TestClass:
            @pytest.mark.parametrize("nodes", [1, 2])
            async def test_method(self, cluster, nodes):
                assert len(cluster(nodes).alive) == nodes

        @pytest.fixture
        def three(cluster):
            return cluster(3)

        async def test_through_another_fixture(three):
            await three.run_for(1)
        """
    )
    pytester.runpytest().assert_outcomes(passed=4)


def test_a_failure_tells_the_story(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        async def test_it(cluster):
            c = cluster(3, seed=5)
            c.partition("a")
            await c.settle()
            assert c.members("a") == ("a", "b", "c")
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*Captured transis call*",
            "simulated cluster of a b c, seed 5, after *",
            "*partition a | b,c",
            "  a is Operational in R*{a}",
            'replay: pytest "test_a_failure_tells_the_story.py::test_it"',
        ]
    )


SEEDED = """
def test_seed(cluster):
    c = cluster(1, seed=99)
    assert c.seed != 4

def test_without():
    pass
"""


def test_seeds_of_the_command_line_win(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SEEDED)
    pytester.runpytest().assert_outcomes(passed=2)
    result = pytester.runpytest("--transis-seeds", "3:6")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(['replay: pytest "*::test_seed[[]seed4[]]" --transis-seed 4'])


def test_the_replay_line_replays(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SEEDED)
    result = pytester.runpytest("--transis-seeds", "3:6")
    replay = next(line for line in result.outlines if line.startswith("replay: "))
    words = [word.strip('"') for word in replay.removeprefix("replay: pytest ").split()]
    again = pytester.runpytest(*words)
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines([replay])


@pytest.mark.parametrize(
    "options",
    [
        ("--transis-seed", "x"),
        ("--transis-seed", "1:3"),
        ("--transis-seed", "-1"),
        ("--transis-seeds", "3"),
        ("--transis-seeds", "3:3"),
        ("--transis-seeds", "0:9999999"),
        ("--transis-seed", "1", "--transis-seeds", "1:2"),
    ],
)
def test_wrong_seeds_are_a_usage_error(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    pytester.makepyfile(SEEDED)
    result = pytester.runpytest(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*ERROR: *seed*"])


def test_the_engine_of_the_command_line_wins_and_is_in_the_replay_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_engine(cluster):
            assert cluster(2, engine="totem").history().engine == "totem"
        """
    )
    pytester.runpytest().assert_outcomes(passed=1)
    result = pytester.runpytest("--transis-engine", "lansis")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['replay: pytest "*::test_engine" --transis-engine lansis'])


def test_an_engine_that_is_none_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SEEDED)
    result = pytester.runpytest("--transis-engine", "paxos")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*ERROR: *paxos*totem or lansis*"])


def test_guarantees_are_checked_at_the_end_unless_told_otherwise(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from transis.trace.events import Delivery

        @pytest.mark.parametrize("check", [True, False])
        async def test_it(cluster, check):
            c = cluster(2, check=check)
            async with c.connect("a") as session:
                await (await session.send("g", b"x"))
            await c.settle()
            events = c.history().nodes[1].events
            events[:] = [event._replace(first=99) if isinstance(event, Delivery) else event for event in events]
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*GuaranteeBroken: guarantees were broken * times*", "*replay: pytest *test_it[[]True[]]*"])


def test_what_still_runs_is_cancelled(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        ended = []

        async def serve(c):
            try:
                async with c.connect("a") as session, session.join("g") as group:
                    async for event in group:
                        pass
            finally:
                ended.append(session.closed)

        async def test_leaves_a_task(cluster):
            c = cluster(2)
            kept = asyncio.create_task(serve(c))
            await c.settle()

        def test_it_was_ended():
            assert ended == [True]
        """
    )
    pytester.runpytest("-W", "error").assert_outcomes(passed=2)


def test_a_test_that_waits_for_ever_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio

        async def test_it(cluster):
            cluster(1)
            await asyncio.Event().wait()
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Stuck: nothing the test waits for came*", "*test_a_test_that_waits_for_ever_fails.py:5"])


def test_others_of_the_same_name_are_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def cluster():
            return "mine"

        def test_it(cluster):
            assert cluster == "mine"
        """
    )
    pytester.runpytest("--transis-seeds", "0:3").assert_outcomes(passed=1)


def test_it_can_be_left_out(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SEEDED)
    result = pytester.runpytest("-p", "no:transis")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*fixture 'cluster' not found*"])


def test_it_loads_nothing_that_nobody_asked_for() -> None:
    show = "import transis.testing.plugin, sys; print(*sorted(name for name in sys.modules if name.startswith('transis')))"
    loaded = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["transis", "transis.testing", "transis.testing.plugin"]
