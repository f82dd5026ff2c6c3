"""Bytes <-> packets: envelope and seal, headers, bursts, runs and their packing, control packets and their parts.

Rules of the room: a decoder answers any bytes at all with a packet or a `Rejection`, never with an exception, and never
allocates memory because a peer *claims* a length. What leaves a decoder has been checked and may be trusted.
"""
