"""The shop's table, and its sessions. The store's tables are in the same database."""

from __future__ import annotations

import os

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

URL = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")

engine = create_engine(URL)
Session = sessionmaker(engine)


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]
    paid: Mapped[str | None]
