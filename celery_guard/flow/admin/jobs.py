"""``guard.jobs``: every job and its state, what happened to it, why it does not run; cancel, and settle what is unknown.

Every method takes who asks (``by``), and goes through :class:`~.audit.Authority`: an actor with a tenant sees and touches that tenant's jobs, and a
job of another is not found. The exception is :meth:`Jobs.status`, which is for an application's own users.

A cancel of many works on ids that were frozen when it was planned, a batch at a time: jobs that are accepted meanwhile are not hit, and each
job's cancel is one compare-and-set, so that a process which is killed half-way leaves each job either as it was or cancelled. To do it again is harmless.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from celery_guard.contract.contract import Effective
from celery_guard.contract.key import key_hash
from celery_guard.contract.sensitive import secret_for
from celery_guard.errors import MoveRefused
from celery_guard.job.row import Job, StoredResult
from celery_guard.job.state import ENDED, State
from celery_guard.settings import Settings
from celery_guard.store.protocol import Cancelled, Store

from .actor import Action, Actor, Target
from .audit import Authority
from .blocker import Blocker
from .by_hand import settlement
from .explain import explain_job, explain_system
from .facts import Asking, gather, gather_about
from .overview import Overview, look_over
from .seen import seen_job
from .status import JobStatus, status_of
from .timeline import Moment, tell
from .which import Which

__all__ = ["Jobs", "Plan"]

#: States that a cancel can do something about.
_CANCELLABLE = (State.PENDING, State.SENT, State.RUNNING, State.UNKNOWN)

#: As many rows as are read, or touched, at once.
_BATCH = 500
#: Rows of the audit in the story of one job.
_ENTRIES = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """What a cancel would touch: ids that are frozen from here on."""

    ids: tuple[str, ...]
    #: How many of each.
    tasks: Mapping[str, int]
    tenants: Mapping[str, int]
    states: Mapping[str, int]
    #: A few of the jobs, to be looked at.
    sample: tuple[Job, ...]
    #: There are more jobs of the filter than were planned for.
    more: bool = False


class Jobs:
    """The jobs of one app's store.

    Args:
        contract_named: what holds for a task, by name.
        knows: whether this process has a task of a name.
        encode: a value as the result of a job is stored.
    """

    def __init__(
        self,
        store: Store,
        authority: Authority,
        settings: Settings,
        asking: Asking,
        contract_named: Callable[[str], Effective],
        knows: Callable[[str], bool],
        encode: Callable[[str, Any], StoredResult | None],
    ) -> None:
        self._store = store
        self._authority = authority
        self._settings = settings
        self._asking = asking
        self._contract_named = contract_named
        self._knows = knows
        self._encode = encode

    # -- look ---------------------------------------------------------------------------------------------------------

    def list(
        self, which: Which | None = None, *, by: Actor, limit: int = 100, after: str | None = None
    ) -> builtins.list[Job]:
        """Jobs, newest first; ``after`` is the id of the last one of the page before. Raises ``NotAllowed``."""
        return self._seen(which, by).find(self._store, limit, after)

    def get(self, id: str, *, by: Actor) -> Job:
        """One job with its failures.

        Raises:
            NotFound: there is none, or it is another tenant's.
            NotAllowed: the actor may not look.
        """
        return self._get(id, by, Action.JOBS_LOOK)

    def counts(self, *, by: Actor) -> Mapping[State, int]:
        """How many jobs are in each state that has any, as far as the actor sees them. Raises ``NotAllowed``."""
        scope = self._authority.look(by, Action.JOBS_LOOK, Target(name="all jobs"))
        return self._store.counts(scope.tenant)

    def overview(self, *, by: Actor) -> Overview:
        """Who relays, what waits and for how long, which replays are not over: as far as the actor is told. Raises ``NotAllowed``."""
        self._authority.look(by, Action.JOBS_LOOK, Target(name="all jobs"))
        return look_over(self._store, by.tenant)

    def timeline(self, id: str, *, by: Actor) -> builtins.list[Moment]:
        """What happened to a job, the oldest first, as far as it is kept. Raises ``NotFound``, ``NotAllowed``."""
        return tell(self.get(id, by=by), reversed(self._store.audited(job=id, limit=_ENTRIES)))

    def status(self, id: str, *, scope: str | None) -> JobStatus | None:
        """How a job stands, for an application's own users: the answer to a poll.

        ``scope`` is the tenant that asks. A job of another tenant is None, like one that is not there; without a tenant (None) only jobs
        that have none are seen.
        """
        job = self._store.job(id)
        return None if job is None or job.tenant != scope else status_of(job)

    def explain(self, id: str | None = None, *, by: Actor) -> builtins.list[Blocker]:
        """Why a job is not running, the root first; without a job, what stalls the whole system (empty: nothing).

        An actor with a tenant is told of what is that tenant's, and of what all share in that nobody relays, works or answers: no queue of the system,
        no number of what others have there, and not what the broker says.
        Asks the store, the broker and the workers, for a few seconds at most. Raises ``NotFound``, ``NotAllowed``.
        """
        if id is None:
            self._authority.look(by, Action.JOBS_LOOK, Target(name="the whole system"))
            return explain_system(gather(self._store, self._settings, self._asking, tenant=by.tenant))
        job = self.get(id, by=by)
        facts = gather(self._store, self._settings, self._asking, [job.queue], by.tenant)
        # as it is after the facts were gathered, so that it is not judged by what has changed meanwhile
        now = self._store.job(id) or job
        return explain_job(facts, gather_about(self._store, now, self._knows, by.may_see))

    def key(self, task: str, value: Any, tenant: str | None = None) -> str:
        """The hash under which rows have the key of a task, worked out as at enqueue: for :class:`Which`.

        ``value`` is the one value that ``Contract.key`` names, or a mapping of all.

        Raises:
            MoveRefused: the task's contract has no key, or names other values.
        """
        contract = self._contract_named(task)
        names = ("key",) if callable(contract.key) else _names(contract.key)
        values = (
            value if isinstance(value, Mapping) and len(names) > 1 else {names[0]: value} if len(names) == 1 else {}
        )
        if {*values} != {*names} or not names:
            said = f"its contract's key is made of: {', '.join(names)}" if names else "its contract has no key"
            raise MoveRefused(f"No key of {task} can be made of a value of type {type(value).__name__}: {said}.")
        return key_hash(
            contract.scope, tenant, {name: values[name] for name in names}, secret_for(contract, self._settings)
        )

    # -- cancel -------------------------------------------------------------------------------------------------------

    def plan_cancel(self, which: Which | Sequence[str], *, by: Actor, most: int = 10_000) -> Plan:
        """Which jobs a cancel would touch, those that have not ended; changes nothing. Raises ``NotAllowed``."""
        found = self._named(which, by) if not isinstance(which, Which) else self._found(which, by, most + 1)
        jobs = found[:most]
        return Plan(
            tuple(job.id for job in jobs),
            Counter(job.task for job in jobs),
            Counter(job.tenant or "" for job in jobs),
            Counter(job.shown_state for job in jobs),
            tuple(jobs[:10]),
            more=len(found) > most,
        )

    def cancel(
        self,
        ids: Sequence[str],
        *,
        by: Actor,
        reason: str,
        confirm: int | None = None,
        progress: Callable[[int], object] = lambda done: None,
    ) -> builtins.list[Cancelled]:
        """Cancel jobs that wait, at once; ask those that run to stop. Answers in the order of ``ids``.

        ``confirm`` is how many jobs may be touched, where that is more than the setting ``confirm_above``. ``progress`` is told how many are done.

        Raises:
            NotAllowed, ReasonMissing, ConfirmationNeeded: nothing was touched.
        """
        ids = [*dict.fromkeys(ids)]
        target = Target(ids=tuple(ids), tenant=by.tenant, count=len(ids))
        answers: builtins.list[Cancelled] = []
        with self._authority.act(by, Action.JOBS_CANCEL, target, reason, confirm) as acting:
            for start in range(0, len(ids), _BATCH):
                jobs = [(id, self._store.job(id)) for id in ids[start : start + _BATCH]]
                seen = {id: job for id, job in jobs if job is not None and by.may_see(job.tenant)}
                if len(ids) > 1:
                    acting.on((id, job.tenant) for id, job in seen.items())
                for id, _ in jobs:
                    answers.append(self._store.cancel(id) if id in seen else Cancelled(id, "too late", None))
                    acting.result = _tally(answers)
                    progress(len(answers))
        return answers

    # -- settle -------------------------------------------------------------------------------------------------------

    def settle(self, id: str, state: State, *, by: Actor, reason: str, value: Any = None) -> Job:
        """Say how a job ended whose outcome is unknown; the job as it is then.

        ``state``: ``succeeded`` (with ``value``, which duplicates and Celery are given), ``dead``, or ``pending`` to run it again.

        Raises:
            NotFound, NotAllowed, ReasonMissing: nothing was changed.
            MoveRefused: the job is not unknown (any more), or ``state`` is no way out of that.
        """
        job = self._get(id, by, Action.JOBS_SETTLE)
        with self._authority.act(
            by, Action.JOBS_SETTLE, Target(ids=(id,), tenant=job.tenant, name=f"to {state}"), reason
        ) as acting:
            result = self._encode(id, value) if state is State.SUCCEEDED else None
            if not self._store.settle_unknown(settlement(job, state, by.name, reason, result, self._settings)):
                raise MoveRefused(f"Job {id} has moved meanwhile. Look again: guard jobs show {id}.")
            acting.result = f"settled as {state}"
        return self._store.job(id) or job

    # -- within -------------------------------------------------------------------------------------------------------

    def _seen(self, which: Which | None, by: Actor) -> Which:
        which = which or Which()
        scope = self._authority.look(by, Action.JOBS_LOOK, Target(which=which.words, tenant=which.tenant))
        return which.of_tenant(scope.tenant)

    def _get(self, id: str, by: Actor, action: Action) -> Job:
        job = seen_job(self._store, self._authority, id, by, action)
        self._authority.look(by, Action.JOBS_LOOK, Target(ids=(id,), tenant=job.tenant))
        return job

    def _named(self, ids: Iterable[str], by: Actor) -> builtins.list[Job]:
        self._authority.look(by, Action.JOBS_LOOK, Target(ids=tuple(ids)))
        found = (self._store.job(id) for id in dict.fromkeys(ids))
        return [job for job in found if job is not None and by.may_see(job.tenant) and job.state not in ENDED]

    def _found(self, which: Which, by: Actor, most: int) -> builtins.list[Job]:
        seen = self._seen(which, by)
        if not seen.states:
            seen = replace(seen, states=_CANCELLABLE)
        found: builtins.list[Job] = []
        while len(found) < most:
            page = seen.find(self._store, min(_BATCH, most - len(found)), found[-1].id if found else None)
            found += page
            if len(page) < _BATCH:
                break
        return [job for job in found if job.state not in ENDED]


def _names(key: Any) -> tuple[str, ...]:
    return () if key is None else (key,) if isinstance(key, str) else tuple(key)


def _tally(answers: Iterable[Cancelled]) -> str:
    counted = Counter("no such job" if answer.state is None else answer.answer for answer in answers)
    return ", ".join(f"{count} {word}" for word, count in sorted(counted.items()))
