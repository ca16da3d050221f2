"""The body of one delivery on Celery's side: it is called, and what it returned, raised or sent becomes an outcome.

What Celery would send after the body (links, the chain's next step) is built here, by Celery's own code, for settle to write.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from billiard.exceptions import SoftTimeLimitExceeded
from celery import signature, states
from celery.exceptions import Ignore, Reject, Retry, WorkerShutdown, WorkerTerminate
from celery.exceptions import SoftTimeLimitExceeded as CelerySoftTimeLimit
from kombu.exceptions import EncodeError

from celery_guard.contract.contract import Effective
from celery_guard.errors import (
    EncryptionKeyError,
    EnqueueError,
    Interruption,
    JobFailed,
    PayloadError,
    PayloadVersionError,
)
from celery_guard.flow.arguments import Arguments, open_arguments
from celery_guard.flow.context import RunningJob, ownership_of
from celery_guard.flow.enqueue import Draft, seal
from celery_guard.job.delivery import Dead, Delivery, Ending, HandBack, Nothing, Withdrawn
from celery_guard.job.encryption import ciphertext_in
from celery_guard.job.envelope import HEADER, Envelope, open_header
from celery_guard.job.outcome import (
    Failed,
    HandedOver,
    Held,
    Ignored,
    Interrupted,
    Outcome,
    OutOfTime,
    Rejected,
    Replaced,
    RetryAsked,
    Returned,
    Stopped,
)
from celery_guard.job.row import NewJob, StoredPayload, StoredResult
from celery_guard.job.state import Reason
from celery_guard.watch import logs
from celery_guard.watch.tracing import RunFacts, RunSpan

from .attempt import CeleryAttempt, collecting, current_attempt
from .capture import ETA, decode_stored
from .encrypted import open_call
from .limits import greenlet_killed, greenlet_timed_out, soft_limit_allowed
from .logged import note_attempt
from .private import hidden_of
from .request import REVOKED
from .result import decode_result, encode_result

if TYPE_CHECKING:
    from celery_guard.flow.run import Runner

    from .runtime import Runtime

__all__ = ["CeleryBody"]

logger = logging.getLogger("celery_guard.run")

#: What billiard's handler of SIGTERM ends a child with.
_ENDED_BY_SIGTERM = -(256 - 15)


class CeleryBody:
    """One delivery's body, and what is left of it once it has come back."""

    def __init__(
        self,
        runtime: Runtime,
        task: Any,
        request: Any,
        contract: Effective,
        inner: Callable[..., Any],
        args: Any,
        kwargs: Any,
    ) -> None:
        self._runtime = runtime
        self._task = task
        self._contract = contract
        self._inner = inner
        self._request = request
        #: Why its arguments cannot be decrypted here, where they cannot; or that they are damaged.
        self.unopened: EncryptionKeyError | None = None
        self._damaged: Failed | None = None
        args, kwargs = self._decrypted(args, kwargs)
        self._call = args, kwargs
        #: The guard's own header; None where there is none, or none that this version can read.
        self.envelope, self.newer = _envelope(self._request.headers)
        #: A broadcast that reached this worker has revoked the job.
        self.revoked = bool(self._request.get(REVOKED))
        #: What the body returned, for Celery to be told.
        self.value: Any = None
        #: The body raised ``Ignore``, and nothing waits for it.
        self.ignored = False
        #: What ends this process, whatever becomes of the job.
        self.process_ends: BaseException | None = None
        #: What nothing that is written or told of this delivery may show.
        self.hidden = hidden_of(runtime, task, contract, args, kwargs)
        # what arrived may have shown less: it was encrypted, or an earlier message
        logs.hide(self.hidden)
        #: The span of the attempt, once there is one.
        self.span: RunSpan | None = None

    def travel(self, runner: Runner, delivery: Delivery) -> Ending:
        """Take the delivery through its journey, in a span if its body runs. Raises ``StoreUnavailableError``."""
        ending: Ending | None = None
        try:
            ending = runner.run(delivery, self)
            if self.unopened is not None and isinstance(ending, (HandBack, Dead, Withdrawn)):
                # what hangs on the job is encrypted, too: a worker that has the key will tell
                ending = Nothing(f"how it ended cannot be told from here. {self.unopened}")
            return ending
        finally:
            if isinstance(ending, (Nothing, HandBack)):
                self.span = self._not_run(ending.why if isinstance(ending, Nothing) else "told again")
            if self.span is not None:
                self.span.end(ending)

    def given(self, job: RunningJob, result: StoredResult | None) -> Outcome:
        """A duplicate inside a canvas: what hangs on it goes on with the value of the job that holds its key."""
        self.span = self._not_run("given its holder's outcome")
        try:
            self.value = decode_result(result)
        except Exception as error:  # noqa: BLE001 - what is damaged is so in any way
            return _damaged(f"The stored result that job {job.id} is given", error)
        return self._returned()

    def run(self, job: RunningJob) -> Outcome:
        """Run the body, and say in the guard's words how it came back."""
        attempt = CeleryAttempt(self._runtime, self._request, job)
        self.span = self._runtime.tracing.run(self._facts(job), self._request.headers or {})
        note_attempt(job, self.span)
        # a late copy of the first message says 0
        self._request.retries = job.retries
        self._request.eta = self._request.get(ETA) or self._request.eta
        if job.attempt - 1 > job.retries:
            # it ran before, and neither came to its end nor asked for another run: Celery's word for that
            self._request.delivery_info = {**(self._request.delivery_info or {}), "redelivered": True}
        if self.envelope is not None:
            self._runtime.skew.compare(
                str(self._request.origin), self.envelope.created, ownership_of(job).granted.created
            )
        token = current_attempt.set(attempt)
        try:
            # the first message of a job that was adopted has no envelope
            late = (0 if self.envelope is None else self.envelope.generation) != job.generation
            # what the store has may be under another key by now
            again = late or self.unopened is not None
            return (self._read_again(job) if again else None) or self._opened(job) or self._outcome(attempt)
        finally:
            current_attempt.reset(token)

    def _facts(self, job: RunningJob | None) -> RunFacts:
        request = self._request
        queue = (request.delivery_info or {}).get("routing_key")
        if job is None:
            return RunFacts(request.id, self._task.name, queue)
        return RunFacts(
            job.id, self._task.name, queue, job.attempt, job.retries, job.fence, job.tenant, job.correlation_id
        )

    def _not_run(self, why: str) -> RunSpan:
        return self._runtime.tracing.not_run(self._facts(None), self._request.headers or {}, why)

    def _read_again(self, job: RunningJob) -> Outcome | None:
        """A late copy of an earlier message woke this job up: what counts is the message that is stored. None: it was read.

        One that is for another task (the job was replaced) goes to whoever consumes its queue; one that is gone is the relay's to say.
        """
        payload = self._stored(job)
        try:
            headers = {} if payload is None else json.loads(payload.headers)
            if payload is None or self._runtime.task_named(headers["task"]) is not self._task:
                moved = JobFailed(f"Job {job.id} goes on with another message than the one that arrived here.")
                return Interrupted(moved, by_shutdown=True)
            payload = self._runtime.encryption.decrypt_message(job.id, payload)
            args, kwargs, embed = decode_stored(payload)
        except EncryptionKeyError as error:
            self.unopened = error
            return None
        except Exception as error:  # noqa: BLE001 - what is damaged is so in any way, and no later delivery finds it better
            return _damaged(f"The stored message of job {job.id} (generation {job.generation})", error)
        self.envelope, self.newer = _envelope(headers)
        self._call = args, kwargs
        if self._contract.sensitive:
            self.hidden.also(hidden_of(self._runtime, self._task, self._contract, args, kwargs))
        self.unopened = self._damaged = None
        self._take(args, kwargs, embed)
        return None

    def _decrypted(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The call as it was sent; as it came where it is plain, or cannot be decrypted."""
        text = ciphertext_in(args, kwargs)
        if text is None:
            return args, kwargs
        id = self._request.id
        try:
            opened = open_call(self._runtime.encryption, id, text)
        except EncryptionKeyError as error:
            self.unopened = error
            return args, kwargs
        except Exception as error:  # noqa: BLE001 - what is damaged is so in any way
            self._damaged = _damaged(f"The encrypted message of job {id}", error)
            return args, kwargs
        self._take(*opened)
        return opened[:2]

    def _take(self, args: Any, kwargs: Any, embed: Any) -> None:
        """Have Celery go on with this call. Its tracer has the same list and mapping, and gives them to ``on_success`` and its neighbours."""
        for held, found in ((self._request.args, args), (self._request.kwargs, kwargs)):
            if isinstance(held, list) and isinstance(found, (list, tuple)):
                held[:] = found
            elif isinstance(held, dict) and isinstance(found, dict):
                held.clear()
                held.update(found)
        self._request.update({**(embed or {}), "args": args, "kwargs": kwargs})

    def _stored(self, job: RunningJob) -> StoredPayload | None:
        return self._runtime.store.payload(job.id, job.generation)

    def _opened(self, job: RunningJob) -> Outcome | None:
        """Make the arguments what the body takes; or say why it cannot be called."""
        if self.newer is not None:
            return Held(self.newer)
        if self.unopened is not None:
            return Held(self.unopened)
        if self._damaged is not None:
            return self._damaged
        versions = {} if self.envelope is None else self.envelope.payloads
        opened = open_arguments(self._runtime.shape_of(self._task), *self._call, versions, ownership_of(job).granted)
        if not isinstance(opened, Arguments):
            return opened
        if opened.wire is self._call[1]:
            return None
        self._call = opened.args, opened.kwargs
        self._request.update({"args": opened.args, "kwargs": opened.wire})
        return None

    def _outcome(self, attempt: CeleryAttempt) -> Outcome:
        args, kwargs = self._call
        returned = False
        try:
            with soft_limit_allowed():
                self._mark_started()
                self.value = self._inner(*args, **kwargs)
                returned = True
        except (SoftTimeLimitExceeded, CelerySoftTimeLimit) as error:
            if not returned:
                return Failed(error)
        except Interruption as error:
            return Stopped(error)
        except Retry as asked:
            return self._retry_asked(attempt, asked)
        except Ignore:
            return self._ignored(attempt)
        except Reject as error:
            return Rejected(error, bool(error.requeue))
        except SystemExit as error:
            if error.code != _ENDED_BY_SIGTERM:
                return Interrupted(error, by_shutdown=False)
            return self._ended_by_the_pool(attempt.job, error)
        except (WorkerShutdown, WorkerTerminate) as error:
            self.process_ends = error
            return Interrupted(error, by_shutdown=True)
        except (KeyboardInterrupt, GeneratorExit) as error:
            return Interrupted(error, by_shutdown=False)
        except BaseException as error:  # noqa: BLE001 - every way out of a body is an outcome; settle records it
            if greenlet_killed(error) or (greenlet_timed_out(error) and self._near_limit(attempt.job)):
                return self._ended_by_the_pool(attempt.job, error)
            if attempt.kept is not None:
                return self._retry_asked(attempt, Retry(exc=error if isinstance(error, Exception) else None))
            return Failed(error, final=Reason.EXHAUSTED if attempt.exhausted else None)
        if attempt.kept is not None:
            return self._retry_asked(attempt, None)
        return self._returned()

    def _near_limit(self, job: RunningJob) -> bool:
        near = self._contract.timing.near_limit
        return near is not None and job.elapsed >= near

    def _ended_by_the_pool(self, job: RunningJob, error: BaseException) -> Outcome:
        """The pool ends its process with SIGTERM, because of the hard limit or because the worker goes down, and does not say which."""
        self.process_ends = error
        timing = self._contract.timing
        if not self._near_limit(job):
            return Interrupted(error, by_shutdown=True)
        over = TimeoutError(f"time limit: the attempt was ended after {job.elapsed}, its limit is {timing.attempt}")
        return OutOfTime(over.with_traceback(error.__traceback__))

    def _returned(self) -> Outcome:
        needed = not self._request.ignore_result or bool(self._request.chord)
        try:
            return Returned(encode_result(self._task, self.value, needed), self._follow())
        except (EncodeError, PayloadError) as error:
            return Failed(error, final=Reason.FAILED)
        except Exception as error:  # noqa: BLE001 - what follows cannot be built: the job has failed, and says why
            return Failed(error)

    def _follow(self) -> tuple[NewJob, ...]:
        """The rows of what Celery hangs on this job's success, built by Celery's own code."""
        request = self._request
        if not request.callbacks and not request.chain:
            return ()
        options = {
            "parent_id": request.id,
            "root_id": request.root_id or request.id,
            "priority": request.delivery_info.get("priority")
            if self._task.app.conf.task_inherit_parent_priority
            else None,
        }
        with collecting(by_celery=True) as collected:
            for link in request.callbacks or ():
                signature(link, app=self._task.app).apply_async((self.value,), **options)
            if request.chain:
                rest = list(request.chain)
                signature(rest.pop(), app=self._task.app).apply_async((self.value,), chain=rest, **options)
        return tuple(collected.jobs)

    def _retry_asked(self, attempt: CeleryAttempt, asked: Retry | None) -> Outcome:
        kept = attempt.kept
        error = None if asked is None else asked.exc
        if kept is None:
            assert asked is not None
            return RetryAsked(error, _seconds(asked.when), bounded=False)
        try:
            payload = self._next_payload(kept, attempt.changed, attempt.job.generation)
        except EnqueueError as refused:
            # too large, say: the message that would carry the job on cannot be stored
            return Failed(refused, final=Reason.FAILED)
        queue = kept.queue if attempt.changed else None
        return RetryAsked(error, kept.delay if attempt.delayed else None, payload, queue)

    def _ignored(self, attempt: CeleryAttempt) -> Outcome:
        if attempt.kept is not None:
            return self._retry_asked(attempt, None)
        if attempt.handed_over is None:
            # a chord would wait for ever for the part of a member that says nothing
            self.ignored = not self._request.chord
            return Ignored()
        for index, job in enumerate(attempt.handed_over):
            if job.id == self._request.id:
                others = tuple(attempt.handed_over[:index] + attempt.handed_over[index + 1 :])
                return Replaced(job, others)
        return HandedOver(tuple(attempt.handed_over))

    def _next_payload(self, kept: Draft, changed: bool, generation: int) -> StoredPayload | None:
        """The message of the next generation; None where it is this one again, byte for byte."""
        if not changed:
            return None
        envelope = self.envelope or Envelope(id=self._request.id)
        next_one = replace(envelope, generation=generation + 1, payloads=kept.versions)
        return seal(kept, next_one, self._runtime.settings.payload_limit, self._runtime.encryption)

    def _mark_started(self) -> None:
        if getattr(self._task, "guard_track_started", False) and not self._request.ignore_result:
            meta = {"pid": os.getpid(), "hostname": self._request.hostname}
            try:
                self._task.backend.store_result(self._request.id, meta, states.STARTED, request=self._request)
            except Exception as error:  # noqa: BLE001 - whatever ails the backend, the body can run
                logger.warning("job %s: Celery could not be told that it has started: %r", self._request.id, error)


def _damaged(what: str, error: Exception) -> Failed:
    """It is the same for every delivery, so the job ends here, where a person sees it."""
    failed = JobFailed(
        f"{what} cannot be read: {type(error).__name__}: {error}. It was damaged in the store.",
        reason=Reason.FAILED.value,
    )
    failed.__cause__ = error
    return Failed(failed, final=Reason.FAILED)


def _envelope(headers: Mapping[str, Any] | None) -> tuple[Envelope | None, PayloadVersionError | None]:
    """The envelope of a message; or that it is of a newer version of the guard."""
    found = open_header((headers or {}).get(HEADER))
    if isinstance(found, Envelope):
        return found, None
    return None, PayloadVersionError(f"{found.reason}.", found.version or 0) if found.newer else None


def _seconds(when: Any) -> timedelta | None:
    return timedelta(seconds=float(when)) if isinstance(when, (int, float)) else None
