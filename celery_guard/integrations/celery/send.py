"""The door: the one funnel of every send, ``app.send_task``, opened onto the store.

delay, apply_async, every canvas, beat, sends by name and retries all pass here. Where a send goes:

=====================================================  ==================================================================
the id of the attempt that is running (retry, replace)  kept: settle writes it as the next generation of that job
inside ``collecting()``                                gathered: written in one go (settle's follow-ups, ``enqueue_many``)
a member of a group that Celery is sending            gathered: written together, where the others go
inside ``using(transaction)``                          a row in the caller's transaction; tasks without a guard are carried
a guarded task inside Django's ``atomic()``            a row in that transaction, where the store is in Django's database
a guarded task elsewhere                               a row of its own, committed at once
a task without a guard elsewhere                       Celery's own send, untouched; also one with, while ``leaving``,
                                                       unless a row waits for this very id
=====================================================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from celery.utils.time import maybe_make_aware
from kombu.exceptions import EncodeError
from kombu.serialization import dumps, loads

from celery_guard.contract.codec import first_unencodable
from celery_guard.contract.contract import Effective
from celery_guard.contract.sensitive import secret_for
from celery_guard.contract.shape import Wired
from celery_guard.errors import EnqueueError, PayloadError
from celery_guard.flow.context import running_job
from celery_guard.flow.enqueue import Draft, aenqueue, carry, enqueue, prepare
from celery_guard.job.refusal import explain_refusal
from celery_guard.job.row import NewJob, StoredResult
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted, Buffered, Duplicate, Enqueued

from .attempt import Collected, collector, current_attempt
from .capture import ETA, Captured, capture
from .groups import members_of
from .hanging import once_it_can_be_written
from .items import instead
from .logged import call_without_values
from .passage import open_door
from .private import hidden_of, said_safely
from .result import handle_on, marked
from .slots import answer_for, due_for, is_due, with_slot
from .traced import building

if TYPE_CHECKING:
    from celery_guard.store.door import Door
    from celery_guard.watch.tracing import EnqueueSpan

    from .kinds import KeptKinds, Kinds
    from .runtime import Runtime

__all__ = ["Sender"]

#: Options that mean something hangs on the outcome under this very id.
_CANVAS = ("group_id", "chord", "chain", "link", "link_error")

#: The option by which one send is gathered, and none that is made meanwhile.
_INTO = "guard_into"


class Sender:
    """Replaces ``app.send_task``."""

    def __init__(self, runtime: Runtime, plain: Callable[..., Any]) -> None:
        self._runtime = runtime
        self._app = runtime.app
        self._plain = plain
        self._kinds: KeptKinds | None = None

    def __call__(
        self,
        name: str,
        args: Any = None,
        kwargs: Any = None,
        countdown: float | None = None,
        eta: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        connection: Any = None,
        **options: Any,
    ) -> Any:
        """As ``Celery.send_task``, which documents the arguments.

        Raises:
            EnqueueError: nothing was accepted; its subclasses say why.
        """
        ours = instead(self._runtime, name, kwargs)
        if ours != name:
            name, options["task_type"] = ours, self._runtime.task_named(ours)
        task = options.get("task_type") or self._runtime.task_named(name)
        contract = self._runtime.contract_of(task)
        gather: Collected | None = options.pop(_INTO, None) or collector()
        leaves = contract is not None and self._runtime.leaves(task) and _is_new(task_id, gather)
        if leaves and not self._awaited(task_id):
            contract = None
        if contract is None and gather is None and not _brings_back(name, task_id) and self._door() is None:
            return self._plain(
                name, args, kwargs, countdown=countdown, eta=eta, task_id=task_id, producer=producer,
                connection=connection, **options,
            )  # fmt: skip
        if connection is not None:
            self._refuse_other_broker(name, connection)
        new = contract is not None and _is_new(task_id, gather)
        try:
            with building(self._runtime, name, guarded=contract is not None, new=new) as span:
                return self._send(
                    name, args or (), kwargs or {}, countdown, eta, task_id, task, contract, span, gather, options
                )
        except Exception as error:
            safe = said_safely(error, hidden_of(self._runtime, task, contract, args, kwargs))
            if safe is error:
                raise
        # outside of the handler: the error that it takes the place of must not hang on it
        raise safe

    def _send(
        self, name: str, args: Any, kwargs: Any, countdown: Any, eta: Any, task_id: str | None, task: Any,
        contract: Effective | None, span: EnqueueSpan, gather: Collected | None, options: dict[str, Any],
    ) -> Any:  # fmt: skip
        by_celery = gather is not None and gather.by_celery
        due = due_for(name) if contract is not None and task_id is None else None
        slot = None if due is None else due.slot()
        if slot is not None:
            task_id, options = slot.id, with_slot(slot, options)
        wired = self._wired(task, contract, args, kwargs, gather)
        build = capture if gather is None or gather.alike is None else gather.alike.capture
        draft, captured = self._draft(name, wired, countdown, eta, task_id, task, contract, by_celery, options, build)
        span.built(draft.id, draft.queue, draft.headers)
        attempt = current_attempt.get()
        if attempt is not None and gather is None and draft.id == attempt.job.id:
            attempt.kept = draft
            return captured.result
        job = self._row(draft, contract, task)
        if due is not None:
            job = replace(job, schedule=due.schedule)
        if gather is not None:
            gather.add(job, captured.result)
            return captured.result
        if (members := members_of(self, options)) is not None:
            members.add(job, captured.result, of_chord=bool(options.get("chord")))
            return captured.result
        answer = self._write([job], self._door())[0]
        self._tell([job], [answer])
        span.answered(answer)
        return self._enqueued(job, captured.result, answer if slot is None else answer_for(slot, answer))

    def kinds_of(self, task: Any, args: Any, kwargs: Any, options: Mapping[str, Any]) -> Kinds | None:
        """The kinds of a call that starts a job by itself, out of which it may be worked out; None where it has to go all the way."""
        if collector() is not None or is_due():
            return None
        if not (args is None or type(args) in (list, tuple)) or not (kwargs is None or type(kwargs) is dict):
            return None
        if self._kinds is None:
            from .kinds import KeptKinds

            self._kinds = KeptKinds()
        return self._kinds.of(task, options)

    def enqueue_one(self, kinds: Kinds, args: Any, kwargs: Any, all_the_way: Callable[..., Any]) -> Any:
        """Write the job of one call, worked out or built ``all_the_way``; its handle, or what speaks against it.

        That one alone is gathered: what a function of the contract sends meanwhile, or a handler of a signal, is a send like any other.
        """
        known = kinds.worked_out(args, kwargs)
        if known is None:
            gathered = Collected()
            result = all_the_way(**{_INTO: gathered})
            if not gathered.jobs:
                return result
            known = gathered.jobs[0], result
            kinds.learn(args, kwargs, *known)
        job, result = known
        try:
            answer = self._write([job], self._door())[0]
            self._tell([job], [answer])
            return self._enqueued(job, result, answer)
        except Exception as error:
            contract = self._runtime.contract_of(kinds.task)
            safe = said_safely(error, hidden_of(self._runtime, kinds.task, contract, args, kwargs))
            if safe is error:
                raise
        # outside of the handler: the error that it takes the place of must not hang on it
        raise safe

    def enqueue_many(self, gathered: Collected) -> list[Any]:
        """Write all that was gathered, in one transaction or through the open door; the handles, in order."""
        return self._handles(gathered, self._write(gathered.jobs, self._door()))

    def _write(self, jobs: Sequence[NewJob], door: Door | None) -> list[Enqueued]:
        return once_it_can_be_written(lambda: enqueue(door or self._runtime.around(), jobs))

    def enqueue_members(self, gathered: Collected) -> None:
        """Write the members of a group. Raises what speaks against the first that was refused; the others are accepted."""
        handles = self.enqueue_many(gathered)
        for job, handle in zip(gathered.jobs, handles, strict=True):
            refusal = explain_refusal(job, handle.answer)
            if refusal is not None:
                raise refusal

    async def aenqueue_many(self, gathered: Collected) -> list[Any]:
        """As :meth:`enqueue_many`, without holding up the event loop. A transaction of Django's is a thread's, and no coroutine is in it."""
        return self._handles(gathered, await aenqueue(self._runtime.store, self._door(), gathered.jobs))

    async def aenqueue(self, gathered: Collected) -> Any:
        """Write the job that was gathered, behind what a contract's function has sent meanwhile; its handle, or what speaks against one."""
        handles = await self.aenqueue_many(gathered)
        for job, handle in zip(gathered.jobs, handles, strict=True):
            refusal = explain_refusal(job, handle.answer)
            if refusal is not None:
                raise refusal
        return handles[-1]

    def _door(self) -> Door | None:
        return open_door(self._runtime) if self._runtime.meant else None

    def _awaited(self, task_id: str | None) -> bool:
        """Whether a row waits for this very send: its job has replaced itself by a canvas, whose last step brings its id back."""
        job = None if task_id is None else self._runtime.store.job(task_id)
        return job is not None and job.state is State.PENDING and job.reason is Reason.HANDED_OVER

    def _row(self, draft: Draft, contract: Effective | None, task: Any) -> NewJob:
        limit = self._runtime.settings.payload_limit
        if contract is None:
            if draft.expires_in is not None:
                # no claim will look at the row's deadline; the worker looks at the header, as ever
                draft.headers["expires"] = (self._app.now() + draft.expires_in).isoformat()
            return carry(draft, limit)
        return prepare(
            draft,
            contract,
            self._runtime.shape_of(task).signature,
            running_job.get(),
            limit,
            secret_for(contract, self._runtime.settings),
            self._runtime.encryption,
        )

    def _wired(self, task: Any, contract: Effective | None, args: Any, kwargs: Any, gather: Collected | None) -> Wired:
        if contract is None:
            return Wired(args, kwargs)
        if gather is not None and gather.versions is not None:
            return Wired(args, kwargs, gather.versions)
        return self._runtime.shape_of(task).wire(args, kwargs, by_celery=gather is not None and gather.by_celery)

    def _draft(
        self, name: str, wired: Wired, countdown: Any, eta: Any, task_id: str | None, task: Any,
        contract: Effective | None, by_celery: bool, options: dict[str, Any], build: Callable[..., Captured],
    ) -> tuple[Draft, Captured]:  # fmt: skip
        args, kwargs = wired.args, wired.kwargs
        in_canvas = by_celery or any(options.get(option) for option in _CANVAS)
        expires = options.pop("expires", getattr(task, "expires", None))
        try:
            shown = {} if contract is None else call_without_values(args, kwargs)
            captured = build(self._app, name, args, kwargs, {**shown, **options, "task_id": task_id, "expires": None})
        except EncodeError as error:
            raise self._unencodable(name, args, kwargs, options, error) from error
        headers = captured.headers
        delay = max(timedelta(0), self._from_now(countdown, eta))
        if delay:
            headers[ETA] = (self._app.now() + delay).isoformat()
        draft = Draft(
            id=headers["id"],
            task=name,
            queue=captured.queue,
            args=args,
            kwargs=kwargs,
            came_back=None if by_celery or name.startswith("celery.") else captured.decoded(),
            body=captured.body,
            headers=headers,
            delivery=captured.delivery,
            priority=options.get("priority"),
            delay=delay,
            expires_in=None if expires is None else self._from_now(None, expires),
            in_canvas=in_canvas,
            parent_id=headers.get("parent_id"),
            root_id=headers.get("root_id"),
            group_id=headers.get("group"),
            versions=wired.versions,
            payloads=wired.payloads,
        )
        return draft, captured

    def _enqueued(self, job: NewJob, result: Any, answer: Enqueued) -> Any:
        refusal = explain_refusal(job, answer)
        if refusal is not None:
            raise refusal
        return self._handle(result, answer)

    def _handles(self, gathered: Collected, answers: Sequence[Enqueued]) -> list[Any]:
        self._tell(gathered.jobs, answers)
        return [self._handle(result, answer) for result, answer in zip(gathered.results, answers, strict=True)]

    def _tell(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        # a process that only declares tasks needs none of it
        from celery_guard.job.event import Enqueued as Told

        heard = self._runtime.observers.hear(Told)
        for job, answer in zip(jobs, answers, strict=True):
            if heard or type(answer) is not Accepted:
                self._runtime.tell_enqueued(job, answer)

    def _handle(self, result: Any, answer: Enqueued) -> Any:
        """Celery's handle, marked. A bare duplicate's handle is that of the job that holds the key."""
        if isinstance(answer, Duplicate):
            result = self._handle_on_holder(type(result), answer)
        elif isinstance(answer, (Accepted, Buffered)):
            self._runtime.listen_for(answer.id, result)
        if isinstance(answer, Buffered):
            answer.heard = partial(marked, result)
        return marked(result, answer)

    def _handle_on_holder(self, kind: Any, answer: Duplicate) -> Any:
        if answer.state is not State.SUCCEEDED:
            return kind(answer.holder)

        def stored() -> StoredResult | None:
            found = self._runtime.store.outcome(answer.holder)
            return None if found is None else self._runtime.encryption.decrypt_result(answer.holder, found[1])

        return handle_on(kind, answer.holder, stored)

    def _from_now(self, seconds: float | None, instant: Any) -> timedelta:
        """A duration from now: by this process's clock, against which the caller has written its instant."""
        if seconds is not None:
            return timedelta(seconds=float(seconds))
        if instant is None:
            return timedelta(0)
        if isinstance(instant, (int, float)):
            return timedelta(seconds=float(instant))
        if isinstance(instant, timedelta):
            return instant
        if isinstance(instant, str):
            instant = datetime.fromisoformat(instant.replace("Z", "+00:00"))
        aware: datetime = maybe_make_aware(instant, self._app.timezone)
        now: datetime = maybe_make_aware(self._app.now(), self._app.timezone)
        return aware - now

    def _refuse_other_broker(self, name: str, connection: Any) -> None:
        mine, other = self._app.connection_for_write(), connection
        if other.as_uri() != mine.as_uri():
            raise EnqueueError(
                f"{name}: connection= names another broker ({other.as_uri()}) than the app's ({mine.as_uri()}). A guarded "
                "job is published by the relay, to the app's broker. Leave connection= out, or give that app a guard of its own."
            )

    def _unencodable(
        self, name: str, args: Any, kwargs: Any, options: dict[str, Any], error: Exception
    ) -> PayloadError:
        serializer = options.get("serializer") or self._app.conf.task_serializer

        def encodes(value: object) -> bool:
            try:
                content_type, encoding, data = dumps(value, serializer=serializer)
                loads(data, content_type, encoding, accept={content_type})
            except (EncodeError, TypeError, ValueError):
                return False
            return True

        for root, value in (("args", args or ()), ("kwargs", kwargs or {})):
            path = first_unencodable(value, encodes, root)
            if path is not None:
                return PayloadError(
                    f"{name}: {path} cannot be encoded as {serializer}: {error}. "
                    "Pass a value that the serializer keeps, such as a string, a number or an id.",
                    path,
                )
        return PayloadError(f"{name}: the message cannot be encoded as {serializer}: {error}.", "")


def _is_new(task_id: str | None, gather: Collected | None) -> bool:
    """Whether a send starts a job: it is no retry or replacement of the one that runs here, and no message that is there already."""
    attempt = current_attempt.get()
    goes_on = attempt is not None and task_id == attempt.job.id
    return not goes_on and (gather is None or gather.versions is None)


def _brings_back(name: str, task_id: str | None) -> bool:
    """Celery's own task that ends a group in place of the task that was replaced by it: its row waits in the store."""
    return name == "celery.accumulate" and task_id is not None
