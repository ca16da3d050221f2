"""Jobs worked out from jobs of their kind, which went all the way through ``apply_async``.

Calls of one task with the same options, as many arguments and the same names are of a kind, and their jobs differ in nothing but the arguments, what is made of these
(body, key, fingerprint, tenant), the id and the time. The first call of a kind goes all the way, and the second. If the second job is what can be worked out from the
first, all of it alike, the others are worked out. ``enqueue_many`` learns its kinds anew in each call; those of ``delay`` and ``apply_async`` are kept by each thread.

All calls go all the way where anybody has a hand in it: what :mod:`.alike` looks for; an ``apply_async`` or anything it calls that is not Celery's and the guard's own;
options by which a message depends on the time; payload models, encryption, spans, a job that runs here and is the parent. So does a call that would be refused, which
says why. Kinds are forgotten once anything that a message is made of is another: configuration, queues, routes, options of the task, contract, process. What changes where
nobody can look, inside a queue or a settings module, is found by one call of a hundred, which goes all the way and is compared.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import Signature
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any
from uuid import uuid4

from celery import Task
from celery.app import base as celery_base
from celery.app import task as celery_task
from kombu.serialization import registry
from kombu.utils import json as kombu_json
from kombu.utils.uuid import uuid

from celery_guard.contract.codec import first_difference
from celery_guard.contract.key import Identity, identify
from celery_guard.contract.sensitive import secret_for
from celery_guard.flow.context import running_job
from celery_guard.flow.enqueue import refuse_large
from celery_guard.job.envelope import HEADER
from celery_guard.job.row import NewJob, StoredPayload

from .alike import are_of, by_celery_alone, is_of
from .runtime import runtime_of
from .uuids import Uuids

__all__ = ["KeptKinds", "Kinds", "kinds_of_many"]

logger = logging.getLogger("celery_guard.enqueue")

#: Options by which a message says the same whenever it is sent, and that are numbers or texts.
_STEADY = frozenset(
    {
        "exchange", "ignore_result", "priority", "queue", "retry", "routing_key", "serializer", "shadow", "soft_time_limit",
        "time_limit",
    }
)  # fmt: skip
_PLAIN = (type(None), bool, int, float, str)
#: What ``apply_async`` calls of a task.
_OF_TASKS = ("AsyncResult", "_get_exec_options", "shadow_name")
#: How many calls are made between two looks at whether anybody has a hand in it, where no code of the caller's runs between them.
_LOOK_EVERY = 100
#: Of so many calls of a kind that is kept, one goes all the way.
_PROVE_EVERY = 100
#: Of so many calls none could be worked out: two jobs of a kind go all the way.
_FEW = 2
#: So many kinds of calls are known at most.
_MOST_KINDS = 100
#: Of so many tasks and options a thread keeps the kinds at most.
_MOST_KEPT = 1000
_DEEPEST = 20

_encode = kombu_json.JSONEncoder().encode


@dataclass(slots=True)
class _Kind:
    """One kind of call, and what its jobs have in common."""

    model: NewJob
    #: Type, backend and ``ignored`` of the handles: the first itself is its caller's, with what becomes of it.
    handle: tuple[type, Any, Any]
    embed: Any
    #: Texts with places for what differs.
    headers: str
    delivery: str
    #: The queue it goes to; of all the others, which may be many, nothing is kept.
    queue: Any = None
    #: Whether a second job was what was worked out.
    proven: bool = False
    #: How often it was.
    used: int = 0


class Kinds:
    """The kinds of the calls of one task with the same ``options``. For one thread.

    Args:
        look_every: how many calls are made between two looks at whether anybody has a hand in them.
        kept: they outlive the calls that they are learned from.
    """

    def __init__(self, task: Any, options: Mapping[str, Any], *, look_every: int = 1, kept: bool = False) -> None:
        self.task = task
        self._runtime = runtime_of(task.app)
        self._every = look_every
        self._kept = kept
        self._calls = 0
        # what is drawn in advance must not outlive the call
        self._new_id: Callable[[], str] = uuid if kept else Uuids()
        self._kinds: dict[tuple[int, tuple[str, ...]], _Kind | None] = {}
        #: What Celery and the guard went by when the kinds were learned.
        self._given: tuple[Any, ...] | None = None
        self._contract: Any = None
        self._signature: Signature | None = None
        self._secret: bytes | None = None
        self._limit = 0
        self._serializer: str | None = options.get("serializer")

    def worked_out(self, args: Any, kwargs: Any) -> tuple[NewJob, Any] | None:
        """The job of the call and its handle, while the kinds hold; None where it has to go all the way."""
        if type(kwargs) is not dict:
            return None
        kind = self._kinds.get((len(args), tuple(kwargs)))
        if kind is None or not kind.proven:
            return None
        if self._queue(kind.model) is not kind.queue:
            self._kinds.clear()
            return None
        kind.used += 1
        if self._kept and kind.used % _PROVE_EVERY == 0:
            return None
        try:
            if self.task.typing:
                self.task.__header__(*args, **kwargs)
            who = identify(self._contract, self._contract.scope, self._signature, args, kwargs, secret=self._secret)
            job = self._job(kind, args, kwargs, who, self._new_id(), time.time())
            if job is None:
                return None
            of, backend, ignored = kind.handle
            handle: Any = of(job.id, backend=backend, task_name=self.task.name)
            handle.ignored = ignored
        except Exception:  # noqa: BLE001 - on the way through apply_async it is said what is wrong
            return None
        return job, handle

    def learn(self, args: Any, kwargs: Any, job: NewJob, handle: Any) -> None:
        """Look at the job of a call that went all the way."""
        if type(kwargs) is not dict:
            return
        names = (len(args), tuple(kwargs))
        known = self._kinds.get(names)
        # anything may have happened on the way
        self._calls = 0
        if not self.hold():
            return
        alike = None if known is None else self._is_alike(known, args, kwargs, job, handle)
        if known is not None and known.proven and alike is False:
            logger.warning(
                "%s: its messages are not any more what they were, though nothing was configured anew: up to %d were still sent as before",
                job.task, _PROVE_EVERY - 1,
            )  # fmt: skip
            self._kinds.clear()
        if names not in self._kinds:
            if len(self._kinds) < _MOST_KINDS:
                self._kinds[names] = found = _kind_of(job, handle)
                if found is not None:
                    found.queue = self._queue(job)
        elif known is not None and not known.proven:
            known.proven = alike is True
            if not known.proven:
                self._kinds[names] = None

    def _is_alike(self, kind: _Kind, args: Any, kwargs: Any, job: NewJob, handle: Any) -> bool | None:
        """Whether this job is what is worked out of its call; None where nothing can be."""
        created = json.loads(job.payload.headers)[HEADER]["created"]
        if _seen(handle) != kind.handle:
            return False
        # who it is was asked of the contract once, and is not again
        who = Identity(job.key, job.fingerprint, job.tenant, "")
        worked_out = self._job(kind, args, kwargs, who, job.id, created)
        return None if worked_out is None else worked_out == job

    def _job(self, kind: _Kind, args: Any, kwargs: Any, who: Identity, id: str, created: float) -> NewJob | None:
        model = kind.model
        body = _encode((args, kwargs, kind.embed)).encode()
        if not (_comes_back(args) and _comes_back(kwargs)):
            back = kombu_json.loads(body)
            if first_difference(args, back[0]) or first_difference(kwargs, back[1]):
                return None
        if (who.key is None, who.fingerprint is None, who.tenant is None) != (
            model.key is None, model.fingerprint is None, model.tenant is None,
        ):  # fmt: skip
            return None
        values = {
            "id": id, "key": who.key, "fingerprint": who.fingerprint, "created": repr(created),
            "tenant": None if who.tenant is None else encode_basestring_ascii(who.tenant),
        }  # fmt: skip
        payload = StoredPayload(body, kind.headers % values, kind.delivery % values)
        refuse_large(model.task, payload, self._limit)
        return NewJob(
            id, model.task, model.queue, payload, model.kind, model.priority, who.tenant, who.key, who.fingerprint,
            model.delay, model.deadline, model.deadline_in, model.in_canvas, model.parent_id, id, model.group_id, id,
        )  # fmt: skip

    def _queue(self, job: NewJob) -> Any:
        return self.task.app.amqp.queues.get(job.queue)

    def hold(self) -> bool:
        """Whether what is worked out now is what would go through; looked at every so many calls."""
        self._calls -= 1
        if self._calls >= 0:
            return True
        if running_job.get() is not None or not by_celery_alone(self.task.app) or not self._is_plain():
            self._calls = 0
            return False
        self._calls = self._every - 1
        return True

    def _is_plain(self) -> bool:
        """Whether Celery and the guard make a job of a call in no way but their own, and of the same things as before."""
        from .task import GuardedTask

        task, runtime, app = self.task, self._runtime, self.task.app
        contract = runtime.contract_of(task)
        kind: Any = type(task)
        if contract is None or not (
            not app.conf.task_always_eager
            and vars(app).get("send_task") is runtime.sender
            and kind.apply_async is GuardedTask.apply_async
            # what the guard's calls: another base may stand between
            and super(GuardedTask, kind).apply_async is Task.apply_async  # type: ignore[misc]
            and is_of(Task.apply_async, celery_task)
            and are_of(celery_task, kind, _OF_TASKS)
            and vars(task).keys().isdisjoint((*_OF_TASKS, "apply_async"))
        ):
            return False
        shape, conf, amqp = runtime.shape_of(task), app.conf, app.amqp
        given = (
            contract, task._get_exec_options(), task.ignore_result, task.serializer, task.time_limit, task.soft_time_limit,
            task._backend, app.backend, app.AsyncResult, app.thread_oid, conf.prefix, *conf.maps[1:], amqp, tuple(amqp.router.routes),
            os.getpid(), len(amqp.queues.aliases), vars(amqp), conf.changes,
        )  # fmt: skip
        if not _is_same(self._given, given):
            self._kinds.clear()
            self._given = (*given[:-2], dict(vars(amqp)), dict(conf.changes))
        self._contract, self._signature = contract, shape.signature
        self._secret, self._limit = secret_for(contract, runtime.settings), runtime.settings.payload_limit
        return (
            task.expires is None
            and not task.name.startswith("celery.")
            and not task.__v2_compat__
            and getattr(task, "_dump_pydantic_arguments", None) is None
            and not (shape.models or shape.named or runtime.encryption.on or runtime.tracing.on or runtime.leaves(task))
            and _is_kombus_json(self._serializer or task.serializer or conf.task_serializer)
        )


def kinds_of_many(task: Any, calls: Any, options: Mapping[str, Any]) -> Kinds | None:
    """For the calls of one ``enqueue_many``; None where all have to go all the way."""
    at_hand = type(calls) in (list, tuple)
    if not _is_steady(options) or (at_hand and len(calls) <= _FEW):
        return None
    return Kinds(task, options, look_every=_LOOK_EVERY if at_hand else 1)


class KeptKinds(threading.local):
    """Those that each thread keeps for ``delay`` and ``apply_async``."""

    def __init__(self) -> None:
        #: None: seen once.
        self._of: dict[tuple[Any, ...], Kinds | None] = {}

    def of(self, task: Any, options: Mapping[str, Any]) -> Kinds | None:
        """For a call with these options now; None where it has to go all the way."""
        if not _is_steady(options):
            return None
        # 1 is True, and makes another message
        name = (task.name, *((name, type(value), value) for name, value in options.items()))
        found = self._of.get(name)
        if found is None or found.task is not task:
            seen = name in self._of or not options
            if len(self._of) >= _MOST_KEPT:
                self._of.clear()
            # options of one call each are not worth it
            found = self._of[name] = Kinds(task, options, kept=True) if seen else None
        return found if found is not None and found.hold() else None


def _is_steady(options: Mapping[str, Any]) -> bool:
    """Whether a message with these options says the same whenever it is sent."""
    return options.keys() <= _STEADY and all(isinstance(value, _PLAIN) for value in options.values())


def _is_kombus_json(serializer: str) -> bool:
    """Whether the serializer writes and reads what kombu's own JSON does."""
    content_type, encoding, encode = registry._encoders.get(serializer, (None, None, None))
    return (
        (content_type, encoding, encode) == ("application/json", "utf-8", kombu_json.dumps)
        and registry._decoders.get(content_type) == kombu_json.loads
        and is_of(kombu_json.dumps, kombu_json)
        and is_of(kombu_json.loads, kombu_json)
        and celery_base.uuid is uuid
    )


