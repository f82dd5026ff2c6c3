"""Rings and configurations as plain values, and what of them is a group's: which nodes had members, or brought some."""

from __future__ import annotations

from typing import NamedTuple


class Ring(NamedTuple):
    """A regular configuration: its sequence, and its representative as a word."""

    seq: int
    rep: str

    def __str__(self) -> str:
        return f"R{self.seq}@{self.rep}"


def ring_of(configuration: str) -> Ring:
    """Of the word for a regular configuration."""
    seq, _, rep = configuration.removeprefix("R").partition("@")
    return Ring(int(seq), rep)


class Configuration(NamedTuple):
    """A regular configuration as it was archived. `previous` is as long as `nodes`: where each of them comes from."""

    ring: Ring
    nodes: tuple[str, ...]
    previous: tuple[Ring | None, ...]
    primary: bool | None = None
    seen_us: int = 0
    """When an archiver first saw it, by its own clock."""
    hosts: frozenset[str] | None = None
    """Nodes that had a member of the group while somebody archived; None if nobody knows."""
    brought: frozenset[str] = frozenset()
    """Nodes whose members came to it out of a group view, when several came together."""

    def brings(self, node: str, before: Configuration | None) -> bool:
        """Whether that node had a member of the group before, as far as is known; `before` is where it was seen last."""
        return before is None or before.hosts is None or node in before.hosts or node in self.brought


class Life(NamedTuple):
    """Of a node: a later incarnation of one name shows that the earlier one is over."""

    name: str
    incarnation: int


def life_of(node: str) -> Life:
    """Of the word for a node, `n1/3/00ab...`. Boot ids tell lives apart and not which is later."""
    name, incarnation, _ = node.rsplit("/", 2)
    return Life(name, int(incarnation))
