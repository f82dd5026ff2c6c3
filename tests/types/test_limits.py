"""Limits fit together, and into the fields that carry them: what one allows, another must not make impossible."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from transis.groups.messages import KNOWN_LISTS_MAX
from transis.lansis.dag import DATAGRAM_BITS, RANK_BITS
from transis.totem.packets import NOBODY, TOKEN_SIZE_MAX
from transis.types import limits
from transis.types.config import LOCAL, Config
from transis.types.limits import (
    ACTION_BYTES_MAX,
    ACTION_MESSAGES_MAX,
    ADDRESS_MAX,
    BURST_DATAGRAMS_MAX,
    CHANGES_MAX,
    CLIENT_SHARE,
    CLIENT_TURN_US_MAX,
    DATAGRAM_MAX,
    DATAGRAM_MIN,
    DEPENDENCIES_MAX,
    EVENT_US_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    INFO_MAX,
    KEY_MAX,
    KNOWN_NAMES_MAX,
    MEMBERS_MAX,
    MESSAGE_MAX,
    NAME_MAX,
    NETWORK_ADDRESS_MAX,
    PARTS_MAX,
    PENDING_MAX,
    PROC_SET_MAX,
    QUORUM_MAX,
    REDS_MAX,
    REPLICAS_MAX,
    RETRANSMITTED_MAX,
    RING_SEQ_MAX,
    RTR_RANGES_MAX,
    RUN_MESSAGES_MAX,
    SEQ_JUMP_MAX,
    VISIT_DATAGRAMS_MAX,
)
from transis.wire.burst import COUNTER_MAX, body_max
from transis.wire.control import CONTROL_MAX
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE
from transis.wire.items import RUN_HEAD_SIZE

U8, U16, U24, U32 = ((1 << bits) - 1 for bits in (8, 16, 24, 32))
DEFAULT = Config("a")
ABOUT_A_MEMBER = ("NAME_MAX", "NETWORK_ADDRESS_MAX", "INFO_MAX")
ABOUT_ALL = MEMBERS_MAX * (NAME_MAX + NETWORK_ADDRESS_MAX + INFO_MAX)
ATTRIBUTES = ("KEY_MAX", "HEADERS_MAX", "HEADERS_BYTES_MAX")
ALL_ATTRIBUTES = KEY_MAX + HEADERS_BYTES_MAX + 10 * HEADERS_MAX + 32
"""Encoded: a header takes up to 10 bytes beside its name and value, and the array, the key's length and the time what is left."""
IP_AND_UDP = 48
"""Bytes of their headers, with IPv6."""

