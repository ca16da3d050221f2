"""Facts are read as a worker would have them, and no server is asked."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, Task

from celery_guard import ConfigurationError, Contract, Guard, GuardedTask, Retry, Timing
from celery_guard.contract.facts import TaskFacts
from celery_guard.errors import NotGuardedError, SettingError
from celery_guard.integrations.celery.facts import log_findings, pool_named, read_facts

Make = Callable[..., Celery]


@pytest.fixture
def make() -> Make:
    def made(
        *, broker: str = "memory://", backend: str | None = None, store: str = "sqlite:///guard.db", **conf: Any
    ) -> Celery:
        app = Celery("shop", broker=broker, backend=backend, set_as_current=False)
        app.conf.update(conf)
        Guard(app, store=store)
        return app

    return made


def body(order_id: int) -> None: ...


def task(app: Celery, **options: Any) -> TaskFacts:
    """The facts of one task with these options."""
    app.task(body, name="shop.charge", shared=False, **options)
    app.finalize()
    return next(found for found in read_facts(app).tasks if found.name == "shop.charge")


@pytest.mark.parametrize("base", [Task, GuardedTask])
def test_an_option_counts_wherever_it_was_declared(make: Make, base: type[Task]) -> None:
    by_task = task(make(), base=base, acks_late=True, reject_on_worker_lost=True, time_limit=30, soft_time_limit=20)
    app = make(
        task_acks_late=True, task_reject_on_worker_lost=True, task_time_limit=30, task_soft_time_limit=20,
    )  # fmt: skip
    by_app = task(app, base=base)
    for facts in (by_task, by_app):
        assert (facts.acks_late, facts.reject_on_worker_lost) == (True, True)
        assert (facts.limit, facts.soft) == (timedelta(seconds=30), timedelta(seconds=20))
        assert facts.guarded is (base is GuardedTask)


def test_what_nobody_said_is_celerys_default(make: Make) -> None:
    facts = task(make())
    assert facts == TaskFacts(name="shop.charge", guarded=False, serializer="json")


@pytest.mark.parametrize(
    "conf", [{"task_acks_on_failure_or_timeout": False}, {"task_acks_on_timeout": False}], ids=lambda conf: next(iter(conf))
)  # fmt: skip
def test_both_ways_of_not_acknowledging_a_timeout_are_read(make: Make, conf: dict[str, bool]) -> None:
    if not hasattr(Task, "acks_on_timeout") and "task_acks_on_timeout" in conf:
        pytest.skip("this Celery has no such option")
    assert task(make(**conf)).acks_on_timeout is False
    assert task(make()).acks_on_timeout is True


def test_the_contracts_limits_count_for_a_guarded_task(make: Make) -> None:
    facts = task(make(), base=GuardedTask, contract=Contract(timing=Timing(attempt=30, soft=20)))
    assert (facts.limit, facts.soft) == (timedelta(seconds=30), timedelta(seconds=20))


def test_the_guards_own_tasks_are_not_the_users(make: Make) -> None:
    app = make(task_acks_late=True)
    app.finalize()
    assert not [found.name for found in read_facts(app).tasks if found.name.startswith("celery_guard.")]


@pytest.mark.parametrize(
    ("broker", "conf", "expected"),
    [
        ("redis://", {}, timedelta(hours=1)),
        ("redis://", {"broker_transport_options": {"visibility_timeout": 5}}, timedelta(seconds=5)),
        ("amqp://", {}, None),
        ("filesystem://", {"broker_transport_options": {"visibility_timeout": 5}}, None),
        ("memory://", {}, None),
    ],
)
def test_the_visibility_timeout_is_the_configured_one_or_the_brokers_default(
    make: Make, broker: str, conf: dict[str, Any], expected: timedelta | None
) -> None:
    app = make(broker=broker, **conf)
    app.finalize()
    assert read_facts(app).visibility_timeout == expected


@pytest.mark.parametrize(
    ("backend", "expected"),
    [("cache+memory://", True), ("redis://", False), ("db+sqlite://", False), ("rpc://", False), (None, False)],
)
def test_a_backend_that_counts_chords_by_increment_is_known(make: Make, backend: str | None, expected: bool) -> None:
    app = make(backend=backend)
    app.finalize()
    assert read_facts(app).counts_chords_by_increment is expected


def test_the_settings_are_read(make: Make) -> None:
    app = make(
        accept_content=["json", "pickle"],
        task_always_eager=True,
        guard_relay=False,
        store="postgresql+psycopg://u:secret@h/shop",
    )
    app.finalize()
    facts = read_facts(app)
    assert facts.serializers["accept_content"] == ("json", "pickle")
    assert facts.serializers["task_serializer"] == ("json",)
    assert (facts.always_eager, facts.relay) == (True, False)
    assert facts.store == "postgresql+psycopg://u:***@h/shop"


@pytest.mark.parametrize(
    ("pool", "name"),
    [
        ("prefork", "prefork"),
        ("processes", "prefork"),
        ("threads", "threads"),
        ("celery.concurrency.thread:TaskPool", "threads"),
        ("celery.concurrency.prefork.TaskPool", "prefork"),
        ("solo", "solo"),
        ("ours.pool:Pool", "pool"),
    ],
)
def test_a_pool_is_known_by_its_short_name(pool: str, name: str) -> None:
    assert pool_named(pool) == name


def test_a_pool_is_known_by_its_class() -> None:
    from celery.concurrency.solo import TaskPool as Solo
    from celery.concurrency.thread import TaskPool as Threads

    assert [pool_named(Solo), pool_named(Threads)] == ["solo", "threads"]


def test_the_configured_pool_counts_where_none_is_named(make: Make) -> None:
    app = make(worker_pool="threads")
    app.finalize()
    assert read_facts(app).pool == "threads"
    assert read_facts(app, "gevent").pool == "gevent"


@pytest.mark.parametrize(
    "pool", ["bogus", "thread", "celery.concurrency.thread", "nowhere:Pool", "json:loads", "custom"]
)
def test_a_pool_that_celery_does_not_know_is_refused(make: Make, pool: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{pool}.*prefork, processes, solo, threads"):
        read_facts(make(), pool)
    with pytest.raises(ConfigurationError, match=pool):
        read_facts(make(worker_pool=pool))


def test_a_pool_of_ones_own_is_looked_at_by_its_class(make: Make) -> None:
    assert read_facts(make(), "celery.concurrency.thread:TaskPool").pool == "threads"


def test_at_boot_what_is_unsafe_is_logged_with_code_and_fix_and_remarks_are_not(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    app = make(accept_content=["pickle"])
    app.task(body, shared=False, name="shop.mail", acks_late=True)
    app.task(
        body,
        name="shop.charge",
        shared=False,
        base=GuardedTask,
        acks_late=True,
        contract=Contract(retry=Retry(max_attempts=2)),
    )
    app.finalize()
    with caplog.at_level(logging.DEBUG, "celery_guard.check"):
        logged = log_findings(app, "prefork")
    assert [finding.code for finding in logged] == ["CHECK-401", "CHECK-102"]
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == ["ERROR", "WARNING"]
    assert said[0][1].startswith("CHECK-401: pickle in accept_content. ")
    assert "shop.mail" in said[1][1]
    assert all("To repair: " in message for _, message in said)


def test_an_app_without_a_guard_has_no_facts() -> None:
    with pytest.raises(NotGuardedError):
        read_facts(Celery("bare", set_as_current=False))


def test_settings_that_make_no_sense_are_an_error(make: Make) -> None:
    with pytest.raises(SettingError):
        read_facts(make(store="nowhere"))


def test_a_contract_that_nobody_reads_is_found(make: Make) -> None:
    contract = Contract(owner="payments")
    assert task(make(), contract=contract).unread == ("contract",)
    assert task(make(), base=GuardedTask, contact=contract).unread == ("contact",)
    assert task(make(), base=GuardedTask, contract=contract).unread == ()


def test_a_failure_that_is_not_there_is_found_and_nothing_is_imported_for_it(make: Make) -> None:
    there = ("ConnectionError", "celery.exceptions.Ignore", "xmlrpc.client.Fault", ValueError)
    misspelt = ("CardDeclined", "celery.exceptions.Ignoree", "no_such_library.Error")
    declared = Contract(retry=Retry(max_attempts=2, on=there, never=misspelt))
    loaded = set(sys.modules)
    assert task(make(), base=GuardedTask, contract=declared).unknown_failures == misspelt
    assert not {name for name in set(sys.modules) - loaded if name.startswith("xmlrpc")}
