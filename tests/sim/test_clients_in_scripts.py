"""Client processes in worked examples: what they do is what a program's would, and what is impossible is named."""

from __future__ import annotations

import pytest

from transis.audit.guarantees.property import HELD
from transis.sim.scripts import Player, parse_script, run_script

OF_GROUPS = {"group_order", "group_agreement_on_views", "group_members_only", "group_one_view_per_change", "group_no_duplicates"}

TWO = "cluster a b clients=1\nsettle\nconnect a b\nsettle\n"


def outcome_of(commands: str) -> str:
    """What the last commands print, without what the cluster says when it comes to rest."""
    outcome = run_script(f"{commands}\n----\n").split("----\n", 1)[1]
    return "\n".join(line for line in outcome.splitlines() if line and not line.startswith("at rest"))


def test_streams_show_group_views_messages_and_only_what_is_new() -> None:
    entered = "enter a G\nsettle\nenter b G\nsettle\nstreams\ntell a G agreed\nsettle\nstreams\nstreams"
    assert outcome_of(TWO + entered) == "a: G{a} G{a,b}\nb: G{a,b}\na b: a#1.1"


def test_a_message_for_one_group_is_not_given_to_members_of_another() -> None:
    assert outcome_of(TWO + "enter a G H\nenter b H\nsettle\nstreams\ntell b G agreed\nsettle\nstreams").endswith("\na: b#1.1")


def test_to_enter_again_is_to_leave() -> None:
    assert outcome_of(TWO + "enter a G\nsettle\nstreams\nenter a G\nsettle\nstreams") == "a: G{a}\na: out of G"


def test_a_lost_member_leaves_a_transitional_view() -> None:
    assert outcome_of(TWO + "enter a G\nenter b G\nsettle\nstreams\ncrash b\nsettle\nstreams").endswith(
        "\na: G-transitional{a} G{a}"
    )


def test_groups_are_judged_too() -> None:
    player = Player()
    (block,) = parse_script(TWO + "enter a G\nenter b G\nsettle\ntell a G safe\nsettle\ncheck\n----\n")
    assert player.play(block).splitlines()[-1] == HELD
    assert player.cluster is not None
    verdicts = {name: verdict.verdict for name, verdict in player.cluster.check().verdicts.items()}
    assert {name for name, verdict in verdicts.items() if verdict == HELD} >= OF_GROUPS


@pytest.mark.parametrize(
    "commands",
    [
        "cluster a\nsettle\nenter a G",
        "cluster a clients=1\nsettle\nenter a G",
        "cluster a clients=1\nconnect a\nenter a G",
        "cluster a clients=1\nsettle\ntell a G agreed",
        "cluster a clients=1 later=a\nenter a G",
    ],
)
def test_who_has_no_process_yet_is_told_how_to_get_one(commands: str) -> None:
    with pytest.raises(ValueError, match="a has no process: give the cluster clients=1, `connect a`, and let time pass"):
        run_script(commands)
