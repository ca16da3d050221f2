"""The door: what becomes of a send, with no broker and no result backend to be reached."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from celery import Celery, chain, chord, group, signals
from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.serialization import register, unregister
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session

from celery_guard import (
    ConfigurationError,
    Contract,
    ContractError,
    EnqueueError,
    Guard,
    GuardedTask,
    KeyConflict,
    SettingError,
    State,
    Timing,
)
from celery_guard.job.event import Event
from celery_guard.job.verdict import Accepted


@pytest.fixture
def add(app: Celery) -> Any:
    @app.task(base=GuardedTask, name="add", shared=False)
    def add(x: Any, y: Any = 2) -> Any:
        return x + y

    return add


@pytest.fixture
def plain(app: Celery) -> Any:
    @app.task(name="plain", shared=False, ignore_result=True)
    def plain(x: int) -> None: ...

    return plain


def test_a_guarded_message_is_of_protocol_2_and_others_are_as_the_app_says(make_app: Callable[..., Celery]) -> None:
    app = make_app(task_protocol=1)

    @app.task(base=GuardedTask, name="add", shared=False)
    def add(x: int) -> None: ...

    sent = add.delay(1)
    payload = app.guard.store.payload(sent.id, 0)
    assert json.loads(payload.headers)["id"] == sent.id
    plain = app.amqp.create_task_message("id", "other", (), {})
    assert (plain.headers, plain.body["id"]) == ({}, "id")


def nothing() -> None: ...


def ids(app: Celery) -> set[str]:
    return {job.id for job in app.guard.store.jobs(limit=1000)}


def test_delay_writes_a_row_and_needs_neither_broker_nor_result_backend(app: Celery, add: Any) -> None:
    result = add.delay(1)
    job = app.guard.store.job(result.id)
    assert (job.state, job.task, job.queue, job.correlation_id) == (State.PENDING, "add", "celery", result.id)
    assert not result.duplicate
    assert isinstance(result.answer, Accepted)


def test_a_task_without_a_guard_goes_celerys_own_way(app: Celery, plain: Any) -> None:
    with pytest.raises(OperationalError):
        plain.apply_async((1,), retry=False)
    assert ids(app) == set()


def test_the_message_is_celerys_own(app: Celery, add: Any, stored: Callable[[str], Any]) -> None:
    link = add.s(10)
    result = add.apply_async(
        (1,), {"y": 5}, queue="other", priority=7, headers={"x": "y"}, link=link, shadow="shown", ignore_result=True,
        stamped_headers=["stamp"], stamp="value", time_limit=50, soft_time_limit=40, reply_to="me",
    )  # fmt: skip
    body, headers, delivery = stored(result.id)
    assert body[:2] == [[1], {"y": 5}]
    assert [callback["task"] for callback in body[2]["callbacks"]] == ["add"]
    expected = {
        "task": "add", "id": result.id, "x": "y", "shadow": "shown", "ignore_result": True, "retries": 0, "eta": None,
        "expires": None, "timelimit": [50, 40], "stamped_headers": ["stamp"], "stamps": {"stamp": "value"},
    }  # fmt: skip
    assert {name: headers[name] for name in expected} == expected
    assert (delivery["routing_key"], delivery["queue"], delivery["priority"]) == ("other", "other", 7)
    assert delivery["properties"]["correlation_id"] == result.id
    assert delivery["properties"]["reply_to"] == "me"
    envelope = headers["guard"]
    assert (envelope["version"], envelope["id"], envelope["correlation_id"]) == (1, result.id, result.id)


def test_routing_and_serializer_are_honoured(make_app: Callable[..., Celery]) -> None:
    register("spaced", lambda value: json.dumps(value, indent=1), json.loads, "application/x-spaced", "utf-8")
    app = make_app(
        task_routes={"slow.*": {"queue": "slow"}}, task_serializer="spaced", accept_content=["json", "spaced"]
    )

    @app.task(base=GuardedTask, name="slow.one", shared=False)
    def one(x: int) -> None: ...

    job = app.guard.store.job(one.delay(1).id)
    payload = app.guard.store.payload(job.id)
    assert job.queue == "slow"
    assert '"content_type": "application/x-spaced"' in payload.delivery
    assert payload.body.startswith(b"[\n")
    unregister("spaced")


def test_publish_signals_fire_once_at_enqueue_and_may_add_headers(
    app: Celery, add: Any, stored: Callable[[str], Any]
) -> None:
    seen: list[str] = []

    def before(sender: Any = None, headers: Any = None, **_: Any) -> None:
        seen.append("before")
        headers["traceparent"] = "00-1"

    def after(**_: Any) -> None:
        seen.append("after")

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    try:
        result = add.delay(1)
    finally:
        signals.before_task_publish.disconnect(before)
        signals.after_task_publish.disconnect(after)
    assert seen == ["before", "after"]
    assert stored(result.id)[1]["traceparent"] == "00-1"


def test_the_task_sent_event_is_not_taken_for_the_message(make_app: Callable[..., Celery]) -> None:
    app = make_app(task_send_sent_event=True)

    @app.task(base=GuardedTask, name="one", shared=False)
    def one(x: int) -> None: ...

    assert app.guard.store.job(one.delay(1).id).task == "one"


def in_an_hour() -> datetime:
    return datetime.now(timezone.utc) + timedelta(hours=1)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        (lambda: {"countdown": 3600}, 3600),
        (lambda: {"eta": in_an_hour()}, 3600),
        (lambda: {"eta": in_an_hour().isoformat()}, 3600),
        (lambda: {"countdown": -5}, 0),
    ],
)
def test_a_later_time_waits_in_the_store(
    app: Celery, add: Any, stored: Callable[[str], Any], options: Callable[[], Any], seconds: int
) -> None:
    result = add.apply_async((1,), **options())
    job = app.guard.store.job(result.id)
    assert abs((job.due - job.created).total_seconds() - seconds) < 600
    assert stored(result.id)[1]["eta"] is None


def test_expires_is_a_deadline_by_the_stores_clock(app: Celery, add: Any, stored: Callable[[str], Any]) -> None:
    job = app.guard.store.job(add.apply_async((1,), expires=100).id)
    assert (job.deadline - job.created).total_seconds() == pytest.approx(100, abs=5)
    assert stored(job.id)[1]["expires"] is None
    assert "expiration" not in stored(job.id)[2]["properties"]
    assert app.guard.store.job(add.apply_async((1,), expires=None).id).deadline is None


def test_the_earlier_of_contract_and_call_is_the_deadline(app: Celery) -> None:
    timing = Timing(deadline=timedelta(seconds=50))

    @app.task(base=GuardedTask, name="timed", shared=False, contract=Contract(timing=timing))
    def timed() -> None: ...

    def deadline(**options: Any) -> float:
        job = app.guard.store.job(timed.apply_async(**options).id)
        return float(round((job.deadline - job.created).total_seconds()))

    assert (deadline(), deadline(expires=20), deadline(expires=1000)) == (50, 20, 50)


def test_a_send_by_name_and_a_signature_are_guarded_too(app: Celery, add: Any) -> None:
    one = app.send_task("add", (1,))
    two = app.signature("add", (1,)).apply_async()
    assert ids(app) == {one.id, two.id}


def test_every_member_of_a_canvas_is_a_row(app: Celery, add: Any) -> None:
    # Celery's own group subscribes to the results of its members, after they were accepted
    app.conf.result_backend = "cache+memory://"
    result = group(add.s(n) for n in range(3)).apply_async()
    assert ids(app) == {member.id for member in result.results}
    first = chain(add.s(1), add.s(2)).apply_async()
    assert first.parent.id in ids(app)
    assert first.id not in ids(app), "the next step is written when the first is settled"


def test_another_broker_is_refused_aloud(app: Celery, add: Any) -> None:
    with pytest.raises(EnqueueError, match="another broker"):
        add.apply_async((1,), connection=Connection("redis://127.0.0.1:2/0"))


def test_a_job_is_accepted_though_rpc_has_no_broker_to_make_its_queue_on(
    make_app: Callable[..., Celery], caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(result_backend="rpc://")
    task = app.task(nothing, name="t", base=GuardedTask, shared=False)
    result = task.delay()
    assert ids(app) == {result.id}
    assert f"job {result.id} is accepted; its result cannot reach this process" in caplog.text


@pytest.mark.parametrize("contract", [{"owner": "payments"}, "payments"])
def test_what_is_no_contract_is_refused_by_name(app: Celery, contract: Any) -> None:
    with pytest.raises(ContractError, match=r"t: contract: found .*, expected a Contract"):
        app.task(nothing, name="t", base=GuardedTask, shared=False, contract=contract).delay()


def test_a_guard_of_no_app_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"found NoneType, expected the Celery app"):
        Guard(None)


def test_enqueue_many_returns_the_results_of_what_celery_runs_at_once(app: Celery, add: Any) -> None:
    app.conf.task_always_eager = True
    assert [result.get() for result in add.enqueue_many([[1, 2], {"x": 3, "y": 4}])] == [3, 7]


def test_a_setting_that_does_not_exist_is_refused_where_it_is_written() -> None:
    with pytest.raises(SettingError, match="lease"):
        Guard(Celery("slip", set_as_current=False), leese=3)


def test_a_second_guard_with_other_settings_is_refused(app: Celery) -> None:
    with pytest.raises(ConfigurationError, match="already"):
        Guard(app, store="sqlite:///other.db")


@pytest.fixture
def session(app: Celery) -> Any:
    engine = create_engine(app.guard.settings.store)
    # the driver's own transactions know no savepoints; SQLAlchemy documents this way out
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with Session(engine) as session:
        session.execute(text("create table orders (id integer)"))
        session.commit()
        yield session
    engine.dispose()


def test_using_a_session_commits_and_rolls_back_with_it(app: Celery, add: Any, session: Session) -> None:
    session.execute(text("insert into orders values (1)"))
    gone = add.using(session).delay(1)
    session.rollback()
    session.execute(text("insert into orders values (2)"))
    kept = add.using(session).delay(1)
    session.commit()
    assert ids(app) == {kept.id} != {gone.id}
    assert session.execute(text("select id from orders")).scalars().all() == [2]


def test_a_savepoint_takes_its_jobs_with_it(app: Celery, add: Any, session: Session) -> None:
    with app.guard.using(session):
        outer = add.delay(1)
        savepoint = session.begin_nested()
        add.delay(2)
        savepoint.rollback()
        after = add.delay(3)
    session.commit()
    assert ids(app) == {outer.id, after.id}


def test_using_takes_the_whole_canvas_and_carries_what_has_no_guard(
    app: Celery, add: Any, plain: Any, session: Session
) -> None:
    with app.guard.using(session):
        chain(add.s(1), add.s(2)).apply_async()
        carried = plain.delay(1)
    session.rollback()
    assert ids(app) == set()
    with app.guard.using(session):
        carried = plain.delay(1)
    session.commit()
    assert app.guard.store.job(carried.id).kind.value == "carried"


def test_a_conflict_leaves_the_callers_transaction_usable(app: Celery, charge: Any, session: Session) -> None:
    charge.delay(1)
    with pytest.raises(KeyConflict):
        charge.using(session).delay(1, amount=2)
    session.execute(text("insert into orders values (3)"))
    session.commit()
    assert session.execute(text("select id from orders")).scalars().all() == [3]


def test_a_wrong_call_is_refused_as_celery_refuses_it(app: Celery, add: Any) -> None:
    with pytest.raises(TypeError):
        add.delay(1, 2, 3)
    assert ids(app) == set()


def test_revoking_is_cancelling_the_row(app: Celery, add: Any) -> None:
    result = add.delay(1)
    result.revoke()
    assert app.guard.store.job(result.id).state is State.CANCELLED


def test_a_chord_of_guarded_tasks_is_written(make_app: Callable[..., Celery]) -> None:
    app = make_app()
    app.conf.result_backend = "cache+memory://"

    @app.task(base=GuardedTask, name="one", shared=False)
    def one(*_: Any) -> int:
        return 1

    result = chord([one.s(n) for n in range(3)], one.s()).apply_async()
    assert {member.id for member in result.parent.results} == ids(app)


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.words: list[tuple[str, str]] = []

    def told(self, happened: Event) -> None:
        self.words.append((type(happened).__name__, happened.task))


def test_who_observes_is_told_what_the_store_has_answered(app: Celery) -> None:
    @app.task(base=GuardedTask, name="pay", shared=False, contract=Contract(key="order"))
    def pay(order: int, amount: int = 1) -> None: ...

    heard = Heard()
    app.guard.observe(heard)
    sent = pay.delay(1)
    pay.delay(1)
    with pytest.raises(KeyConflict):
        pay.delay(1, amount=2)
    sent.revoke()
    assert heard.words == [("Enqueued", "pay"), ("Duplicated", "pay"), ("Conflicted", "pay"), ("Cancelled", "")]
