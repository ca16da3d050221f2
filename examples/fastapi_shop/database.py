"""The shop's table, and its sessions. The store's tables are in the same database."""

from __future__ import annotations

import asyncio
import os

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

#: Where the database is, for the guard and the worker.
URL = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")

engine = create_async_engine(URL.replace("sqlite:", "sqlite+aiosqlite:"))
Session = async_sessionmaker(engine, class_=AsyncSession)


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]
    paid: Mapped[bool] = mapped_column(default=False)


async def create_tables() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)


if __name__ == "__main__":
    asyncio.run(create_tables())
