"""Tasks with names that they had before, and payloads where no worker is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from celery_guard import Contract, ContractError, GuardedTask, Payload, PayloadError, upcast
from celery_guard.integrations.celery.runtime import runtime_of


def charge(order: int) -> int:
    return order


def declare(app: Celery, name: str, *aliases: str, key: str | None = None) -> Any:
    contract = Contract(aliases=aliases, key=key)
    return app.task(charge, base=GuardedTask, name=name, shared=False, contract=contract)


def test_keys_are_kept_under_the_oldest_name(make_app: Callable[..., Celery]) -> None:
    first, second, third = (make_app() for _ in range(3))
    held = declare(first, "a", key="order").delay(7)
    for app, names in ((second, ("b", "a")), (third, ("c", "a", "b"))):
        again = declare(app, *names, key="order").delay(7)
        assert (again.id, again.duplicate) == (held.id, True)


def test_a_send_by_the_old_name_is_a_guarded_job_of_that_name(app: Celery) -> None:
    declare(app, "new", "old")
    job = app.guard.store.job(app.send_task("old", (7,)).id)
    assert (job.task, job.kind.value) == ("old", "run")


def test_what_holds_for_a_task_holds_under_its_old_name(app: Celery) -> None:
    declare(app, "new", "old")
    runtime = runtime_of(app)
    app.finalize()
    assert runtime.knows("old")
    assert not runtime.knows("older")
    assert runtime.contract_named("old") is runtime.contract_named("new")


def test_a_worker_consumes_both_names_and_traces_the_new_one(app: Celery) -> None:
    declare(app, "new", "old")
    app.finalize()
    assert app.tasks["old"] is app.tasks["new"]
    names = list(app.tasks)
    assert names.index("old") < names.index("new")


@pytest.mark.parametrize("declared", [(("new", "old"), ("old",)), (("old",), ("new", "old")), (("b", "a"), ("c", "a"))])
def test_one_name_cannot_be_of_two_tasks(app: Celery, declared: Any) -> None:
    first, second = declared
    declare(app, *first)
    declare(app, *second)
    runtime = runtime_of(app)
    with pytest.raises(ContractError, match="name of another task"):
        runtime.guard_named()


def test_a_task_is_not_its_own_alias(app: Celery) -> None:
    declare(app, "new", "new")
    with pytest.raises(ContractError, match="leave out the one it has"):
        runtime_of(app).guard_named()


@pytest.mark.parametrize("aliases", ["old", (), ("",), ("a", "a"), (1,)], ids=repr)
def test_aliases_are_names(aliases: Any) -> None:
    if aliases == ():
        assert Contract(aliases=aliases).aliases == ()
        return
    with pytest.raises(ContractError):
        Contract(aliases=aliases)


class Order(Payload, version=2):
    number: int

    @upcast(1)
    def renamed(data: Any) -> Any:
        return {"number": data["no"]}


def ship(order: Order, how: str = "") -> tuple[int, str]:
    return order.number, how


@pytest.mark.parametrize("given", [Order(number=7), {"number": 7}], ids=["a payload", "a mapping"])
def test_a_payload_works_in_eager_mode(make_app: Callable[..., Celery], given: Any) -> None:
    app = make_app(task_always_eager=True)
    task = app.task(ship, base=GuardedTask, name="ship", shared=False)
    assert task.delay(given, "air").get() == (7, "air")
    assert task.apply((given,)).get() == (7, "")
    assert task(Order(number=1)) == (1, "")


def test_the_message_of_a_payload_has_names_and_versions(app: Celery, stored: Any) -> None:
    task = app.task(ship, base=GuardedTask, name="ship", shared=False)
    (args, kwargs, _), headers, _ = stored(task.delay(Order(number=7), "air").id)
    assert (args, kwargs) == ([], {"order": {"number": 7}, "how": "air"})
    assert headers["guard"]["payloads"] == {"order": 2}


def test_a_payload_is_in_the_key_by_its_fields_and_for_a_function_as_it_is(app: Celery) -> None:
    by_field = Contract(key="order.number")
    by_function = Contract(key=lambda order, how="": order.number)
    for name, contract in (("field", by_field), ("function", by_function)):
        task = app.task(ship, base=GuardedTask, name=name, shared=False, contract=contract)
        first = task.delay(Order(number=7))
        assert task.delay(order=Order(number=7)).id == first.id
        assert task.delay(Order(number=8)).id != first.id


def test_a_bad_payload_is_refused_before_anything_is_written(app: Celery) -> None:
    task = app.task(ship, base=GuardedTask, name="ship", shared=False)
    for bad in (7, {"no": 7}):
        with pytest.raises(PayloadError):
            task.delay(bad)
    assert app.guard.store.jobs() == []


def test_a_changed_retry_of_an_adopted_message_needs_no_version(app: Celery, stored: Any) -> None:
    """A message without a version stays without one when it is adopted: this process did not write it."""
    from celery_guard.integrations.celery.attempt import collecting

    task = app.task(ship, base=GuardedTask, name="ship", shared=False)
    with collecting(by_celery=True, versions={}) as collected:
        task.apply_async(kwargs={"order": {"no": 7}})
    headers = json.loads(collected.jobs[0].payload.headers)
    assert "payloads" not in headers["guard"]
