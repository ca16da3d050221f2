"""Logs of real workers, as JSON: what they say of a job, and what they do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .fleet import Fleet, Worker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]

SECRET = "4111-1111"


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    made = make_fleet("redis-postgresql", "tests.integration.app_logged", worker_hijack_root_logger=True)
    # of this test's own, and not the app's that is shared
    made.environment["CELERY_GUARD_LOG_FORMAT"] = "json"
    return made


def lines(worker: Worker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in worker.output().splitlines() if line.startswith("{")]


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent", "solo"])
def test_in_every_pool_a_bodys_own_records_say_which_job_they_are_from(fleet: Fleet, pool: str) -> None:
    jobs = [fleet.app.speaks.delay(f"{SECRET}{n}", tenant="acme", failures=1).id for n in range(3)]
    worker = fleet.worker(pool, 2, ready=False)
    fleet.all_quiet()
    worker.terminate()
    said = [line for line in lines(worker) if line["message"] == "in the body"]
    assert sorted((line["job_id"], line["attempt"]) for line in said) == sorted(
        (job, attempt) for job in jobs for attempt in (1, 2)
    )
    for line in said:
        row = fleet.job(line["job_id"])
        assert (line["tenant"], line["key"], line["correlation_id"]) == ("acme", row.key, row.id)
    moves = [line["transition"] for line in lines(worker) if line.get("job_id") == jobs[0] and "transition" in line]
    assert [move for move in moves if move.startswith("running")] == ["running->pending", "running->succeeded"]
    ended = [line for line in lines(worker) if " succeeded in " in line["message"]]
    assert sorted(line["job_id"] for line in ended) == sorted(jobs)
    assert SECRET not in worker.output()


def test_at_the_level_debug_no_line_of_a_worker_has_an_argument(fleet: Fleet) -> None:
    job = fleet.app.speaks.delay(SECRET, tenant="acme", failures=3).id
    worker = fleet.worker("prefork", 1, "-l", "DEBUG", ready=False)
    assert fleet.settled(job).state.value == "dead"
    worker.terminate()
    assert {line["transition"] for line in lines(worker) if line.get("job_id") == job and "transition" in line} >= {
        "sent->running", "running->pending", "running->dead",
    }  # fmt: skip
    assert SECRET not in worker.output()


def test_without_its_library_the_worker_says_what_is_missing(fleet: Fleet, tmp_path: Any) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pythonjsonlogger'] = None\n")
    worker = fleet.worker("prefork", 1, ready=False, PYTHONPATH=str(tmp_path))
    worker.says("pip install 'celery-guard[json]'")
    assert worker.process.wait(30) != 0
