"""LOCK-3: what a publisher with a wrong clock says of times."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from celery import Celery

from celery_guard import GuardedTask


@pytest.mark.parametrize("hours", [-3, 3])
@pytest.mark.parametrize("aware", [True, False])
def test_lock_3_an_instant_is_as_far_away_as_it_was_for_its_publisher(
    app: Celery, monkeypatch: pytest.MonkeyPatch, hours: int, aware: bool
) -> None:
    @app.task(base=GuardedTask, shared=False)
    def remind() -> None: ...

    real = app.now
    monkeypatch.setattr(app, "now", lambda: real() + timedelta(hours=hours))

    def in_minutes(minutes: int) -> Any:
        instant = app.now() + timedelta(minutes=minutes)
        return instant if aware else instant.replace(tzinfo=None)

    job = app.guard.store.job(remind.apply_async(eta=in_minutes(10), expires=in_minutes(30)).id)
    assert job is not None
    assert timedelta(minutes=9) < job.due - job.created <= timedelta(minutes=10)
    assert timedelta(minutes=29) < job.deadline - job.created <= timedelta(minutes=30)
