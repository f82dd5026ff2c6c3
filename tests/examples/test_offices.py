"""Offices of the airline on a simulated cluster: apart they sell what they know to be free, and when sides have met, all know the
same again and decide alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest

from examples.airline.office import GROUP, SEATS, Office, open_office
from examples.airline.script import OFFICES, Request
from transis.testing.cluster import Cluster, Clusters

LISBON, MADRID, OSLO, ROME = OFFICES
FLIGHT = "TR105"


@pytest.fixture(params=["totem", "lansis"])
def tell(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[Cluster], Awaitable[None]]], None]]:
    clusters = Clusters(engine=request.param)
    yield lambda story: clusters.run(story(clusters(list(OFFICES), seed=1, quorum=OFFICES)))
    clusters.close()


Tell = Callable[[Callable[[Cluster], Awaitable[None]]], None]


async def opened(c: Cluster) -> dict[str, Office]:
    """With an archiver's like in Lisbon, who is in the group and never says anything."""
    offices = {name: await open_office(name, await c.connect(name).open()) for name in OFFICES}
    await (await c.connect(LISBON).open()).join(GROUP).open()
    await c.settle()
    return offices


async def sell(c: Cluster, office: Office, seats: int = 1) -> list[str]:
    asked = [await office.ask(Request(office.name, FLIGHT, f"passenger {seat}", 90)) for seat in range(seats)]
    await c.settle()
    return asked


def test_after_a_merge_nobody_sells_what_the_other_side_has_sold(tell: Tell) -> None:
    async def story(c: Cluster) -> None:
        offices = await opened(c)
        together = await sell(c, offices[ROME], SEATS[FLIGHT] - 2)
        c.partition([LISBON], [MADRID, OSLO, ROME])
        await c.settle()
        apart = [await sell(c, offices[LISBON]), await sell(c, offices[OSLO])]
        assert all(offices[name].sold.keys() == {*together, *apart[name != LISBON]} for name in OFFICES)
        c.heal()
        await c.settle()
        late = await sell(c, offices[LISBON])
        for office in offices.values():
            assert office.sold.keys() == {*together, *apart[0], *apart[1]}
            assert office.heard >= {*late}, "it was decided, and there is no seat"

    tell(story)


def test_what_was_asked_while_sides_met_is_decided_alike(tell: Tell) -> None:
    """Requests on their way through the cut, the merge and what sides tell each other; and a side that is gone before it told."""

    async def story(c: Cluster) -> None:
        offices = await opened(c)
        for _ in range(6):
            c.partition([LISBON, MADRID], [OSLO, ROME])
            await c.run_for(0.05)
            for office in offices.values():
                await office.ask(Request(office.name, FLIGHT, "somebody", 90))
            c.heal()
            await c.run_for(0.02 * c.random.below(20))
            for office in offices.values():
                await office.ask(Request(office.name, "TR101", "somebody", 120))
        await c.settle()
        first = offices[LISBON].sold
        assert len(first) >= SEATS[FLIGHT] + SEATS["TR101"]
        assert all(office.sold == first for office in offices.values())
        asked = await sell(c, offices[ROME])
        assert all(office.heard >= {*asked} and office.sold == first for office in offices.values())

    tell(story)
