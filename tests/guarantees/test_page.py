"""docs/guarantees.md is as its generator writes it, and its first half speaks of guarantees that there are."""

from __future__ import annotations

import re

from tests.house.guarantees import BEGIN, page
from tests.house.sources import ROOT
from transis.audit.guarantees import ALL_MEANINGS

FILE = ROOT / "docs" / "guarantees.md"


def test_the_generated_part_is_up_to_date() -> None:
    _, _, written = FILE.read_text(encoding="utf-8").partition(BEGIN)
    assert written == page(), "run: python -m tests.house.guarantees docs/guarantees.md"


def test_every_guarantee_that_is_promised_somewhere_exists() -> None:
    by_hand, _, _ = FILE.read_text(encoding="utf-8").partition(BEGIN)
    cells = "\n".join(line for line in by_hand.splitlines() if line.startswith("| "))
    named = {name for name in re.findall(r"`(\w+)`", cells) if "_" in name and not name.endswith("_us")}
    assert named
    assert named <= set(ALL_MEANINGS)
