"""Messages of many calls of one task: what is worked out is what Celery would have built, and whoever has a hand in it still has."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from celery import Celery, signals
from celery._state import _task_stack
from kombu import Producer

from celery_guard import Contract, GuardedTask
from celery_guard.integrations.celery import alike
from celery_guard.integrations.celery.alike import Alike
from celery_guard.integrations.celery.capture import capture

CALLS: list[Any] = [
    {"x": 1},
    {"x": 2, "y": "ünï"},
    [3],
    (4, {"deep": [1, 2.5, None, True]}),
    {"x": "long " * 500},
    [],
]


@pytest.fixture
def add(app: Celery) -> Any:
    @app.task(base=GuardedTask, name="add", shared=False)
    def add(x: Any = 0, y: Any = 2) -> None: ...

    return add


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of what was built by Celery."""
    seen: list[Any] = []

    def watched(app: Celery, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        seen.append((args, kwargs))
        return capture(app, name, args, kwargs, options)

    monkeypatch.setattr(alike, "capture", watched)
    return seen


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue": "slow", "priority": 3},
        {"serializer": "json"},
        {"ignore_result": True},
        {"time_limit": 30, "soft_time_limit": 20, "shadow": "shown"},
        {"exchange": "other", "routing_key": "there"},
        {"compression": "zlib"},
        {"countdown": 60},
        {"expires": 60},
        {"headers": {"trace": "7"}},
        {"link": None, "retries": 2},
        {"reply_to": "me", "root_id": "root", "parent_id": "parent"},
    ],
    ids=str,
)
def test_the_messages_of_many_calls_are_those_of_as_many_sends(
    app: Celery, add: Any, stored: Callable[[str], Any], options: dict[str, Any]
) -> None:
    many = add.enqueue_many(CALLS, **options)
    for call, handle in zip(CALLS, many, strict=True):
        args, kwargs = ((), call) if isinstance(call, dict) else (tuple(call), {})
        one = add.apply_async(args, kwargs, **options)
        assert told(app, handle.id) == told(app, one.id)
        assert (type(handle), handle.ignored) == (type(one), one.ignored)


def told(app: Celery, id: str) -> Any:
    """What is stored of a message, but for what belongs to this one send."""
    payload = app.guard.store.payload(id)
    headers = json.loads(payload.headers.replace(id, "the id"))
    for name in ("guard_eta", "guard"):
        headers.pop(name, None)
    return payload.body, headers, json.loads(payload.delivery.replace(id, "the id"))


@pytest.mark.parametrize("options", [{}, {"countdown": 60}, {"expires": 60, "priority": 1}], ids=str)
def test_celery_builds_two_of_many(add: Any, built: list[Any], options: dict[str, Any]) -> None:
    assert len({handle.id for handle in add.enqueue_many(CALLS * 5, **options)}) == len(CALLS) * 5
    assert len(built) == 2


