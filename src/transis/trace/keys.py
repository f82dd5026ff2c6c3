"""Native ids as 64-bit keys, and deliveries as columns of keys.

A key is the same in every process, so that no table must be read to assign it. Two ids get one key with a probability of about
2^-64 a pair; the tables of names would show it, for a key then has two names. A key has the run in it: nothing of two runs can be
joined by mistake.

Most events are deliveries, so they become columns thousands at a time, without an object each. Ids are looked up by their bytes
as they stand in the trace: the same few views and processes come again and again, and a look into a dictionary costs a tenth of
decoding an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise
from struct import Struct
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from transis.types.errors import TraceError
from transis.types.ids import NodeId, ProcessId, Service, ViewId
from transis.types.views import GroupId, GroupViewId

# --- keys -------------------------------------------------------------------------------------------------------------

_SIGNED: Final = Struct(">q")


def key_of(*parts: object) -> int:
    """A signed 64-bit number, as Spark's BIGINT."""
    return int(_SIGNED.unpack(blake2b(msgspec.msgpack.encode(parts), digest_size=8).digest())[0])


class Keys:
    """Keys of one run; each id is hashed once, then remembered."""

    def __init__(self, cluster: str, run: str) -> None:
        self.run = key_of("run", cluster, run)
        self.nodes: dict[NodeId, int] = {}
        self.processes: dict[ProcessId, int] = {}
        self.views: dict[ViewId, int] = {}
        self.addresses: dict[bytes, int] = {}
        self.group_views: dict[tuple[GroupId, GroupViewId], int] = {}

    def node(self, node: NodeId) -> int:
        found = self.nodes.get(node)
        if found is None:
            found = self.nodes[node] = key_of(self.run, "node", node)
        return found

    def process(self, process: ProcessId) -> int:
        found = self.processes.get(process)
        if found is None:
            self.node(process.node)
            found = self.processes[process] = key_of(self.run, "process", process)
        return found

    def view(self, view: ViewId) -> int:
        found = self.views.get(view)
        if found is None:
            self.node(view.rep)
            found = self.views[view] = key_of(self.run, "view", view)
        return found

    def address(self, address: bytes) -> int | None:
        """None for messages that are addressed to nobody in particular: the ring's own."""
        if not address:
            return None
        found = self.addresses.get(address)
        if found is None:
            found = self.addresses[address] = key_of(self.run, "address", address)
        return found

    def group(self, group: GroupId) -> int:
        """A group's id is a hash already; return it as a signed number."""
        return group - (1 << 64) if group >= 1 << 63 else int(group)

    def group_view(self, group: GroupId, view: GroupViewId) -> int:
        named = (group, view)
        found = self.group_views.get(named)
        if found is None:
            self.view(view.configuration)
            found = self.group_views[named] = key_of(self.run, "group view", group, view)
        return found


# --- deliveries -------------------------------------------------------------------------------------------------------

Array = NDArray[Any]

Raw = msgspec.Raw
Fields = tuple[int, int, Raw, Raw, Raw, int, int, int, bytes, tuple[int, int], int, int, int, int]
"""The fields of trace.events.Delivery; ids are left as they are."""
_DECODER: Final = msgspec.msgpack.Decoder(list[Fields])
_ARRAY: Final = Struct(">BI")
_SERVICES: Final = frozenset(int(service) for service in Service)


class DeliveryColumns:
    """The columns of some deliveries, in order. Bytes that are not deliveries raise TraceError."""

    def __init__(self, rows: Sequence[Raw], lookup: Lookup) -> None:
        try:
            decoded = _DECODER.decode(_ARRAY.pack(0xDD, len(rows)) + b"".join(rows))
            self.columns = lookup.columns(decoded)
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:
            raise TraceError(f"no batch of events: {error}") from error

    def extents(self, conf_no: Array) -> Iterable[tuple[int, int, int, int]]:
        """How far the order reaches in each stretch: its number, first position, end, and how many are in it."""
        ordered = self.columns["tpos"] >= 0
        tpos, count, stretch = self.columns["tpos"][ordered], self.columns["count"][ordered], conf_no[ordered]
        bounds = [*np.flatnonzero(np.diff(stretch, prepend=-1)), len(stretch)]
        for start, end in pairwise(bounds):
            last = end - 1
            yield int(stretch[start]), int(tpos[start]), int(tpos[last] + count[last]), int(count[start:end].sum())


class Lookup:
    """Keys of one segment by the bytes of ids."""

    def __init__(self, keys: Keys) -> None:
        self._views = _Known(ViewId, keys.view)
        self._processes = _Known(ProcessId, keys.process)
        self._senders = _Known(ProcessId, lambda process: keys.node(process.node))
        self._address = keys.address
        self._addresses: dict[bytes, int] = {}

    def columns(self, rows: list[Fields]) -> dict[str, Array]:
        """Columns named as in tables.KINDS; an address of 0 means none."""
        fields = zip(*rows, strict=True) if rows else iter([()] * 14)
        lseq, time_us, conf, regular, process, first, count, service, address, place, tpos, origin_us, timestamp, size = fields
        if not _SERVICES.issuperset(service):
            raise ValueError("a service that there is not")
        processes = list(map(bytes, process))
        seq, index = zip(*place, strict=True) if place else ((), ())
        longs = {
            "lseq": lseq, "time_us": time_us,
            "conf": map(self._views.__getitem__, map(bytes, conf)), "regular": map(self._views.__getitem__, map(bytes, regular)),
            "sender": map(self._senders.__getitem__, processes), "process": map(self._processes.__getitem__, processes),
            "first": first, "address": map(self._addressed(address).__getitem__, address),
            "place_seq": seq, "tpos": tpos, "origin_us": origin_us, "timestamp": timestamp, "size": size,
        }  # fmt: skip
        found = {name: np.fromiter(values, np.int64, len(rows)) for name, values in longs.items()}
        small = {"count": np.fromiter(count, np.int32, len(rows)), "place_index": np.fromiter(index, np.int32, len(rows))}
        return {**found, **small, "service": np.fromiter(service, np.int8, len(rows))}

    def _addressed(self, addresses: Iterable[bytes]) -> dict[bytes, int]:
        for address in set(addresses).difference(self._addresses):
            self._addresses[address] = self._address(address) or 0
        return self._addresses


class _Known(dict[bytes, int]):
    """Keys by encoded ids; one that is new is decoded, with all its types checked."""

    def __init__(self, kind: type[Any], key: Callable[[Any], int]) -> None:
        super().__init__()
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._key = key

    def __missing__(self, encoded: bytes) -> int:
        found = self[encoded] = self._key(self._decoder.decode(encoded))
        return found
