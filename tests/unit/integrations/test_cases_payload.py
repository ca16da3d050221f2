"""PAY-3 and PAY-4: what a message may carry is decided at enqueue, by what would come back."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from celery import Celery
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from celery_guard import Contract, EnqueueError, GuardedTask, PayloadError, PayloadTooLargeError, Retry
from celery_guard.contract.codec import wire_size
from celery_guard.integrations.celery.capture import decode


@pytest.fixture
def take(app: Celery) -> Any:
    @app.task(base=GuardedTask, name="take", shared=False)
    def take(value: Any = None, **more: Any) -> Any:
        return value

    return take


def came_back(app: Celery, id: str) -> Any:
    payload = app.guard.store.payload(id)
    args, _kwargs, _embed = decode(payload.body, json.loads(payload.delivery), json.loads(payload.headers))
    return args[0]


@pytest.mark.parametrize(
    "value",
    [
        date(2026, 1, 2),
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc),
        datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - naive goes, naive comes back
        Decimal("1.10"),
        UUID(int=7),
        b"\x00\xff",
        {"a": [1, 2.5, None, True, "\N{PILE OF POO}", {"deep": [b"x"]}]},
        "\ud800",
        2**70,
        -0.0,
    ],
    ids=repr,
)
def test_pay_4_what_comes_back_equal_and_of_the_same_type_is_accepted(app: Celery, take: Any, value: Any) -> None:
    found = came_back(app, take.delay(value).id)
    assert (type(found), found) == (type(value), value)


class Row:
    """Stands for an object of an ORM."""


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({1: "a"}, "args[0]"),
        ([{"a": {1, 2}}], "args[0][0]['a']"),
        (float("nan"), "args[0]"),
        ({"x": [float("inf")]}, "args[0]['x'][0]"),
        ({"order": Row()}, "args[0]['order']"),
        ([1, 2, [Row()]], "args[0][2][0]"),
    ],
    ids=["int key", "set", "nan", "infinity", "object", "nested object"],
)
def test_pay_4_what_would_not_come_back_is_refused_by_its_path(app: Celery, take: Any, value: Any, path: str) -> None:
    with pytest.raises(PayloadError) as caught:
        take.delay(value)
    assert caught.value.path.startswith(path), caught.value.path
    assert caught.value.path in str(caught.value)
    assert app.guard.store.jobs() == []


def test_pay_4_keyword_arguments_are_named_too(take: Any) -> None:
    with pytest.raises(PayloadError) as caught:
        take.delay(None, order={"total": Row()})
    assert caught.value.path == "kwargs['order']['total']"


def test_pay_4_a_tuple_arrives_as_a_list_as_it_always_did(app: Celery, take: Any) -> None:
    assert came_back(app, take.delay((1, (2,))).id) == [1, [2]]


LIMIT = 256 * 1024


@pytest.fixture
def small(make_app: Callable[..., Celery]) -> Any:
    app = make_app({"payload_limit": LIMIT})

    @app.task(base=GuardedTask, name="take", shared=False, argsrepr_maxsize=10)
    def take(value: str) -> None: ...

    return take


def size_of(task: Any, value: str) -> int:
    """The size that is reported for a value that is far over the limit, less what is over it."""
    with pytest.raises(PayloadTooLargeError) as caught:
        task.delay(value)
    return caught.value.size


@pytest.mark.parametrize("filler", ["x", "\N{PILE OF POO}"], ids=["ascii", "not ascii"])
def test_pay_3_the_limit_holds_to_the_byte_as_the_message_travels(small: Any, filler: str) -> None:
    app = small.app

    def stored_size(length: int) -> int:
        payload = app.guard.store.payload(small.apply_async(((filler * length),), argsrepr="-").id)
        return wire_size(payload.body, payload.headers, payload.delivery)

    def fits(length: int) -> bool:
        try:
            small.apply_async(((filler * length),), argsrepr="-")
        except PayloadTooLargeError:
            return False
        return True

    low, high = 1, LIMIT
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    # the envelope's own time of creation has a digit more or less each time
    assert LIMIT - 256 < stored_size(low - 8) <= LIMIT
    with pytest.raises(PayloadTooLargeError) as caught:
        small.apply_async(((filler * (low + 16)),), argsrepr="-")
    assert caught.value.size > caught.value.limit == LIMIT
    assert str(caught.value.size) in str(caught.value)
    assert str(LIMIT) in str(caught.value)


def test_pay_3_the_callers_transaction_can_still_roll_back_or_commit(small: Any) -> None:
    app = small.app
    engine = create_engine(app.guard.settings.store)
    with Session(engine) as session:
        session.execute(text("create table orders (id integer)"))
        session.commit()
        session.execute(text("insert into orders values (1)"))
        with pytest.raises(PayloadTooLargeError):
            small.using(session).delay("x" * LIMIT)
        session.commit()
        assert session.execute(text("select count(*) from orders")).scalar() == 1
    engine.dispose()
    assert app.guard.store.jobs() == []


@pytest.mark.parametrize("asked", [False, True], ids=["by the contract", "by the body"])
def test_pay_3_no_attempt_makes_the_message_larger(make_app: Callable[..., Celery], asked: bool) -> None:
    app = make_app(task_always_eager=True)
    sizes = []

    @app.task(base=GuardedTask, bind=True, shared=False, contract=Contract(retry=Retry(max_attempts=9)))
    def again(self: Any, value: str) -> None:
        payload = app.guard.store.payload(self.request.id)
        sizes.append(wire_size(payload.body, payload.headers, payload.delivery))
        if self.job.attempt < 9:
            raise self.retry((value,)) if asked else ConnectionError("not yet")

    again.delay("x" * 1000).get()
    # a body that asks is the parent of what it asks for: that is said once, however often it asks
    assert sizes[1:] == [sizes[1]] * 8
    assert sizes[1] - sizes[0] < 100


@pytest.mark.parametrize("options", [{"queue": "q" * 256}, {"task_id": "i" * 256}], ids=["queue", "task id"])
def test_a_name_that_no_store_keeps_is_refused_before_anything_is_written(small: Any, options: dict[str, Any]) -> None:
    with pytest.raises(EnqueueError, match="has 256 characters"):
        small.apply_async(("x",), **options)
    assert small.app.guard.store.jobs() == []


def test_pickle_is_refused_whatever_the_app_allows(make_app: Callable[..., Celery]) -> None:
    app = make_app(task_serializer="pickle", accept_content=["pickle", "json"])

    @app.task(base=GuardedTask, name="take", shared=False)
    def take(value: Any) -> None: ...

    with pytest.raises(PayloadError, match="pickle"):
        take.delay(1)
