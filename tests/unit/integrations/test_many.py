"""Jobs of many calls of one task: what is worked out is what goes all the way through Celery, and whoever has a hand in it still has."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from celery import VERSION as celery_version
from celery import Celery, Task
from celery import signals as celery_signals
from kombu.serialization import registry
from kombu.utils import json as kombu_json

from celery_guard import Contract, EnqueueError, GuardedTask, PayloadError, PayloadTooLargeError, Timing
from celery_guard.integrations.celery import kinds
from celery_guard.integrations.celery.attempt import Collected
from celery_guard.integrations.celery.kinds import Kinds
from celery_guard.job.row import NewJob, StoredPayload

MANY = 12


def made(task: Any, calls: Any, **options: Any) -> tuple[list[NewJob], list[Any]]:
    collected, handles = task._collected(calls, options)
    assert isinstance(collected, Collected)
    assert collected.results == handles
    assert [job.id for job in collected.jobs] == [handle.id for handle in handles]
    assert len({job.id for job in collected.jobs}) == len(collected.jobs)
    return [comparable(job) for job in collected.jobs], [seen(handle) for handle in handles]


def comparable(job: NewJob) -> NewJob:
    """A job without what belongs to this one send."""
    id = job.id
    headers = json.loads(job.payload.headers.replace(id, "the id"))
    created = headers["guard"].pop("created")
    assert isinstance(created, float)
    delivery = job.payload.delivery.replace(id, "the id")
    assert json.dumps(json.loads(job.payload.headers)) == job.payload.headers
    payload = StoredPayload(job.payload.body, json.dumps(headers), delivery)
    return replace(job, id="the id", root_id="the id", correlation_id="the id", payload=payload)


def seen(handle: Any) -> Any:
    state = {name: value for name, value in vars(handle).items() if name not in ("id", "on_ready")}
    return type(handle), state, handle.on_ready.fun().__self__ is handle


VALUES: list[Any] = [
    1, True, 1.5, -0.0, "text", "ünï", "100 % %(id)s", 'quo"ted\\', "", 2**80, [1, [2, (3,)]], {"a": {"b": [None]}},
    date(2026, 1, 2), Decimal("1.10"), {"of": "us"}, "\U0001f600",
]  # fmt: skip
CONTRACTS = {
    "none": Contract(),
    "key": Contract(key="x"),
    "key of two": Contract(key=("x", "y")),
    "key by a function": Contract(key=lambda x, y=0, **named: f"{x!r}{y}"),
    "key for every other": Contract(key=lambda x, *_, **named: None if named.get("tenant") or x == 1 else repr(x)),
    "match": Contract(key="x", match=("x",)),
    "sensitive": Contract(key="x", sensitive=("y",)),
    "deadline": Contract(timing=Timing(deadline=timedelta(hours=1))),
    "tenant": Contract(tenant=lambda x, *_, **named: f"tenant 'é' {x!r}"),
}
OPTIONS: list[dict[str, Any]] = [
    {}, {"queue": "slow", "priority": 3}, {"ignore_result": True}, {"serializer": "json"},
    {"time_limit": 30, "soft_time_limit": 20, "shadow": "50 % shown"}, {"exchange": "other", "routing_key": "there"},
]  # fmt: skip


def all_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kinds, "worked_out", lambda *_: None)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_jobs_of_many_calls_are_those_that_go_all_the_way(
    make_task: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, sent: list[Any], contract: str
) -> None:
    add = make_task(CONTRACTS[contract])
    calls = [call for value in VALUES for call in ({"x": value}, [value, 7], {"y": value, "x": "a"}, (value,))]
    calls = [*calls, *([0, n % 2 or None] for n in range(5))]
    calls = [*calls, *({"x": n, "tenant": tenant} for n in range(5) for tenant in (f"t%{n}", None))]
    fast = made(add, calls)
    assert len(sent) < len(calls) * (0.9 if contract == "key for every other" else 0.5)
    all_the_way(monkeypatch)
    assert fast == made(add, calls)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_the_options_are_those_of_each(
    make_task: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, sent: list[Any], options: dict[str, Any], kind: Any
) -> None:
    add, calls = make_task(), [{"x": n} for n in range(MANY)]
    fast = made(add, kind(calls), **options)
    assert len(sent) == 2
    all_the_way(monkeypatch)
    assert fast == made(add, calls, **options)


@pytest.mark.parametrize(
    "options", [{"countdown": 60}, {"expires": 60}, {"headers": {"trace": "7"}}, {"compression": "zlib"}], ids=str
)
def test_with_options_by_which_a_message_may_differ_all_go_all_the_way(
    make_task: Callable[..., Any], sent: list[Any], options: dict[str, Any]
) -> None:
    made(make_task(), [{"x": n} for n in range(MANY)], **options)
    assert len(sent) == MANY


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({}, TypeError),
        ({"x": 1, "z": 2}, TypeError),
        ({"x": "a", "y": float("nan")}, PayloadError),
        ({"x": "a", "y": {"a": {1: 2}}}, PayloadError),
        ({"x": "a", "y": {"__type__": "uuid", "__value__": {"hex": "0" * 32}}}, PayloadError),
        ({"x": "a", "y": "\ud83d\ude00"}, PayloadError),
        ({"x": "a", "y": {1, 2}}, PayloadError),
        ({"x": "long" * 100_000}, PayloadTooLargeError),
        ({"x": None}, EnqueueError),
        ({"x": 1, "tenant": ""}, EnqueueError),
    ],
    ids=lambda each: repr(each)[:40],
)
def test_a_call_that_is_refused_says_why_and_none_is_written(
    make_task: Callable[..., Any], sent: list[Any], call: dict[str, Any], error: type[Exception]
) -> None:
    add = make_task(Contract(key="x", match=("x",)), guard={"payload_limit": 100_000})
    alike = [{**dict.fromkeys(call, "a"), "x": str(n)} for n in range(MANY)]
    with pytest.raises(error) as alone:
        add.delay(**call)
    del sent[:]
    with pytest.raises(error) as among:
        add.enqueue_many([*alike, call])
    assert type(among.value) is type(alone.value)
    # how long a header is depends on the time that is in it
    assert re.sub("[0-9]+", "", str(among.value)) == re.sub("[0-9]+", "", str(alone.value))
    assert len(sent) <= 5
    assert not list(add.app.guard.store.jobs())


@pytest.mark.parametrize("call", [{}, {"x": 1, "z": 2}, {"y": 2}, (), (1, 2, "t", 4)], ids=str)
def test_a_call_that_does_not_fit_the_signature_is_refused(make_task: Callable[..., Any], call: Any) -> None:
    with pytest.raises(TypeError, match="argument"):
        make_task().enqueue_many([*[{**dict(call), "x": 1} if call and type(call) is dict else [1]] * MANY, call])


def test_a_call_like_those_before_that_does_not_fit_is_refused(make_task: Callable[..., Any]) -> None:
    add = make_task()

    def calls() -> Iterator[dict[str, int]]:
        for n in range(MANY):
            if n == MANY - 1:
                add.__class__.__header__ = staticmethod(lambda y: None)
            yield {"x": n}

    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        add.enqueue_many(calls())


def test_what_is_worked_out_is_written_and_says_its_answer(make_task: Callable[..., Any], sent: list[Any]) -> None:
    add = make_task(Contract(key="x"))
    handles = add.enqueue_many([{"x": n % 6} for n in range(MANY)])
    assert [handle.duplicate for handle in handles] == [False] * 6 + [True] * 6
    assert [handle.id for handle in handles[6:]] == [handle.id for handle in handles[:6]]
    assert len(sent) == 2


class Overridden(GuardedTask):
    abstract = True

    def apply_async(self, *args: Any, **options: Any) -> Any:
        return super().apply_async(*args, **options)


class Shown(GuardedTask):
    abstract = True

    def shadow_name(self, args: Any, kwargs: Any, options: Any) -> str:
        return f"add {kwargs['x']}"


class Handled(GuardedTask):
    abstract = True

    def AsyncResult(self, task_id: str, **kwargs: Any) -> Any:
        return super().AsyncResult(task_id, **kwargs)


@pytest.mark.parametrize("base", [Overridden, Shown, Handled])
def test_what_a_task_overrides_is_called_for_each(make_task: Callable[..., Any], sent: list[Any], base: Any) -> None:
    jobs, _ = made(make_task(base=base), [{"x": n} for n in range(MANY)])
    assert len(sent) == MANY
    if base is Shown:
        assert [json.loads(job.payload.headers)["shadow"] for job in jobs] == [f"add {n}" for n in range(MANY)]


def test_an_override_on_the_task_itself_is_called_for_each(make_task: Callable[..., Any], sent: list[Any]) -> None:
    add = make_task()
    plain = add.apply_async
    add.apply_async = lambda *args, **options: plain(*args, **options)
    made(add, [{"x": n} for n in range(MANY)])
    assert len(sent) == MANY


def test_a_patch_of_celerys_apply_async_is_called_for_each(
    make_task: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, called = Task.apply_async, []

    @functools.wraps(plain)
    def apply_async(self: Any, *args: Any, **options: Any) -> Any:
        called.append(args)
        return plain(self, *args, **options)

    monkeypatch.setattr(Task, "apply_async", apply_async)
    made(make_task(), [{"x": n} for n in range(MANY)])
    assert len(called) == MANY


def test_one_who_stands_before_the_door_is_passed_by_each(make_task: Callable[..., Any]) -> None:
    add, called = make_task(), []
    plain = add.app.send_task

    def send_task(*args: Any, **options: Any) -> Any:
        called.append(args)
        return plain(*args, **options)

    add.app.send_task = send_task
    made(add, [{"x": n} for n in range(MANY)])
    assert len(called) == MANY


@pytest.mark.parametrize("options", [{}, {"serializer": "of ones own"}], ids=["json", "by name"])
def test_a_serializer_of_ones_own_is_called_for_each(
    make_task: Callable[..., Any], sent: list[Any], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    plain = kombu_json.dumps
    name, (kind, encoding, _) = options.get("serializer", "json"), registry._encoders["json"]
    called = []

    def dumps(value: Any, **options: Any) -> str:
        called.append(value)
        return str(plain(value, **options))

    monkeypatch.setitem(registry._encoders, name, type(registry._encoders["json"])(kind, encoding, dumps))
    made(make_task(), [{"x": n} for n in range(MANY)], **options)
    assert len(called) >= MANY
    assert len(sent) == MANY


def test_what_the_callers_own_code_changes_between_two_calls_holds_from_there_on(
    make_task: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = make_task()

    def calls() -> Iterator[dict[str, int]]:
        for n in range(3 * MANY):
            add.ignore_result = MANY <= n < 2 * MANY
            yield {"x": n}

    fast = made(add, calls())
    said = [json.loads(job.payload.headers)["ignore_result"] for job in fast[0]]
    # before 5.7 Celery wrote into the header what the call said, and nothing of the task
    assert said == [False] * MANY + [celery_version >= (5, 7)] * MANY + [False] * MANY
    all_the_way(monkeypatch)
    assert fast == made(add, calls())


def test_a_receiver_that_comes_and_goes_between_two_calls_is_called_for_those(make_task: Callable[..., Any]) -> None:
    def stamp(headers: Any, **_: Any) -> None:
        headers["seen"] = "yes"

    # Celery forgets the dead receivers of other tests now
    celery_signals.before_task_publish.connect(stamp)
    celery_signals.before_task_publish.disconnect(stamp)

    def calls() -> Iterator[dict[str, int]]:
        for n in range(3 * MANY):
            if n == MANY:
                celery_signals.before_task_publish.connect(stamp)
            if n == 2 * MANY:
                celery_signals.before_task_publish.disconnect(stamp)
            yield {"x": n}

    jobs, _ = made(make_task(), calls())
    said = [json.loads(job.payload.headers).get("seen") for job in jobs]
    assert said == [None] * MANY + ["yes"] * MANY + [None] * MANY


def test_what_cannot_be_worked_out_goes_all_the_way(
    make_task: Callable[..., Any], sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason is: the second job of a kind says so."""
    plain = kinds._kind_of

    def other(job: NewJob, handle: Any) -> Any:
        kind = plain(job, handle)
        assert kind is not None
        kind.model = replace(kind.model, priority=7)
        return kind

    monkeypatch.setattr(kinds, "_kind_of", other)
    made(make_task(), [{"x": n} for n in range(MANY)])
    assert len(sent) == MANY


