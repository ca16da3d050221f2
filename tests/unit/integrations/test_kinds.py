"""Jobs of ``delay`` and ``apply_async`` that are worked out from jobs of their kind before: what goes out is what would go all the way at that moment."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kombu import Queue
from sqlalchemy import create_engine

from celery_guard import Contract, GuardedTask, KeyConflict, PayloadError
from celery_guard.flow.context import running_job
from celery_guard.integrations.celery import kinds
from celery_guard.integrations.celery.attempt import collecting
from celery_guard.integrations.celery.kinds import Kinds
from celery_guard.integrations.celery.slots import Due, scheduled
from celery_guard.job.row import NewJob
from celery_guard.job.state import State

from .test_many import CONTRACTS, OPTIONS, VALUES, comparable, seen


def all_the_way(task: Any, args: Any, kwargs: Any, options: Any) -> tuple[NewJob, Any]:
    """The job that a call has that goes all the way now, and what its handle says."""
    with collecting() as gathered:
        handle = task.apply_async(args, kwargs, **options)
    return comparable(gathered.jobs[0]), seen(handle)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_each_call_has_the_job_that_goes_all_the_way(
    make_task: Callable[..., Any], written: list[NewJob], sent: list[Any], contract: str
) -> None:
    add = make_task(CONTRACTS[contract])
    calls: list[tuple[Any, Any]] = [
        call for n, value in enumerate(VALUES) for call in (([f"{n}"], {"y": value}), ((f"{n} a", value), None))
    ]
    calls += [(None, {"x": f"{n} b", "tenant": tenant}) for n in range(5) for tenant in (f"t%{n}", None)]
    for args, kwargs in calls:
        del sent[:]
        add.apply_async(args, kwargs)
        wanted, _ = all_the_way(add, args, kwargs, {})
        assert comparable(written[-1]) == wanted
    del sent[:]
    add.delay("the last", y=7)
    assert not sent
    assert len(written) == len(calls) + 1
    assert len({job.id for job in written}) == len(written)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_options_are_those_of_the_call(
    make_task: Callable[..., Any], written: list[NewJob], sent: list[Any], options: dict[str, Any]
) -> None:
    add = make_task()
    handles = [add.apply_async((n,), **options) for n in range(5)]
    assert [handle.id for handle in handles] == [job.id for job in written]
    assert len(sent) == (3 if options else 2)
    wanted, said = all_the_way(add, (4,), {}, options)
    assert comparable(written[-1]) == wanted
    (kind, state, _), (wanted_kind, expected, _) = seen(handles[-1]), said
    assert kind is wanted_kind
    assert {name: value for name, value in state.items() if name in expected} == expected


def test_options_that_only_look_alike_are_two_kinds(make_task: Callable[..., Any], written: list[NewJob]) -> None:
    add = make_task()
    for ignored in (True, 1, True, 1, True, 1):
        add.apply_async((1,), ignore_result=ignored)
    said = [json.loads(job.payload.headers)["ignore_result"] for job in written]
    assert list(map(repr, said)) == ["True", "1"] * 3


def test_what_is_sent_while_a_call_goes_all_the_way_is_a_send_like_any_other(make_task: Callable[..., Any]) -> None:
    def key(x: Any, **_: Any) -> str:
        other.delay(x)
        return str(x)

    add = make_task(Contract(key=lambda x, *_, **named: key(x)))
    store = add.app.guard.store

    @add.app.task(base=GuardedTask, name="other", shared=False)
    def other(x: Any) -> None: ...

    handles = [add.delay(n) for n in range(5)]
    handles += add.enqueue_many([(n,) for n in range(5, 9)])
    handles += [asyncio.run(add.adelay(9))]
    assert [store.job(handle.id).task for handle in handles] == ["add"] * 10
    assert sorted(job.task for job in store.jobs()) == ["add"] * 10 + ["other"] * 10


def test_what_an_iterator_sends_has_no_handle_among_those_of_its_calls(make_task: Callable[..., Any]) -> None:
    add = make_task()

    def calls() -> Iterator[tuple[int]]:
        for n in range(4):
            add.delay(f"meanwhile {n}")
            yield (n,)

    handles = add.enqueue_many(calls())
    args = [json.loads(add.app.guard.store.payload(handle.id).body)[0] for handle in handles]
    assert args == [[n] for n in range(4)]
    assert len(list(add.app.guard.store.jobs())) == 8


def test_what_becomes_of_the_first_handle_is_its_callers(make_task: Callable[..., Any]) -> None:
    add = make_task()
    first, second = add.delay(1), add.delay(2)
    first.ignored, first.backend = True, None
    third = add.delay(3)
    assert (third.ignored, third.backend) == (second.ignored, second.backend)


def test_another_thread_answers_to_its_own_address(
    make_task: Callable[..., Any], written: list[NewJob], sent: list[Any]
) -> None:
    add = make_task()

    def send(n: int) -> str:
        add.delay(n)
        return str(add.app.thread_oid)

    with ThreadPoolExecutor(1) as pool:
        mine, theirs = {send(n) for n in range(5)}, {pool.submit(send, n).result() for n in range(5)}
    said = [json.loads(job.payload.delivery)["properties"]["reply_to"] for job in written]
    assert said == [*mine] * 5 + [*theirs] * 5
    assert mine != theirs
    assert len(sent) == 4


def test_another_process_learns_anew(
    make_task: Callable[..., Any], sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = make_task()
    for n in range(5):
        add.delay(n)
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    add.delay(5)
    assert [args for args, _ in sent] == [(0,), (1,), (5,)]


def test_one_call_of_a_hundred_finds_what_changed_where_nobody_looks(
    make_task: Callable[..., Any], written: list[NewJob], sent: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    route = {"queue": "mail"}
    add = make_task(task_routes={"add": route})
    for n in range(10):
        add.delay(n)
    route["queue"] = "slow"
    with caplog.at_level(logging.WARNING, "celery_guard.enqueue"):
        for n in range(10, 300):
            add.delay(n)
    queues = [job.queue for job in written]
    late = queues.index("slow")
    assert 10 < late <= 2 + kinds._PROVE_EVERY
    assert queues == ["mail"] * late + ["slow"] * (300 - late)
    assert [record.message for record in caplog.records] == [
        "add: its messages are not any more what they were, though nothing was configured anew: up to 99 were still sent as before"
    ]
    assert 4 < len(sent) < 10


def test_a_call_that_cannot_be_worked_out_speaks_against_no_kind(
    make_task: Callable[..., Any], sent: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    add = make_task(Contract(key=lambda x: None if x % 10 == 9 else x))
    for n in range(30):
        add.delay(n)
    assert [args for args, _ in sent] == [(0,), (1,), (9,), (19,), (29,)]
    assert not caplog.records


def test_a_job_that_a_schedule_sends_goes_all_the_way(make_task: Callable[..., Any], sent: list[Any]) -> None:
    add = make_task()
    for n in range(5):
        with scheduled(Due("add", lambda: None, "nightly")):
            assert add._guard.sender.kinds_of(add.app.tasks["add"], (1,), {}, {}) is None
            add.delay(n)
    assert len(sent) == 5
    assert {job.schedule for job in add.app.guard.store.jobs()} == {"nightly"}


def test_a_job_that_a_body_sends_goes_all_the_way(make_task: Callable[..., Any], sent: list[Any]) -> None:
    add = make_task()
    for n in range(3):
        add.delay(n)
    assert add._guard.sender.kinds_of(add.app.tasks["add"], (1,), {}, {}) is not None
    token = running_job.set(object())  # type: ignore[arg-type]
    try:
        assert add._guard.sender.kinds_of(add.app.tasks["add"], (1,), {}, {}) is None
    finally:
        running_job.reset(token)


@pytest.mark.parametrize(
    ("args", "kwargs", "options"),
    [
        ((1,), {}, {"countdown": 60}),
        ((1,), {}, {"task_id": "mine"}),
        ((1,), {}, {"headers": {"trace": "7"}}),
        (range(1), {}, {}),
        ((1,), {}, {"queue": Queue("q")}),
    ],
    ids=repr,
)
def test_what_is_no_plain_call_goes_all_the_way(
    make_task: Callable[..., Any], args: Any, kwargs: Any, options: Any
) -> None:
    add = make_task()
    for n in range(3):
        add.delay(n)
    assert add._guard.sender.kinds_of(add.app.tasks["add"], args, kwargs, options) is None


def test_eager_is_heard_at_the_next_call(make_task: Callable[..., Any], written: list[NewJob], sent: list[Any]) -> None:
    add = make_task()
    for n in range(4):
        add.delay(n)
    add.app.conf.task_always_eager = True
    assert add._guard.sender.kinds_of(add.app.tasks["add"], (1,), {}, {}) is None
    assert add.delay(4).state == "SUCCESS"
    add.app.conf.task_always_eager = False
    assert add.app.guard.store.job(add.delay(5).id).state is State.PENDING


def test_a_transaction_of_the_callers_is_joined(make_task: Callable[..., Any]) -> None:
    add = make_task()
    store = add.app.guard.store
    engine = create_engine(store._database.url)
    for commits in (False, True):
        with engine.connect() as connection:
            begun = connection.begin()
            handles = [add.using(connection).delay(n) for n in range(5)]
            (begun.commit if commits else begun.rollback)()
        assert [store.job(handle.id) is not None for handle in handles] == [commits] * 5
    engine.dispose()


def test_a_call_that_is_refused_says_why_and_shows_nothing(make_task: Callable[..., Any], sent: list[Any]) -> None:
    add = make_task(Contract(key="x", match=("y",), sensitive=("y",)))
    for n in range(3):
        add.delay(str(n), y="a secret")
    with pytest.raises(KeyConflict) as refused:
        add.delay("0", y="other secret")
    with pytest.raises(PayloadError) as bad:
        add.delay("5", y=float("nan"))
    with pytest.raises(TypeError):
        add.delay()
    assert "secret" not in f"{refused.value!r} {bad.value!r}"
    assert len(sent) == 3


def test_a_duplicate_is_the_first_ones_handle(make_task: Callable[..., Any]) -> None:
    add = make_task(Contract(key="x"))
    first = [add.delay(str(n)) for n in range(5)]
    again = [add.delay(str(n)) for n in range(5)]
    assert [handle.id for handle in again] == [handle.id for handle in first]
    assert [handle.duplicate for handle in first + again] == [False] * 5 + [True] * 5


def test_no_more_is_kept_than_is_worth_it(make_task: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_MOST_KEPT", 5)
    add = make_task()
    for n in range(12):
        add.apply_async((n,), time_limit=n + 1)
        add.apply_async((n,), priority=3)
        assert len(add._guard.sender._kinds._of) <= 5
    kept = add._guard.sender._kinds._of
    # what is met once is not learned
    assert {name: known for name, known in kept.items() if known is not None}.keys() == {("add", ("priority", int, 3))}


def test_a_body_is_not_kept(make_task: Callable[..., Any]) -> None:
    add = make_task()
    for n in range(3):
        add.delay(f"{n}" * 1000)
    [known] = add._guard.sender._kinds._of.values()
    assert isinstance(known, Kinds)
    [kind] = known._kinds.values()
    assert kind is not None
    assert kind.model.payload.body == b""
