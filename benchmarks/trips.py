"""How often a worker asks its store while it runs a job: counted on the wire, so load and luck have no part in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery_guard.testing.wire import wire

from .lab import Lab
from .options import Options

__all__ = ["attempt"]

_PORTS = {"postgresql": 5432, "redis": 6379}


def attempt(store: str) -> Callable[[Lab, Options], dict[str, Any]]:
    """Round trips of an attempt on this store; those of the first half, in which connections are made and statements prepared, are not counted."""

    def measure(lab: Lab, options: Options) -> dict[str, Any]:
        jobs = options.jobs
        with lab.side("guarded", "redis", store) as side:
            side.inside("fill", jobs)
            with wire(side.store_url, _PORTS[store]) as between:
                tally = side.tally()
                watched = side.with_(CELERY_GUARD_STORE=between.url)
                with watched.worker(relay=False) as worker:
                    begun = watched.wait(worker, tally, jobs // 2)
                    before = between.round_trips
                    ended = watched.wait(worker, tally, jobs)
                    trips = between.round_trips - before
        return {"ratio": trips / (ended - begun), "jobs": jobs, "relay": "at rest", "results": "ignored"}

    return measure
