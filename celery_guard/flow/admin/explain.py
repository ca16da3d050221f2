"""Why a job is not running, and what stalls the whole system: from facts to blockers. Pure; facts are gathered in :mod:`.facts`.

A blocker is ``wrong`` if somebody has to do something; what only takes its time (a retry that is due in an hour) is not.

To an actor of one tenant (``facts.own``) nothing is said of what others have in a queue; the decisions are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from celery_guard.job.replay import Replay, ReplayState
from celery_guard.job.row import Job
from celery_guard.job.state import ENDED, Kind, Reason, State
from celery_guard.store.protocol import Backlog

from .blocker import Blocker, Facts, Subject

__all__ = ["LATE", "explain_job", "explain_system"]

#: How long something may be late before somebody has to look: twice what a sweep and an idle relay take at their slowest.
LATE = timedelta(seconds=60)

#: A set of 50,000 letters is frozen within.
_BUILT_WITHIN = timedelta(minutes=15)

_HELD = {
    Reason.HELD_LIMIT: ("EXPLAIN-141", "A limit holds it; it is tried again by itself."),
    Reason.HELD_BRAKE: ("EXPLAIN-142", "A brake holds it; it is tried again by itself."),
    Reason.HELD_VERSION: ("EXPLAIN-143", "Its message is newer than the workers that took it: start workers of the newer version."),
    Reason.HELD_ENCRYPTION: (
        "EXPLAIN-145", "It is encrypted with a key that the workers which took it do not have: add the key to their encryption_keys.",
    ),
    Reason.HANDED_OVER: ("EXPLAIN-144", "It has replaced itself by other jobs, and the last of them brings its outcome."),
}  # fmt: skip


def explain_system(facts: Facts) -> list[Blocker]:
    """What stalls, the root first."""
    if facts.store_out:
        word = "upgrade" if "store upgrade" in facts.store_out else "check"
        return [Blocker("EXPLAIN-100", facts.store_out, wrong=True, next=("guard", "store", word))]
    queues = facts.backlog.values() if facts.own is None else ()
    return [
        *_around(facts),
        *(found for queue in queues for found in _queue(facts, queue)),
        *_unknown(facts),
        *(_not_going_on(facts, replay) for replay in facts.replays if replay.state is not ReplayState.RUNNING),
    ]


def explain_job(facts: Facts, subject: Subject) -> list[Blocker]:
    """Why this job is not running, the root first. Never empty: a job that runs or has ended is said to."""
    job = subject.job
    if job.state in ENDED:
        return [*_in_replays(facts, subject), *_ended(facts, subject)]
    if job.state is State.UNKNOWN:
        return [_outcome_unknown(job)]
    if job.state is State.RUNNING:
        return list(_running(facts, job))
    found = [*_over(facts, job), *_nameless(subject)]
    if job.state is State.PENDING:
        return [*found, *_pending(facts, subject)]
    return [*found, *_sent(facts, job)]


# -- the system -------------------------------------------------------------------------------------------------------


def _around(facts: Facts) -> Iterator[Blocker]:
    if not _at_work(facts):
        if any(replay.state is ReplayState.RUNNING for replay in facts.replays):
            yield from _relay(facts)
        return
    yield from _relay(facts)
    if facts.live.broker_out:
        yield _broker(facts)
    elif facts.live.consumers is not None and not facts.live.consumers:
        yield Blocker(
            "EXPLAIN-102", "No worker answers: none runs, or those that do are on another broker, or are too busy to say so.", wrong=True,
            next=("worker",),
        )  # fmt: skip


def _at_work(facts: Facts) -> bool:
    if facts.own is not None:
        return any(facts.own.get(state) for state in (State.PENDING, State.SENT, State.RUNNING))
    return any(queue.pending or queue.sent or queue.running for queue in facts.backlog.values())


def _queue(facts: Facts, queue: Backlog) -> Iterator[Blocker]:
    if queue.oldest_due is not None and _late(facts, queue.oldest_due):
        waited = _seconds(facts.now - queue.oldest_due)
        yield Blocker(
            "EXPLAIN-111", f"Queue {queue.queue}: {queue.pending} jobs are due and not published, the oldest for {waited}.",
            queue.oldest_due, wrong=True, next=_publish(facts),
        )  # fmt: skip
    if queue.oldest_lapse is not None and _late(facts, queue.oldest_lapse):
        yield Blocker(
            "EXPLAIN-171", f"Queue {queue.queue}: the leases of {queue.lapsed} jobs have ended, and nobody took the jobs back.",
            queue.oldest_lapse, wrong=True, next=_publish(facts),
        )  # fmt: skip
    if queue.sent:
        yield from (found for found in _waiting(facts, queue, queue.oldest_sent) if found.wrong)


def _unknown(facts: Facts) -> Iterator[Blocker]:
    if facts.unknown:
        since = min(job.started or job.created for job in facts.unknown)
        yield Blocker(
            "EXPLAIN-180", f"Nobody knows how {len(facts.unknown)} jobs ended; a person has to say.", since, wrong=True,
            next=("guard", "jobs", "list", "--state", "unknown"),
        )  # fmt: skip


def _not_going_on(facts: Facts, replay: Replay) -> Blocker:
    why = f": {replay.why}" if replay.why else ""
    left = facts.now - replay.created > _BUILT_WITHIN
    stays = {
        ReplayState.BUILDING: "it was left by a process that died: abort it" if left else "its set is being frozen",
        ReplayState.PAUSED: "it sends nothing until it is resumed",
    }.get(replay.state, "it sends nothing until it is resumed, or aborted")
    return Blocker(
        "EXPLAIN-150", f"The replay {replay.id} of {replay.total} jobs, by {replay.actor}, is {replay.state}{why}; {stays}.",
        replay.created, wrong=replay.state is ReplayState.STOPPED or (replay.state is ReplayState.BUILDING and left),
        next=("guard", "dlq", "replays", replay.id),
    )  # fmt: skip


def _relay(facts: Facts) -> Iterator[Blocker]:
    if any(beat.live for beat in facts.relays):
        return
    since = max((beat.until for beat in facts.relays), default=None)
    seen = "" if since is not None else " Since when is not known: none was ever started, or each was stopped in order."
    yield Blocker(
        "EXPLAIN-101", f"No relay is alive: nothing is published, and what is lost is not brought back.{seen}", since,
        wrong=True, next=("guard", "relay"),
    )  # fmt: skip


def _broker(facts: Facts) -> Blocker:
    said = "." if facts.own is not None else f": {facts.live.broker_out}"
    return Blocker("EXPLAIN-103", f"The broker cannot be reached{said}", wrong=True)


def _publish(facts: Facts) -> tuple[str, ...]:
    """What to type where nobody publishes; where a relay is alive, it says in its log why it does not."""
    return () if any(beat.live for beat in facts.relays) else ("guard", "relay")


# -- one job ----------------------------------------------------------------------------------------------------------


def _in_replays(facts: Facts, subject: Subject) -> Iterator[Blocker]:
    for replay in subject.replays:
        if replay.state is not ReplayState.RUNNING:
            yield _not_going_on(facts, replay)
            continue
        yield Blocker(
            "EXPLAIN-151", f"The replay {replay.id} of {replay.total} jobs, by {replay.actor}, sends it again; it is at wave {replay.wave}.",
            replay.created, next=("guard", "dlq", "replays", replay.id),
        )  # fmt: skip
        yield from _relay(facts)


def _ended(facts: Facts, subject: Subject) -> Iterator[Blocker]:
    job = subject.job
    why = f" ({job.reason})" if job.reason else ""
    if job.state is State.DEAD:
        how = f"{why}, {job.failure_class}" if job.failure_class else why
        yield Blocker(
            "EXPLAIN-192", f"It is a dead letter{how}, and does not run again by itself.", job.finished, wrong=not subject.replays,
            next=("guard", "dlq", "show", job.id),
        )  # fmt: skip
    else:
        yield Blocker("EXPLAIN-190", f"It is {job.shown_state}{why}.", job.finished)
    if not job.told and job.kind is Kind.RUN:
        yield Blocker("EXPLAIN-191", "It has ended, and Celery is yet to be told.", job.finished, job.due)
        yield from _relay(facts)


def _outcome_unknown(job: Job) -> Blocker:
    return Blocker(
        "EXPLAIN-180", "Nobody knows whether its last attempt took effect, so it is not repeated. Find out, and say so.",
        job.started, wrong=True, next=("guard", "jobs", "settle", job.id),
    )  # fmt: skip


def _running(facts: Facts, job: Job) -> Iterator[Blocker]:
    who = f"{job.owner} (fence {job.fence})"
    so_far = ""
    if job.crashes:
        so_far += f" It lost its process {_times(job.crashes)} before; when that is too often, it is dead."
    if job.progress is not None:
        so_far += f" Its progress, {_seconds(facts.now - job.progress.at)} ago: {job.progress}."
    if job.due is not None and job.due <= facts.now:
        late = _late(facts, job.due)
        yield Blocker(
            "EXPLAIN-171", f"The lease of {who} has ended; the sweep of a relay takes the job back.{so_far}", job.due, wrong=late,
            next=_publish(facts),
        )  # fmt: skip
        yield from _relay(facts)
    else:
        yield Blocker(
            "EXPLAIN-170",
            f"It runs: leased to {who}. If that process was killed, it is noticed when the lease ends.{so_far}",
            job.started,
            job.due,
        )
    if job.cancel:
        yield Blocker("EXPLAIN-172", "It was asked to stop, and runs until its next safe point.")
    yield from _over(facts, job)


def _over(facts: Facts, job: Job) -> Iterator[Blocker]:
    if job.deadline is not None and job.deadline <= facts.now:
        stops = "it stops at its next safe point" if job.state is State.RUNNING else "its body will not run"
        yield Blocker("EXPLAIN-113", f"Its deadline is over: {stops}.", job.deadline)


def _nameless(subject: Subject) -> Iterator[Blocker]:
    if not subject.known:
        yield Blocker(
            "EXPLAIN-130", f"This app knows no task {subject.job.task!r}. If the workers do not either, it ends as dead (unknown_task).",
            wrong=True,
        )  # fmt: skip


def _pending(facts: Facts, subject: Subject) -> Iterator[Blocker]:
    job = subject.job
    if job.reason in _HELD:
        code, what = _HELD[job.reason]
        yield Blocker(code, what, until=job.due)
    elif job.holder is not None and not (subject.holder is None or subject.holder.state in ENDED):
        holder = subject.holder
        yield Blocker(
            "EXPLAIN-140", f"Job {holder.id} holds its key and is {holder.shown_state}; this one is given that outcome.", job.created,
            next=("guard", "explain", holder.id),
        )  # fmt: skip
        return
    if job.refusals:
        yield Blocker(
            "EXPLAIN-112",
            f"The broker has refused its message {job.refusals} times; the relay's log says why.",
            until=job.due,
            wrong=True,
        )
    if job.due is not None and job.due > facts.now:
        if job.reason not in _HELD and not job.refusals:
            yield Blocker("EXPLAIN-110", f"It is not due yet ({_waits_for(job)}).", until=job.due)
    else:
        yield from _relay(facts)
        yield Blocker(
            "EXPLAIN-111", "It is due, and yet to be published.", job.due, wrong=job.due is not None and _late(facts, job.due),
            next=_publish(facts),
        )  # fmt: skip
    if facts.live.broker_out:
        yield _broker(facts)


def _waits_for(job: Job) -> str:
    return {
        Reason.NEW: "a countdown or an eta",
        Reason.RETRY: f"retry {job.retries}, after attempt {job.attempts} failed",
        Reason.LOST: f"crash {job.crashes}: its process was lost",
        Reason.INTERRUPTED: "its worker was stopped",
        Reason.REPLAY: "sent again by a person",
        Reason.REPLACED: "replaced by itself",
    }.get(job.reason or Reason.NEW, str(job.reason))


def _sent(facts: Facts, job: Job) -> Iterator[Blocker]:
    yield from _relay(facts)
    if facts.live.broker_out:
        yield _broker(facts)
    queue = facts.backlog.get(job.queue) or Backlog(job.queue)
    yield from _waiting(facts, queue, job.sent)
    if job.publications > 1:
        last = job.publications >= facts.max_publications > 0
        yield Blocker(
            "EXPLAIN-123", f"It was published {job.publications} times, and no worker took it; after {facts.max_publications} it is dead.",
            job.sent, job.due, wrong=last,
        )  # fmt: skip


def _waiting(facts: Facts, queue: Backlog, sent: datetime | None) -> Iterator[Blocker]:
    """Why what was published to a queue is not taken from it."""
    consumers = None if facts.live.consumers is None else facts.live.consumers.get(queue.queue, ())
    waited, last = _history(facts, queue, sent)
    since = queue.last_start if facts.own is None else None
    worker = ("worker", "-Q", queue.queue)
    if consumers is not None and not consumers:
        yield Blocker(
            "EXPLAIN-120", f"No worker consumes the queue {queue.queue}{waited}{last}.", since, wrong=True, next=worker
        )
    elif _stalls(facts, queue, sent):
        yield Blocker(
            "EXPLAIN-121", f"Stalled: queue {queue.queue}{waited}{last}.", since or sent, wrong=True, next=worker
        )
    else:
        depth = facts.live.depths.get(queue.queue)
        there = "" if depth is None else f", {depth} messages are in it"
        load = f": {queue.running} run{there}" if facts.own is None else ""
        yield Blocker("EXPLAIN-122", f"Queue {queue.queue} is worked on{load}{last}.", sent)


def _history(facts: Facts, queue: Backlog, sent: datetime | None) -> tuple[str, str]:
    """For how long what was published waits, and when something was last started."""
    if facts.own is not None:
        return "" if sent is None else f", this job for {_seconds(facts.now - sent)}", ""
    waited = "" if sent is None else f", the oldest for {_seconds(facts.now - (queue.oldest_sent or sent))}"
    last = f"last start {_clock(queue.last_start)}" if queue.last_start else "nothing was ever started from it"
    return waited, f", {last}"


def _stalls(facts: Facts, queue: Backlog, sent: datetime | None) -> bool:
    """Nothing runs, what was published has waited for long, and nothing was started since."""
    if sent is None or queue.running > queue.lapsed or not _late(facts, sent):
        return False
    return queue.last_start is None or _late(facts, queue.last_start)


def _late(facts: Facts, instant: datetime) -> bool:
    return facts.now - instant > LATE


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _seconds(duration: timedelta) -> str:
    return f"{max(0, round(duration.total_seconds()))} s"


def _clock(instant: datetime) -> str:
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"
