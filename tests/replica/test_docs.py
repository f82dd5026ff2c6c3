"""The ten minutes of docs/replication.md, as a reader has them: two files, three processes."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from tests.house.snippets import snippets
from tests.house.sources import ROOT

PATIENCE_S = 60.0


def files() -> tuple[str, str]:
    page = [one.code for one in snippets() if one.page.name == "replication.md"]
    (accounts,) = (code for code in page if "class Accounts:" in code)
    (program,) = (code for code in page if "from accounts import" in code)
    return accounts, program


def test_the_ten_minutes(tmp_path: Path) -> None:
    for name, code in zip(("accounts.py", "bank.py"), files(), strict=True):
        (tmp_path / name).write_text(code, encoding="utf-8")

    async def run() -> None:
        everybody = {name: await start(tmp_path, name) for name in ("ann", "bob", "cyd")}
        try:
            async with asyncio.timeout(PATIENCE_S):
                left = [int((await answer(process)).split()[0]) for process in everybody.values()]
                assert all(0 < one < 100 for one in left)
                everybody["cyd"].kill()
                await everybody["cyd"].wait()
                assert int((await answer(everybody["ann"])).split()[0]) < min(left) + 3
                everybody["cyd"] = await start(tmp_path, "cyd")
                await answer(everybody["cyd"])
        finally:
            for process in everybody.values():
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    asyncio.run(run())


async def start(directory: Path, name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "bank.py", name),
        stdout=asyncio.subprocess.PIPE,
        cwd=directory,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}"},
    )


async def answer(process: asyncio.subprocess.Process) -> str:
    """The next line that is one, and not a sentence of who waits for the others."""
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        if re.fullmatch(r"\d+ \d+\n", line):
            return line
    raise AssertionError("it ended")
