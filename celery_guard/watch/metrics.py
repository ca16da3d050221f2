"""Metrics for Prometheus, read from the store at each scrape. No process counts anything by itself.

So one place tells all of it, for every worker, relay and publisher; a child that was recycled or killed has not taken its numbers
with it; and what is shown is what the rows say. Nothing is labelled with what has no end: no id, no key, no message, no host, no tenant. Tasks
are those of the app, schedules those of the app and the first :data:`SCHEDULES` others, queues the first :data:`QUEUES` that were seen;
everything else is ``other``.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from celery_guard.errors import StoreError
from celery_guard.job.replay import OPEN
from celery_guard.job.state import State
from celery_guard.job.tally import BOUNDS, Count, Counted, Standing
from celery_guard.store.protocol import Heartbeat, Store

__all__ = ["OTHER", "PREFIX", "QUEUES", "SCHEDULES", "StoreCollector", "Whose", "registry_of", "text_of"]

PREFIX = "celery_guard_"
OTHER = "other"
#: As many queues have series of their own.
QUEUES = 50
#: As many schedules, beside those that the app itself has.
SCHEDULES = 50

_MICRO = 1e-6

#: Counters with the task as their one label.
_BY_TASK = {
    Count.ENQUEUED: ("jobs_enqueued", "Jobs that were accepted."),
    Count.PUBLISHED: ("messages_published", "Messages of jobs that the broker has taken."),
    Count.REFUSED: ("messages_refused", "Messages that the broker, or the codec, would not have."),
    Count.CLAIMED: ("attempts_started", "Attempts that began."),
    Count.CRASHED: ("attempts_crashed", "Attempts whose lease lapsed: their process died, or hung."),
    Count.FENCED: ("attempts_fenced", "Attempts that came back when the job was not theirs any more."),
    Count.REPLAYED: ("replays", "Dead jobs that were sent again."),
    Count.CONFLICT: ("conflicts", "Jobs that were refused: their key was taken with another payload."),
    Count.RENEWED_LATE: ("leases_renewed_late", "Leases that were renewed after they had lapsed."),
}


@dataclass(frozen=True, slots=True)
class Whose:
    """What an app knows about its tasks."""

    #: Whether the app has a task of this name.
    knows: Callable[[str], bool]
    #: Who is asked about jobs of a task, as its contract says; None where it does not.
    owner_of: Callable[[str], str | None]
    #: The tasks that have a guard: they have series from the start, so that a first failure is an increase.
    tasks: tuple[str, ...] = ()
    #: Of each schedule, the latest instant since which a run must have begun; None where that is not known.
    schedules: Mapping[str, Callable[[], datetime | None]] = field(default_factory=dict)


def registry_of(store: Store, whose: Whose) -> CollectorRegistry:
    """A registry that reads the store, and has nothing of this process in it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StoreCollector(store, whose))
    return registry


def text_of(registry: CollectorRegistry) -> str:
    """Every metric, in Prometheus' text format."""
    return generate_latest(registry).decode()


