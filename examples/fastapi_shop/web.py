"""The web application: `uvicorn examples.fastapi_shop.web:web`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Response
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from celery_guard import JobStatus

from .database import Order, Session
from .tasks import charge, guard

web = FastAPI(title="A shop")


async def transaction() -> AsyncIterator[AsyncSession]:
    """One transaction a request. What is enqueued meanwhile goes out if, and only if, it commits."""
    async with Session() as session, session.begin(), guard.using(session):
        yield session


#: ``scope="function"``: committed before the answer is sent, so that nobody hears of an order that is not there.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]


#: Whom a request is from. A real shop takes it from who is logged in, and never from what anybody can write into a header.
Tenant = Annotated[str, Header()]


class NewOrder(BaseModel):
    amount: int


class Placed(BaseModel):
    id: int
    job: str


@web.post("/orders", status_code=202)
async def place(new: NewOrder, session: Transaction, answer: Response, tenant: Tenant = "shop") -> Placed:
    """Write an order, and the job that charges for it; the answer says where to ask how that goes."""
    order = Order(amount=new.amount)
    session.add(order)
    await session.flush()
    handle = charge.delay(order_id=order.id, amount=order.amount, tenant=tenant)
    if new.amount > 1000:
        # rolls back the order and its job
        raise HTTPException(402, "Nobody has that much money.")
    answer.headers["Location"] = f"/jobs/{handle.id}"
    return Placed(id=order.id, job=handle.id)


@web.get("/jobs/{id}")
def job(id: str, answer: Response, tenant: Tenant = "shop") -> JobStatus:
    """How a job stands: accepted, running, done, failed or cancelled. Another tenant's is not found. No coroutine: the store is asked in a thread."""
    status = guard.jobs.status(id, scope=tenant)
    if status is None:
        raise HTTPException(404)
    if not status.is_over:
        answer.headers["Retry-After"] = "1"
    return status


@web.get("/orders/{id}")
async def show(id: int, session: Transaction) -> dict[str, bool]:
    """Whether an order is paid."""
    order = await session.get(Order, id)
    if order is None:
        raise HTTPException(404)
    return {"paid": order.paid}
