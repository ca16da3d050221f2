"""The application, its app of Celery, its task and its views: `flask -A examples.flask_shop.shop run`."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, Task
from flask import Flask, abort, current_app, jsonify, request
from flask.typing import ResponseReturnValue
from sqlalchemy import update

from celery_guard import Contract, Guard, GuardedTask

from .database import URL, Order, Session

web = Flask("shop")
web.config["CURRENCY"] = "EUR"


class FlaskTask(Task):  # type: ignore[misc]
    """As Flask's documentation has it: bodies run in an application context."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with web.app_context():
            return self.run(*args, **kwargs)


class ShopTask(FlaskTask, GuardedTask):
    """And guarded: the guard is outermost, the context is around the body alone."""

    abstract = True


celery = Celery("shop", broker=os.environ.get("SHOP_BROKER", "redis://localhost"), task_cls=ShopTask)
guard = Guard(celery, store=URL)


@celery.task(bind=True, contract=Contract(owner="payments", key="order_id"))
def charge(self: Any, order_id: int, amount: int) -> None:
    """Note what an order was paid with; that commits together with the end of this job."""
    paid = f"{amount} {current_app.config['CURRENCY']}"
    self.job.transaction().execute(update(Order).where(Order.id == order_id).values(paid=paid))


@web.post("/orders")
def place() -> ResponseReturnValue:
    """Write an order, and the job that charges for it, in one transaction."""
    with Session.begin() as session, guard.using(session):
        order = Order(amount=int(request.form["amount"]))
        session.add(order)
        session.flush()
        handle = charge.delay(order_id=order.id, amount=order.amount)
        if order.amount > 1000:
            # rolls back the order and its job
            abort(400)
        placed = {"id": order.id, "job": handle.id}
    return jsonify(placed), 202


@web.get("/orders/<int:id>")
def show(id: int) -> ResponseReturnValue:
    """What an order was paid with, if it was."""
    with Session() as session:
        order = session.get(Order, id) or abort(404)
        return jsonify(paid=order.paid)
