"""The tree of errors.

    TransisError
    ├── ConfigError          a setting is wrong: names the field, the range or the relation, and what to do
    ├── UsageError           a call is wrong: an argument out of range, a call after stop
    │   └── MessageTooLarge
    ├── IdentityError        this name or state directory may not run here, with the remedy
    ├── TraceError           a trace file cannot be read, with the place
    ├── MissingExtra         something optional is not installed: says which extra to install
    └── InternalError        our bug: a broken invariant; the process must stop

Peers cannot raise: what arrives from the network becomes a packet or a counted `Rejection` (wire room).
"""

from __future__ import annotations


class TransisError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(TransisError):
    """A setting is wrong. The text names the field, what was given, what is allowed."""

    def __init__(self, field: str, given: object, allowed: str) -> None:
        super().__init__(f"{field} = {given!r}: {allowed}")
        self.field = field


class UsageError(TransisError):
    """A call is wrong."""


class MessageTooLarge(UsageError):
    """A message is larger than MESSAGE_MAX."""


class IdentityError(TransisError):
    """This name or state directory may not run here."""


class TraceError(TransisError):
    """A trace cannot be read."""


class MissingExtra(TransisError):
    """Something optional is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'transis[{extra}]'")


class InternalError(TransisError):
    """A broken invariant: our bug. The node stops rather than go on with a state nobody reasoned about."""
