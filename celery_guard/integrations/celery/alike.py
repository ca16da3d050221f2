"""Messages of many calls of one task: built by Celery until it is seen that they differ in nothing but what each call says.

``enqueue_many`` sends the same task with the same options again and again. Celery builds the first message, and the second. If the second is
what can be worked out from the first (another id, other arguments and what is shown of them; all else alike, byte for byte), the others are worked
out too, which spares more than half of it. Where anybody else has a hand in a message Celery builds every one: receivers of the signals of publishing, a router that is
more than a table, a subclass or a patch of what sends, an option that is more than a number or a text, a job that runs here and is the parent.

What is called for each job in any case: ``apply_async`` and all that it calls (``shadow_name``, the check of the arguments), the guard's own
checks, and observers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

from celery import Celery, signals
from celery.app import amqp as celery_amqp
from celery.app import base as celery_base
from celery.app import routes as celery_routes
from kombu import Producer, messaging

from . import capture as own_capture
from .capture import Captured, capture, decode, encoded

__all__ = ["Alike", "are_of", "by_celery_alone", "is_of"]

#: What differs from call to call, as if it did not.
_OF_A_CALL = {"argsrepr": None, "kwargsrepr": None}
#: Values that cannot change under the hand, and that say the same wherever they are equal.
_PLAIN = (type(None), bool, int, float, str)
#: Options that Celery gives with each send of a task: the task, and how its handle is made.
_OF_THE_TASK = frozenset({"task_type", "result_cls"})
#: What is called of a router.
_OF_ROUTERS = ("route", "lookup_route", "query_router", "expand_destination")
#: What a router of Celery's own has, and no method of another's.
_OF_A_ROUTER = frozenset({"app", "queues", "routes", "create_missing"})
_BEFORE, _AFTER, _SENT = signals.before_task_publish, signals.after_task_publish, signals.task_sent


class Alike:
    """The calls of one ``enqueue_many``."""

    def __init__(self) -> None:
        #: Of which task the model is, and with which options; where these are met again, nobody need look whether they are plain.
        self._of: tuple[str, dict[str, Any]] | None = None
        self._model: Captured | None = None
        self._embed: Any = None
        #: Whether the second message was what was worked out; None before it.
        self._proven: bool | None = None

    def capture(self, app: Celery, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> Captured:
        """As :func:`~.capture.capture`."""
        call = (name, {**options, **_OF_A_CALL})
        known = self._model is not None and call == self._of
        if not (options.keys() >= _OF_A_CALL.keys() and (known or _is_plain(options)) and by_celery_alone(app)):
            self._model = None
            return capture(app, name, args, kwargs, options)
        if self._model is None or not known:
            return self._begin(call, capture(app, name, args, kwargs, options))
        if self._proven:
            return self._derived(self._model, app, args, kwargs, options, celery_base.uuid())
        built = capture(app, name, args, kwargs, dict(options))
        if self._proven is None:
            self._proven = built == self._derived(self._model, app, args, kwargs, options, built.headers["id"])
        return built

    def _begin(self, call: tuple[str, dict[str, Any]], model: Captured) -> Captured:
        # its sender goes on to write into its headers
        self._of, self._model, self._proven = call, replace(model, headers={**model.headers}), None
        _, _, self._embed = decode(model.body, model.delivery, model.headers)
        return model

    def _derived(
        self, model: Captured, app: Celery, args: Any, kwargs: Any, options: Mapping[str, Any], id: str
    ) -> Captured:
        serializer = options.get("serializer") or app.conf.task_serializer
        _, encoding, body = messaging.dumps((args or (), kwargs or {}, self._embed), serializer=serializer)
        shown = {name: options[name] for name in _OF_A_CALL}
        headers = {**model.headers, "id": id, "root_id": id, **shown}
        # Celery sends options on as properties too
        properties = {**model.delivery["properties"], "correlation_id": id, **shown}
        delivery = {**model.delivery, "properties": properties}
        result = (options.get("result_cls") or app.AsyncResult)(id)
        result.ignored = options.get("ignore_result")
        return Captured(encoded(body, encoding), headers, delivery, model.queue, result)


def _is_plain(options: Mapping[str, Any]) -> bool:
    """Whether equal options make equal messages, and none names the message."""
    return options.get("task_id") is None and all(
        isinstance(value, _PLAIN) or name in _OF_THE_TASK for name, value in options.items()
    )


def by_celery_alone(app: Celery) -> bool:
    """Whether nobody has a hand in what is built. Checked for each message: a caller's generator may do anything in between."""
    amqp = app.amqp
    router, creates = amqp.router, amqp.create_task_message
    return (
        not (_BEFORE.receivers or _AFTER.receivers or _SENT.receivers)
        and type(amqp) is celery_amqp.AMQP
        and type(amqp.queues) is celery_amqp.Queues
        and type(router) is celery_routes.Router
        and vars(router).keys() <= _OF_A_ROUTER
        and all(type(route) is celery_routes.MapRoute for route in router.routes)
        and "as_task_v2" not in vars(amqp)
        # a method of Celery's own, or the guard's choice between two
        and (is_of(getattr(creates, "__func__", None), celery_amqp) or is_of(creates, own_capture))
        and app.current_worker_task is None
        and is_of(type(app).send_task, celery_base)
        and is_of(amqp.send_task_message, celery_amqp)
        and is_of(celery_amqp.AMQP.as_task_v2, celery_amqp)
        and are_of(celery_routes, celery_routes.Router, _OF_ROUTERS)
        and is_of(celery_routes.MapRoute.__call__, celery_routes)
        and is_of(Producer.publish, messaging)
        and is_of(Producer._prepare, messaging)
    )


def is_of(function: Any, module: ModuleType) -> bool:
    """Whether a function is the module's own. What wraps one may pass on all of its attributes, but is of another type."""
    return type(function) is FunctionType and function.__globals__ is module.__dict__


def are_of(module: ModuleType, kind: type, names: Sequence[str]) -> bool:
    """Whether all these methods of a class are the module's own."""
    return all(is_of(getattr(kind, name, None), module) for name in names)
