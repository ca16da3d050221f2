"""A secret argument is driven through every path of real processes, and found nowhere but in the message itself and in the result."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from .fleet import ROOT, Fleet, eventually, in_thread

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

CARD, EMAIL = "4111-1111-1111-", "ada@example.org"

WAYS = ("returns", "waits", "dies", "asks", "fails", "breaks")


def events_of(app: Any, seen: list[Any], stop: threading.Event) -> None:
    with app.connection() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": seen.append})
        while not stop.is_set():
            try:
                receiver.capture(limit=None, timeout=0.5, wakeup=False)
            except TimeoutError:
                continue


def says(fleet: Fleet, *words: str) -> str:
    command = [sys.executable, "-m", "celery", "-A", fleet.module, *words]
    done = subprocess.run(command, cwd=ROOT, env=fleet.environment, text=True, capture_output=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("stack", ["redis-postgresql", "rabbitmq-mariadb"])
def test_a_secret_argument_is_in_no_log_event_status_listing_or_failure_on_any_path(
    make_fleet: Callable[..., Fleet], stack: str
) -> None:
    fleet = make_fleet(
        stack,
        "tests.integration.app_private",
        result_extended=True,
        task_send_sent_event=True,
        worker_send_task_events=True,
    )
    fleet.environment["CELERY_GUARD_KEY_SECRET"] = "0123456789abcdef"
    seen: list[Any] = []
    stop = threading.Event()
    app = fleet.app.app
    listening = in_thread(lambda: events_of(app, seen, stop))
    jobs = {way: fleet.app.pays.delay(way, f"{CARD}{way}", {"email": EMAIL, "name": "Ada"}).id for way in WAYS}
    with pytest.raises(Exception, match="accepted before") as conflict:
        fleet.app.pays.delay("fails", f"{CARD}returns", {"email": EMAIL})
    worker = fleet.worker("prefork", 2, "-l", "DEBUG", "-E", ready=False)
    eventually(lambda: fleet.state(jobs["waits"]) == "running")
    live = says(fleet, "inspect", "active")
    fleet.raise_flag("go on")
    ends = {way: fleet.settled(id, 60).state.value for way, id in jobs.items()}
    assert ends == {way: "dead" if way in ("asks", "fails", "breaks") else "succeeded" for way in WAYS}
    eventually(lambda: all(fleet.job(id).told for id in jobs.values()))
    worker.terminate()
    stop.set()
    listening.join(10)
    shown = live + str(conflict.value) + worker.output() + repr(seen)
    for id in jobs.values():
        job = fleet.job(id)
        assert job.key
        shown += repr(job) + repr(fleet.app.app.AsyncResult(id).info if job.state.value == "dead" else "")
    for words in (
        ("jobs", "show", jobs["fails"]), ("dlq", "show", jobs["fails"], "--traceback"), ("jobs", "list"), ("dlq", "list"),
    ):  # fmt: skip
        shown += says(fleet, "guard", *words)
    # what was looked at is what was meant to be looked at
    assert {event["type"] for event in seen} >= {"task-sent", "task-received", "task-succeeded", "task-failed"}
    assert "charging ***" in shown
    assert "bad card '***'" in shown
    assert jobs["waits"] in live
    for secret in (CARD, EMAIL):
        assert secret not in shown, shown[max(0, shown.find(secret) - 600) : shown.find(secret) + 100]
    kept = [fleet.app.app.backend.get_task_meta(id) for way, id in jobs.items() if ends[way] == "dead"]
    assert [meta["args"][1:] for meta in kept] == [["***", {"email": "***", "name": "Ada"}]] * 3
    assert CARD not in repr(kept)
