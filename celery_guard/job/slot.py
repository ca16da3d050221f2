"""A schedule's slots: the instants at which it is to run, as names that any number of schedulers agree on.

Two schedulers that both believe they lead send the same tick twice, a little apart, each by its own clock. What makes the two one is not a
lock but the name of the slot: (schedule, task, instant in UTC), from which the job's id is made. The second send meets the row of the first.

The slot of a send is the latest one that has begun. So a scheduler that was away and comes back sends the latest missed slot, not
each of them, and one that was paused for a minute names the slot that others have sent meanwhile.

Where the clocks change, a slot is still one instant:

============================  =======================================================================================
a local time that comes twice  every hour (``hour="*"``): two slots. Otherwise one, the first occurrence
a local time that is left out  the instant at which the clocks went forward, once, however many such times there are
============================  =======================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any
from uuid import UUID, uuid5

from .row import LONGEST_NAME
from .text import clean

__all__ = ["Cron", "Every", "Slot", "schedule_name"]

#: Of the names of slots. Never changes, or two versions of the guard would send the same slot.
_NAMESPACE = UUID("6d1b3f3c-8a50-4d3a-9a6e-0f5a6a4f7c21")

#: A 29th of February may be eight years away.
_FARTHEST = 366 * 8

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc).replace(tzinfo=None)
_ALL_HOURS = frozenset(range(24))


def schedule_name(name: Any) -> str:
    """A schedule's name as rows and metrics have it: what every store takes.

    Names that it makes one share their metrics, and nothing else: the id of a slot is made of the whole name.
    """
    return clean(str(name)[:LONGEST_NAME])


@dataclass(frozen=True, slots=True)
class Slot:
    """One run of one schedule."""

    schedule: str
    task: str
    #: In UTC.
    instant: datetime

    @property
    def id(self) -> str:
        """The id of the one job that this slot has."""
        return str(uuid5(_NAMESPACE, json.dumps([self.schedule, self.task, self.instant.isoformat()])))


@dataclass(frozen=True, slots=True)
class Every:
    """A run in each stretch of time: those of a grid from the epoch on, in UTC or by the local clock."""

    stretch: timedelta
    #: By the local clock, so that days begin at midnight; None: UTC.
    zone: tzinfo | None = None

    def latest(self, now: datetime) -> datetime:
        """When the stretch began in which ``now`` (aware) lies."""
        local = now.astimezone(self.zone or timezone.utc)
        naive = local.replace(tzinfo=None, fold=0)
        begun = naive - (naive - _EPOCH) % self.stretch
        return begun.replace(tzinfo=local.tzinfo, fold=local.fold).astimezone(timezone.utc)

    def expected_since(self, now: datetime) -> datetime:
        """The latest instant since which a run must have begun: it may come at any time of its stretch, so when the stretch before this one began."""
        return self.latest(self.latest(now) - timedelta(microseconds=1))


@dataclass(frozen=True, slots=True)
class Cron:
    """A run at each local time that all five fields allow."""

    minutes: Collection[int]
    hours: Collection[int]
    days: Collection[int]
    months: Collection[int]
    #: 0 is Sunday.
    weekdays: Collection[int]
    zone: tzinfo

    def latest(self, now: datetime) -> datetime | None:
        """The latest slot that has begun at ``now`` (aware); None where there has been none for years."""
        now = now.astimezone(timezone.utc)
        today = now.astimezone(self.zone).date()
        for day in (today - timedelta(days=n) for n in range(_FARTHEST)):
            if self._allows(day):
                for hour in sorted(self.hours, reverse=True):
                    begun = [at for at in self._instants(day, hour) if at <= now]
                    if begun:
                        return max(begun)
        return None

    def expected_since(self, now: datetime) -> datetime | None:
        """The latest instant since which a run must have begun: the slot itself."""
        return self.latest(now)

    def _allows(self, day: date) -> bool:
        return day.month in self.months and day.day in self.days and day.isoweekday() % 7 in self.weekdays

    def _instants(self, day: date, hour: int) -> Iterator[datetime]:
        both = {*self.hours} >= _ALL_HOURS
        for minute in self.minutes:
            local = datetime.combine(day, time(hour, minute), self.zone)
            first, second = (local.replace(fold=fold).astimezone(timezone.utc) for fold in (0, 1))
            if first > second:
                yield _when_it_changed(second, first, self.zone)
                continue
            yield first
            if both:
                yield second


def _when_it_changed(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The instant between two others at which the zone's offset changed, to the second."""
    old = before.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // 2
        if middle.astimezone(zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after.replace(microsecond=0)
