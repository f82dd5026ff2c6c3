"""What `python -m bench.compare` makes of figures: a ratio is of one round, and to the best peer of that round."""

from __future__ import annotations

import argparse
import sys

import pytest

from bench.compare import against_the_best, middle, peer_msgs_per_s, peer_of


def test_the_ratio_is_to_the_peer_that_was_best_in_the_round() -> None:
    rounds = [against_the_best(900.0, {"one": 100.0, "other": 300.0}), against_the_best(900.0, {"one": 450.0, "other": 300.0})]
    assert [(one["best"], one["ratio"]) for one in rounds] == [("other", 3.0), ("one", 2.0)]
    assert middle(rounds) == 2.5


def test_a_peer_is_a_command_that_is_told_the_load_and_prints_its_rate_last() -> None:
    program = "import json, sys; print('starting'); print(json.dumps({'msgs_per_s': int(sys.argv[1]) * int(sys.argv[2])}))"
    assert peer_msgs_per_s(f'{sys.executable} -c "{program}" {{nodes}} {{size}}', 4, 64, 1.0) == 256
    assert peer_msgs_per_s(f'{sys.executable} -c "import sys; sys.exit(1)"', 4, 64, 1.0) is None, "it is not present"


def test_a_peer_has_a_name_and_a_command() -> None:
    assert peer_of("corosync=flood --size={size}") == ("corosync", "flood --size={size}")
    with pytest.raises(argparse.ArgumentTypeError):
        peer_of("corosync")
