"""Who acts, on what, and whether they may. Values and the rule that holds by default; that it is asked is :mod:`.audit`'s affair.

The rule has two parts. The first always holds: an actor with a tenant sees and touches that tenant only. The second can be
replaced (setting ``authorize``), and is by default a ladder of roles:

=========  ====================================================================================
viewer     looks: lists, shows, explains, exports without arguments, reads the audit
operator   also repairs: cancels, settles, notes, resolves, replays and stops replays; rotates keys
admin      also what shows secrets or cannot be undone: reveals, edits, purges
=========  ====================================================================================

Whoever can type a command or import the app can reach the store as well: roles there are a guard-rail and a record, not a wall. The command
line's actor is an ``operator``, so that a repair at night needs no more than the command, and what is beyond repair needs ``--role admin`` typed.
A web front end makes an :class:`Actor` from who is logged in, and there the rule is a wall.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Action", "Actor", "Authorize", "Role", "Target", "by_role", "user_name"]


class Role(str, Enum):
    """What an actor may do by default; each may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    __str__ = str.__str__


class Action(str, Enum):
    """What an operator can do, as ``authorize`` and the audit name it."""

    JOBS_LOOK = "jobs.look"
    JOBS_REVEAL = "jobs.reveal"
    JOBS_CANCEL = "jobs.cancel"
    JOBS_SETTLE = "jobs.settle"
    DLQ_LOOK = "dlq.look"
    DLQ_EXPORT = "dlq.export"
    DLQ_NOTE = "dlq.note"
    DLQ_RESOLVE = "dlq.resolve"
    DLQ_PURGE = "dlq.purge"
    DLQ_REPLAY = "dlq.replay"
    DLQ_EDIT = "dlq.edit"
    REPLAY_PAUSE = "replay.pause"
    REPLAY_RESUME = "replay.resume"
    REPLAY_ABORT = "replay.abort"
    QUARANTINE_LOOK = "quarantine.look"
    QUARANTINE_REVEAL = "quarantine.reveal"
    QUARANTINE_RELEASE = "quarantine.release"
    QUARANTINE_DISCARD = "quarantine.discard"
    QUARANTINE_DRAIN = "quarantine.drain"
    AUDIT_LOOK = "audit.look"
    KEYS_LOOK = "keys.look"
    KEYS_ROTATE = "keys.rotate"

    __str__ = str.__str__


_ANYBODY = frozenset(
    {
        Action.JOBS_LOOK,
        Action.DLQ_LOOK,
        Action.DLQ_EXPORT,
        Action.QUARANTINE_LOOK,
        Action.AUDIT_LOOK,
        Action.KEYS_LOOK,
    }
)

_ADMINS = frozenset(
    {
        Action.JOBS_REVEAL,
        Action.QUARANTINE_REVEAL,
        Action.DLQ_EDIT,
        Action.DLQ_PURGE,
    }
)


def user_name() -> str:
    """The user of this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user in a container
        return f"uid {os.getuid()}"


def _here() -> str:
    return f"{user_name()}@{socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who acts, and from where.

    >>> Actor("ann", Role.VIEWER, tenant="acme", origin="admin site").may_see("other")
    False
    """

    name: str
    role: Role = Role.OPERATOR
    #: The one tenant that the actor sees and touches; None: all.
    tenant: str | None = None
    origin: str = field(default_factory=_here)

    def may_see(self, tenant: str | None) -> bool:
        """Whether something of this tenant is the actor's business."""
        return self.tenant is None or self.tenant == tenant


@dataclass(frozen=True, slots=True)
class Target:
    """On what: jobs by id, or those that a filter finds, or something else that has a name."""

    ids: tuple[str, ...] = ()
    #: The filter, by the names of its words: ``{"task": "shop.charge"}``.
    which: Mapping[str, str] = field(default_factory=dict)
    #: The one tenant that all of it belongs to, where that is so.
    tenant: str | None = None
    #: How many jobs it touches, where that is known.
    count: int | None = None
    #: Something that is no job: a replay, a cause, a message in quarantine.
    name: str = ""

    def __str__(self) -> str:
        parts = [self.name] if self.name else []
        parts += [f"{name}={value}" for name, value in self.which.items()]
        if self.tenant is not None and "tenant" not in self.which:
            parts.append(f"tenant={self.tenant}")
        if self.ids:
            shown = ", ".join(self.ids[:_SHOWN])
            parts.append(shown if len(self.ids) <= _SHOWN else f"{shown}, … ({len(self.ids)} in all)")
        if self.count is not None:
            parts.append(f"({self.count} jobs)")
        return " ".join(parts) or "everything"

    @property
    def job(self) -> str | None:
        """The one job that is meant, if it is one."""
        return self.ids[0] if len(self.ids) == 1 else None


#: How many ids a row of the audit names.
_SHOWN = 20

#: Says whether an actor may do something to a target. What it raises is a no, and goes up.
Authorize = Callable[[Actor, Action, Target], bool]

_LADDER = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


def needed(action: Action) -> Role:
    """The lowest role that may do something."""
    return Role.VIEWER if action in _ANYBODY else Role.ADMIN if action in _ADMINS else Role.OPERATOR


def by_role(actor: Actor, action: Action, target: Target) -> bool:
    """The rule by default: a ladder of roles."""
    return _LADDER.index(actor.role) >= _LADDER.index(needed(action))
