"""Limits fit together: what one allows, another must not make impossible."""

from __future__ import annotations

from transis.totem.packets import TOKEN_SIZE_MAX
from transis.types import limits
from transis.wire.burst import body_max
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE
from transis.wire.items import RUN_HEAD_SIZE


def test_every_limit_is_a_positive_number() -> None:
    numbers = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert len(numbers) >= 11
    assert all(isinstance(value, int) and value > 0 for value in numbers.values())


def test_a_full_token_fits_the_smallest_datagram() -> None:
    assert TOKEN_SIZE_MAX + ENVELOPE_SIZE + SEAL_SIZE <= limits.DATAGRAM_MIN


def test_a_run_with_the_longest_address_fits_a_datagram_of_the_default_size() -> None:
    assert body_max(1400) > RUN_HEAD_SIZE + limits.ADDRESS_MAX


def test_members_have_16_bit_ranks() -> None:
    assert limits.MEMBERS_MAX < 0xFFFF
