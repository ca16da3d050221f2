"""Contracts beside the tasks: for those that one cannot edit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, Task

from celery_guard import ConfigurationError, Contract, ContractError, Guard, GuardedTask, KeyConflict
from celery_guard.contract.central import Central
from celery_guard.integrations.celery.facts import read_facts
from celery_guard.integrations.celery.request import GuardedRequest
from celery_guard.integrations.celery.runtime import runtime_of


class Vendors(Task):  # type: ignore[misc]
    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return ("vendor's", super().__call__(*args, **kwargs))

    def on_failure(self, *args: Any) -> str:
        return "vendor's"


def vendor(app: Celery) -> Any:
    @app.task(base=Vendors, bind=True, name="vendor.sync", shared=False, track_started=True)
    def sync(self: Any, shop: int, what: str = "") -> int:
        return shop

    return sync


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Celery]:
    def make(contracts: Any = None, **conf: Any) -> Celery:
        app = Celery("unit", broker="redis://127.0.0.1:1/0", set_as_current=False)
        app.conf.update(**conf)
        app.guard = Guard(app, store=f"sqlite:///{tmp_path / 'guard.db'}", contracts=contracts)
        app.guard.store.upgrade()
        return app

    return make


BY_SHOP = Contract(key="shop")


@pytest.mark.parametrize(
    "said", [{"contracts": {"vendor.sync": BY_SHOP}}, {"guard_contracts": {"vendor.*": BY_SHOP}}], ids=["Guard", "conf"]
)
def test_a_task_that_is_named_is_guarded_by_that_contract(make: Callable[..., Celery], said: Any) -> None:
    app = make(**said)
    sync = vendor(app)
    first = sync.delay(7)
    assert app.guard.store.job(first.id).task == "vendor.sync"
    assert sync.delay(7).duplicate
    with pytest.raises(KeyConflict):
        sync.delay(7, what="else")


def test_what_the_task_defines_itself_still_holds(make: Callable[..., Celery]) -> None:
    app = make({"vendor.*": Contract()})
    sync = vendor(app)
    runtime_of(app).guard_named()
    task = app.tasks["vendor.sync"]
    assert isinstance(task, Vendors)
    assert isinstance(task, GuardedTask)
    assert (task.on_failure(), sync(7)) == ("vendor's", ("vendor's", 7))
    assert (task.track_started, task.guard_track_started) == (False, True)
    assert task.Request.endswith(GuardedRequest.__name__)


def test_a_task_that_is_not_named_stays_as_it_is(make: Callable[..., Celery]) -> None:
    app = make({"vendor.*": Contract()})
    vendor(app)

    @app.task(name="mine", shared=False)
    def mine() -> None: ...

    runtime_of(app).guard_named()
    assert not isinstance(app.tasks["mine"], GuardedTask)
    assert not isinstance(app.tasks["celery.chord_unlock"], GuardedTask)


@pytest.mark.parametrize(
    ("entry", "words"), [("vendor.snyc", "did you mean 'vendor.sync'?"), ("else.*", "fits no task"), ("nobody", "is its module loaded")]
)  # fmt: skip
def test_a_name_that_no_task_has_is_refused_at_boot(make: Callable[..., Celery], entry: str, words: str) -> None:
    app = make({entry: Contract()})
    vendor(app)
    with pytest.raises(ContractError, match=words.replace("?", r"\?")):
        read_facts(app)


def test_a_task_with_a_contract_of_its_own_does_not_get_another(make: Callable[..., Celery]) -> None:
    app = make({"own": Contract()})

    @app.task(base=GuardedTask, name="own", shared=False, contract=Contract(owner="me"))
    def own() -> None: ...

    with pytest.raises(ContractError, match="keep one"):
        own.delay()


def test_a_guarded_task_without_a_contract_gets_it(make: Callable[..., Celery]) -> None:
    app = make({"own": Contract(key="n")})

    @app.task(base=GuardedTask, name="own", shared=False)
    def own(n: int) -> None: ...

    assert app.guard.store.job(own.delay(1).id).key is not None


def test_the_more_exact_entry_wins() -> None:
    a, b, c = Contract(owner="a"), Contract(owner="b"), Contract(owner="c")
    central = Central({"*": a, "vendor.*": b, "vendor.sync": c})
    assert [central.contract_for(name) for name in ("x", "vendor.x", "vendor.sync", "celery.chord_unlock")] == [
        a, b, c, None
    ]  # fmt: skip
    assert Central({"celery.chord_unlock": a}).contract_for("celery.chord_unlock") is a


@pytest.mark.parametrize("wrong", [["x"], {"x": "y"}, {1: Contract()}, {"": Contract()}], ids=repr)
def test_what_is_no_contract_is_refused(wrong: Any) -> None:
    with pytest.raises(ContractError):
        Central(wrong)


def test_two_guards_with_other_contracts_are_refused(make: Callable[..., Celery]) -> None:
    app = make({"x": Contract()})
    with pytest.raises(ConfigurationError):
        Guard(app, store=app.guard.settings.store, contracts={"y": Contract()})
