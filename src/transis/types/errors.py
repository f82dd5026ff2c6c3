"""The tree of errors, and Rejection, which is returned and never raised.

    TransisError
    ├── ConfigError          a setting is wrong: names the field, the range or the relation, and what to do
    ├── UsageError           a call is wrong: an argument out of range, a call after stop
    │   ├── MessageTooLarge
    │   └── ForkedError      a node or session of the parent was used in a child that was forked from it
    ├── IdentityError        this name or state directory may not run here, with the remedy
    ├── TraceError           a trace file cannot be read, with the place
    │   └── TraceCutOff      it ends before its header does: its writer was killed there
    ├── ArchiveError         an archive cannot be written, or one of its files cannot be read: says what to do
    ├── PipelineError        the pipeline cannot run or go on, with the reason and where Spark's log is
    ├── MissingExtra         something optional is not installed: says which extra to install
    ├── ConnectError         no session could be opened: says where a node was looked for, and how to start one
    ├── SessionLost          the node behind a session is gone or closed it: says which and why; connect again
    │   └── SlowConsumer     the node closed it because this client did not read its messages
    ├── NodeLost             the node embedded in this program is gone: says why
    ├── JoinRefused          a group could not be joined, or the process was removed from it
    ├── UnknownName          no process that can be reached has this name, or the process's node is gone
    ├── SendRefused          messages were not sent and will not be
    ├── NoQuorum             nothing is sent here before enough nodes are together: says how many, who is here, who is missing
    ├── InDoubt              nobody knows whether messages were sent: the session was lost first
    ├── CodecError           a message cannot be decoded: names its sender and id
    ├── TransferError        the state of a group could not be obtained
    │   └── TransferInterrupted   raised inside `load`: the provider is gone, another one will be asked
    ├── ReplicaError         a replica cannot be opened, or takes part no more: says why and what to do
    │   └── StoreError       its directory cannot be used
    ├── PostRefused          messages were not posted, or will never be ordered: says why
    ├── ActionFailed         an action of a replicated object could not be run, or its error cannot be shown as it was
    ├── NotYet               it is not ordered (or stable) yet, and stays posted: `receipt` tells what becomes of it
    │   └── NoPrimary        no majority of the replicas is together: says who is missing
    └── InternalError        our bug: a broken invariant; the process must stop

Peers cannot raise: what arrives from the network becomes a packet or a `Rejection`, which is counted by its field.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Final, NamedTuple

# --- what the system refused ------------------------------------------------------------------------------------------

REMEDIES: Final = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space, or have the quota raised",
    errno.EMFILE: "raise this process's limit of open files (ulimit -n, or LimitNOFILE in the unit)",
    errno.ENFILE: "this machine has too many open files: raise fs.file-max, or find the process that has them",
    errno.EISDIR: "a directory stands where a file belongs: move it away",
    errno.EFBIG: "raise this process's limit of file sizes (ulimit -f, or LimitFSIZE in the unit)",
    errno.EROFS: "that disk cannot be written to: mount it for writing, or choose another directory",
    errno.EACCES: "give this user the right to do so",
    errno.EIO: "the disk may be failing: look at the system's log",
}


def plainly(error: BaseException) -> str:
    """The error in words for people. If the system refused something: where, in the system's words, and what to do about it."""
    if not isinstance(error, OSError) or not error.errno:
        return str(error)
    words = (os.fsdecode(error.filename) if error.filename else "", os.strerror(error.errno), REMEDIES.get(error.errno, ""))
    return ": ".join(filter(None, words))


# --- errors -----------------------------------------------------------------------------------------------------------


class TransisError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(TransisError):
    """A setting is wrong. The text names the field, what was given, what is allowed."""

    def __init__(self, field: str, given: object, allowed: str) -> None:
        found = "is not set" if given is None else f"= {given!r}"
        super().__init__(f"{field} {found}: {allowed}")
        self.field = field


class UsageError(TransisError):
    """A call is wrong."""


class MessageTooLarge(UsageError):
    """A message is larger than MESSAGE_MAX."""


class ForkedError(UsageError):
    """What belongs to the parent was used in a process that was forked from it."""


class IdentityError(TransisError):
    """This name or state directory may not run here."""


class TraceError(TransisError):
    """A trace cannot be read."""


class TraceCutOff(TraceError):
    """A trace file ends before its header does: its node was killed between creating the file and writing into it."""


class ArchiveError(TransisError):
    """An archive cannot be written or read."""


class PipelineError(TransisError):
    """The pipeline cannot run or go on."""


class MissingExtra(TransisError):
    """Something optional is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'transis[{extra}]'")


class ConnectError(TransisError):
    """No session could be opened."""


class SessionLost(TransisError):
    """The session is over, and not because this program closed it."""


class SlowConsumer(SessionLost):
    """The node closed the session: too much was waiting for this client, for too long."""


class NodeLost(TransisError):
    """The node embedded in this program has ended, and not because the program left."""


class JoinRefused(TransisError):
    """This process is not in the group."""


class UnknownName(TransisError):
    """No process that can be reached has this name, or its node cannot be reached."""


class SendRefused(TransisError):
    """The messages were not sent and will not be."""


class NoQuorum(TransisError):
    """Nothing was sent: this component has no quorum, and the cluster does not go on without one. Try again when there is one."""


class InDoubt(TransisError):
    """The messages may have been sent or not. docs/client.md says how to send them again safely."""


class CodecError(TransisError):
    """A message cannot be decoded; the iteration continues after it."""


class TransferError(TransisError):
    """The state of a group could not be obtained."""


class TransferInterrupted(TransferError):
    """Discard what was loaded so far: `load` will be called again with the state from the beginning."""


class ReplicaError(TransisError):
    """A replica cannot be opened, or takes part no more."""


class StoreError(ReplicaError):
    """A replica's directory cannot be used: says which, why, and what to do."""


class PostRefused(TransisError):
    """The messages were not posted, or will never be ordered."""


class ActionFailed(TransisError):
    """An action of a replicated object could not be run: the same at every replica."""


class NotYet(TransisError):
    """The time is over, and nothing is lost: what was posted stays posted. `receipt` tells what becomes of it."""

    def __init__(self, why: str, receipt: Any = None) -> None:
        super().__init__(why)
        self.receipt: Any = receipt


class NoPrimary(NotYet):
    """The time is over, and no majority of the replicas is together here."""


class InternalError(TransisError):
    """A broken invariant: our bug. The node stops rather than go on in a state that nobody has reasoned about."""


# --- rejection --------------------------------------------------------------------------------------------------------


class Rejection(NamedTuple):
    """`field` names what was wrong, as one of a few fixed words, so that it can label a counter; `why` is for people."""

    field: str
    why: str
