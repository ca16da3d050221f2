"""How long one attempt may take, and when the whole job has to be over.

::

    accepted       claimed                  soft    attempt   grace
       |--- waits ----|-------- body ---------|--------|--------|
       |              |                       raised   killed   the lease is let go: another attempt may start
       |------------------------ deadline ----------------------------------------|
                                                            no attempt starts later; retries leave it where it is
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from .measure import duration, refuse, span

__all__ = ["Timing"]

_GRACE = timedelta(seconds=10)

#: How far before its limit, at most, an attempt renews its lease once more.
_BEFORE_LIMIT = timedelta(seconds=1)


@dataclass(frozen=True, init=False)
class Timing:
    """The times of a job. Plain numbers are seconds.

    >>> Timing(attempt=30, deadline=timedelta(hours=6)).attempt
    datetime.timedelta(seconds=30)

    Raises:
        ContractError: a value makes no sense.
    """

    #: One attempt is killed after this (Celery's hard time limit). None: it is not.
    attempt: timedelta | None
    #: One attempt is told after this (Celery's soft time limit).
    soft: timedelta | None
    #: How long after ``attempt`` the lease is still held, for the kill to happen and be seen.
    grace: timedelta
    #: From acceptance to the end of the job. None: no deadline.
    deadline: timedelta | None
    #: The lease of this job's attempts. None: the setting ``lease``.
    lease: timedelta | None

    def __init__(
        self,
        *,
        attempt: float | timedelta | None = None,
        soft: float | timedelta | None = None,
        grace: float | timedelta = _GRACE,
        deadline: timedelta | None = None,
        lease: float | timedelta | None = None,
    ) -> None:
        def keep(name: str, value: timedelta | None) -> None:
            object.__setattr__(self, name, value)

        keep("attempt", None if attempt is None else duration("Timing.attempt", attempt))
        keep("soft", None if soft is None else duration("Timing.soft", soft))
        keep("grace", duration("Timing.grace", grace))
        keep("deadline", None if deadline is None else span("Timing.deadline", deadline))
        keep("lease", None if lease is None else duration("Timing.lease", lease))
        if self.soft is not None and self.attempt is not None and self.soft >= self.attempt:
            refuse("Timing.soft", soft, f"less than Timing.attempt ({self.attempt})", "a body needs time to clean up")

    @property
    def last_renewal(self) -> timedelta | None:
        """How long after its start an attempt renews its lease once more, whenever it did so before. None without a limit.

        An attempt that is killed at its limit cannot say so; that it was alive right before is what tells it from one that crashed.
        """
        return None if self.attempt is None else self.attempt - min(_BEFORE_LIMIT, self.attempt / 8)

    @property
    def near_limit(self) -> timedelta | None:
        """An attempt that was alive for so long came to its limit. As much before the last renewal as that is before the limit."""
        return None if self.attempt is None else self.attempt - min(_BEFORE_LIMIT, self.attempt / 8) * 2
