"""A web application (WSGI) of the shop in ``app_outbox.py``: a request writes an order and enqueues its job, in one transaction."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from .app import mark
from .app_outbox import add, app, guard, look_up, shop

__all__ = ["app", "application", "guard"]

if os.environ.get("APP_TOUCHES"):
    # whoever imports this, once, before it forks: connections that its children inherit
    guard.store.counts()
    mark(f"imported by {os.getpid()}")


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """``/7`` orders number 7."""
    order = int(environ["PATH_INFO"].strip("/"))
    engine = shop()
    with Session(engine) as session, session.begin():
        session.execute(text("INSERT INTO shop_order (id) VALUES (:id)"), {"id": order})
        looked_up = look_up.using(session).delay(order)
    added = add.delay(order, 1)
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"pid": os.getpid(), "jobs": [looked_up.id, added.id]}).encode()]
