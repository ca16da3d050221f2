"""What the guard does at a worker's boot, and what it changes in its consumer.

A message that nobody can open is set aside, not dropped.

Celery acknowledges and forgets a message that it cannot decode, and stores FAILURE for a task it does not know, though another
worker of the fleet may know it. Undecodable messages go to quarantine, as raw bytes. A guarded job whose task is unknown here is
given back to the store: it is offered again, a bounded number of times, and then it is a dead letter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from billiard import get_start_method
from celery import bootsteps

from celery_guard.errors import ConfigurationError, GuardError, StoreError, StoreUnavailableError
from celery_guard.flow import lease, run, skew  # noqa: F401 - see below
from celery_guard.flow.admin.keys import unknown_keys
from celery_guard.job.envelope import HEADER
from celery_guard.watch.json_lines import need_json

# What the children of a pool need is imported before they are forked: once, and shared by them.
from . import perform  # noqa: F401
from .facts import log_findings
from .opening import named_task, why_unfit
from .private import quiet_pool
from .raw import as_text, delivery_of, raw_body
from .redis_broker import refuse_old_broker
from .refusal import refusal
from .runtime import runtime_of

__all__ = ["BootStep", "ConsumerStep"]

logger = logging.getLogger("celery_guard.worker")

_Handler = Callable[..., Any]


class BootStep(bootsteps.Step):  # type: ignore[misc]
    """What a worker finds out before it starts: that its store is there, and what is unsafe about its settings."""

    #: For the number of bodies that it may have at work.
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        runtime = runtime_of(worker.app)
        if not runtime.meant:
            logger.warning(
                "this app knows guarded tasks of another app and has no guard of its own: it cannot run them"
            )
            return
        if not worker.pool_cls.__module__.endswith("prefork"):
            bodies = max(worker.concurrency or 1, worker.max_concurrency or 1)
            runtime.connections = max(runtime.connections, bodies + 4)
        try:
            runtime.guard_named()
            runtime.register_aliases()
            if runtime.settings.log_format == "json":
                need_json()
            quiet_pool()
            runtime.encryption  # noqa: B018 - refuses keys that are none, before a job is taken
            runtime.tracing  # noqa: B018 - made now, before any child
            self._refuse_strange_children(worker, runtime)
            refuse_old_broker(worker.app)
            self._look(worker, runtime)
        except GuardError as error:
            raise refusal("worker", error) from error

    def _refuse_strange_children(self, worker: Any, runtime: Any) -> None:
        """A child that is spawned declares its tasks anew, and would run those that are guarded from outside without the guard."""
        spawns = getattr(worker, "pool_start_method", "fork") != "fork" or get_start_method() != "fork"
        if runtime.guarded_from_outside and spawns and worker.pool_cls.__module__.endswith("prefork"):
            raise ConfigurationError(
                f"contracts: found {len(runtime.guarded_from_outside)} tasks that are guarded only by a contract beside them, such as "
                f"{min(runtime.guarded_from_outside)!r}, and children that are spawned, which would not know. To repair: let the pool fork "
                "(worker_pool_start_method), or give the tasks base=GuardedTask."
            )

    def _look(self, worker: Any, runtime: Any) -> None:
        try:
            reached = self._reached(runtime)
            log_findings(worker.app, worker.pool_cls, ask_server=reached)
            if reached:
                self._look_at_keys(runtime)
        finally:
            # what is open here would be inherited by every child
            runtime.store.close()

    def _look_at_keys(self, runtime: Any) -> None:
        """Say so where senders encrypt with a key that this worker does not have: it would park every job."""
        try:
            unknown = unknown_keys(runtime.store, runtime.encryption)
        except StoreUnavailableError as error:
            logger.warning("the keys of waiting jobs could not be looked at: %s", error)
            return
        if unknown:
            logger.error(
                "jobs that wait are encrypted with keys that this worker does not have (%s): it parks them. To repair: add the keys to "
                "encryption_keys here", ", ".join(sorted(unknown)),
            )  # fmt: skip

    def _reached(self, runtime: Any) -> bool:
        """Whether the store is there, with what this version needs. Raises ``StoreSchemaError``."""
        try:
            runtime.store.check()
        except StoreUnavailableError as error:
            logger.error("the store cannot be reached yet; jobs wait until it can: %s", error)
            return False
        return True


class ConsumerStep(bootsteps.Step):  # type: ignore[misc]
    """Looks at messages before Celery does, and replaces the consumer's handlers of those that it cannot run."""

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        quarantine = _Quarantine(runtime_of(consumer.app))
        consumer.on_decode_error = quarantine.undecodable
        consumer.on_unknown_message = quarantine.unknown_message
        consumer.on_invalid_task = quarantine.invalid_task
        consumer.create_task_handler = quarantine.fit_only(consumer, consumer.create_task_handler)
        consumer.on_unknown_task = quarantine.unknown_task(consumer.on_unknown_task)


