"""What the tests of duplicates, crashes, leases and cancels share: their app, an operator, a stranger, and a look at what ran."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

from celery import Celery
from click.testing import CliRunner

from celery_guard.job.row import Job
from celery_guard.operate.cli.main import guard

from .fleet import Fleet, Worker

__all__ = ["APP", "causes", "entered", "found", "ignored", "received", "stranger", "typed"]

APP = "tests.integration.app_faults"


def typed(fleet: Fleet, *words: str, status: int = 0) -> Any:
    """What ``celery guard <words> --json`` prints; it ends with this exit status."""
    context = SimpleNamespace(app=fleet.app.app, no_color=True)
    result = CliRunner().invoke(guard, [*words, "--json"], obj=context, catch_exceptions=False)
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def stranger(fleet: Fleet) -> Celery:
    """An app at the same broker, with the same queue, that knows nothing of the guard."""
    app = Celery("elsewhere", broker=fleet.environment["APP_BROKER"], set_as_current=False)
    app.conf.update(json.loads(fleet.environment["APP_CONF"]))
    return app


def found(fleet: Fleet, id: str) -> Job:
    """The job, which has to be there."""
    job = fleet.store.job(id)
    assert job is not None
    return job


def entered(fleet: Fleet, id: str) -> list[tuple[str, int, int]]:
    """(what, attempt, fence) of each mark that bodies of the job have left, in order."""
    return [(what, attempt, fence) for what, job, attempt, fence in fleet.lines() if job == id]


def causes(job: Job) -> list[str]:
    """What the messages of its failures begin with."""
    return [failure.message.partition(":")[0] for failure in job.failures]


def received(worker: Worker, id: str) -> int:
    """How many deliveries of the job the worker has had."""
    return worker.output().count(f"[{id}] received")


def ignored(worker: Worker, id: str) -> int:
    """How many of them it has found nothing to do for."""
    return len(re.findall(rf"job {re.escape(id)} \(.*\): nothing to do for this delivery", worker.output()))
