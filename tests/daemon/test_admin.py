"""The admin socket: any line is answered, nothing a line says breaks the daemon, faults need permission."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.daemon.running import RunningDaemon, opened_site
from transis.cli.admin import AdminConnection, places
from transis.daemon.admin import CONNECTIONS_MAX, LINE_MAX, REQUESTS, Admin, LinkCuts, Report, Reports
from transis.types.errors import ConnectError, TransisError, UsageError
from transis.types.ids import NodeId, ViewId, ViewKind
from transis.types.outputs import Configure
from transis.types.views import Cause, Member, View


@pytest.fixture(scope="module")
def ann() -> Iterator[RunningDaemon]:
    with opened_site() as site:
        yield site.start("ann").ready()


def talk(daemon: RunningDaemon, story: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_unix_connection(str(daemon.admin), limit=1 << 24)
            try:
                return await story(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    return asyncio.run(run())


def answers(daemon: RunningDaemon, *lines: bytes) -> list[dict[str, Any]]:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[dict[str, Any]]:
        writer.write(b"".join(line + b"\n" for line in lines))
        return [json.loads(await reader.readline()) for _ in lines]

    found: list[dict[str, Any]] = talk(daemon, story)
    return found


def test_every_question_has_an_answer(ann: RunningDaemon) -> None:
    asked = [what for what in REQUESTS if what not in {"leave", "cut", "heal", "log"}]
    for what, answer in zip(asked, answers(ann, *(json.dumps({"do": what}).encode() for what in asked)), strict=True):
        assert answer["ok"], what
    assert answers(ann, b'{"do": "help"}')[0]["requests"] == list(REQUESTS)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"status", "a request is a line like"),
        (b"", "a request is a line like"),
        (b'{"do": "dance"}', "there are help, status"),
        (b'{"do": "log", "level": "loud"}', "Invalid enum value"),
        (b'{"do": "status", "twice": true}', "unknown field"),
        (b'{"do": "groups", "limit": 0}', ">= 1"),
        (b'{"do": "cut", "peers": ["bob"]}', "allow_faults = true"),
        (b'{"do": "heal"}', "allow_faults = true"),
        (b"[" * 5000, "a request is a line like"),
    ],
)
def test_a_wrong_line_is_answered_and_the_next_one_too(ann: RunningDaemon, line: bytes, why: str) -> None:
    wrong, right = answers(ann, line, b'{"do": "status"}')
    assert wrong["ok"] is False
    assert why in wrong["why"]
    assert right["node"] == "ann"


@given(st.lists(st.binary(max_size=100).filter(lambda line: b"\n" not in line and b"leave" not in line), min_size=1, max_size=5))
def test_any_lines_are_answered(ann: RunningDaemon, lines: list[bytes]) -> None:
    assert [answer["ok"] for answer in answers(ann, *lines, b'{"do": "help"}')][-1] is True


def test_a_line_that_is_too_long_ends_the_connection(ann: RunningDaemon) -> None:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, bytes]:
        writer.write(b"x" * (LINE_MAX + 2))
        return await reader.readline(), await reader.readline()

    told, end = talk(ann, story)
    assert "at most" in json.loads(told)["why"]
    assert end == b""


def test_connections_are_bounded(ann: RunningDaemon) -> None:
    with ExitStack() as held:
        first, *_, last = [held.enter_context(AdminConnection(ann.admin, None)) for _ in range(CONNECTIONS_MAX)]
        assert last.ask("help")["ok"]
        one_more = held.enter_context(AdminConnection(ann.admin, None))
        assert one_more.ask("help")["ok"]
        with pytest.raises(TransisError):
            first.ask("help")
        assert last.ask("help")["ok"]


def test_a_missing_daemon_is_told_with_the_places(tmp_path: Path) -> None:
    with pytest.raises(ConnectError) as told:
        AdminConnection(None, None, {"TRANSIS_SOCKET": f"{tmp_path}/x.sock"})
    assert f"{tmp_path}/x-admin.sock" in str(told.value)
    assert "transis daemon" in str(told.value)


def test_places_follow_what_was_said() -> None:
    environment = {"TRANSIS_ADMIN": "/a/x.sock", "TRANSIS_SOCKET": "/b/y.sock"}
    assert places(Path("/c"), Path("/d.sock"), environment) == [Path("/c")]
    assert places(None, Path("/d.sock"), environment) == [Path("/d-admin.sock")]
    assert places(None, None, environment) == [Path("/a/x.sock")]
    assert places(None, None, {"TRANSIS_SOCKET": "/b/y.sock"}) == [Path("/b/y-admin.sock")]
    usual = [Path("/r/transis/transis-admin.sock"), Path("/run/transis/transis-admin.sock")]
    assert places(None, None, {"XDG_RUNTIME_DIR": "/r"}) == usual


def test_a_daemon_that_was_killed_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    """`transis leave` must not stop the machine's daemon because the user's is dead."""
    left_behind = tmp_path / "transis" / "transis.sock"
    left_behind.parent.mkdir()
    left_behind.touch()
    assert places(None, None, {"XDG_RUNTIME_DIR": str(tmp_path)}) == [left_behind.with_name("transis-admin.sock")]


class BrokenReports(Reports):
    def __init__(self) -> None:
        pass  # It looks into no daemon.

    def status(self) -> Report:
        raise ZeroDivisionError


def test_a_bug_in_an_answer_is_told_as_one_and_the_next_question_is_answered() -> None:
    admin = Admin(BrokenReports(), lambda: None, None)
    told = admin.obey(b'{"do": "status"}')
    assert not told["ok"]
    assert "a bug in transis" in told["why"]
    assert admin.obey(b'{"do": "help"}')["ok"]


def view_with(name: str, address: str) -> Configure:
    node = NodeId(name, 1, 7)
    view = ViewId(ViewKind.REGULAR, 4, node)
    return Configure(View(view, view, (Member(node, address, None),), Cause("start"), 0))


def test_peers_are_cut_by_name_or_address_and_unknown_names_are_told() -> None:
    cuts: list[list[str]] = []
    faults = LinkCuts(lambda addresses: cuts.append(list(addresses)))
    for name, address in (("bob", "127.0.0.1:1"), ("cid", "127.0.0.1:2"), ("bob", "127.0.0.1:3")):
        faults.observe(0, [view_with(name, address)])
    assert faults.cut(["bob", "cid", "bob"]) == ["127.0.0.1:2", "127.0.0.1:3"]
    assert faults.cut(["192.0.2.1:9"]) == ["192.0.2.1:9"]
    assert faults.cut([]) == []
    with pytest.raises(UsageError, match="it knows bob cid"):
        faults.cut(["dan"])
    assert cuts == [["127.0.0.1:2", "127.0.0.1:3"], ["192.0.2.1:9"], []]


def test_idle_connections_make_room_for_who_asks(ann: RunningDaemon) -> None:
    """As many as there may be, of which the first asks now and then: the one that was idle longest is told and goes."""

    async def story() -> None:
        opened = [await asyncio.open_unix_connection(str(ann.admin)) for _ in range(CONNECTIONS_MAX)]
        for reader, writer in (*opened, opened[0]):
            writer.write(b'{"do": "help"}\n')
            assert json.loads(await reader.readline())["ok"]
        late_reader, late_writer = await asyncio.open_unix_connection(str(ann.admin), limit=1 << 20)
        late_writer.write(b'{"do": "status"}\n')
        assert json.loads(await late_reader.readline())["node"] == "ann"
        told = json.loads(await opened[1][0].readline())
        assert not told["ok"]
        assert told["why"] == f"there are {CONNECTIONS_MAX} others, and this one was idle longest: connect again"
        assert await opened[1][0].read() == b""
        opened[0][1].write(b'{"do": "help"}\n')
        assert json.loads(await opened[0][0].readline())["ok"]
        for _, writer in (*opened, (late_reader, late_writer)):
            writer.close()
            await writer.wait_closed()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_many_questions_in_one_write_do_not_hold_up_another_asker(ann: RunningDaemon) -> None:
    """The last of them sets the level of the log. Somebody who asks meanwhile sees the level that it was."""
    flood = b'{"do": "status"}\n' * 2_000 + b'{"do": "log", "level": "error"}\n'

    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_unix_connection(str(ann.admin), limit=1 << 20)
        writer.write(flood)
        other_writer.write(b'{"do": "status"}\n')
        assert json.loads(await other_reader.readline())["log_level"] == "info"
        for _ in range(2_001):
            answer = json.loads(await reader.readline())
            assert answer["ok"]
        assert answer["level"] == "error"
        writer.write(b'{"do": "log", "level": "info"}\n')
        await reader.readline()
        other_writer.close()
        await other_writer.wait_closed()

    talk(ann, story)
