"""Encrypted jobs on Celery's side: what is stored shows nothing, a worker with the key runs it, one without parks it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Context
from celery.app.trace import build_tracer
from celery.exceptions import Ignore

from celery_guard import Contract, EncryptionKeyError, GuardedTask, SettingError
from celery_guard.flow.admin.actor import Actor, Role
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.job.encryption import key_of
from celery_guard.job.state import Reason, State
from celery_guard.testing.conformance.builders import NONE, dead, retried
from celery_guard.testing.conformance.moves import claim, eventually, found, take

if not os.environ.get("CI"):
    pytest.importorskip("cryptography", reason="pip install 'celery-guard[encryption]'")

OLD = "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZC0="
NEW = "bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldy0="
SECRET = {"key_secret": "sixteen or more characters"}
CARD = "4111-1111"


class Side:
    """One app of the fleet: same store, keys of its own."""

    def __init__(self, app: Celery) -> None:
        self.app, self.store = app, app.guard.store
        self.ran: list[Any] = []
        self.heard: list[Any] = []

        class Listening(GuardedTask):
            abstract = True

            def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None: ...

        @app.task(
            base=Listening, bind=True, name="pay", shared=False, contract=Contract(key="card", sensitive=("card",))
        )
        def pay(task: Any, card: str, fails: str | None = None) -> Any:
            self.ran.append(card)
            logging.getLogger("shop").warning("charging %s", card)
            if fails == "retry":
                raise task.retry((card,), {"fails": "for good"}, countdown=0)
            if fails:
                raise ValueError(fails)
            return {"receipt for": card}

        self.pay = pay
        app.finalize()

    def deliver(self, id: str) -> Any:
        """Deliver the message that is stored."""
        return self.receive(self.store.payload(id))

    def trace(self, id: str, message: Any) -> None:
        """Have Celery's own tracer run this message, with its signals."""
        args, kwargs, embed = json.loads(message.body)
        headers = json.loads(message.headers)
        request = {**headers, **embed, "headers": headers, "hostname": "w@here", "is_eager": False}
        build_tracer(self.pay.name, self.pay, app=self.app)(id, args, kwargs, request)

    def receive(self, message: Any) -> Any:
        """Call the task as a worker's tracer does for this message."""
        args, kwargs, embed = json.loads(message.body)
        headers = json.loads(message.headers)
        request = Context(
            {
                **headers,
                **embed,
                "headers": headers,
                "args": args,
                "kwargs": kwargs,
                "called_directly": False,
                "is_eager": False,
            }
        )
        self.pay.request_stack.push(request)
        try:
            return self.pay(*args, **kwargs)
        finally:
            self.pay.request_stack.pop()
            self.heard.append((args, kwargs))


@pytest.fixture
def side(make_app: Callable[..., Celery]) -> Callable[..., Side]:
    def make(*keys: str, on: bool = True) -> Side:
        guard = {"encryption_keys": keys, "encrypt": on} if keys else {}
        return Side(make_app(guard={**SECRET, **guard}))

    return make


def stored(side: Side, id: str) -> str:
    """All that the store has of a job, as text."""
    row, payload, outcome = side.store.job(id), side.store.payload(id), side.store.outcome(id)
    return f"{row} {payload} {outcome}"


def test_what_is_stored_of_a_job_shows_nothing_and_a_worker_with_the_key_runs_it(side: Callable[..., Side]) -> None:
    sender, worker = side(NEW), side(OLD, NEW)
    id = sender.pay.delay(CARD).id
    assert CARD not in stored(sender, id)
    assert worker.deliver(id) == {"receipt for": CARD}
    assert CARD not in stored(sender, id)
    assert found(worker.store, id).state is State.SUCCEEDED


def test_what_celery_calls_after_the_body_is_given_the_plain_call(side: Callable[..., Side]) -> None:
    """Its tracer hands the list and the mapping that it has to ``on_success``, ``after_return`` and the signals."""
    one = side(NEW)
    one.deliver(one.pay.delay(card=CARD).id)
    assert one.heard == [([], {"card": CARD})]


def test_what_the_body_logs_of_an_encrypted_call_is_masked(
    side: Callable[..., Side], caplog: pytest.LogCaptureFixture, plain_records: None
) -> None:
    one = side(NEW)
    id = one.pay.delay(card=CARD).id
    one.trace(id, one.store.payload(id))
    assert one.ran == [CARD]
    assert "charging ***" in caplog.text
    assert CARD not in caplog.text
    # and over is over
    logging.getLogger("shop").warning("an unrelated %s", CARD)
    assert f"an unrelated {CARD}" in caplog.text


