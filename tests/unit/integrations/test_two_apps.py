"""Two apps in one process, each with a guard: what the one sends never lies in the store of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, group
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from celery_guard import Guard, GuardedTask, WrongDatabaseError

Make = Callable[..., Celery]


def nothing() -> None: ...


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as stack:

        def made(name: str, store: str | None = None) -> Celery:
            app = Celery(name, broker="memory://", set_as_current=False)
            app.guard = Guard(app, store=f"sqlite:///{tmp_path / (store or name)}.db")
            app.guard.store.upgrade()
            stack.callback(app.guard.store.close)
            app.send = app.task(nothing, base=GuardedTask, name=f"{name}.send", shared=False)
            app.plain = app.task(nothing, name=f"{name}.plain", shared=False, ignore_result=True)
            return app

        yield made


@pytest.fixture
def begin() -> Iterator[Callable[[Celery], Session]]:
    with ExitStack() as stack:

        def begun(app: Celery) -> Session:
            engine = create_engine(app.guard.settings.store)
            stack.callback(engine.dispose)
            return stack.enter_context(Session(engine))

        yield begun


def ids(app: Celery) -> set[str]:
    return {job.id for job in app.guard.store.jobs(limit=100)}


@pytest.mark.parametrize(
    "send",
    [
        lambda app: app.send.delay(),
        lambda app: app.plain.delay(),
        lambda app: app.send.enqueue_many([(), ()]),
        lambda app: app.send.apply(),
        lambda app: group(app.send.si(), app.send.si()).delay(),
    ],
    ids=["guarded", "plain", "many", "eager", "group"],
)
def test_what_one_app_sends_inside_using_of_another_is_refused_and_says_what_to_do(
    make: Make, begin: Callable[[Celery], Session], send: Callable[[Celery], Any]
) -> None:
    shop, depot = make("shop"), make("depot")
    session = begin(shop)
    with shop.guard.using(session):
        kept = shop.send.delay()
        with pytest.raises(WrongDatabaseError, match=r"'depot' sends inside .* of the app 'shop'.*Send it outside"):
            send(depot)
    session.commit()
    assert (ids(shop), ids(depot)) == ({kept.id}, set())


def test_each_app_finds_its_own_block_whichever_is_the_inner_one(
    make: Make, begin: Callable[[Celery], Session]
) -> None:
    shop, depot = make("shop"), make("depot")
    sessions = begin(shop), begin(depot)
    with shop.guard.using(sessions[0]), depot.guard.using(sessions[1]):
        outer, inner = shop.send.delay(), depot.send.delay()
    assert (ids(shop), ids(depot)) == (set(), set())
    for session in sessions:
        session.commit()
    assert (ids(shop), ids(depot)) == ({outer.id}, {inner.id})


def test_two_apps_on_one_store_share_a_block(make: Make, begin: Callable[[Celery], Session]) -> None:
    shop, desk = make("shop"), make("desk", store="shop")
    session = begin(shop)
    with shop.guard.using(session):
        sent = desk.send.delay()
    session.rollback()
    assert ids(shop) == set() != {sent.id}


def test_a_body_that_writes_in_its_jobs_transaction_cannot_send_a_job_of_another_app_with_it(make: Make) -> None:
    shop, depot = make("shop"), make("depot")
    told: list[str] = []

    @shop.task(base=GuardedTask, name="shop.ship", shared=False, bind=True)
    def ship(self: Any) -> None:
        before = depot.send.delay()
        self.job.transaction()
        with pytest.raises(WrongDatabaseError, match=r"inside job.transaction\(\) of the app 'shop'"):
            depot.send.delay()
        told.append(before.id)

    ship.apply(throw=True)
    assert ids(depot) == {*told} != set()


def test_an_app_without_a_guard_is_not_touched_by_a_block(make: Make, begin: Callable[[Celery], Session]) -> None:
    shop, bare = make("shop"), Celery("bare", broker="memory://", set_as_current=False)
    plain = bare.task(nothing, name="bare.plain", shared=False, ignore_result=True)
    with shop.guard.using(begin(shop)):
        plain.delay()
    assert ids(shop) == set()
    with bare.connection_for_read() as connection:
        assert connection.default_channel.basic_get("celery") is not None