def test_a_message_that_cannot_be_worked_out_is_built(
    add: Any, built: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason is: the second one says so."""
    monkeypatch.setattr(Alike, "_derived", lambda *_: None)
    add.enqueue_many(CALLS)
    assert len(built) == len(CALLS)


def test_options_that_a_task_changes_between_the_calls_are_those_of_their_own_messages(
    app: Celery, stored: Callable[[str], Any]
) -> None:
    said: list[dict[str, Any]] = [{}, {}, {}, {"priority": 4}, {"headers": {"trace": "7"}}, {}, {}, {}, {"priority": 1}]

    class Changing(GuardedTask):
        abstract = True
        waiting: ClassVar[list[dict[str, Any]]] = []

        def apply_async(self, *given: Any, **options: Any) -> Any:
            return super().apply_async(*given, **{**options, **self.waiting.pop(0)})

    @app.task(base=Changing, shared=False)
    def changing(number: int) -> None: ...

    Changing.waiting[:] = said
    many = changing.enqueue_many([(1,)] * len(said))
    for options, handle in zip(said, many, strict=True):
        Changing.waiting[:] = [options]
        assert told(app, handle.id) == told(app, changing.delay(1).id)


def test_receivers_of_the_signals_of_publishing_are_called_for_each(
    add: Any, stored: Callable[[str], Any], built: list[Any]
) -> None:
    def stamp(headers: Any, body: Any, **_: Any) -> None:
        headers["seen"] = str(body[1].get("x"))

    signals.before_task_publish.connect(stamp)
    try:
        many = add.enqueue_many([{"x": n} for n in range(5)])
    finally:
        signals.before_task_publish.disconnect(stamp)
    assert [stored(handle.id)[1]["seen"] for handle in many] == list("01234")
    assert len(built) == 5


def test_a_receiver_that_comes_while_the_calls_are_made_is_called_from_there_on(
    add: Any, stored: Callable[[str], Any]
) -> None:
    def stamp(headers: Any, **_: Any) -> None:
        headers["seen"] = "yes"

    # Celery forgets the dead receivers of other tests now, and not in a list that a sender has by then: that one would hear of no new ones
    signals.before_task_publish.connect(stamp)
    signals.before_task_publish.disconnect(stamp)

    def calls() -> Iterator[dict[str, int]]:
        for n in range(6):
            if n == 4:
                signals.before_task_publish.connect(stamp)
            yield {"x": n}

    try:
        many = add.enqueue_many(calls())
    finally:
        signals.before_task_publish.disconnect(stamp)
    assert [stored(handle.id)[1].get("seen") for handle in many] == [None] * 4 + ["yes"] * 2


def test_a_router_is_asked_for_each(make_app: Callable[..., Celery], built: list[Any]) -> None:
    def by_number(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> dict[str, str]:
        return {"queue": "odd" if kwargs["x"] % 2 else "even"}

    app = make_app(task_routes=(by_number,))

    @app.task(base=GuardedTask, name="add", shared=False)
    def add(x: int) -> None: ...

    many = add.enqueue_many([{"x": n} for n in range(4)])
    assert [app.guard.store.job(handle.id).queue for handle in many] == ["even", "odd", "even", "odd"]
    assert len(built) == 4


def test_a_patch_of_what_publishes_is_called_for_each(add: Any, built: list[Any], patched_publish: list[Any]) -> None:
    add.enqueue_many(CALLS)
    assert len(patched_publish) == len(built) == len(CALLS)


def test_an_object_that_passes_for_the_function_is_not_taken_for_it(
    add: Any, built: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the wrappers of monitoring agents do."""
    plain = Producer.publish

    class Wrapper:
        __globals__ = plain.__globals__

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return self if instance is None else functools.partial(plain, instance)

    monkeypatch.setattr(Producer, "publish", Wrapper())
    add.enqueue_many(CALLS)
    assert len(built) == len(CALLS)


def test_an_app_that_sends_in_its_own_way_builds_each(make_app: Callable[..., Celery], built: list[Any]) -> None:
    app = make_app()
    plain = app.amqp.as_task_v2
    app.amqp.as_task_v2 = lambda *args, **options: plain(*args, **options)

    @app.task(base=GuardedTask, name="add", shared=False)
    def add(x: int) -> None: ...

    add.enqueue_many([{"x": n} for n in range(4)])
    assert len(built) == 4


def test_what_a_task_overrides_is_called_for_each(app: Celery, stored: Callable[[str], Any]) -> None:
    class Shown(GuardedTask):
        def shadow_name(self, args: Any, kwargs: Any, options: Any) -> str:
            return f"add {kwargs['x']}"

        def apply_async(self, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
            return super().apply_async(args, kwargs, *more, **{**options, "queue": f"q{kwargs['x'] % 2}"})

    @app.task(base=Shown, name="add", shared=False)
    def add(x: int) -> None: ...

    many = add.enqueue_many([{"x": n} for n in range(5)])
    assert [stored(handle.id)[1]["shadow"] for handle in many] == [f"add {n}" for n in range(5)]
    assert [stored(handle.id)[2]["queue"] for handle in many] == ["q0", "q1", "q0", "q1", "q0"]


def test_jobs_of_a_job_that_runs_have_it_for_their_parent(app: Celery, add: Any, stored: Callable[[str], Any]) -> None:
    add.push_request(id="the parent", root_id="the root", called_directly=False)
    _task_stack.push(add)
    try:
        many = add.enqueue_many([{"x": n} for n in range(4)])
        children = [child.id for child in add.request.children]
    finally:
        _task_stack.pop()
        add.pop_request()
    headers = [stored(handle.id)[1] for handle in many]
    assert [(each["parent_id"], each["root_id"]) for each in headers] == [("the parent", "the root")] * 4
    assert children == [handle.id for handle in many]


def test_calls_of_another_task_in_between_are_messages_of_their_own(app: Celery, stored: Callable[[str], Any]) -> None:
    @app.task(base=GuardedTask, name="other", shared=False)
    def other(x: int) -> None: ...

    @app.task(base=GuardedTask, name="keyed", shared=False, contract=Contract(key="x"))
    def keyed(x: int) -> None: ...

    def calls() -> Iterator[dict[str, int]]:
        for n in range(8):
            if n % 4 == 3:
                other.apply_async((n,), queue="others")
            yield {"x": n}

    keyed.enqueue_many(calls())
    found = sorted((job.task, job.queue) for job in app.guard.store.jobs())
    assert found == [("keyed", "celery")] * 8 + [("other", "others")] * 2
