"""Keys compare as (timestamp, rank), places as (timestamp, rank, datagram), and places fit what a trace has for them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transis.lansis.dag import RENEWAL_ROOM, TIMESTAMP_ROOM, order_key, place_seq
from transis.types.limits import BURST_DATAGRAMS_MAX, MEMBERS_MAX

spots = st.tuples(st.integers(0, TIMESTAMP_ROOM - 1), st.integers(0, MEMBERS_MAX - 1), st.integers(0, BURST_DATAGRAMS_MAX - 1))


@given(spots, spots)
def test_places_compare_as_their_parts(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    def place(spot: tuple[int, int, int]) -> int:
        return place_seq(order_key(spot[0], spot[1]), spot[2])

    assert (place(one) < place(other)) == (one < other)
    assert (order_key(*one[:2]) < order_key(*other[:2])) == (one[:2] < other[:2])


def test_the_highest_place_fits_43_bits() -> None:
    assert place_seq(order_key(TIMESTAMP_ROOM - 1, MEMBERS_MAX - 1), BURST_DATAGRAMS_MAX - 1) == (1 << 43) - 1


def test_a_view_is_renewed_with_room_to_spare() -> None:
    assert TIMESTAMP_ROOM - RENEWAL_ROOM == 1 << 20
