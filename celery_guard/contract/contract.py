"""What is declared about a task: ``Contract`` by a person, ``ReadOptions`` by Celery's options, ``Effective`` in the end.

:mod:`celery_guard.contract.resolve` makes the third out of the other two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, Literal, Union

from .measure import refuse
from .retry import Retry
from .timing import Timing

__all__ = ["UNSET", "Contract", "Effective", "Key", "ReadOptions", "Tenant", "Unset"]

#: What names one call among all calls of a task: an argument, several, a path into a mapping (``"order.id"``), or a
#: function of the call's arguments that returns a JSON value (None: this call has no key).
Key = Union[str, tuple[str, ...], Callable[..., Any]]

#: Whose job it is: an argument's name, or a function of the call's arguments that returns a text or None.
Tenant = Union[str, Callable[..., "str | None"]]


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What a task promises. What is left out is read from Celery's options, or has a safe default.

    >>> Contract(owner="payments", key="order_id", retry=Retry(max_attempts=6)).key
    'order_id'

    Raises:
        ContractError: a value makes no sense.
    """

    #: The team that is asked when a job of this task is dead.
    owner: str | None = None
    #: See :data:`Key`. None: the job is known by its id only.
    key: Key | None = None
    #: The arguments that a duplicate must repeat, for the same key to mean the same call. None: all.
    match: tuple[str, ...] | None = None
    #: See :data:`Tenant`. None: the argument ``tenant``, where the task has one.
    tenant: Tenant | None = None
    retry: Retry | None = None
    timing: Timing | None = None
    #: The job may be dropped, with a record, instead of becoming a dead letter.
    best_effort: bool = False
    #: An operator may send its dead letters again. False: its effects would be done a second time, and the letter is repaired by hand.
    replayable: bool = True
    #: Names that the task had before, oldest first: a worker runs what was sent under them. Keys are kept under the oldest name, so that a
    #: call which was made under the old name is known under the new one.
    aliases: tuple[str, ...] = ()
    #: Arguments whose values nobody may read, or paths into mappings and lists of them (``"customer.email"``): they are in no log, status,
    #: error text, listing, export, event or trace. Needs the setting ``key_secret``, with which keys are then made.
    sensitive: tuple[str, ...] = ()
    #: Arguments travel by name, bound by the sender's signature. Always so where the task takes a :class:`~celery_guard.Payload`.
    named: bool = False

    def __post_init__(self) -> None:
        owner: Any = self.owner
        if owner is not None and not (isinstance(owner, str) and owner.strip()):
            refuse("Contract.owner", self.owner, "the name of a team", "say who is asked, or leave it out")
        if not (self.key is None or callable(self.key)):
            _names("Contract.key", (self.key,) if isinstance(self.key, str) else self.key)
        if self.match is not None:
            _names("Contract.match", self.match)
            if self.key is None:
                refuse("Contract.match", self.match, "a `key` beside it", "duplicates are found by their key")
        if not (self.tenant is None or callable(self.tenant)):
            _names("Contract.tenant", (self.tenant,))
        for name, kind in (("retry", Retry), ("timing", Timing)):
            value = getattr(self, name)
            if not (value is None or isinstance(value, kind)):
                refuse(f"Contract.{name}", value, f"{kind.__name__}(...) or nothing", f"write {kind.__name__}(...)")
        for name in ("best_effort", "replayable", "named"):
            if not isinstance(getattr(self, name), bool):
                refuse(f"Contract.{name}", getattr(self, name), "True or False", "say which")
        if self.sensitive != ():
            _names("Contract.sensitive", self.sensitive)
        if self.aliases != ():
            _names("Contract.aliases", self.aliases)


class Unset(Enum):
    """Said by nobody, which is not the same as None."""

    UNSET = "unset"


UNSET: Literal[Unset.UNSET] = Unset.UNSET


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What Celery's own options declare about a task.

    A default of Celery's is no declaration: it stays ``UNSET``. Values are as Celery takes them (seconds as numbers).
    """

    autoretry_for: tuple[type[BaseException], ...] = ()
    dont_autoretry_for: tuple[type[BaseException], ...] = ()
    #: ``{"max_retries": 5, "countdown": 7}``
    retry_kwargs: Mapping[str, Any] | Unset = UNSET
    retry_backoff: bool | float | Unset = UNSET
    retry_backoff_max: float | Unset = UNSET
    retry_jitter: bool | Unset = UNSET
    max_retries: int | Unset | None = UNSET
    default_retry_delay: float | Unset = UNSET
    time_limit: float | Unset | None = UNSET
    soft_time_limit: float | Unset | None = UNSET
    expires: float | timedelta | Unset | None = UNSET
    reject_on_worker_lost: bool | Unset | None = UNSET


@dataclass(frozen=True, kw_only=True)
class Effective:
    """What holds for a task, everything filled in. The runtime uses this and nothing else."""

    task: str
    owner: str | None = None
    key: Key | None = None
    match: tuple[str, ...] | None = None
    tenant: Tenant | None = None
    retry: Retry = field(default_factory=Retry)
    timing: Timing = field(default_factory=Timing)
    best_effort: bool = False
    replayable: bool = True
    aliases: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    named: bool = False
    #: How often ``self.retry()`` may be called; None: as often as ``retry.within`` allows.
    explicit_retries: int | None = 3
    #: Somebody said how this task is retried, be it that it is not.
    retry_declared: bool = False

    @property
    def scope(self) -> str:
        """The name under which the task's keys are kept: the oldest that it had."""
        return self.aliases[0] if self.aliases else self.task


def _names(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, tuple) or not value:
        refuse(name, value, "names of arguments, as a tuple", "write ('a', 'b'), or leave it out")
    for entry in value:
        if not (isinstance(entry, str) and entry and all(entry.split("."))):
            refuse(name, entry, "the name of an argument, or a path such as 'order.id'", "correct the name")
    if len(set(value)) != len(value):
        refuse(name, ", ".join(value), "each name once", "remove the double one")