class StoreCollector(Collector):
    """Reads the store at each scrape; one scrape at a time."""

    def __init__(self, store: Store, whose: Whose) -> None:
        self._store = store
        self._whose = whose
        self._queues: set[str] = set()
        self._others: set[str] = set()
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Nothing: to register it must not ask the store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every metric; only ``store_up`` is 0 where the store cannot be reached."""
        with self._lock:
            try:
                found = [*self._counters(self._store.counted()), *self._gauges()]
            except StoreError:
                found = []
        yield _gauge("store_up", "Whether the store answered.", {(): float(bool(found))})
        yield from found

    # -- counters -------------------------------------------------------------------------------------------------

    def _counters(self, counted: Iterable[Counted]) -> Iterator[Metric]:
        of: dict[Count, list[Counted]] = defaultdict(list)
        for one in counted:
            of[one.what].append(one)
        for what, (name, text) in _BY_TASK.items():
            zeros = {(task,): 0.0 for task in self._whose.tasks}
            yield _counter(name, text, zeros | _sum(of[what], lambda one: (self._task(one.task),)), "task")
        yield self._duplicates(of)
        asked = {(task, ""): 0.0 for task in self._whose.tasks}
        yield _counter(
            "retries", "Further runs that were scheduled after an attempt, by the class of its failure.",
            asked | _sum(of[Count.RETRIED], lambda one: (self._task(one.task), one.failure_class)), "task", "failure_class",
        )  # fmt: skip
        yield _counter(
            "attempts_failed", "Attempts that failed, by class.",
            _sum(of[Count.FAILED], lambda one: (self._task(one.task), one.failure_class)), "task", "failure_class",
        )  # fmt: skip
        yield _counter(
            "jobs_ended", "Jobs that came to an end.",
            _sum(of[Count.ENDED], lambda one: (self._task(one.task), one.state, one.failure_class)),
            "task", "outcome", "failure_class",
        )  # fmt: skip
        dead = [one for one in of[Count.ENDED] if one.state == State.DEAD.value]
        yield _counter(
            "dead_letters_added", "Jobs that died.",
            _sum(dead, lambda one: (self._task(one.task), self._owner(one.task), one.reason)), "task", "owner", "reason",
        )  # fmt: skip
        yield self._histogram(
            "run_seconds", "How long the last attempt of a job took.", of, (Count.RUN, Count.RUN_TIME, Count.RUN_WITHIN),
            lambda one: (self._task(one.task), one.state), "task", "outcome",
        )  # fmt: skip
        yield self._histogram(
            "cancel_seconds", "From the wish to cancel a job to its end.", of,
            (Count.CANCEL, Count.CANCEL_TIME, Count.CANCEL_WITHIN), lambda one: (self._task(one.task),), "task",
        )  # fmt: skip
        last = _last(of[Count.LAST_SUCCESS], lambda one: (self._task(one.task),))
        yield _gauge("task_last_success_timestamp_seconds", "When a job of the task last succeeded.", last, "task")
        yield from self._schedules(of[Count.SCHEDULE_SUCCESS])

    def _duplicates(self, of: Mapping[Count, list[Counted]]) -> Metric:
        turned_away = _sum(of[Count.DUPLICATE], lambda one: (self._task(one.task), "enqueue"))
        ignored = _sum(of[Count.IGNORED], lambda one: (self._task(one.task), "delivery"))
        text = "Calls and deliveries that met a job which was there already."
        zeros = {(task, at): 0.0 for task in self._whose.tasks for at in ("enqueue", "delivery")}
        return _counter("duplicates", text, {**zeros, **turned_away, **ignored}, "task", "at")

    def _histogram(
        self, name: str, text: str, of: Mapping[Count, list[Counted]], whats: tuple[Count, Count, Count],
        labels_of: Callable[[Counted], tuple[str, ...]], *labels: str,
    ) -> Metric:  # fmt: skip
        many, time, within = whats
        family = HistogramMetricFamily(PREFIX + name, text, labels=labels)
        counts, times = _sum(of[many], labels_of), _sum(of[time], labels_of)
        bounded = _sum(of[within], lambda one: (*labels_of(one), one.failure_class))
        for series, total in sorted(counts.items()):
            buckets = [(str(bound), bounded.get((*series, str(place)), 0.0)) for place, bound in enumerate(BOUNDS)]
            family.add_metric(list(series), [*buckets, ("+Inf", total)], times.get(series, 0.0) * _MICRO)
        return family

    def _schedules(self, last: Iterable[Counted]) -> Iterator[Metric]:
        never = {(name,): 0.0 for name in self._whose.schedules}
        instants = never | _last(last, lambda one: (self._schedule(one.task),))
        text = "When a job that the schedule sent last succeeded; 0: never."
        yield _gauge("schedule_last_success_timestamp_seconds", text, instants, "schedule")
        expected = {(name,): since.timestamp() for name, of in self._whose.schedules.items() if (since := of())}
        text = "Since when a run of the schedule must have begun."
        yield _gauge("schedule_expected_since_timestamp_seconds", text, expected, "schedule")

    # -- gauges ---------------------------------------------------------------------------------------------------

    def _gauges(self) -> Iterator[Metric]:
        standing = self._store.standing()
        alive = [one for one in standing if one.state != State.DEAD.value]
        dead = [one for one in standing if one.state == State.DEAD.value]
        yield _gauge(
            "jobs", "Jobs that have not ended, and dead letters.",
            _fold(standing, lambda one: (one.state, self._task(one.task)), lambda one: float(one.jobs), sum), "state", "task",
        )  # fmt: skip
        yield _gauge(
            "oldest_job_age_seconds", "How long the oldest job in a state has been due (pending), published (sent) or at work (running).",
            _fold(alive, lambda one: (one.state, self._queue(one.queue)), _age, max), "state", "queue",
        )  # fmt: skip
        nobody = {(self._owner(task),): 0.0 for task in self._whose.tasks}
        idle = {(task,): 0.0 for task in self._whose.tasks}
        leased = [one for one in standing if one.state == State.RUNNING.value]
        yield _gauge(
            "live_leases", "Attempts that hold a live lease.",
            idle | _fold(leased, lambda one: (self._task(one.task),), lambda one: float(one.leased), sum), "task",
        )  # fmt: skip
        yield _gauge(
            "dead_letters", "Dead letters that wait for a person, by the owner that the contract names.",
            nobody | _fold(dead, lambda one: (self._owner(one.task),), lambda one: float(one.jobs), sum), "owner",
        )  # fmt: skip
        yield _gauge(
            "oldest_dead_letter_age_seconds", "How long ago the oldest dead letter died.",
            _fold(dead, lambda one: (self._owner(one.task),), _age, max), "owner",
        )  # fmt: skip
        replays = {(state.value,): 0.0 for state in OPEN}
        for replay in self._store.replays(states=OPEN):
            replays[(replay.state.value,)] += 1
        yield _gauge("open_replays", "Replays that are not over: at work, or waiting for a person.", replays, "state")
        yield from _of_relays(self._store.next_due(), self._store.heartbeats())

    # -- labels ---------------------------------------------------------------------------------------------------

    def _task(self, task: str) -> str:
        return task if self._whose.knows(task) else OTHER

    def _owner(self, task: str) -> str:
        return (self._whose.owner_of(task) if self._whose.knows(task) else None) or "nobody"

    def _queue(self, queue: str) -> str:
        return _one_of(self._queues, QUEUES, queue)

    def _schedule(self, name: str) -> str:
        return name if name in self._whose.schedules else _one_of(self._others, SCHEDULES, name)


def _one_of(seen: set[str], most: int, name: str) -> str:
    """The name, if it is one of the first that were seen."""
    if len(seen) < most:
        seen.add(name)
    return name if name in seen else OTHER


def _of_relays(due: timedelta | None, beats: Iterable[Heartbeat]) -> Iterator[Metric]:
    lag = 0.0 if due is None else max(0.0, -due.total_seconds())
    yield _gauge("relay_lag_seconds", "How long the longest waiting of what is due has been due.", {(): lag})
    relays = [beat for beat in beats if beat.is_relay]
    alive = float(sum(beat.live for beat in relays))
    yield _gauge("relays_alive", "Relays that are at work.", {(): alive})
    last = {(beat.name,): beat.beat.timestamp() for beat in relays}
    yield _gauge(
        "relay_heartbeat_timestamp_seconds", "When the relay in a slot last said that it is alive.", last, "slot"
    )


def _age(one: Standing) -> float:
    return one.oldest.total_seconds()


def _sum(counted: Iterable[Counted], labels_of: Callable[[Counted], tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = defaultdict(float)
    for one in counted:
        found[labels_of(one)] += one.total
    return found


def _last(counted: Iterable[Counted], labels_of: Callable[[Counted], tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    """The latest instant of each series that has one."""
    found: dict[tuple[str, ...], float] = {}
    for one in counted:
        if one.total:
            found[labels_of(one)] = max(found.get(labels_of(one), 0.0), one.total * _MICRO)
    return found


def _fold(
    standing: Iterable[Standing],
    labels_of: Callable[[Standing], tuple[str, ...]],
    value_of: Callable[[Standing], float],
    fold: Callable[[list[float]], float],
) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for one in standing:
        found[labels_of(one)].append(value_of(one))
    return {series: fold(values) for series, values in found.items()}


def _counter(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for series, value in sorted(values.items()):
        family.add_metric(list(series), value)
    return family


def _gauge(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for series, value in sorted(values.items()):
        family.add_metric(list(series), value)
    return family
