"""Eager mode: ``task_always_eager`` and ``.apply()`` take the same journey as a message, on the caller's connection.

Celery's own ``apply`` traces the task, as ever; what it calls is the guard's run. Where the app has no store, eager calls are Celery's own:
the body is called, and promises nothing.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from celery import states
from celery.exceptions import AlwaysEagerIgnored, Ignore, TaskRevokedError
from celery.result import EagerResult
from kombu.utils.uuid import uuid

from celery_guard.contract.contract import Effective
from celery_guard.errors import JobFailed, LeaseLost
from celery_guard.flow.context import RunningJob
from celery_guard.flow.eager import EagerStore, NoKeeper
from celery_guard.flow.ownership import Keeper
from celery_guard.flow.run import Runner
from celery_guard.job.delivery import Again, Dead, Delivery, Done, Ending, HandBack, Nothing, Stale, Unheard, Withdrawn
from celery_guard.job.outcome import Failed, Interrupted, Outcome, Rejected, RetryAsked
from celery_guard.job.refusal import explain_refusal
from celery_guard.job.row import NewJob, StoredPayload
from celery_guard.job.state import ENDED, Reason, State
from celery_guard.job.verdict import Duplicate
from celery_guard.store.door import AsyncDoor, AttemptDoor
from celery_guard.store.protocol import Store

from .attempt import collecting, current_attempt, not_collecting
from .body import CeleryBody
from .capture import decode
from .declared import with_limits_of_call
from .passage import open_door
from .result import decode_result, marked
from .speak import say_dead, tellable

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["MOST_RUNS", "apply_eagerly", "build", "eager_run"]


#: In eager mode a job is run no more often than this where nothing else says how often: nobody waits there for what it waits for.
MOST_RUNS = 100


class EagerRun:
    """One job on its way through eager mode."""

    def __init__(self, runtime: Runtime, job: NewJob, inner: Store | AttemptDoor, alone: bool) -> None:
        self.runtime = runtime
        self.job = job
        self.store = EagerStore(inner)
        keeper: Keeper = runtime.keeper if alone else NoKeeper()
        self.runner = Runner(
            self.store, keeper, runtime.settings, runtime.owner, runtime.observers.tell, runtime.encryption
        )
        #: Celery's request, once the tracer has called.
        self.request: Any = None
        #: Others have the job: it runs elsewhere, or waits for the one that holds its key.
        self.elsewhere = False

    def perform(self, task: Any, inner: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run the job to its end. Returns or raises what the tracer is to make of it."""
        request = self.request = task.request_stack.top
        contract = self.runtime.contract_of(task)
        assert contract is not None
        contract = _with_a_bound(with_limits_of_call(contract, request.timelimit))
        while True:
            request.guard_body_called = False
            body = EagerBody(self, task, contract, inner, args, kwargs)
            delivery = Delivery(
                request.id, task.name, contract, str(request.hostname), tells_success=False, tells_failure=False,
                hidden=body.hidden,
            )  # fmt: skip
            ending = body.travel(self.runner, delivery)
            if body.process_ends is not None:
                raise body.process_ends
            if not (isinstance(ending, Again) and ending.next.reason is Reason.RETRY):
                return self._speak(task, body, ending)

    def _speak(self, task: Any, body: CeleryBody, ending: Ending) -> Any:
        match ending:
            case Done() if body.ignored:
                raise Ignore("ignored by the body")
            case Done():
                if not follows_eagerly(task):
                    task.request.callbacks = None
                return body.value
            case Dead(error=error):
                say_dead(task, error)
                raise tellable(error)
            case Withdrawn():
                raise TaskRevokedError("cancelled")
            case Again(next=next):
                raise Ignore(str(next.reason))
            case Nothing(why=why):
                self.elsewhere = True
                raise Ignore(why)
            case HandBack() | Stale() | Unheard():
                raise LeaseLost(f"Job {self.job.id} was taken by somebody else while it ran eagerly.")


def _with_a_bound(contract: Effective) -> Effective:
    """A policy that repeats for ever is one for a worker, which waits in between."""
    if contract.retry.max_attempts is not None:
        return contract
    return replace(contract, retry=replace(contract.retry, max_attempts=MOST_RUNS))


def _too_often(job: RunningJob, error: BaseException | None) -> JobFailed:
    failed = JobFailed(
        f"Job {job.id} ran {job.attempt} times in eager mode and asks for one run more; found max_retries=None, expected a bound, for here "
        "nothing passes between two runs. To repair: give the task max_retries, or let a worker run it.",
        reason=Reason.EXHAUSTED.value,
    )
    failed.__cause__ = error
    return failed


