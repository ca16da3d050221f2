"""Jobs of many calls of one task, worked out from jobs that went all the way through ``apply_async``.

:mod:`.alike` spares Celery's building of a message; here the way to it is spared too. Calls with as many arguments and the same names are of a kind, and their
jobs differ in nothing but the arguments, what is made of these (body, key, fingerprint, tenant), the id and the time. The first call of a kind goes all the way,
and the second. If the second job is what can be worked out from the first, all of it alike, the others are worked out.

Where anybody has a hand in it they all go: what :mod:`.alike` looks for; an ``apply_async`` or anything it calls that is not Celery's and the guard's own; options by
which a message depends on the time; payload models, encryption, spans, a job that runs here and is the parent. So does a call that would be refused, which says why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
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

from .alike import is_of
from .attempt import Collected
from .runtime import runtime_of
from .uuids import Uuids

__all__ = ["Many"]

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
#: Of so many calls none could be worked out: Celery builds two messages, and two jobs of a kind go all the way behind the first.
_FEW = 3
#: So many kinds of calls are known at most.
_MOST_KINDS = 100
_DEEPEST = 20

_encode = kombu_json.JSONEncoder().encode


@dataclass(slots=True)
class _Kind:
    """One kind of call, and what its jobs have in common."""

    model: NewJob
    handle: Any
    embed: Any
    #: Texts with places for what differs.
    headers: str
    delivery: str
    #: Whether a second job was what was worked out.
    proven: bool = False


class Many:
    """The ``calls`` of one ``enqueue_many``: ``task`` is called with ``options``, and the jobs are ``gathered``."""

    def __init__(self, task: Any, calls: Any, options: Mapping[str, Any], gathered: Collected) -> None:
        self._task = task
        self._gathered = gathered
        self._runtime = runtime_of(task.app)
        at_hand = type(calls) in (list, tuple)
        self._every = _LOOK_EVERY if at_hand else 1
        self._calls = 0
        self._new_id = Uuids()
        self._kinds: dict[tuple[int, tuple[Any, ...]], _Kind | None] = {}
        #: What Celery and the guard went by when the kinds were learned.
        self._given: tuple[Any, ...] | None = None
        self._contract: Any = None
        self._signature: Signature | None = None
        self._secret: bytes | None = None
        self._limit = 0
        self._serializer: str | None = options.get("serializer")
        self._possible = (
            not (at_hand and len(calls) <= _FEW)
            and options.keys() <= _STEADY
            and all(isinstance(value, _PLAIN) for value in options.values())
        )

    def worked_out(self, args: Any, kwargs: Any) -> Any:
        """The handle of the call, whose job is gathered; None where it has to go all the way."""
        if not self._kinds or type(kwargs) is not dict or not self._nobody_else():
            return None
        kind = self._kinds.get((len(args), tuple(kwargs)))
        if kind is None or not kind.proven:
            return None
        try:
            if self._task.typing:
                self._task.__header__(*args, **kwargs)
            who = identify(self._contract, self._contract.scope, self._signature, args, kwargs, secret=self._secret)
            job = self._job(kind, args, kwargs, who, self._new_id(), time.time())
        except Exception:  # noqa: BLE001 - on the way through apply_async it is said what is wrong
            return None
        if job is None:
            return None
        handle = type(kind.handle)(job.id, backend=kind.handle.backend, task_name=self._task.name)
        handle.ignored = kind.handle.ignored
        self._gathered.jobs.append(job)
        self._gathered.results.append(handle)
        return handle

    def learn(self, args: Any, kwargs: Any, handle: Any) -> None:
        """Look at the job of a call that went all the way."""
        results = self._gathered.results
        if not self._possible or type(kwargs) is not dict or not results or results[-1] is not handle:
            return
        # anything may have happened on the way
        self._calls = 0
        if not self._nobody_else():
            return
        names, job = (len(args), tuple(kwargs)), self._gathered.jobs[-1]
        if names not in self._kinds:
            if len(self._kinds) < _MOST_KINDS:
                self._kinds[names] = _kind_of(job, handle)
            return
        found = self._kinds[names]
        if found is None or found.proven:
            return
        created = json.loads(job.payload.headers)[HEADER]["created"]
        like = (type(handle), handle.backend, handle.ignored) == (
            type(found.handle), found.handle.backend, found.handle.ignored,
        )  # fmt: skip
        # who it is was asked of the contract once, and is not again
        who = Identity(job.key, job.fingerprint, job.tenant, "")
        found.proven = like and self._job(found, args, kwargs, who, job.id, created) == job
        if not found.proven:
            self._kinds[names] = None

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

    def _nobody_else(self) -> bool:
        """Whether what is worked out is what would go through: looked at before the first call, and every now and then."""
        self._calls -= 1
        if self._calls >= 0:
            return True
        alike = self._gathered.alike
        if alike is None or not alike.holds(self._task.app) or running_job.get() is not None or not self._is_plain():
            self._calls = 0
            return False
        self._calls = self._every - 1
        return True

    def _is_plain(self) -> bool:
        """Whether Celery and the guard make a job of a call in no way but their own, and of the same things as before."""
        from .task import GuardedTask

        task, runtime, app = self._task, self._runtime, self._task.app
        contract, kind = runtime.contract_of(task), type(task)
        if contract is None or not (
            kind.apply_async is GuardedTask.apply_async
            and is_of(Task.apply_async, celery_task)
            and all(is_of(getattr(kind, name), celery_task) for name in _OF_TASKS)
            and vars(task).keys().isdisjoint((*_OF_TASKS, "apply_async"))
        ):
            return False
        shape, conf = runtime.shape_of(task), app.conf
        given = (contract, task._get_exec_options(), task.ignore_result, task.serializer, conf.task_serializer)
        if self._given not in (None, given):
            self._kinds.clear()
        self._given, self._contract, self._signature = given, contract, shape.signature
        self._secret, self._limit = secret_for(contract, runtime.settings), runtime.settings.payload_limit
        return (
            task.expires is None
            and not task.name.startswith("celery.")
            and not task.__v2_compat__
            and getattr(task, "_dump_pydantic_arguments", None) is None
            and vars(app).get("send_task") is runtime.sender
            and not conf.task_always_eager
            and not (shape.models or shape.named or runtime.encryption.on or runtime.tracing.on or runtime.leaves(task))
            and _is_kombus_json(self._serializer or task.serializer or conf.task_serializer)
        )


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
    return _Kind(job, handle, embed, _with_places(headers, places), _with_places(delivery, places))


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
