"""A limit on everything, each with its reason. Hitting one is a defined outcome, never a surprise."""

from __future__ import annotations

from typing import Final

MESSAGE_MAX: Final = 16 * 1024 * 1024
"""Bytes of one message. A sender has to split larger ones: one message must not occupy a ring for seconds."""

MEMBERS_MAX: Final = 128
"""Nodes of one configuration: ranks fit 16 bits easily, but a token visits every member on every rotation."""

NAME_MAX: Final = 64
"""Bytes of a node's name in UTF-8: 128 of them must travel in one commit token of few parts."""

ADDRESS_MAX: Final = 1024
"""Bytes of a run's address (groups it goes to), repeated in every run header."""

EVENT_US_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, in microseconds since 1970: beyond it there is no date to show."""

KEY_MAX: Final = 1024
"""Bytes of a message's key. A key names something; what it says belongs into the data."""

HEADERS_MAX: Final = 64
"""Headers of one message: every reader makes a dictionary of them."""

HEADERS_BYTES_MAX: Final = 8 * 1024
"""Bytes of a message's headers, names and values together, as most web servers allow: headers describe data, they are not it."""

NETWORK_ADDRESS_MAX: Final = 256
"""Bytes of the address at which a node is reached: several times the length of a numeric IPv6 address with scope and port."""

INFO_MAX: Final = 256
"""Bytes that a member may attach to itself in views."""

RUN_MESSAGES_MAX: Final = 4096
"""Messages of one run: bounds what one header makes a receiver set aside."""

DATAGRAM_MIN: Final = 512
"""Smallest UDP payload a configuration may choose: headers, seal and encapsulation must leave room for a body."""

DATAGRAM_MAX: Final = 65_000
"""Largest UDP payload (64 KB less IP and UDP headers, rounded down)."""

PARTS_MAX: Final = 256
"""Parts of one control packet: 128 members with relayed reachability stay far below it."""

RTR_RANGES_MAX: Final = 64
"""Ranges of retransmission requests on one token: the token stays one datagram of the smallest size allowed."""

PROC_SET_MAX: Final = 4 * MEMBERS_MAX
"""Nodes that one Gather may know of, failed ones included: what one Join can name."""

SEQ_JUMP_MAX: Final = 1 << 22
"""How far a datagram or a token may be ahead of what a node holds. Flow control keeps honest members far below it."""

RING_SEQ_MAX: Final = 1 << 61
"""Ring sequences above it are never adopted, and a node that is alone adopts only up to half of it: more rings must still fit."""

KNOWN_NAMES_MAX: Final = 4096
"""Names whose highest incarnation a node remembers, to tell a lost state directory from a restart."""

QUORUM_MAX: Final = 512
"""Names of a quorum list: more than a view has members, since a list may name nodes that are away."""

BURST_DATAGRAMS_MAX: Final = 256
"""Datagrams of one burst of Lansis: their index takes 8 bits of a place in its order."""

CLIENT_SHARE: Final = 40
"""Frames from clients, and frames to them, may each take this part of the token-loss or silence timeout in one turn of the node.
The rest waits until the node has read its sockets: a client that asks all it can must not make its node look dead."""

CLIENT_TURN_US_MAX: Final = 2_500
"""And never longer than this, however long the timeouts are: the token waits behind the clients of every node."""

VISIT_DATAGRAMS_MAX: Final = (1 << 16) - 1
"""Datagrams of one token visit: their index takes 16 bits."""

REPLICAS_MAX: Final = 4096
"""Replicas that a replication group ever had: its membership record, which every exchange tells, keeps all of them."""

ACTION_MESSAGES_MAX: Final = 4096
"""Messages of one action of a replica, as of one run: bounds what one header makes a receiver set aside."""

ACTION_BYTES_MAX: Final = 256 * 1024
"""Bytes of several messages in one action: one commit must not keep the disk for long. A larger message is alone in its own."""

DEPENDENCIES_MAX: Final = REPLICAS_MAX
"""Creators that an action of a replica depends on: each at most once."""

CHANGES_MAX: Final = 65_536
"""Changes of membership in the order of a replication group: exchanges tell which of them a prefix has."""

REDS_MAX: Final = 1 << 20
"""Actions that one replica may hold without a place, and told in an exchange. Posting is refused long before (bytes)."""

RETRANSMITTED_MAX: Final = 4096
"""Actions of one message of an exchange or of a catch-up; their bytes are bounded too."""

PENDING_MAX: Final = 4096
"""Actions that wait in a replica's memory for what they depend on. What finds no room is told again in the next view."""
