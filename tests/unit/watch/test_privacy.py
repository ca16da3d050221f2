"""A sensitive argument is driven through every path of a job in one process, and found nowhere."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, signals
from pydantic import BaseModel

from celery_guard import ConfigurationError, Contract, GuardedTask, JobFailed, KeyConflict, PayloadError, Retry
from celery_guard.watch.json_lines import json_formatter

from .conftest import Spans

SECRET = "4111-1111-1111"
KEY = "0123456789abcdef"


class Declined(Exception):
    pass


class Everything(logging.Handler):
    """All that is logged, as text and as JSON, with whatever the records bring."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""
        self._json = json_formatter()

    def emit(self, record: logging.LogRecord) -> None:
        self.text += logging.Formatter().format(record) + "\n" + self._json.format(record) + "\n"


@pytest.fixture
def logged() -> Iterator[Everything]:
    plain, root = logging.getLogRecordFactory(), logging.getLogger()
    level, handler = root.level, Everything()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)
    logging.setLogRecordFactory(plain)


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    return make_app({"key_secret": KEY}, task_always_eager=True)


@pytest.fixture
def sender(make_app: Callable[..., Celery]) -> Celery:
    return make_app({"key_secret": KEY})


def task_of(app: Celery, body: Callable[..., Any], **contract: Any) -> Any:
    return app.task(
        base=GuardedTask,
        bind=True,
        name="pay",
        shared=False,
        contract=Contract(sensitive=("card", "customer.email"), **contract),
    )(body)


def rows(app: Celery) -> str:
    """Everything that is stored of failures and states."""
    found = [app.guard.store.job(job.id) for job in app.guard.store.jobs(limit=100)]
    return repr(found)


def test_a_failure_says_no_sensitive_value_wherever_it_goes(app: Celery, logged: Everything, traced: Spans) -> None:
    def pay(self: Any, card: str, customer: Any) -> None:
        logging.getLogger("shop").warning("charging %s", card, extra={"customer": customer})
        try:
            raise KeyError(customer["email"])
        except KeyError as cause:
            logging.getLogger("shop").exception("inside")
            raise ConnectionError(f"no answer for {card!r}") from cause

    heard: list[str] = []

    def hear(exception: Any = None, einfo: Any = None, **_: Any) -> None:
        heard.append(f"{exception!r} {einfo}")

    signals.task_failure.connect(hear)
    found = task_of(app, pay, retry=Retry(max_attempts=2)).delay(SECRET, {"email": SECRET[::-1], "name": "Ada"})
    signals.task_failure.disconnect(hear)
    with pytest.raises(JobFailed) as raised:
        found.get()
    told = "".join(traceback.format_exception(raised.value)) + str(found.traceback) + "".join(heard)
    assert "no answer for '***'" in told
    assert raised.value.type_name == "ConnectionError"
    everything = rows(app) + told + logged.text + "".join(span.to_json() for span in traced.all())
    assert "charging ***" in logged.text
    assert "Ada" in logged.text
    assert "no answer for '***'" in rows(app)
    assert SECRET not in everything
    assert SECRET[::-1] not in everything


def test_classification_still_sees_what_was_raised(app: Celery) -> None:
    def pay(self: Any, card: str, customer: Any = None) -> str:
        if self.job.attempt == 1:
            raise ConnectionError(card)
        return "paid"

    assert task_of(app, pay, retry=Retry(max_attempts=2)).delay(SECRET).get() == "paid"


def test_an_error_without_a_sensitive_value_stays_what_it_is(app: Celery) -> None:
    def pay(self: Any, card: str, customer: Any = None) -> None:
        raise Declined("no funds")

    with pytest.raises(Declined):
        task_of(app, pay).delay(SECRET).get()


def test_the_value_that_a_body_returns_is_in_no_log(app: Celery, logged: Everything) -> None:
    def pay(self: Any, card: str, customer: Any = None) -> Any:
        return {"card": card}

    assert task_of(app, pay).delay(SECRET).get() == {"card": SECRET}
    assert "succeeded in" in logged.text
    assert SECRET not in logged.text


def test_a_conflict_and_a_refusal_say_no_sensitive_value(sender: Celery, logged: Everything, traced: Spans) -> None:
    def body(self: Any, card: str, customer: Any = None) -> None: ...

    pay = task_of(sender, body, key="card")
    sent = pay.delay(SECRET)
    with pytest.raises(KeyConflict) as conflict:
        pay.delay(SECRET, {"email": "x"})
    with pytest.raises(PayloadError) as refused:
        pay.delay(SECRET, {SECRET: {1: object()}, "email": SECRET})
    said = "".join("".join(traceback.format_exception(raised.value)) for raised in (conflict, refused))
    headers = sender.guard.store.payload(sent.id, 0).headers
    assert conflict.value.holder == sent.id
    assert SECRET not in said + logged.text + headers + rows(sender) + "".join(s.to_json() for s in traced.all())


def test_a_models_complaint_about_its_input_says_no_sensitive_value(app: Celery) -> None:
    class Card(BaseModel):
        number: int

    def pay(self: Any, card: str, customer: Any = None) -> None:
        Card(number=card)  # type: ignore[arg-type]

    with pytest.raises(JobFailed) as raised:
        task_of(app, pay).delay(SECRET).get()
    assert "input_value='***'" in str(raised.value)
    assert SECRET not in rows(app) + str(raised.value)


def test_without_a_secret_a_sensitive_call_is_refused(make_app: Callable[..., Celery]) -> None:
    def body(self: Any, card: str, customer: Any = None) -> None: ...

    app = make_app()
    pay = task_of(app, body)
    with pytest.raises(ConfigurationError, match="CELERY_GUARD_KEY_SECRET"):
        pay.delay(SECRET)
    with pytest.raises(ConfigurationError, match="key_secret"):
        app.guard._runtime.guard_named()
    assert not app.guard.store.counts()


def test_the_secret_is_not_printed(make_app: Callable[..., Celery]) -> None:
    settings = make_app({"key_secret": KEY}).guard.settings
    assert KEY not in f"{settings!r} {settings}"
    with pytest.raises(Exception, match="key_secret") as raised:
        _ = make_app({"key_secret": "short"}).guard.settings
    assert (
        "short" not in "".join(traceback.format_exception(raised.value)).replace("String should", "").split("File")[-1]
    )


def test_a_result_backend_that_keeps_the_call_is_given_the_masked_one(
    make_app: Callable[..., Celery],
) -> None:
    def pay(self: Any, card: str, customer: Any = None) -> str:
        return "paid"

    app = make_app(
        {"key_secret": KEY}, task_always_eager=True, task_store_eager_result=True, result_extended=True,
        result_backend="cache+memory://",
    )  # fmt: skip
    found = task_of(app, pay).delay(SECRET, {"email": SECRET, "name": "Ada"})
    kept = app.backend.get_task_meta(found.id)
    assert kept["args"] == ["***", {"email": "***", "name": "Ada"}]
    assert SECRET not in json.dumps(kept, default=repr)
