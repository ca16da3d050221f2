"""What is changed between two calls of ``delay`` and ``apply_async``, and who has a hand in them: jobs are as if each went all the way."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from celery import VERSION as celery_version
from celery import Celery, Task, signals
from celery.app.amqp import Queues
from celery.app.routes import MapRoute
from celery.backends.cache import CacheBackend
from celery.result import AsyncResult
from kombu import Exchange, Queue

from celery_guard import GuardedTask
from celery_guard.job.row import NewJob

from .test_kinds import all_the_way
from .test_many import comparable, seen


def _default_queue(app: Celery, task: Any, draw: random.Random) -> None:
    app.conf.task_default_queue = draw.choice(["celery", "slow", "mail"])


def _new_queue(app: Celery, task: Any, draw: random.Random) -> None:
    exchange = Exchange(draw.choice(["a", "b"]), type="topic")
    app.amqp.queues.add(Queue(draw.choice(["celery", "slow", "mail"]), exchange, routing_key="there"))


def _routes(app: Celery, task: Any, draw: random.Random) -> None:
    app.conf.task_routes = draw.choice([None, {"add": "mail"}, {"a*": {"queue": "slow", "priority": 4}}, [_by_number]])
    vars(app.amqp).pop("_rtable", None)
    app.amqp.__dict__.pop("router", None)
    app.amqp.flush_routes()
    vars(app.amqp)["router"] = app.amqp.Router()


def _table(app: Celery, task: Any, draw: random.Random) -> None:
    if isinstance(app.amqp.router.routes, list):
        app.amqp.router.routes[:] = [MapRoute({"add": draw.choice(["slow", "mail"])})]


def _by_number(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> dict[str, str]:
    return {"queue": "slow" if args[0] % 2 else "mail"}


def _ignored(app: Celery, task: Any, draw: random.Random) -> None:
    task.ignore_result = draw.random() < 0.5


def _serializer(app: Celery, task: Any, draw: random.Random) -> None:
    task.serializer = draw.choice([None, "json"])


def _time_limit(app: Celery, task: Any, draw: random.Random) -> None:
    task.time_limit = draw.choice([None, 60, 70])
    task._exec_options = None


def _stamped(app: Celery, task: Any, draw: random.Random) -> None:
    (signals.before_task_publish.connect if draw.random() < 0.5 else signals.before_task_publish.disconnect)(_stamp)


def _stamp(headers: Any = None, **_: Any) -> None:
    headers["seen"] = "yes"


def _new_app(app: Celery, task: Any, draw: random.Random) -> None:
    vars(app).pop("amqp", None)


CHANGES = [_default_queue, _new_queue, _routes, _table, _ignored, _serializer, _time_limit, _stamped, _new_app]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_changed_in_between_each_call_has_the_job_that_goes_all_the_way_now(
    make_task: Callable[..., Any], written: list[NewJob], sent: list[Any], seed: int
) -> None:
    draw, add, worked_out = random.Random(seed), make_task(), 0
    try:
        for step in range(300):
            if draw.random() < 0.2:
                draw.choice(CHANGES)(add.app, add, draw)
            args, options = ([step], [step, "y"])[draw.random() < 0.2], draw.choice([{}, {}, {"priority": 3}])
            del sent[:]
            add.apply_async(args, **options)
            worked_out += not sent
            assert comparable(written[-1]) == all_the_way(add, args, {}, options)[0], f"seed {seed}, step {step}"
    finally:
        signals.before_task_publish.disconnect(_stamp)
    assert worked_out > 20


def _backend(task: Any) -> None:
    task.backend = CacheBackend(app=task.app, backend="memory")


def _backend_of_app(task: Any) -> None:
    task.app._local.backend = task.app._backend_cache = CacheBackend(app=task.app, backend="memory")


def _results(task: Any) -> None:
    task.app.AsyncResult = task.app.subclass_with_self(type("Mine", (AsyncResult,), {}))


def _address(task: Any) -> None:
    task.app._local.oid = "another"


def _defaults(task: Any) -> None:
    task.app.add_defaults({"task_default_queue": "mail"})


def _sender(task: Any) -> None:
    task.app.conf.task_compression = "zlib"
    for n in range(3):
        task.delay(n)
    vars(task.app.amqp).pop("send_task_message")


def _one_router(task: Any) -> None:
    router = task.app.amqp.router
    plain = router.route
    router.route = lambda options, *args, **named: plain({**options, "queue": "mail"}, *args, **named)


def _alias(task: Any) -> None:
    task.app.amqp.queues.add(_alias.queue)  # type: ignore[attr-defined]


_alias.queue = Queue("mail", Exchange("a", type="topic"), alias="celery")  # type: ignore[attr-defined]


def _odd(task: Any) -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise ValueError("is no one thing")

    for n in range(3):
        task.app.conf.of_theirs = Odd()
        task.delay(n)


@pytest.mark.parametrize(
    "change",
    [_backend, _backend_of_app, _results, _address, _defaults, _sender, _one_router, _alias, _odd],
)
def test_a_change_is_heard_at_the_next_call(
    make_task: Callable[..., Any], written: list[NewJob], change: Callable[[Any], None]
) -> None:
    add = make_task()
    for n in range(4):
        add.delay(n)
    change(add)
    kind, state, _ = seen(add.delay(7))
    wanted, (wanted_kind, expected, _) = all_the_way(add, (7,), {}, {})
    assert comparable(written[-1]) == wanted
    assert (kind, state["backend"], state["_ignored"]) == (wanted_kind, expected["backend"], expected["_ignored"])


@pytest.mark.skipif(celery_version < (5, 5), reason="Celery 5.4 refuses none")
def test_limits_that_celery_refuses_are_refused(make_task: Callable[..., Any]) -> None:
    add = make_task()
    for n in range(4):
        add.delay(n)
    add.soft_time_limit, add.time_limit = 20, 10
    with pytest.raises(ValueError, match="soft_time_limit"):
        add.delay(4)


class _Sends(Task):  # type: ignore[misc]
    """A base of somebody's that has a hand in each send."""

    abstract = True

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        return super().apply_async(args, kwargs, **options, headers={"of": f"call {args[0] % 4}"})


class _Between(GuardedTask, _Sends):
    abstract = True


class _Queues(Queues):  # type: ignore[misc]
    def __getitem__(self, name: str) -> Queue:
        self.asked = getattr(self, "asked", 0) + 1
        return Queue("even" if self.asked % 4 < 2 else "odd")


def test_another_hand_is_seen(make_task: Callable[..., Any], sent: list[Any]) -> None:
    between, queues, created = make_task(base=_Between), make_task(), make_task()
    queues.app.amqp.queues_cls = _Queues
    plain = created.app.amqp.create_task_message
    created.app.amqp.create_task_message = lambda *args, **named: plain(*args, **named)
    for n in range(5):
        for add in (between, queues, created):
            add.delay(n)
    assert len(sent) == 15
