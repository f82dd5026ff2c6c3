"""Deliveries of a trace, thousands at a time: most events are deliveries, so they become columns without an object each.

Ids are looked up by their bytes as they stand in the trace: the same few views and processes come again and again, and a look
into a dictionary costs a tenth of decoding an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from transis.pipeline.keys import Keys
from transis.types.errors import TraceError
from transis.types.ids import ProcessId, Service, ViewId

Array = NDArray[Any]

Raw = msgspec.Raw
Fields = tuple[int, int, Raw, Raw, Raw, int, int, int, bytes, tuple[int, int], int, int, int, int]
"""The fields of trace.events.Delivery; ids are left as they are."""
_DECODER: Final = msgspec.msgpack.Decoder(list[Fields])
_ARRAY: Final = Struct(">BI")
_SERVICES: Final = frozenset(int(service) for service in Service)


class Deliveries:
    """The columns of some deliveries, in their order. Bytes that are no deliveries are a TraceError."""

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
        """Named as in KINDS; of addresses 0 is none."""
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