class _Quarantine:
    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def undecodable(self, message: Any, error: Exception) -> None:
        """The body's content type or encoding is refused, or the body does not decode."""
        self._set_aside(message, f"undecodable: {type(error).__name__}: {error}")

    def unknown_message(self, body: Any, message: Any) -> None:
        """It decodes, but it is not a task message."""
        self._set_aside(message, "not a task message")

    def invalid_task(self, body: Any, message: Any, error: Exception) -> None:
        """Celery, or the class of the task's request, will not have it."""
        self._set_aside(message, f"not a task message: {type(error).__name__}: {error}")

    def fit_only(self, consumer: Any, plain: Callable[[], _Handler]) -> Callable[[], _Handler]:
        """Only messages that are fit reach Celery's own handler of task messages."""

        def create_task_handler() -> _Handler:
            handle = plain()

            def on_task_received(message: Any) -> Any:
                try:
                    unfit = why_unfit(message) if self._looks_at(consumer, message) else None
                except Exception as error:  # noqa: BLE001 - decoding foreign bytes may raise anything; it is set aside with what it raised
                    return self.undecodable(message, error)
                return handle(message) if unfit is None else self._set_aside(message, unfit)

            return on_task_received

        return create_task_handler

    def _looks_at(self, consumer: Any, message: Any) -> bool:
        """Not at messages for plain tasks that are known here: those are Celery's affair."""
        name = named_task(message)
        if not isinstance(name, str) or name not in consumer.strategies:
            return True
        return bool(getattr(consumer.app.tasks.get(name), "guarded", False))

    def unknown_task(self, plain: _Handler) -> _Handler:
        """It is a task message, and this worker does not know the task."""

        def on_unknown_task(body: Any, message: Any, error: Exception) -> None:
            if HEADER not in (message.headers or {}):
                plain(body, message, error)
                return
            name, id = message.headers.get("task"), message.headers.get("id")
            try:
                known = self._runtime.store.job(id) is not None
            except StoreError as failed:
                logger.error("a message of job %s stays with the broker, the store is out: %s", id, failed)
                message.reject_log_error(logger, (), requeue=True)
                return
            if not known:
                self._set_aside(message, f"this worker knows no task {name}, and the store has no such job")
                return
            logger.error("this worker knows no task %s; job %s is offered again by the store", name, id)
            message.ack_log_error(logger, ())

        return on_unknown_task

    def _set_aside(self, message: Any, reason: str) -> None:
        """Keep the raw bytes, then acknowledge. If the store cannot take them, the broker keeps them."""
        try:
            number = self._runtime.store.quarantine(
                queue=str((message.delivery_info or {}).get("routing_key") or ""),
                body=raw_body(message.body),
                headers=as_text(message.headers or {}),
                content_type=str(message.content_type or "")[:255],
                content_encoding=str(message.content_encoding or "")[:255],
                reason=reason[:500],
                delivery=delivery_of(message),
            )
        except StoreError as error:
            logger.error("a message that cannot be opened stays with the broker, the store is out: %s", error)
            message.reject_log_error(logger, (), requeue=True)
            return
        logger.error("a message that cannot be opened is set aside as quarantine %d (%s)", number, reason)
        message.ack_log_error(logger, ())
