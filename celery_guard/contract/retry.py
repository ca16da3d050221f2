"""When a failed attempt is repeated, how often, and after how long.

The delay before retry ``n`` (0 is the first) is full jitter under a cap: uniform between nothing and
``min(cap, base * 2**n)``. Clients that failed together do not come back together. A hint of the server
(``Retry-After``) is a floor: the jitter comes on top of it, and the cap holds for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Union

from .backoff import Backoff
from .measure import refuse, seconds, span, whole

__all__ = ["Failures", "Retry"]

#: Exception classes, or their dotted names where importing them would cost something (``"requests.Timeout"``).
Failures = tuple[Union[type[BaseException], str], ...]


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How a job is retried. The default is Celery's: a failure is final, a crash runs again within a bound.

    A short time is a number of seconds or a timedelta; ``within`` is long, so its unit has to be seen: a timedelta.

    >>> Retry(max_attempts=6, base=2, cap=300, within=timedelta(hours=2)).declared
    True

    Raises:
        ContractError: a value makes no sense.
    """

    #: Attempts in all, the first included. None: bounded by ``within`` alone.
    max_attempts: int | None = 1
    #: The upper end of the first delay; doubled for each retry. Kept as seconds.
    base: float | timedelta = 2
    #: No delay is longer. Kept as seconds.
    cap: float | timedelta = 300
    #: From acceptance: no retry starts later.
    within: timedelta | None = None
    #: Failures that are worth repeating, beside those that are known to be.
    on: Failures = ()
    #: Failures that are final.
    never: Failures = ()
    #: Failures by which somebody asks for fewer calls.
    throttled: Failures = ()
    #: Processes that may die under one job; at this many the job is dead.
    max_crashes: int = 3
    #: False: every delay is its upper end.
    jitter: bool = True
    #: Nothing but what ``on`` and ``throttled`` name is repeated. This is what Celery's ``autoretry_for`` means.
    only: bool = False

    def __post_init__(self) -> None:
        if self.max_attempts is not None:
            whole("Retry.max_attempts", self.max_attempts, 1, "1 means no retry, 2 means one, None needs `within`")
        elif self.within is None:
            refuse("Retry.max_attempts", None, "a number, or `within` beside None", "say within=timedelta(...)")
        base, cap = seconds("Retry.base", self.base), seconds("Retry.cap", self.cap)
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "cap", cap)
        if base > cap:
            refuse("Retry.base", self.base, f"at most Retry.cap ({cap:g} s)", "raise the cap or lower the base")
        if self.within is not None:
            span("Retry.within", self.within)
        whole("Retry.max_crashes", self.max_crashes, 1, "1 means that the first crash is final")
        for name in ("jitter", "only"):
            if not isinstance(getattr(self, name), bool):
                refuse(f"Retry.{name}", getattr(self, name), "True or False", "say which")
        self._read_failures()

    def _read_failures(self) -> None:
        seen: dict[Any, str] = {}
        for name in ("on", "never", "throttled"):
            entries = _failures(f"Retry.{name}", getattr(self, name))
            object.__setattr__(self, name, entries)
            for entry in entries:
                if seen.setdefault(entry, name) != name:
                    refuse(f"Retry.{name}", entry, f"it in one list only, it is also in {seen[entry]}", "keep one")

    @property
    def declared(self) -> bool:
        """Whether a failure may be repeated at all."""
        return self.max_attempts != 1

    def delay(self, n: int, floor: timedelta | None, draw: Random) -> timedelta:
        """How long to wait before retry ``n``, from 0; never longer than the cap, never shorter than ``floor`` under it."""
        base, cap = seconds("Retry.base", self.base), seconds("Retry.cap", self.cap)
        return Backoff(base, cap, self.jitter).delay(n, draw, floor)


def _failures(name: str, value: Any) -> Failures:
    if isinstance(value, list):
        value = tuple(value)
    if not isinstance(value, tuple):
        refuse(name, value, "a tuple of exception classes or dotted names", "write (X,) for a single one")
    for entry in value:
        if isinstance(entry, str):
            if not all(part.isidentifier() for part in entry.split(".")):
                refuse(name, entry, "a dotted name such as 'requests.Timeout'", "correct the name")
        elif not (isinstance(entry, type) and issubclass(entry, BaseException)):
            refuse(name, entry, "exception classes or dotted names", "name the class, not an instance of it")
    return value
