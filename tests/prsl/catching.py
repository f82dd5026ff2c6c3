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

ENGINE_BY_EXAMPLE: Final = {
    "bits_never_set": "all_back_always",
    "yellow_skipped": "yellow_before_red",
    "lost_session_as_transition": "lost_session_is_no_transition",
    "records_without_set": "attempts_of_one_number",
    "nobody_vulnerable": "quorum_in_doubt",
    "green_leave_shrinks_any_primary": "leave_by_bulk_shrinks_no_older_primary",
    "yellow_leave_ignored": "yellow_leave_counts",
    "last_may_leave": "last_one_stays",
    "cleared_by_servers": "doubt_of_a_primary_that_shrank",
    "doubt_of_the_last_only": "doubt_of_who_was_not_in_the_last_primary",
    "not_safe": "green_is_with_everybody",
    "free_at_once": "removed_engine_goes_on_answering",
}
"""Defects that a worked example catches for sure."""

ENGINE_BY_SCHEDULE: Final = {
    "bits_never_set": 19,
    "nobody_vulnerable": 168,
    "cpc_before_sync": 0,
    "engine_reds_by_id": 0,
    "line_from_memory": 1,
    "line_of_all": 8,
    "any_half": 19,
    "engine_green_before_sync": 0,
    "engine_state_before_sync": 0,
}
"""Defects that schedules catch, each with a seed below 2,000 that does."""
