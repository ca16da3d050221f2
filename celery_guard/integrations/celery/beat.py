"""Beat: what a schedule sends is known by its slot, so that two beats are one.

Whatever the scheduler is (Celery's own, redbeat's, django-celery-beat's), it reserves an entry and sends through its ``apply_async``.
There the slot is told to the door, which gives the job the slot's id. A second send of the slot, by a beat that was paused or believes
that it leads, finds the id taken: nothing is enqueued, and the log says so.

A scheduler connects to the broker before each tick. A guarded job needs no broker to be accepted, so that waits until something
without a guard is sent.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from functools import cache, partial
from typing import Any

from celery.local import Proxy
from celery.schedules import crontab, schedule

from celery_guard.errors import GuardError, StoreUnavailableError
from celery_guard.job.slot import Cron, Every, Slot, schedule_name

from .refusal import refusal
from .runtime import ATTRIBUTE
from .slots import Due, scheduled

__all__ = ["attach", "expected_since", "slot_of"]

logger = logging.getLogger("celery_guard.beat")

#: To which Celery rounds the runs of a relative schedule. Seconds only before Celery 5.7; there it does no harm.
_UNITS = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))


def attach(sender: Any) -> None:
    """When a beat starts: have its scheduler say which slot it sends."""
    scheduler = sender.scheduler
    runtime = scheduler.app.__dict__.get(ATTRIBUTE)
    if runtime is not None and runtime.meant and "apply_async" not in vars(scheduler):
        _refuse_old_tables(runtime)
        ticks = _Ticks(scheduler)
        scheduler.reserve, scheduler.apply_async = ticks.reserve, ticks.apply_async
        scheduler.__dict__.setdefault("producer", Proxy(cache(partial(type(scheduler).producer.func, scheduler))))


def _refuse_old_tables(runtime: Any) -> None:
    """On older tables each slot would be an error, and Celery does not send it again. A beat that starts later sends the latest one."""
    try:
        runtime.store.check()
    except StoreUnavailableError as error:
        logger.error("the store cannot be reached yet; a slot that begins before it can is left out: %s", error)
    except GuardError as error:
        raise refusal("beat", error) from error


class _Ticks:
    """The two methods of a scheduler through which every tick passes."""

    def __init__(self, scheduler: Any) -> None:
        self._reserve = scheduler.reserve
        self._apply_async = scheduler.apply_async
        #: When an entry was found due, by name.
        self._due: dict[str, datetime] = {}

    def reserve(self, entry: Any) -> Any:
        reserved = self._reserve(entry)
        # from here the scheduler counts to the next run: two runs of an interval are at least that far apart
        self._due[entry.name] = reserved.last_run_at
        return reserved

    def apply_async(self, entry: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with scheduled(Due(entry.task, partial(self._slot, entry), _name(entry))):
                return self._apply_async(entry, *args, **kwargs)
        finally:
            self._due.pop(entry.name, None)

    def _slot(self, entry: Any) -> Slot | None:
        return slot_of(entry, self._due.get(entry.name))


def slot_of(entry: Any, found_due: datetime | None = None) -> Slot | None:
    """The slot that was due then, or is now; None for a schedule that does not say its slots, such as ``solar``."""
    instant = _latest(entry.schedule, found_due)
    if instant is None:
        logger.warning(
            "schedule %s is a %s, whose slots the guard does not know: two beats would enqueue it twice",
            entry.name, type(entry.schedule).__name__,
        )  # fmt: skip
        return None
    return Slot(str(entry.name), str(entry.task), instant)


def expected_since(due: Any) -> datetime | None:
    """The latest instant since which a run of the schedule must have begun; None where that is not known."""
    slots = _slots(due)
    return None if slots is None else slots.expected_since(due.maybe_make_aware(due.now()))


def _name(entry: Any) -> str | None:
    # clocked: it runs once, and there may be any number of such names
    return None if hasattr(entry.schedule, "clocked_time") else schedule_name(entry.name)


def _latest(due: Any, found_due: datetime | None) -> datetime | None:
    once = getattr(due, "clocked_time", None)
    if isinstance(once, datetime):
        aware: datetime = due.maybe_make_aware(once)
        return aware.astimezone(timezone.utc)
    slots = _slots(due)
    return None if slots is None else slots.latest(due.maybe_make_aware(found_due or due.now()))


def _slots(due: Any) -> Cron | Every | None:
    for kind in (crontab, schedule):
        # one that computes in its own way has slots of its own
        if isinstance(due, kind) and type(due).remaining_estimate is kind.remaining_estimate:
            return _cron(due) if kind is crontab else _every(due)
    return None


def _cron(due: Any) -> Cron:
    return Cron(due.minute, due.hour, due.day_of_month, due.month_of_year, due.day_of_week, due.tz)


def _every(due: Any) -> Every:
    stretch = max(due.run_every, timedelta(microseconds=1))
    return Every(_whole(stretch), due.tz) if due.relative else Every(stretch)


def _whole(stretch: timedelta) -> timedelta:
    """How far apart two runs of a relative schedule are: Celery rounds down to the largest unit that fits, so 90 minutes are one hour."""
    for unit in _UNITS:
        if stretch >= unit:
            return stretch // unit * unit
    return stretch
