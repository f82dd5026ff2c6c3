"""Seats of the airline's example: a request comes behind those that its office had seen, through partings one after the other and
inside of each other. Sides that met have told each other what they sold (tests/examples/test_offices.py)."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import SparkSession

from examples.airline.job import with_seats

SIDES: dict[int, dict[int, str]] = {
    1: {},
    2: {1: "1"},
    3: {1: "2"},
    4: {},
    5: {2: "1"},
    6: {2: "2", 3: "1"},
    7: {2: "2", 3: "2"},
    8: {2: "2"},
    9: {4: "1+2"},
    10: {4: "3"},
    11: {4: "2"},
    12: {},
}
"""Requests in the order of the history: in which partings each is of which side. The third parting is inside of the second, the
fourth is one of three sides of which two met first."""

SEEN_BEFORE = {1: 0, 2: 1, 3: 1, 4: 3, 5: 4, 6: 4, 7: 4, 8: 6, 9: 8, 10: 8, 11: 9, 12: 11}
"""How many each had seen, by hand."""


def test_a_request_comes_behind_those_that_its_office_had_seen(spark: SparkSession) -> None:
    """On flights with one seat, with two and so on: it gets one on all but as many as it had seen."""
    flights = [(f"TP{seats}", seats) for seats in range(1, len(SIDES) + 1)]
    asked = [(100 * seats + at, "g", flight, 100 * seats + at, flight) for flight, seats in flights for at in SIDES]
    rows = spark.createDataFrame(asked, "merged_position long, group string, process string, counter long, flight string")
    labels = [("g", process, counter, *label) for at, _, process, counter, _ in asked for label in SIDES[at % 100].items()]
    apart = spark.createDataFrame(labels, "group string, process string, counter long, parting int, side string")
    sold = with_seats(rows, apart, spark.createDataFrame(flights, "flight string, seats int")).where("has_seat").collect()
    got = Counter(row.merged_position % 100 for row in sold)
    assert {at: len(flights) - got[at] for at in SIDES} == SEEN_BEFORE