class EagerBody(CeleryBody):
    """A body that is run by the caller itself."""

    def __init__(
        self, run: EagerRun, task: Any, contract: Effective, inner: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        super().__init__(run.runtime, task, run.request, contract, inner, args, kwargs)
        self._run = run

    def run(self, job: RunningJob) -> Outcome:
        """Run it. What ends the process ends the caller; there is nobody to give the message back to."""
        with not_collecting():
            outcome = super().run(job)
        match outcome:
            case Interrupted(error=error) if not isinstance(error, Exception):
                self.process_ends = error
            case Rejected(error=error, requeue=True):
                return Rejected(error, False)
            case RetryAsked(error=error) if self._contract.explicit_retries is None and job.attempt >= MOST_RUNS:
                return Failed(_too_often(job, error), final=Reason.EXHAUSTED)
        return outcome

    def _stored(self, job: RunningJob) -> StoredPayload | None:
        return self._run.store.payload(job.id, job.generation)

    def _follow(self) -> tuple[NewJob, ...]:
        return () if follows_eagerly(self._task) else super()._follow()

    def _mark_started(self) -> None:
        """Nobody watches."""


def follows_eagerly(task: Any) -> bool:
    """Whether what hangs on the task is run by Celery's tracer, after it, instead of being a row that settle writes."""
    return bool(task.app.conf.task_always_eager)


#: The eager job that the tracer is about to call, or that runs.
_running: ContextVar[EagerRun | None] = ContextVar("celery_guard_eager", default=None)


def eager_run(request: Any) -> EagerRun | None:
    """The eager job that this request is of."""
    run = _running.get()
    if run is None or request is None or not request.is_eager or request.id != run.job.id:
        return None
    # what a body is replaced by has its id, and is part of it
    return run if run.request in (None, request) else None


@contextmanager
def _as_running(run: EagerRun) -> Iterator[None]:
    token = _running.set(run)
    try:
        yield
    finally:
        _running.reset(token)


def apply_eagerly(
    runtime: Runtime, task: Any, plain: Callable[..., Any], args: Any, kwargs: Any, task_id: str | None,
    throw: bool | None, options: Mapping[str, Any],
) -> Any:  # fmt: skip
    """``apply``, with the job's row written first. ``plain`` is Celery's own.

    Returns Celery's ``EagerResult``; for a duplicate, one with the holder's outcome, or the holder's handle while it has none.

    Raises:
        EnqueueError: nothing was accepted; its subclasses say why.
    """
    attempt = current_attempt.get()
    if attempt is not None and attempt.job.id == task_id:
        # what the running body is replaced by is part of it
        return plain(args, kwargs, task_id=task_id, throw=throw, **options)
    runtime.tracing  # noqa: B018 - made now, before Celery calls anybody
    door = open_door(runtime)
    if isinstance(door, AsyncDoor):
        door = door.at_once()
    inner = runtime.around() if door is None else door
    if not isinstance(inner, AttemptDoor) or inner.commits_at_once:
        # a connection in no transaction: others see the job, so its lease has to be kept
        inner = runtime.store
    job = _job_of(task, args, kwargs, task_id or uuid(), dict(options))
    run = EagerRun(runtime, job, inner, alone=inner is runtime.store)
    answer = run.store.enqueue(job)
    runtime.tell_enqueued(job, answer)
    refusal = explain_refusal(job, answer)
    if refusal is not None:
        raise refusal
    if isinstance(answer, Duplicate):
        return marked(_of_holder(run, task, answer.holder, throw), answer)
    return marked(_traced(run, task, plain, throw, options), answer)


def _job_of(task: Any, args: Any, kwargs: Any, task_id: str, options: dict[str, Any]) -> NewJob:
    """The job as any other send would make it. Nothing waits for it, so it is due at once."""
    for name in ("connection", "producer", "retries", "logfile", "loglevel"):
        options.pop(name, None)
    given = {**task._get_exec_options(), **options, "task_id": task_id}
    with collecting() as collected:
        build(task, args, kwargs, given)
    [job] = collected.jobs
    return replace(job, delay=timedelta(0))


def build(task: Any, args: Any, kwargs: Any, options: Mapping[str, Any]) -> None:
    """Have the message of a job built, as if it were sent. Celery's warning that eager mode does not hold for sends is beside the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlwaysEagerIgnored)
        task.app.send_task(task.name, args, kwargs, task_type=task, **options)


def _traced(run: EagerRun, task: Any, plain: Callable[..., Any], throw: bool | None, options: Mapping[str, Any]) -> Any:
    """Have Celery trace it, with the arguments and headers as a worker would see them."""
    payload = run.runtime.encryption.decrypt_message(run.job.id, run.job.payload)
    headers = json.loads(payload.headers)
    args, kwargs, _embed = decode(payload.body, json.loads(payload.delivery), headers)
    with _as_running(run):
        found = plain(args, kwargs, task_id=run.job.id, throw=throw, **{**options, "headers": headers})
    return task.app.AsyncResult(run.job.id) if run.elsewhere else found


def _of_holder(run: EagerRun, task: Any, holder: str, throw: bool | None) -> Any:
    found = run.store.outcome(holder)
    if found is None or found[0] not in ENDED:
        return task.app.AsyncResult(holder)
    state, result, failure = found
    if state is State.SUCCEEDED:
        stored = run.runtime.encryption.decrypt_result(holder, result)
        return EagerResult(holder, decode_result(stored), states.SUCCESS, name=task.name)
    failure = run.runtime.encryption.decrypt_failure(holder, failure)
    words = "" if failure is None else f": {failure.type_name}: {failure.message}"
    error = JobFailed(f"Job {holder} ended as {state.value}{words}", "" if failure is None else failure.type_name)
    if task.app.conf.task_eager_propagates if throw is None else throw:
        raise error
    return EagerResult(holder, error, states.FAILURE, name=task.name)
