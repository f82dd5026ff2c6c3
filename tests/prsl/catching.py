"""Which defect of a replica is caught by what: a worked example, or a schedule on an abstract group."""

from __future__ import annotations

from typing import Final

BY_EXAMPLE: Final = {
    "minimum": "longest_order_decides",
    "one_attempt": "attempt_of_a_majority",
    "adopted_before_content": "content_comes_first",
    "yellow_in_transition": "yellow_in_the_regular_view_only",
    "incomplete_red": "answer_not_before_its_question",
    "lines_not_capped": "line_ends_with_its_view",
    "primary_with_part": "half_an_order_has_no_vote",
    "sequence_by_what_is_held": "snapshot_runs_ahead",
    "gone_at_once": "removed_goes_on_answering",
    "green_never_beyond": "green_beyond_yellow",
    "nothing_held_back": "dead_newcomer_blocks_nobody",
}
"""Defects that a worked example catches for sure; schedules meet most of them hardly ever."""

BY_SCHEDULE: Final = {
    "ack_before_sync": 2,
    "attempt_before_sync": 0,
    "state_before_sync": 0,
    "minimum": 225,
    "green_before_sync": 0,
    "reds_by_id": 0,
    "half_is_a_majority": 36,
    "last_record_alone": 68,
    "hung_stays": 737,
    "others_by_what_is_held": 5,
    "trimmed_in_exchange": 822,
    "keys_without_horizon": 8,
    "keys_without_order": 663,
    "other_views_count": 22,
    "own_in_the_log_at_once": 2,
}
"""Defects that schedules catch, each with a seed below 2,000 that does."""
