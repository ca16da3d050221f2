"""What a log record knows of the job that it is from."""

from __future__ import annotations

import contextvars
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, signals

from celery_guard import Contract, GuardedTask, Retry
from celery_guard.watch import logs
from celery_guard.watch.json_lines import json_formatter

from .conftest import Spans

SECRET = "4111-1111"


class Kept(logging.Handler):
    """Keeps the records, and what they look like."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.lines.append(self.format(record))

    def said(self, message: str) -> dict[str, Any]:
        """The fields of the one record that says this."""
        [record] = [record for record in self.records if record.getMessage() == message]
        return fields_of(record)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name.startswith("guard_")}


@pytest.fixture
def kept() -> Iterator[Kept]:
    """All records of the process."""
    plain = logging.getLogRecordFactory()
    root = logging.getLogger()
    level = root.level
    handler = Kept()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)
    logging.setLogRecordFactory(plain)


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    return make_app(task_always_eager=True)


def speaker(app: Celery, **contract: Any) -> Any:
    @app.task(base=GuardedTask, bind=True, name="speak", shared=False, contract=Contract(key="order", **contract))
    def speak(self: Any, order: str, tenant: str | None = None) -> None:
        logging.getLogger("shop").info("in the body", extra={"task": "mine", "tenant": "mine"})

    return speak


def test_every_record_inside_a_job_says_which_job_it_is_about(app: Celery, kept: Kept, traced: Spans) -> None:
    job = speaker(app).delay(SECRET, tenant="acme")
    found = kept.said("in the body")
    row = app.guard.store.job(job.id)
    run = traced.one("run speak").get_span_context()
    assert run is not None
    assert found == {
        "guard_job_id": job.id,
        "guard_task": "speak",
        "guard_attempt": 1,
        "guard_key": row.key,
        "guard_correlation_id": job.id,
        "guard_tenant": "acme",
        "guard_trace_id": f"{run.trace_id:032x}",
        "guard_span_id": f"{run.span_id:016x}",
    }


def test_celerys_own_line_about_how_a_task_ended_is_inside_its_job(app: Celery, kept: Kept) -> None:
    job = speaker(app).delay("x")
    [record] = [record for record in kept.records if "succeeded in" in record.getMessage()]
    assert fields_of(record)["guard_job_id"] == job.id


def test_records_outside_a_job_and_of_plain_tasks_are_left_alone(app: Celery, kept: Kept) -> None:
    @app.task(name="plain", shared=False)
    def plain() -> None:
        logging.getLogger("shop").info("plain")

    logging.getLogger("shop").info("before")
    speaker(app).delay("x")
    plain.delay()
    logging.getLogger("shop").info("after")
    assert [kept.said(message) for message in ("before", "plain", "after")] == [{}, {}, {}]


def test_a_job_that_runs_inside_another_gives_its_records_back(app: Celery, kept: Kept) -> None:
    speak = speaker(app)

    @app.task(base=GuardedTask, bind=True, name="outer", shared=False)
    def outer(self: Any) -> None:
        speak.delay("x")
        logging.getLogger("shop").info("outer again")

    outer.delay()
    assert kept.said("in the body")["guard_task"] == "speak"
    assert kept.said("outer again")["guard_task"] == "outer"


def test_the_fields_follow_a_copied_context_and_no_other_thread(app: Celery, kept: Kept) -> None:
    @app.task(base=GuardedTask, name="threads", shared=False)
    def threads() -> None:
        logger = logging.getLogger("shop")
        for context in (contextvars.copy_context(), contextvars.Context()):
            thread = threading.Thread(target=context.run, args=(logger.info, f"with {len(context) > 0}"))
            thread.start()
            thread.join()

    threads.delay()
    assert kept.said("with True")["guard_task"] == "threads"
    assert kept.said("with False") == {}


def test_a_format_may_name_the_fields_and_breaks_on_no_record(app: Celery, kept: Kept) -> None:
    kept.setFormatter(logging.Formatter("%(guard_job_id)s %(guard_attempt)s %(message)s"))
    kept.addFilter(logs.JobFields())
    logging.getLogger("shop").info("before")
    job = speaker(app).delay("x")
    assert "- - before" in kept.lines
    assert f"{job.id} 1 in the body" in kept.lines


def test_json_has_the_fields_by_their_names_and_what_a_record_brings_itself_stays(app: Celery, kept: Kept) -> None:
    kept.setFormatter(json_formatter())
    job = speaker(app).delay("x", tenant="acme")
    [line] = [json.loads(line) for line in kept.lines if "in the body" in line]
    assert (line["message"], line["level"], line["logger"]) == ("in the body", "INFO", "shop")
    assert (line["job_id"], line["attempt"]) == (job.id, 1)
    assert (line["task"], line["tenant"]) == ("mine", "mine")
    assert not any(name.startswith("guard_") for name in line)
    assert "timestamp" in line


def test_one_line_a_transition_with_the_failure_by_class_and_type_alone(app: Celery, kept: Kept) -> None:
    @app.task(base=GuardedTask, bind=True, name="bad", shared=False, contract=Contract(retry=Retry(max_attempts=2)))
    def bad(self: Any, card: str) -> None:
        raise ConnectionError(card)

    bad.delay(SECRET)
    ours = [record for record in kept.records if record.name == "celery_guard.job"]
    moves = [
        (vars(record)["guard_event"], vars(record).get("guard_transition"), vars(record).get("guard_failure_class"))
        for record in ours
    ]
    assert moves == [
        ("enqueued", "->pending", None),
        ("claimed", "sent->running", None),
        ("settled", "running->pending", "transient"),
        ("claimed", "sent->running", None),
        ("settled", "running->dead", "transient"),
    ]
    assert [record.levelname for record in ours] == ["DEBUG", "DEBUG", "INFO", "DEBUG", "ERROR"]
    assert "transient ConnectionError, cause" in ours[-1].getMessage()
    assert not any(SECRET in record.getMessage() for record in ours)


def test_messages_of_guarded_tasks_show_monitors_how_many_arguments_there_are_and_no_value(
    make_app: Callable[..., Celery],
) -> None:
    sent = speaker(make_app()).apply_async((SECRET,), {"tenant": "acme"})
    headers = json.loads(speaker_headers(sent))
    assert (headers["argsrepr"], headers["kwargsrepr"]) == ("(***)", "{'tenant': ***}")


def speaker_headers(sent: Any) -> str:
    headers: str = sent.app.guard.store.payload(sent.id, 0).headers
    return headers


def test_celerys_handlers_get_the_format_that_the_setting_says(make_app: Callable[..., Celery], kept: Kept) -> None:
    app = make_app({"log_format": "json"})
    logger = logging.getLogger("celerys")
    logger.addHandler(kept)
    app.set_current()
    signals.after_setup_logger.send(sender=None, logger=logger)
    logger.removeHandler(kept)
    logger.info("as json")
    assert json.loads(kept.lines[-1])["message"] == "as json"


def test_celerys_handlers_whose_format_names_a_field_break_on_no_record(
    make_app: Callable[..., Celery], kept: Kept
) -> None:
    app = make_app()
    kept.setFormatter(logging.Formatter("%(guard_task)s %(message)s"))
    logger = logging.getLogger("celerys")
    logger.addHandler(kept)
    app.set_current()
    signals.after_setup_logger.send(sender=None, logger=logger)
    logger.removeHandler(kept)
    logger.info("outside")
    assert kept.lines[-1] == "- outside"