FITS = [
    ("MESSAGE_MAX", MESSAGE_MAX + ADDRESS_MAX, U32, "fragments count a message and its address in 32 bits"),
    ("MEMBERS_MAX", MEMBERS_MAX, 1 << RANK_BITS, "an order key has so many bits for a rank"),
    ("MEMBERS_MAX", MEMBERS_MAX, NOBODY, "a rank on the token is never the one that means nobody"),
    *((name, ABOUT_ALL, CONTROL_MAX, "a commit token says all about every member") for name in ABOUT_A_MEMBER),
    ("ADDRESS_MAX", RUN_HEAD_SIZE + ADDRESS_MAX, body_max(DEFAULT.datagram) - 1, "a run begins in one datagram of default size"),
    ("ADDRESS_MAX", ADDRESS_MAX, U16, "a run counts its address in 16 bits"),
    *((name, ALL_ATTRIBUTES, U16, "a payload counts the bytes of its attributes in 16 bits") for name in ATTRIBUTES),
    ("EVENT_US_MAX", EVENT_US_MAX, (datetime.max - datetime(1970, 1, 1)) // timedelta(microseconds=1), "every time is a date"),
    ("RUN_MESSAGES_MAX", RUN_MESSAGES_MAX, U16, "a run counts its messages in 16 bits"),
    ("DATAGRAM_MIN", TOKEN_SIZE_MAX + ENVELOPE_SIZE + SEAL_SIZE, DATAGRAM_MIN, "a full token is one datagram of any size"),
    ("DATAGRAM_MIN", RUN_HEAD_SIZE, body_max(DATAGRAM_MIN) - 1, "the smallest datagram has room for a run"),
    ("DATAGRAM_MAX", DATAGRAM_MAX + IP_AND_UDP, U16, "the largest datagram is a UDP datagram"),
    ("PARTS_MAX", CONTROL_MAX, PARTS_MAX * body_max(DEFAULT.datagram), "the largest control packet travels in parts"),
    ("RTR_RANGES_MAX", RTR_RANGES_MAX, U8, "the token counts its ranges in 8 bits"),
    ("PROC_SET_MAX", 2 * MEMBERS_MAX, PROC_SET_MAX, "two full views that meet are named in one Join"),
    ("SEQ_JUMP_MAX", SEQ_JUMP_MAX, U24, "a range on the token lies within 24 bits of seq"),
    ("SEQ_JUMP_MAX", DEFAULT.window.gap_max, SEQ_JUMP_MAX, "what flow control allows is never too far ahead"),
    ("RING_SEQ_MAX", 2 * RING_SEQ_MAX, COUNTER_MAX + 1, "beyond the last ring that is taken there are numbers for more"),
    ("KNOWN_NAMES_MAX", PROC_SET_MAX, KNOWN_NAMES_MAX, "everybody in one Gather is remembered"),
    ("QUORUM_MAX", MEMBERS_MAX, QUORUM_MAX, "everybody in the largest view may count"),
    (
        "QUORUM_MAX",
        2 * QUORUM_MAX * NAME_MAX * (1 + KNOWN_LISTS_MAX),
        MESSAGE_MAX,
        "all lists of a node are one message",
    ),
    ("CLIENT_SHARE", 2 * 20, CLIENT_SHARE, "clients, heard and told, take at most a twentieth of the time to suspicion"),
    ("CLIENT_TURN_US_MAX", CLIENT_TURN_US_MAX, LOCAL.token_loss_us // CLIENT_SHARE, "no more than on a machine of many nodes"),
    ("BURST_DATAGRAMS_MAX", BURST_DATAGRAMS_MAX, 1 << DATAGRAM_BITS, "a place has so many bits for a datagram of a burst"),
    ("REPLICAS_MAX", 64 * REPLICAS_MAX, MESSAGE_MAX, "an exchange tells the membership record in one message"),
    ("DEPENDENCIES_MAX", REPLICAS_MAX, DEPENDENCIES_MAX, "an action may depend on every replica there ever was"),
    ("ACTION_MESSAGES_MAX", ACTION_MESSAGES_MAX, RUN_MESSAGES_MAX, "what is posted in one piece is one run of the session"),
    ("ACTION_BYTES_MAX", ACTION_BYTES_MAX, MESSAGE_MAX, "an action is one message of the group"),
    ("CHANGES_MAX", 2 * REPLICAS_MAX, CHANGES_MAX, "every replica there ever was came and went"),
    ("REDS_MAX", 8 * REDS_MAX, MESSAGE_MAX, "a STATE tells its red actions in one message, in ranges"),
    ("RETRANSMITTED_MAX", RETRANSMITTED_MAX, RUN_MESSAGES_MAX, "what is sent again at a time is one run"),
    ("PENDING_MAX", PENDING_MAX, REDS_MAX, "what waits for its dependencies becomes red with all others"),
    ("VISIT_DATAGRAMS_MAX", VISIT_DATAGRAMS_MAX, U16, "a datagram's index has 16 bits"),
]


@pytest.mark.parametrize(("limit", "needed", "available", "why"), FITS, ids=lambda value: str(value).replace(" ", "_"))
def test_limit_fits(limit: str, needed: int, available: int, why: str) -> None:
    assert 0 < needed <= available, f"{limit}: {why}"


def test_every_limit_has_its_reason_here() -> None:
    assert {name for name in vars(limits) if name.isupper()} == {limit for limit, *_ in FITS}
