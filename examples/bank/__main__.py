"""Three branches of a bank on this machine, each with a node, a directory and the accounts: `python -m examples.bank`.

The branches move money at the same time. One of them is closed in the middle, two go on, and it comes back with everything. Then
two are closed, and the one that is left says whom it misses.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import transis
from examples.bank.accounts import Accounts, NotEnough
from transis.types.errors import NoPrimary

BRANCHES = ["ann", "bob", "cyd"]
TRANSFERS = 300

Bank = transis.ReplicaMachine[Accounts]


class Branch:
    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.node = transis.Node(name, cluster="bank", state=directory / f"node of {name}")
        self.bank: Bank

    async def open(self) -> Bank:
        """The accounts begin empty; what the log has is applied to them again."""
        self.bank = await transis.replica(
            "accounts",
            me=self.name,
            replicas=BRANCHES,
            directory=self.directory / f"log of {self.name}",
            connect=self.node.connect,
            machine=Accounts(),
        ).open()
        return self.bank


async def trade(bank: Bank, transfers: int) -> int:
    """Move money around; returns how often there was not enough."""
    refused = 0
    for number in range(transfers):
        try:
            await bank.move("7", "9", 5) if number % 2 else await bank.move("9", "7", 4)
        except NotEnough:
            refused += 1
    return refused


async def story(directory: Path, stack: AsyncExitStack) -> None:
    ann, bob, cyd = branches = [Branch(name, directory) for name in BRANCHES]
    for branch in branches:
        await stack.enter_async_context(branch.node)
        stack.push_async_callback((await branch.open()).close)
    await ann.bank.open("7", 100)
    await asyncio.gather(*(trade(branch.bank, TRANSFERS // 3) for branch in branches))
    print(f"after {TRANSFERS} transfers at three branches: {await bob.bank.of('7')} and {await cyd.bank.of('9')}")

    await cyd.bank.close()
    refused = await trade(bob.bank, TRANSFERS)
    print(f"cyd is closed; {TRANSFERS} more at bob, of which {refused} were refused: there was not enough")
    stack.push_async_callback((await cyd.open()).close)
    print(f"cyd is back and has {await cyd.bank.of('7')} and {await cyd.bank.of('9')}, together {await cyd.bank.total()}")

    await bob.bank.close()
    await cyd.bank.close()
    try:
        with transis.within(2):
            await ann.bank.move("7", "9", 1)
    except NoPrimary as error:
        print(f"ann is alone: {error}")
    print(f"the accounts at ann, as far as she knows: {ann.bank.read('local').of('7')} and {ann.bank.read('local').of('9')}")
    print(ann.bank.status())


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with AsyncExitStack() as stack:
            await story(Path(directory), stack)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
