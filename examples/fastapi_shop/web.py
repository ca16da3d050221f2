"""The web application: `uvicorn examples.fastapi_shop.web:web`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from .database import Order, Session
from .tasks import charge, guard

web = FastAPI(title="A shop")


async def transaction() -> AsyncIterator[AsyncSession]:
    """One transaction a request. What is enqueued meanwhile goes out if, and only if, it commits."""
    async with Session() as session, session.begin(), guard.using(session):
        yield session


#: ``scope="function"``: committed before the answer is sent, so that nobody hears of an order that is not there.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]


class NewOrder(BaseModel):
    amount: int


class Placed(BaseModel):
    id: int
    job: str


@web.post("/orders", status_code=202)
async def place(new: NewOrder, session: Transaction) -> Placed:
    """Write an order, and the job that charges for it."""
    order = Order(amount=new.amount)
    session.add(order)
    await session.flush()
    handle = charge.delay(order_id=order.id, amount=order.amount)
    if new.amount > 1000:
        # rolls back the order and its job
        raise HTTPException(402, "Nobody has that much money.")
    return Placed(id=order.id, job=handle.id)


@web.get("/orders/{id}")
async def show(id: int, session: Transaction) -> dict[str, bool]:
    """Whether an order is paid."""
    order = await session.get(Order, id)
    if order is None:
        raise HTTPException(404)
    return {"paid": order.paid}
