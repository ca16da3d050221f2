"""Apps that need no server: a broker that nobody listens at, and a store in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from celery_guard import Guard

#: Nothing listens at port 1: what needs the broker fails at once.
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def make_app(tmp_path: Path) -> Iterator[Callable[..., Celery]]:
    """Make an app with a guard; settings of Celery's by keyword, of the guard's in ``guard``."""
    made: list[Celery] = []

    def make(guard: dict[str, Any] | None = None, **conf: Any) -> Celery:
        app = Celery("unit", broker=NOWHERE, backend=NOWHERE, set_as_current=False)
        app.conf.update(**{"broker_connection_timeout": 0.2, **conf})
        app.guard = Guard(app, store=f"sqlite:///{tmp_path / 'guard.db'}", **(guard or {}))
        app.guard.store.upgrade()
        made.append(app)
        return app

    yield make
    for app in made:
        app.guard.store.close()
        app.close()
