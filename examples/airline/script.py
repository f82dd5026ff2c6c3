"""The story as data: flights, offices, and the requests in order, so that every run is the same."""

from __future__ import annotations

from typing import Final, NamedTuple


class Flight(NamedTuple):
    flight: str
    route: str
    departs: str
    seats: int


class Request(NamedTuple):
    """A passenger at the counter of an office."""

    office: str
    flight: str
    passenger: str
    fare: int


FLIGHTS: Final = (
    Flight("TR101", "Lisbon-Oslo", "07:10", 5),
    Flight("TR103", "Lisbon-Oslo", "12:40", 5),
    Flight("TR105", "Lisbon-Oslo", "18:05", 4),
    Flight("TR202", "Oslo-Lisbon", "09:30", 6),
    Flight("TR204", "Oslo-Lisbon", "16:20", 3),
)

OFFICES: Final = ("lisbon", "madrid", "oslo", "rome")
ALONE: Final = ("lisbon",)
"""Cut off by the partition; the others are a majority."""
OTHERS: Final = tuple(office for office in OFFICES if office not in ALONE)

TOGETHER: Final = (
    Request("lisbon", "TR101", "Almeida", 120),
    Request("oslo", "TR202", "Berg", 110),
    Request("madrid", "TR101", "Castro", 125),
    Request("rome", "TR103", "Donati", 90),
    Request("lisbon", "TR202", "Esteves", 115),
    Request("oslo", "TR101", "Fjeld", 140),
    Request("madrid", "TR105", "Garcia", 80),
    Request("rome", "TR202", "Hauge", 130),
    Request("lisbon", "TR103", "Inacio", 95),
    Request("oslo", "TR204", "Johansen", 70),
    Request("madrid", "TR105", "Krog", 85),
    Request("rome", "TR202", "Lund", 135),
)

APART: Final[dict[tuple[str, ...], tuple[Request, ...]]] = {
    ALONE: (
        Request("lisbon", "TR101", "Matos", 150),
        Request("lisbon", "TR101", "Neves", 160),
        Request("lisbon", "TR101", "Osorio", 170),  # Full, and Lisbon knows it.
        Request("lisbon", "TR202", "Pinto", 145),
        Request("lisbon", "TR202", "Rocha", 150),
    ),
    OTHERS: (
        Request("oslo", "TR101", "Quist", 155),
        Request("madrid", "TR101", "Ramos", 165),
        Request("rome", "TR202", "Strand", 150),
        Request("oslo", "TR105", "Tangen", 90),
        Request("madrid", "TR202", "Urdal", 155),
        Request("rome", "TR101", "Zorzi", 175),  # Full here too, with other passengers.
    ),
}

AGAIN: Final = (
    Request("rome", "TR204", "Vik", 75),
    Request("lisbon", "TR105", "Wolff", 95),
    Request("oslo", "TR103", "Xavier", 100),
    Request("lisbon", "TR105", "Yde", 99),  # Full: by now Lisbon knows that Tangen has a seat.
)