def _kind_of(job: NewJob, handle: Any) -> _Kind | None:
    """What one job says of its kind; None where it is not as expected."""
    id = job.id
    if (job.root_id, job.correlation_id, job.parent_id, job.schedule, job.in_broker) != (id, id, None, None, None):
        return None
    headers, delivery = json.loads(job.payload.headers), json.loads(job.payload.delivery)
    said = headers[HEADER]
    if delivery["content_type"] != "application/json" or headers.get("compression"):
        return None
    places: dict[str, str] = {}

    def place(of: dict[str, Any], name: str, value: str) -> None:
        if of.get(name) is not None:
            mark = uuid4().hex
            of[name], places[f'"{mark}"'] = mark, value

    for of, name in (
        (headers, "id"), (headers, "root_id"), (said, "id"), (said, "correlation_id"),
        (delivery["properties"], "correlation_id"),
    ):  # fmt: skip
        place(of, name, '"%(id)s"')
    place(said, "key", '"%(key)s"')
    place(said, "fingerprint", '"%(fingerprint)s"')
    place(said, "created", "%(created)s")
    place(said, "tenant", "%(tenant)s")
    embed = json.loads(job.payload.body)[2]
    # its body is of no use, and may be large
    model = replace(job, payload=StoredPayload(b"", "", ""))
    return _Kind(model, _seen(handle), embed, _with_places(headers, places), _with_places(delivery, places))


def _is_same(one: object, other: object) -> bool:
    try:
        return one == other
    except Exception:  # noqa: BLE001 - anything may be set in a configuration, also what cannot be compared
        return False


def _seen(handle: Any) -> tuple[type, Any, Any]:
    return type(handle), handle.backend, handle.ignored


def _with_places(value: Mapping[str, Any], places: Mapping[str, str]) -> str:
    text = json.dumps(value).replace("%", "%%")
    for mark, place in places.items():
        text = text.replace(mark, place)
    return text


def _comes_back(value: Any, depth: int = 0) -> bool:
    """Whether JSON gives back the very same, as is said by a look at nothing but types; False where that does not say."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii())
    if kind is int or kind is bool or value is None:
        return True
    if kind is float:
        return isfinite(value)
    if depth >= _DEEPEST:
        return False
    if kind is dict:
        # kombu makes something else of a mapping that says its type
        return "__type__" not in value and all(
            type(key) is str and key.isascii() and _comes_back(item, depth + 1) for key, item in value.items()
        )
    return kind in (list, tuple) and all(_comes_back(item, depth + 1) for item in value)
