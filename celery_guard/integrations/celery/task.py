"""``GuardedTask``: the base class that makes a task's jobs safe.

``base=GuardedTask`` on a task, ``Celery(task_cls=GuardedTask)`` for all, ``@shared_task(base=GuardedTask)``, or a class of your own
that inherits from it. What Celery calls around a body it goes on calling; the body itself is called by the guard.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from celery import Task
from celery.app.task import Context
from celery.exceptions import Ignore
from celery.result import denied_join_result

from celery_guard.contract.contract import Contract
from celery_guard.errors import ContractError
from celery_guard.flow.context import RunningJob, current_job
from celery_guard.integrations.django import is_djangos
from celery_guard.job.envelope import HEADER
from celery_guard.store.door import AsyncDoor

from .attempt import Collected, collecting, current_attempt
from .declared import body_of
from .install import install
from .passage import open_door
from .private import concealing
from .runtime import Runtime, runtime_of
from .signals import job_dead
from .tell import GoingOn, Telling
from .using import Using

__all__ = ["GuardedTask"]

_Call = Callable[..., Any]

#: Marks a ``__call__`` or ``before_start`` that already is the guard's.
_WRAPPED = "_celery_guard_wraps"


class GuardedTask(Task):  # type: ignore[misc]
    """A Celery task whose jobs are rows of the store. See :class:`~celery_guard.Contract` for what it may promise."""

    abstract = True
    guarded: ClassVar[bool] = True
    Request = "celery_guard.integrations.celery.request:GuardedRequest"

    #: What the task promises; None: what Celery's own options say, and safe defaults.
    contract: Contract | None = None
    #: ``track_started`` as declared. The guard reports STARTED itself, once the job is claimed.
    guard_track_started: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wrap a subclass's own ``__call__`` and ``before_start``, from wherever it inherits them.

        Raises ``ContractError`` for one that takes its messages past the tracer, as ``celery_batches.Batches`` does.
        """
        super().__init_subclass__(**kwargs)
        if cls.Strategy != Task.Strategy:
            raise ContractError(
                f"{cls.__module__}.{cls.__qualname__}: its `Strategy` takes messages from the worker in a way of its own (several at once, "
                "as celery-batches does), so no job of it could be claimed, counted or settled. Give the guard tasks with Celery's "
                "own Strategy: leave GuardedTask out of this one's bases, or have one job do the work of a batch."
            )
        for name, wrap in (("__call__", _guarded_call), ("before_start", _inside_the_claim)):
            found = getattr(cls, name)
            if not hasattr(found, _WRAPPED) and found is not getattr(Task, name):
                setattr(cls, name, wrap(found))

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Called by Celery when the task is bound to an app: its sends go through the guard's door from now on.

        Raises ``ContractError`` where the contract makes no sense.
        """
        super().on_bound(app)
        runtime = install(app, {})
        task = app._tasks.get(cls.name)
        if isinstance(task, cls):
            runtime.contract_of(task)
        cls.guard_track_started = cls.guard_track_started or bool(cls.track_started)
        cls.track_started = False

    @property
    def job(self) -> RunningJob:
        """The job that is running here. Raises ``RuntimeError`` outside a guarded body."""
        return current_job()

    @property
    def backend(self) -> Any:
        """The result backend. While Celery is told how a job ended, one whose troubles do not change that end."""
        plain = self._backend if self._backend is not None else self.app.backend
        plain = concealing(plain, self._guard, self)
        request = self.request_stack.top
        if getattr(request, "guard_tells", None) is not None:
            return Telling(plain, self._guard.keeper)
        end = getattr(request, "guard_goes_on", None)
        return plain if end is None else GoingOn(plain, end)

    @backend.setter
    def backend(self, value: Any) -> None:
        self._backend = value

    def using(self, transaction: Any) -> Using:
        """Enqueue in a transaction of yours: the job goes out if, and only if, it commits.

        ``transaction`` is an SQLAlchemy ``Session`` or ``Connection``, one of their ``Async`` kinds, or a connection of Django's or its
        alias, on the store's database; savepoints are honoured.

        Raises:
            TypeError: the guard has no door for such an object.
            TransactionError: its driver is not supported.
            WrongDatabaseError: it is not on the store's database.
        """
        return Using(self, self._guard.door(transaction), self._guard)

    def enqueue_many(
        self, calls: Iterable[Mapping[str, Any] | list[Any] | tuple[Any, ...]], **options: Any
    ) -> list[Any]:
        """Enqueue many calls in one transaction: a mapping is keyword arguments, a list or tuple positional ones.

        ``options`` are those of ``apply_async``. Returns the handles in order; ``handle.answer`` says of each whether it was
        ``Accepted``, a ``Duplicate``, or refused (``Conflict``, ``Busy``), which does not stop the others.
        """
        collected, results = self._collected(calls, options)
        # nothing is gathered where Celery has run the calls at once (task_always_eager)
        return collected.handles_of(results, self._guard.sender.enqueue_many(collected)) if collected.jobs else results

    async def adelay(self, *args: Any, **kwargs: Any) -> Any:
        """As ``delay``, for coroutines: the row is written when this returns, and the event loop was not held up.

        Inside ``using`` of an ``AsyncSession`` or ``AsyncConnection`` it is written into that transaction at once, and the handle says
        what the database answered; elsewhere another thread commits a row of its own.

        Raises:
            EnqueueError: nothing was accepted; its subclasses say why.
        """
        return await self.aapply_async(args, kwargs)

    async def aapply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """As ``apply_async``, for coroutines; see :meth:`adelay`."""
        door = open_door(self._guard)
        if self.app.conf.task_always_eager and isinstance(door, AsyncDoor):
            return await door.run(lambda: self.apply_async(args, kwargs, **options))
        with collecting() as collected:
            result = self.apply_async(args, kwargs, **options)
        return await self._guard.sender.aenqueue(collected) if collected.jobs else result

    async def aenqueue_many(
        self, calls: Iterable[Mapping[str, Any] | list[Any] | tuple[Any, ...]], **options: Any
    ) -> list[Any]:
        """As :meth:`enqueue_many`, for coroutines; see :meth:`adelay`."""
        collected, results = self._collected(calls, options)
        if not collected.jobs:
            return results
        return collected.handles_of(results, await self._guard.sender.aenqueue_many(collected))

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> Any:
        """As the tasks that Celery makes for Django have it; see :meth:`apply_async_on_commit`."""
        return self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(self, *args: Any, **options: Any) -> Any:
        """As Celery's for Django. With the store in Django's database it is ``apply_async``, which commits with the transaction
        as it is; with another store it is Celery's own: a hook, whose job is lost when the process dies before it has run.
        """
        if is_djangos(self._guard.settings.store):
            return self.apply_async(*args, **options)
        from celery.contrib.django.task import DjangoTask

        return DjangoTask.apply_async_on_commit(self, *args, **options)

    def on_dead(self, job_id: str, error: BaseException) -> None:
        """Called once a job of this task is dead or dropped, by the attempt that tells Celery; override as you like.

        One hook for every way there that a worker can tell of: a permanent failure, exhausted retries (also those of
        ``self.retry``), crashes, expiry. Not for a job whose message reaches no worker (unpublishable, unknown task): there is none to
        call it. It is called again if the process dies before Celery was told. What it raises is logged and changes nothing.
        """

    def hears_of_death(self) -> bool:
        """Whether anybody listens to :meth:`on_dead` or its signal, so that it has to be told again after a crash."""
        return type(self).on_dead is not GuardedTask.on_dead or bool(job_dead.receivers)

    def retry(
        self, args: Any = None, kwargs: Any = None, exc: Any = None, throw: bool = True, eta: Any = None,
        countdown: float | None = None, max_retries: int | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """As Celery's ``retry``, but nothing is sent from here: the attempt is settled first, and the relay brings it back."""
        attempt = current_attempt.get()
        if attempt is None or self.request.called_directly or self.request.id != attempt.job.id:
            return super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        shape = self._guard.shape_of(self)
        if args and shape.named:
            args, kwargs = shape.replaced(args, self.request.kwargs if kwargs is None else kwargs)
        attempt.changed = args is not None or kwargs is not None or bool(options)
        attempt.delayed = eta is not None or countdown is not None or not self._retry_declared()
        try:
            asked = super().retry(args, kwargs, exc, False, eta, countdown, max_retries, **options)
        except BaseException:
            attempt.exhausted = attempt.kept is None
            raise
        if self.request.is_eager:
            # Celery leaves it to apply to call this again; here settle does, with the message that would have been sent
            from .eager import build

            again = asked.sig
            build(self, again.args, again.kwargs, again.options)
        if throw:
            raise asked
        return asked

    def apply_async(self, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
        """As Celery's, which documents the arguments. Under ``task_always_eager`` Celery would pass on what came back from the serializer;
        here the arguments are checked first, as for any send."""
        sender = self._guard.sender
        kinds = None if more else sender.kinds_of(self, args, kwargs, options)
        if kinds is not None:
            all_the_way = functools.partial(super().apply_async, args, kwargs, **options)
            return sender.enqueue_one(kinds, args or (), kwargs or {}, all_the_way)
        at_once = self.app.conf.task_always_eager and not more and self._guard.runs_eagerly(self)
        if not at_once or getattr(self, "_dump_pydantic_arguments", None) is not None:
            return super().apply_async(args, kwargs, *more, **options)
        with denied_join_result():
            return self.apply(args, kwargs, **options)

    def apply(
        self, args: Any = None, kwargs: Any = None, link: Any = None, link_error: Any = None, task_id: str | None = None,
        retries: int | None = None, throw: bool | None = None, logfile: Any = None, loglevel: Any = None,
        headers: Any = None, **options: Any,
    ) -> Any:  # fmt: skip
        """As Celery's ``apply``, and ``delay`` under ``task_always_eager``: the job is run here, at once.

        It takes the same journey as in a worker: its row, a claim, the body, the settle; inside ``using`` in that transaction. What is to
        be retried is run again at once. Without a configured store it is Celery's own: the body is called, and nothing is promised.

        Raises:
            EnqueueError: nothing was accepted; its subclasses say why.
        """
        plain = super().apply
        more = {
            "link": link,
            "link_error": link_error,
            "retries": retries,
            "logfile": logfile,
            "loglevel": loglevel,
            "headers": headers,
        }
        options.update({name: value for name, value in more.items() if value is not None})
        if not self._guard.runs_eagerly(self):
            return plain(args, kwargs, task_id=task_id, throw=throw, **options)
        from .eager import apply_eagerly

        return apply_eagerly(self._guard, self, plain, args, kwargs, task_id, throw, options)

    def on_replace(self, sig: Any) -> Any:
        """As Celery's: the replacement is gathered here and written by settle."""
        attempt = current_attempt.get()
        if attempt is None or self.request.is_eager or self.request.id != attempt.job.id:
            return super().on_replace(sig)
        with collecting(by_celery=True) as collected:
            sig.delay()
        attempt.handed_over = collected.jobs
        raise Ignore("Replaced by new task")

    def _collected(self, calls: Iterable[Any], options: Mapping[str, Any]) -> tuple[Collected, list[Any]]:
        from .alike import Alike
        from .kinds import kinds_of_many

        results = []
        kinds = kinds_of_many(self, calls, options)
        with collecting(alike=Alike()) as collected:
            for call in calls:
                args, kwargs = ((), call) if isinstance(call, Mapping) else (tuple(call), {})
                known = kinds.worked_out(args, kwargs) if kinds is not None and kinds.hold() else None
                if known is not None:
                    collected.add(*known)
                    result = known[1]
                else:
                    result = self.apply_async(args, kwargs, **options)
                    if kinds is not None and collected.results and collected.results[-1] is result:
                        kinds.learn(args, kwargs, collected.jobs[-1], result)
                results.append(result)
        return collected, results

    def _retry_declared(self) -> bool:
        contract = self._guard.contract_of(self)
        return contract is not None and contract.retry_declared

    @property
    def _guard(self) -> Runtime:
        return runtime_of(self.app)


def _guarded_call(original: _Call) -> _Call:
    """Put the guard outermost around a ``__call__``; everything that it calls in turn passes through unguarded."""

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = self.request_stack.top
        eager = _eager_run(request)
        if not (eager or _is_delivery(request)) or getattr(request, "guard_entered", False):
            return original(self, *args, **kwargs)
        request.guard_entered = True
        runtime = runtime_of(self.app)
        if not (request.headers or {}).get(HEADER) and runtime.leaves(self):
            return _unguarded(self, original, args, kwargs)
        _choose_at_each_call(self)

        def body(*args: Any, **kwargs: Any) -> Any:
            hook = getattr(type(self).before_start, _WRAPPED, None)
            if hook is not None:
                hook(self, request.id, args, kwargs)
            return original(self, *args, **kwargs)

        if eager is not None:
            return eager.perform(self, body, args, kwargs)
        from .perform import perform

        return perform(runtime, self, request, body, args, kwargs)

    setattr(__call__, _WRAPPED, original)
    return __call__


def _choose_at_each_call(task: Any) -> None:
    """Have ``run`` be the bare body in a guarded delivery, and what Celery has wrapped around it (autoretry) anywhere else.

    The task is shared by all threads of a process, so which of the two it is follows from the request that is being run.
    """
    celerys, body = task.run, body_of(task)
    if celerys is body or hasattr(celerys, _WRAPPED):
        return

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        request = task.request_stack.top
        guarded = getattr(request, "guard_entered", False) and not getattr(request, "guard_stands_aside", False)
        return (body if guarded else celerys)(*args, **kwargs)

    setattr(run, _WRAPPED, celerys)
    task.run = run


def _unguarded(task: Any, original: _Call, args: Any, kwargs: Any) -> Any:
    """A delivery of Celery's own, while the guard is taken out: as if the task had no guard, its autoretry included."""
    task.request_stack.top.guard_stands_aside = True
    hook = getattr(type(task).before_start, _WRAPPED, None)
    if hook is not None:
        hook(task, task.request.id, args, kwargs)
    return original(task, *args, **kwargs)


def _plain_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``GuardedTask.__call__`` without the guard: the delivery's own body once, and a plain function call otherwise.

    The first call inside a delivery (the tracer's, or ``super().__call__`` of a subclass) must not push a second request:
    the body would lose its id.
    """
    request = self.request_stack.top
    if request is not None and not request.called_directly and not getattr(request, "guard_body_called", False):
        request.guard_body_called = True
        return self.run(*args, **kwargs)
    return Task.__call__(self, *args, **kwargs)


def _inside_the_claim(original: _Call) -> _Call:
    """``before_start`` runs after the claim: if it raises, the attempt has failed, and a duplicate never calls it."""

    @functools.wraps(original)
    def before_start(self: Any, task_id: str, args: Any, kwargs: Any) -> None:
        request = self.request_stack.top
        if not (_is_delivery(request) or _eager_run(request)):
            original(self, task_id, args, kwargs)

    setattr(before_start, _WRAPPED, original)
    return before_start


def _is_delivery(request: Context | None) -> bool:
    """Whether this is the request of a message that a worker is tracing; not a function call, and not eager."""
    return request is not None and not request.called_directly and not request.is_eager


def _eager_run(request: Context | None) -> Any:
    """The eager run that this request belongs to; None for any other."""
    if request is None or not request.is_eager:
        return None
    from .eager import eager_run

    return eager_run(request)


GuardedTask.__call__ = _guarded_call(_plain_call)