def test_what_the_body_logs_of_a_later_message_than_the_one_that_arrived_is_masked(
    side: Callable[..., Side], caplog: pytest.LogCaptureFixture, plain_records: None
) -> None:
    one, other = side(), "4333-3333"
    id, another = one.pay.delay(card=CARD).id, one.pay.delay(card=other).id
    first, later = one.store.payload(id), one.store.payload(another)
    later = replace(later, headers=later.headers.replace(another, id))
    assert one.store.settle(retried(claim(one.store, id), payload=later))
    one.trace(id, first)
    assert one.ran == [other]
    assert "charging ***" in caplog.text
    assert other not in caplog.text


@pytest.fixture
def plain_records() -> Iterator[None]:
    """Records of the process are as they were, afterwards."""
    plain = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(plain)


def test_what_hangs_on_a_job_is_encrypted_with_it_and_follows(side: Callable[..., Side]) -> None:
    one = side(NEW)
    id = one.pay.apply_async((CARD,), link=one.pay.si(card="4222-2222")).id
    assert "4222" not in stored(one, id)
    one.deliver(id)
    [other] = [job for job in one.store.jobs() if job.id != id]
    assert "4222" not in stored(one, other.id)
    one.deliver(other.id)
    assert one.ran == [CARD, "4222-2222"]


def test_a_worker_without_the_key_parks_the_job_and_one_with_it_runs_it(
    side: Callable[..., Side], caplog: pytest.LogCaptureFixture
) -> None:
    sender, without = side(NEW), side(OLD)
    id = sender.pay.delay(CARD).id
    with caplog.at_level("WARNING", "celery_guard"), pytest.raises(Ignore):
        without.deliver(id)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"job {id} (pay): its body does not begin here, next attempt in ")
    assert "(held_encryption): It is encrypted with the key " in said
    assert said.endswith("To repair: add that key to encryption_keys here.")
    row = found(without.store, id)
    assert (row.state, row.reason, row.attempts, without.ran) == (State.PENDING, Reason.HELD_ENCRYPTION, 0, [])
    assert runtime_of(sender.app).encryption.keys[0] in row.failures[-1].message
    assert [one.id for one in eventually(lambda: take(sender.store))] == [id]
    assert sender.deliver(id) == {"receipt for": CARD}


def test_a_copy_on_the_broker_under_a_key_that_is_gone_is_read_from_the_store(side: Callable[..., Side]) -> None:
    sender, worker = side(OLD), side(NEW)
    id = sender.pay.delay(CARD).id
    message = sender.store.payload(id)
    old = json.loads(message.body)[1]["guard_encrypted"]
    renewed = runtime_of(side(NEW, OLD).app).encryption.renewed(old)
    # as `keys rotate` leaves it
    worker.store.payload = lambda *_: replace_body(message, old, renewed)
    worker.receive(message)
    assert worker.ran == [CARD]


def replace_body(message: Any, old: str, new: str) -> Any:
    return type(message)(message.body.replace(old.encode(), new.encode()), message.headers, message.delivery)


def test_a_worker_without_the_key_does_not_tell_how_a_job_ended(side: Callable[..., Side]) -> None:
    """It does not know what hangs on it. The row stays untold, and is published again for one who knows."""
    sender, without = side(NEW), side()
    id = sender.pay.delay(CARD).id
    assert sender.store.settle(dead(claim(sender.store, id), told=False, tell_within=NONE))
    assert [row.id for row in take(sender.store)] == [id]
    with pytest.raises(Ignore, match="cannot be told from here"):
        without.deliver(id)
    assert not found(without.store, id).told


def test_a_message_that_was_damaged_ends_its_job_and_says_so(side: Callable[..., Side]) -> None:
    one = side(NEW)
    id = one.pay.delay(CARD).id
    message = one.store.payload(id)
    text = json.loads(message.body)[1]["guard_encrypted"]
    one.store.payload = lambda *_: replace_body(message, text, text[:-8] + "AAAAAAA=")
    with pytest.raises(Exception, match="cannot be read"):
        one.deliver(id)
    row = found(one.store, id)
    assert (row.state, row.reason, one.ran) == (State.DEAD, Reason.FAILED, [])


