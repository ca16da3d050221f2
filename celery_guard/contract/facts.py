"""An app as the checks see it, and what a check has to say: values without any rule.

:mod:`celery_guard.integrations.celery.facts` reads the facts, :mod:`celery_guard.contract.unsafe` judges them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from .contract import Effective

__all__ = ["AppFacts", "Finding", "Severity", "TaskFacts"]


class Severity(str, Enum):
    """How much a finding matters. Ordered by :attr:`rank`."""

    #: Worth knowing; nothing has to be done.
    INFO = "info"
    #: A job may be lost, doubled or stuck in a case that will come.
    WARNING = "warning"
    #: Must not run like this.
    ERROR = "error"

    __str__ = str.__str__

    @property
    def rank(self) -> int:
        """0 is the mildest."""
        return ("info", "warning", "error").index(self.value)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is unsafe: what was found, why it matters, and what to do."""

    code: str
    severity: Severity
    found: str
    why: str
    fix: str
    #: The tasks it is about, all of them; empty where it is about the app.
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """One registered task, as a worker would run it."""

    name: str
    guarded: bool
    #: What holds; None where the task has no guard.
    contract: Effective | None = None
    acks_late: bool = False
    reject_on_worker_lost: bool = False
    acks_on_timeout: bool = True
    #: The hard and the soft limit of one attempt, wherever they were declared.
    limit: timedelta | None = None
    soft: timedelta | None = None
    serializer: str = "json"
    #: Attributes that hold a contract which nobody reads.
    unread: tuple[str, ...] = ()
    #: Failures that the contract names, and that are not there.
    unknown_failures: tuple[str, ...] = ()

    @property
    def own(self) -> bool:
        """The user's, rather than one that Celery brings along."""
        return not self.name.startswith("celery.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFacts:
    """An app, its worker's pool and its store."""

    tasks: Sequence[TaskFacts] = ()
    #: ``prefork``, ``threads``, ``solo``, ``gevent``, ``eventlet``, or another's name.
    pool: str = "prefork"
    broker: str = ""
    #: After how long the broker delivers an unacknowledged message again; None where it watches the connection instead.
    visibility_timeout: timedelta | None = None
    #: Serializers that are accepted or written app-wide, by setting.
    serializers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    always_eager: bool = False
    result_backend: str = ""
    counts_chords_by_increment: bool = False
    #: The store's URL without its password.
    store: str = ""
    #: The app is a Django project's, and the store is none of Django's databases.
    beside_django: bool = False
    #: What the store cannot keep, by guarantee.
    limits: Mapping[str, str] = field(default_factory=dict)
    #: How the store's server is set, in its own words; None for what it does not say; empty where it has nothing to say.
    server: Mapping[str, str | None] = field(default_factory=dict)
    relay: bool = True
    #: There are keys; and they are used.
    has_keys: bool = False
    encrypts: bool = False

    @property
    def guarded(self) -> list[TaskFacts]:
        """The user's guarded tasks."""
        return [task for task in self.tasks if task.guarded and task.own]
