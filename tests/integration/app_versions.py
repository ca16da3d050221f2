"""One app in several releases. ``APP_RELEASE`` says which one this process runs; two at once are a roll-out, back again a rollback."""

# mypy: disable-error-code="no-redef,attr-defined"

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from celery_guard import Contract, GuardedTask, Payload, Retry, Snapshot, upcast

from .app import app, await_flag, guard, mark, task

__all__ = ["app", "guard"]

RELEASE = int(os.environ.get("APP_RELEASE", "2"))
AGAIN = Contract(retry=Retry(max_attempts=3, base=0.05, cap=0.1))

if RELEASE == 1:

    class Order(Payload, version=1):
        number: int
        euros: int

    @task(base=GuardedTask, bind=True, name="shop.ship", contract=AGAIN)
    def ship(self: Any, order: Order, how: str = "") -> str:
        mark(f"1: {order.number} for {order.euros} euros", self)
        if how == "fails here":
            raise ValueError("not in this release")
        return "by release 1"

    @task(base=GuardedTask, bind=True, name="shop.pack", contract=Contract(named=True))
    def pack(self: Any, box: int, label: str) -> None:
        mark(f"1: {box} {label}", self)

    @task(base=GuardedTask, bind=True, name="billing.charge", contract=Contract(key="order"))
    def bill(self: Any, order: int) -> int:
        mark(f"1: bill {order}", self)
        return order

else:

    class Order(Payload, version=2):
        number: int
        cents: int

        @upcast(1)
        def in_cents(data: Any) -> Any:
            return {"number": data["number"], "cents": data["euros"] * 100}

    @task(base=GuardedTask, bind=True, name="shop.ship", contract=AGAIN)
    def ship(self: Any, order: Order, how: str = "") -> str:
        mark(f"2: {order.number} for {order.cents} cents", self)
        if how == "again" and self.job.attempt == 1:
            raise ConnectionError("once")
        if how == "otherwise" and self.request.retries == 0:
            raise self.retry(countdown=0, kwargs={**self.request.kwargs, "how": "after all"}, priority=1)
        return "by release 2"

    @task(base=GuardedTask, bind=True, name="shop.pack", contract=Contract(named=True))
    def pack(self: Any, box: int, wrapping: str = "paper", label: str = "") -> None:
        mark(f"2: {box} {wrapping} {label}", self)
        if label == "again" and self.request.retries == 0:
            raise self.retry(args=(box + 1,), countdown=0)

    @task(
        base=GuardedTask,
        bind=True,
        name="billing.charge_v2",
        contract=Contract(key="order", aliases=("billing.charge",)),
    )
    def bill(self: Any, order: int) -> int:
        mark(f"2: bill {order}", self)
        if order < 0 and self.request.retries == 0:
            raise self.retry(countdown=0, kwargs={"order": order - 100}, args=())
        return order


class Price(Snapshot, version=1, good_for=timedelta(seconds=1)):
    cents: int


class Fresh(Price, version=1):
    def refresh(self) -> Fresh:
        return Fresh(cents=self.cents + 1)


@task(base=GuardedTask, bind=True, name="shop.sell", contract=AGAIN)
def sell(self: Any, price: Price) -> int:
    mark(f"sold for {price.cents}", self)
    return price.cents


@task(base=GuardedTask, bind=True, name="shop.sell_fresh", contract=AGAIN)
def sell_fresh(self: Any, price: Fresh) -> int:
    mark(f"sold for {price.cents}", self)
    return price.cents


@task(base=GuardedTask, bind=True, name="shop.block")
def block(self: Any) -> None:
    mark("blocked", self)
    await_flag("go on")