def test_no_more_kinds_are_known_than_are_worth_it(
    make_app: Callable[..., Celery], monkeypatch: pytest.MonkeyPatch, sent: list[Any]
) -> None:
    app = make_app()

    @app.task(base=GuardedTask, name="any", shared=False)
    def any_name(**named: int) -> None: ...

    calls = [{f"n{n}": n} for n in range(2 * kinds._MOST_KINDS)] * 3
    fast = made(any_name, calls)
    assert len(sent) == len(calls) - kinds._MOST_KINDS
    all_the_way(monkeypatch)
    assert fast == made(any_name, calls)


def test_a_contracts_function_is_asked_once_a_call(make_task: Callable[..., Any]) -> None:
    asked = []

    def key(x: int, **named: Any) -> int:
        asked.append(x)
        return x

    made(make_task(Contract(key=key)), [{"x": n} for n in range(MANY)])
    assert asked == list(range(MANY))


def test_where_messages_carry_a_trace_all_go_all_the_way(
    make_task: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, sent: list[Any]
) -> None:
    add = make_task()
    monkeypatch.setattr(type(add._guard.tracing), "on", True)
    made(add, [{"x": n} for n in range(MANY)])
    assert len(sent) == MANY


def test_where_messages_are_encrypted_all_go_all_the_way(make_task: Callable[..., Any], sent: list[Any]) -> None:
    pytest.importorskip("cryptography", reason="pip install 'celery-guard[encryption]'")
    from cryptography.fernet import Fernet

    add = make_task(guard={"encryption_keys": Fernet.generate_key().decode(), "encrypt": True})
    add.enqueue_many([{"x": n} for n in range(MANY)])
    assert len(sent) == MANY


def test_calls_of_a_contract_that_sends_by_name_all_go_all_the_way(
    make_task: Callable[..., Any], sent: list[Any]
) -> None:
    jobs, _ = made(make_task(Contract(named=True)), [(n,) for n in range(MANY)])
    assert [json.loads(job.payload.body)[1]["x"] for job in jobs] == list(range(MANY))
    assert len(sent) == MANY


def test_messages_that_expire_by_their_task_all_go_all_the_way(make_task: Callable[..., Any], sent: list[Any]) -> None:
    add = make_task()
    add.expires = 60
    made(add, [{"x": n} for n in range(MANY)])
    assert len(sent) == MANY
