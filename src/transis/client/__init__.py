"""What applications import: sessions with a node, groups as ordered streams, receipts (docs/client.md)."""

from transis.client.connection import Connection, connect
from transis.client.directory import GroupChange, Listing, Members, NameChange, Watch, Whereabouts
from transis.client.events import Batch, Codec, Configuration, Json, Message, MsgPack, Position, Raw, View
from transis.client.group import Group
from transis.client.sending import Confirmation, Receipt
from transis.client.session import Session
from transis.client.snapshot import Transfer

__all__ = [
    "Batch",
    "Codec",
    "Configuration",
    "Confirmation",
    "Connection",
    "Group",
    "GroupChange",
    "Json",
    "Listing",
    "Members",
    "Message",
    "MsgPack",
    "NameChange",
    "Position",
    "Raw",
    "Receipt",
    "Session",
    "Transfer",
    "View",
    "Watch",
    "Whereabouts",
    "connect",
]
