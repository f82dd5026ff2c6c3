"""Random schedules of replicas whose logs are real files: what a store gives back at each start is what its twin has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prsl.replicas import Disk
from tests.prsl.schedules import World
from transis.prsl.core import Config
from transis.prsl.log import Opened
from transis.replication.store import Store


class FileDisk(Disk):
    """A crash closes the files where they are: what was not committed is gone, as with the twin."""

    def __init__(self, config: Config, directory: Path) -> None:
        super().__init__(config)
        self.path = directory / config.directory.hex()
        self.store: Store | None = None

    def begin_life(self) -> None:
        self.close()
        config = self.config
        self.store = Store(self.path, "bank", config.name, config.founders, config.directory)
        assert self.store.life == self.life + 1 and self.store.directory == config.directory
        self.life = self.store.life
        self.life = self.store.life
        found, twin = self.store.opened, self.stored.opened()
        assert found[:-1] == twin[:-1]

    def opened(self) -> Opened:
        assert self.store is not None
        return self.store.opened

    def sync(self) -> int:
        assert self.store is not None
        self.store.commit(self.open[0][1])
        return super().sync()

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None


class FileWorld(World):
    def __init__(self, seed: int, directory: Path, ordering: str) -> None:
        self.directory = directory
        super().__init__(seed, ordering=ordering)

    def make_disk(self, config: Config) -> Disk:
        return FileDisk(config, self.directory)


@pytest.mark.parametrize("ordering", ["corel", "engine"])
@pytest.mark.parametrize("seed", range(12))
def test_a_schedule_on_files(tmp_path: Path, seed: int, ordering: str) -> None:
    world = FileWorld(seed, tmp_path, ordering)
    try:
        cluster = world.run()
    finally:
        for disk in world.cluster.disks.values():
            assert isinstance(disk, FileDisk)
            disk.close()
    assert cluster.ledger.order
