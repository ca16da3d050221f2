"""The shop's app of Celery, its guard, and its one task."""

from __future__ import annotations

import os

from celery import Celery
from sqlalchemy import update

from celery_guard import Contract, Guard, GuardedTask, current_job

from .database import URL, Order

app = Celery("shop", broker=os.environ.get("SHOP_BROKER", "redis://localhost"))
guard = Guard(app, store=URL)


@app.task(base=GuardedTask, contract=Contract(owner="payments", key="order_id"))
def charge(order_id: int, amount: int, tenant: str = "shop") -> None:
    """Note that an order is paid; that commits together with the end of this job."""
    session = current_job().transaction()
    session.execute(update(Order).where(Order.id == order_id).values(paid=True))
