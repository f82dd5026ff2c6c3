"""Ctrl-C while something begins that must not be left half begun: it counts, a little later."""

from __future__ import annotations

import signal
import threading


class HeldBack:
    """Interrupts are held back from here until `let_through`, which must follow whatever happens.

    Only the main thread is ever interrupted, so in any other there is nothing to hold back.
    """

    def __init__(self) -> None:
        self._came = self._lets_through = False
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, lambda _number, _frame: self._note())
        else:
            self._lets_through = True

    def _note(self) -> None:
        self._came = True

    def let_through(self) -> None:
        """What Ctrl-C did before it does again, at once if there was one."""
        if self._lets_through:
            return
        self._lets_through = True
        signal.signal(signal.SIGINT, self._before)
        if self._came:
            signal.raise_signal(signal.SIGINT)
