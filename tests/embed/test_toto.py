"""ToTo on real sockets: all send at once, all deliver in one order, and those who stay go on when one leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import transis
from tests.embed.party import PATIENCE_S, Cluster, together
from transis.audit.guarantees import check
from transis.trace.reader import read_history

EACH = 60


async def all_there(group: transis.Group[bytes], count: int) -> None:
    async for event in group:
        if isinstance(event, transis.View) and len(event.members) == count:
            return


async def said(group: transis.Group[bytes], name: str) -> None:
    for number in range(EACH):
        await group.send(f"{name} {number}".encode())


async def heard(group: transis.Group[bytes], count: int) -> list[bytes]:
    found: list[bytes] = []
    async for event in group:
        if isinstance(event, transis.Message):
            found.append(event.data)
            if len(found) == count:
                break
    return found


async def all_say(groups: dict[str, transis.Group[bytes]]) -> list[list[bytes]]:
    """What each heard when all have sent at once."""
    count = EACH * len(groups)
    await asyncio.gather(*(all_there(group, len(groups)) for group in groups.values()))
    saying = [said(group, name) for name, group in groups.items()]
    hearing = [heard(group, count) for group in groups.values()]
    found = await asyncio.gather(*hearing, *saying)
    return [one for one in found if one is not None]


def test_all_send_at_once_and_one_leaves(tmp_path: Path) -> None:
    async def story() -> None:
        cluster, traces = Cluster(tmp_path, "lansis"), tmp_path / "traces"
        ann, bob, cid = (cluster.node(name, order="toto", trace=traces) for name in ("ann", "bob", "cid"))
        async with (
            ann,
            bob,
            asyncio.timeout(PATIENCE_S),
            ann.connect() as first,
            bob.connect() as second,
            first.join("votes") as here,
            second.join("votes") as there,
        ):
            async with cid, cid.connect() as third, third.join("votes") as beyond:
                await together(ann, bob, cid)
                one, *others = await all_say({"ann": here, "bob": there, "cid": beyond})
                assert len(set(one)) == 3 * EACH
                assert others == [one, one]
            one, other = await all_say({"ann": here, "bob": there})
            assert one == other

    asyncio.run(story())
    history = read_history(tmp_path / "traces")
    assert history.promises == "toto"
    assert check(history).violations == ()
