"""Client keys: a retry counts once (R25).

1. The last `keys_max` keys that ran are remembered with the offset where they did, in the order of offsets. That is part of the
   state behind each place: the same at all replicas, and in every snapshot, in its order.
2. What was dropped may still be retried. With the key goes `at`, an offset that was green when the caller first used it; a key
   that is not remembered and may be older than what was dropped (`at < evicted_to`) does not run. So a key runs at most once.
"""

from __future__ import annotations

from collections.abc import Iterable

from transis.prsl.outputs import Effect


class Keys:
    def __init__(self, known: Iterable[tuple[bytes, int]], evicted_to: int, keys_max: int) -> None:
        self._known = dict(known)
        self._max = keys_max
        self.evicted_to = evicted_to

    def __len__(self) -> int:
        return len(self._known)

    def known(self) -> tuple[tuple[bytes, int], ...]:
        return tuple(self._known.items())

    def use(self, key: bytes, at: int, offset: int) -> tuple[Effect, int]:
        """What an action with this key does at this offset, and where the key ran first."""
        first = self._known.get(key)
        if first is not None:
            return Effect.AGAIN, first
        if at < self.evicted_to:
            return Effect.TOO_LATE, 0
        self._known[key] = offset
        if len(self._known) > self._max:
            oldest = next(iter(self._known))
            self.evicted_to = self._known.pop(oldest) + 1
        return Effect.RUN, offset