def test_a_retry_that_changes_the_call_is_encrypted_with_the_first_key(side: Callable[..., Side]) -> None:
    sender, worker = side(OLD), side(NEW, OLD)
    id = sender.pay.delay(CARD, fails="retry").id
    with pytest.raises(Exception, match="Retry"):
        worker.deliver(id)
    assert found(worker.store, id).generation == 1
    assert key_of(worker.store.payload(id)) == runtime_of(worker.app).encryption.keys[0]
    assert CARD not in stored(worker, id)


def test_a_duplicate_is_given_the_value_that_is_stored_encrypted(side: Callable[..., Side]) -> None:
    one = side(NEW)
    one.deliver(one.pay.delay(CARD).id)
    assert one.pay.delay(CARD).get() == {"receipt for": CARD}


def test_what_a_failure_of_a_task_with_sensitive_fields_says_is_encrypted_and_shown_as_such(
    side: Callable[..., Side],
) -> None:
    one = side(NEW)
    words = "the account of Ada Lovelace is closed"
    id = one.pay.delay(CARD, fails=words).id
    with pytest.raises(ValueError, match="Ada"):
        one.deliver(id)
    assert "Ada" not in str(found(one.store, id).failures)
    [failure] = one.app.guard.jobs.get(id, by=Actor("ann")).failures
    assert failure.message.startswith("(encrypted with the key ")
    assert failure.type_name == "ValueError"
    opened = runtime_of(one.app).encryption.decrypt_failure(id, found(one.store, id).failures[0])
    assert opened is not None
    assert opened.message == words


def test_an_operator_who_reveals_is_shown_the_message_as_it_was_sent(side: Callable[..., Side]) -> None:
    one, without = side(NEW), side()
    id = one.pay.delay(CARD, fails="x").id
    admin = Actor("ann", Role.ADMIN)
    assert json.loads(one.app.guard.dlq.reveal(id, by=admin, reason="support case").body)[:2] == [
        [CARD],
        {"fails": "x"},
    ]
    with pytest.raises(EncryptionKeyError):
        without.app.guard.dlq.reveal(id, by=admin, reason="support case")


def test_the_arguments_of_an_encrypted_letter_are_corrected_and_encrypted_again(side: Callable[..., Side]) -> None:
    one, without = side(NEW, OLD), side()
    id = side(OLD).pay.delay(CARD, fails="x").id
    with pytest.raises(ValueError, match="x"):
        one.deliver(id)
    admin = Actor("ann", Role.ADMIN)
    with pytest.raises(EncryptionKeyError):
        without.app.guard.dlq.edits.read(id, by=admin, reason="case 7")
    edits = one.app.guard.dlq.edits
    call = edits.read(id, by=admin, reason="case 7")
    edits.replay(id, replace(call, kwargs={}), by=admin, reason="case 7")
    message = one.store.payload(id, 1)
    assert (key_of(message), json.loads(message.headers)["guard"]["version"]) == (
        runtime_of(one.app).encryption.keys[0],
        2,
    )
    assert one.deliver(id) == {"receipt for": CARD}


def test_a_process_that_has_keys_and_does_not_encrypt_sends_plain_and_runs_what_is_encrypted(
    side: Callable[..., Side],
) -> None:
    first, then = side(NEW, on=False), side(NEW)
    assert key_of(first.store.payload(first.pay.delay(CARD).id)) is None
    assert first.deliver(then.pay.delay("4555-5555").id) == {"receipt for": "4555-5555"}


def test_an_eager_job_is_encrypted_and_runs(side: Callable[..., Side]) -> None:
    one = side(NEW)
    result = one.pay.apply((CARD,))
    assert result.get() == {"receipt for": CARD}
    assert CARD not in stored(one, result.id)


def test_encrypt_without_keys_is_refused(make_app: Callable[..., Celery]) -> None:
    with pytest.raises(SettingError, match="encryption_keys is not set"):
        make_app(guard={"encrypt": True}).guard.settings  # noqa: B018


def test_keys_come_from_a_list_a_text_or_a_function(make_app: Callable[..., Celery]) -> None:
    for given in ([NEW, OLD], f"{NEW}, {OLD}", lambda: [NEW, OLD.encode()], f"{__name__}:named_keys"):
        runtime = runtime_of(make_app(guard={"encryption_keys": given}))
        assert len(runtime.encryption.keys) == 2
        assert NEW not in repr(runtime.settings)


def named_keys() -> list[str]:
    return [NEW, OLD]
