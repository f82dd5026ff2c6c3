"""What an application imports: sessions with a node, groups as ordered streams, receipts; docs/client.md shows how."""

from transis.client.codecs import Codec, Json, MsgPack, Raw
from transis.client.connection import Connection, connect
from transis.client.events import Batch, Configuration, Message, View
from transis.client.group import Group
from transis.client.positions import Position
from transis.client.providing import Transfer
from transis.client.receipts import Receipt
from transis.client.session import Session

__all__ = [
    "Batch",
    "Codec",
    "Configuration",
    "Connection",
    "Group",
    "Json",
    "Message",
    "MsgPack",
    "Position",
    "Raw",
    "Receipt",
    "Session",
    "Transfer",
    "View",
    "connect",
]
