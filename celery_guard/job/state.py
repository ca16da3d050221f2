"""The states of a job and the legal moves between them.

A job is one row. Its state says where it is; ``reason`` says why it waits or how it ended::

          enqueue (caller's transaction)
               v
            pending <------------- retry, lost, interrupted, replay ----------.
               | relay publishes                                              |
               v                                                              |
             sent ---- claim: fence+1, owner, lease, attempts+1 --> running --+
                                                                       |-- succeeded
                                                                       |-- dead
                                                                       |-- cancelled
                                                                       '-- unknown -> succeeded | dead | pending

``due`` is the one instant at which somebody has to look at the row again; the state says who, and what for:

=================  ==========================================================================
pending            the relay publishes it
sent               the sweep asks whether the message was lost
running            the lease ends; the sweep takes the job from its owner
ended, untold      the sweep has Celery told again
ended, told        nothing: ``due`` is NULL and the row leaves the index
=================  ==========================================================================

Three invariants hold at every moment, whoever dies:

1. Every move is one conditional update. A move that changed no row did not happen, and its caller is told so.
2. Only a claim (and a replay) raises the fence, and only the holder of (fence, owner) may settle. So of two attempts that both
   believe they own the job, at most one can write its end::

       A: claim -> fence 7        (paused)                     settle(7, A) -> refused
       B:            lease lapses; sweep: pending; claim -> fence 8; settle(8, B) -> written

   An owner whose lease lapsed, but after whom nobody claimed, may still settle: the fence is still its own.
3. ``succeeded`` is never replaced.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["ENDED", "HOLDS_KEY", "LEGAL", "STANDING", "Kind", "Reason", "State"]


class State(str, Enum):
    """Where a job is."""

    PENDING = "pending"
    SENT = "sent"
    RUNNING = "running"
    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    DEAD = "dead"
    RESOLVED = "resolved"
    DROPPED = "dropped"

    __str__ = str.__str__


class Kind(str, Enum):
    """What a row is: a guarded job, or a message of a task without a guard that only travels with the transaction."""

    RUN = "run"
    CARRIED = "carried"

    __str__ = str.__str__


class Reason(str, Enum):
    """Why a job waits (``pending``), or how it came to its end (``dead``, ``dropped``)."""

    # why it waits
    NEW = "new"
    RETRY = "retry"
    LOST = "lost"
    INTERRUPTED = "interrupted"
    REPLAY = "replay"
    REPLACED = "replaced"
    HANDED_OVER = "handed_over"
    HELD_KEY = "held_key"
    HELD_LIMIT = "held_limit"
    HELD_BRAKE = "held_brake"
    HELD_VERSION = "held_version"
    HELD_ENCRYPTION = "held_encryption"
    # how it ended
    FAILED = "failed"
    EXHAUSTED = "exhausted"
    CRASHED = "crashed"
    TIME_LIMIT = "time_limit"
    EXPIRED = "expired"
    REJECTED = "rejected"
    IGNORED = "ignored"
    UNPUBLISHABLE = "unpublishable"
    UNKNOWN_TASK = "unknown_task"
    NEVER_CLAIMED = "never_claimed"
    HOLDER_ENDED = "holder_ended"
    SNAPSHOT_EXPIRED = "snapshot_expired"

    __str__ = str.__str__


#: States from which a job does not move by itself.
ENDED = frozenset({State.SUCCEEDED, State.CANCELLED, State.DEAD, State.RESOLVED, State.DROPPED})

#: States of jobs that somebody has, or may have, something to do with: few, however many are kept.
STANDING = frozenset(State) - {State.SUCCEEDED, State.CANCELLED}

#: States in which a job keeps its key from others.
HOLDS_KEY = frozenset({State.PENDING, State.SENT, State.RUNNING, State.UNKNOWN, State.SUCCEEDED})

#: Every legal move, and who makes it. Anything else is a bug; the conformance tests watch the databases for it.
LEGAL: dict[tuple[State, State], str] = {
    (State.PENDING, State.SENT): "relay",
    (State.PENDING, State.RUNNING): "claim",
    (State.PENDING, State.PENDING): "relay; settle, late and uncontested",
    (State.PENDING, State.DEAD): "relay; settle, late and uncontested",
    (State.PENDING, State.DROPPED): "relay",
    (State.PENDING, State.CANCELLED): "cancel; settle, late and uncontested",
    (State.PENDING, State.SUCCEEDED): "settle, late and uncontested; or a carried message that was published",
    (State.SENT, State.RUNNING): "claim",
    (State.SENT, State.PENDING): "sweep; settle, late and uncontested",
    (State.SENT, State.DEAD): "sweep; settle, late and uncontested",
    (State.SENT, State.DROPPED): "sweep",
    (State.SENT, State.CANCELLED): "cancel; settle, late and uncontested",
    (State.SENT, State.SUCCEEDED): "settle, late and uncontested",
    (State.RUNNING, State.SUCCEEDED): "settle",
    (State.RUNNING, State.DEAD): "settle, sweep",
    (State.RUNNING, State.DROPPED): "settle, sweep",
    (State.RUNNING, State.CANCELLED): "settle, sweep",
    (State.RUNNING, State.UNKNOWN): "settle, sweep",
    (State.RUNNING, State.PENDING): "settle, sweep",
    (State.UNKNOWN, State.SUCCEEDED): "a person, or a reconciler",
    (State.UNKNOWN, State.DEAD): "a person, or a reconciler",
    (State.UNKNOWN, State.PENDING): "a person, or a reconciler",
    (State.SUCCEEDED, State.RUNNING): "claim, of a carried message whose task has a guard where it arrives",
    (State.DEAD, State.PENDING): "replay",
    (State.DEAD, State.RESOLVED): "a person, with a reason",
}
