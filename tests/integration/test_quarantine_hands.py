"""What people do about quarantined messages, on real brokers: put back as they were, given up, and a dead-letter queue drained safely."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from kombu import Connection, Producer, Queue

from celery_guard import Actor, Guard, Role
from celery_guard.errors import MoveRefused, NotAllowed
from celery_guard.flow.admin.quarantine import Quarantine
from celery_guard.store.protocol import Quarantined, Store
from celery_guard.testing.services import RABBITMQ, REDIS
from celery_guard.testing.wire import wire

pytestmark = pytest.mark.integration

ANN = Actor("ann", origin="here")
ADMIN = Actor("ann", Role.ADMIN, origin="here")


class Post:
    """A broker, an app on it with a store of its own, and a queue with a dead-letter queue behind it."""

    def __init__(self, broker: str, folder: Path) -> None:
        self.name = f"guard-test-{uuid4().hex[:12]}"
        self.app = Celery("shop", broker=broker, set_as_current=False)
        self.app.conf.task_default_queue = f"{self.name}-work"
        self.guard = Guard(self.app, store=f"sqlite:///{folder / 'guard.db'}")
        self.guard.store.upgrade()
        self.connection = Connection(broker)
        self.dead = f"{self.name}-dead"
        self.queue = Queue(
            self.name, queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead}
        )
        channel = self.connection.default_channel
        for queue in (self.queue, Queue(self.dead)):
            queue(channel).declare()

    @property
    def store(self) -> Store:
        return self.guard.store

    @property
    def hands(self) -> Quarantine:
        return self.guard.quarantine

    def send(self, body: bytes, queue: str, **options: Any) -> None:
        options = {"content_type": "application/x-shop", "content_encoding": "binary", **options}
        Producer(self.connection.default_channel).publish(body, exchange="", routing_key=queue, **options)

    def take(self, queue: str, *, reject: bool = False) -> Any:
        """A message off the queue; rejected, or acknowledged. None where there is none."""
        message = Queue(queue)(self.connection.default_channel).get(no_ack=False)
        if message is not None:
            message.reject() if reject else message.ack()
        return message

    def close(self) -> None:
        channel = self.connection.default_channel
        for name in (self.name, self.dead):
            channel.queue_delete(name)
        self.connection.release()
        self.store.close()
        self.app.close()


@pytest.fixture
def rabbit(tmp_path: Path) -> Iterator[Post]:
    post = Post(RABBITMQ.need(), tmp_path)
    yield post
    post.close()


@pytest.fixture(params=["rabbitmq", "redis"])
def post(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Post]:
    post = Post(RABBITMQ.need() if request.param == "rabbitmq" else f"{REDIS.need()}1", tmp_path)
    yield post
    post.close()


def kept(post: Post, **given: Any) -> int:
    values = {
        "queue": post.name,
        "body": b"\x80\x04\xff",
        "headers": '{"id": "7e", "retries": 2}',
        "reason": "undecodable",
    }
    rest = {
        "content_type": "application/x-shop",
        "content_encoding": "binary",
        "delivery": '{"correlation_id": "7e", "priority": 3}',
    }
    return post.store.quarantine(**{**values, **rest, **given})


def message(post: Post, number: int) -> Quarantined:
    found = post.store.message(number)
    assert found is not None
    return found


def test_a_message_is_put_back_on_its_queue_as_it_was(post: Post) -> None:
    number = kept(post)
    [answer] = post.hands.release([number], by=ANN, reason="the codec is installed")
    assert answer.answer == "released", answer
    got = post.take(post.name)
    assert (got.body, got.content_type, got.content_encoding) == (b"\x80\x04\xff", "application/x-shop", "binary")
    assert (got.headers["id"], got.headers["retries"]) == ("7e", 2)
    assert (got.properties["correlation_id"], got.properties["priority"]) == ("7e", 3)
    assert message(post, number).state == "released"
    assert post.store.quarantined() == []
    [again] = post.hands.release([number], by=ANN, reason="twice")
    assert again.answer == "skipped"
    assert post.take(post.name) is None, "it went out once"


def test_what_may_have_gone_out_is_released_again_only_where_that_is_said(post: Post) -> None:
    number = kept(post)
    assert post.store.move_message(number, "kept", "releasing", "by bob, who was killed")
    [answer] = post.hands.release([number], by=ANN, reason="mended")
    assert (answer.answer, "may have gone out" in answer.why) == ("skipped", True)
    assert post.take(post.name) is None
    [answer] = post.hands.release([number], by=ANN, reason="it had not", again=True)
    assert answer.answer == "released"
    assert post.take(post.name) is not None


def test_a_queue_that_is_not_there_is_no_place_to_release_to(rabbit: Post) -> None:
    number = kept(rabbit)
    [answer] = rabbit.hands.release([number], by=ANN, reason="mended", queue=f"{rabbit.name}-none")
    assert answer.answer == "skipped"
    assert f"{rabbit.name}-none" in answer.why
    assert message(rabbit, number).state == "kept"


def test_a_broker_that_is_out_leaves_the_message_where_it_was(tmp_path: Path) -> None:
    app = Celery("shop", broker="redis://:hush@127.0.0.1:1/0", set_as_current=False)
    guard = Guard(app, store=f"sqlite:///{tmp_path / 'guard.db'}")
    guard.store.upgrade()
    number = guard.store.quarantine(
        queue="q", body=b"x", headers="{}", content_type="text/plain", content_encoding="utf-8", reason="r"
    )
    with pytest.raises(ConnectionError) as raised:
        guard.quarantine.release([number], by=ANN, reason="mended")
    assert "hush" not in str(raised.value)
    found = guard.store.message(number)
    assert found is not None
    assert found.state == "kept"
    guard.store.close()


def test_a_broker_that_is_lost_at_any_word_leaves_no_message_that_has_gone_out_as_kept(rabbit: Post) -> None:
    ends = {True: set[str](), False: set[str]()}
    with wire(RABBITMQ.need(), 5672) as line:
        rabbit.app.conf.broker_write_url = line.url
        for answers in ends:
            cut, at = True, 0
            while cut:
                at += 1
                number = kept(rabbit)
                line.cut(at, answers=answers)
                with suppress(ConnectionError):  # nothing was sent
                    rabbit.hands.release([number], by=ANN, reason="mended")
                cut = not line.mend()
                state, gone_out = message(rabbit, number).state, rabbit.take(rabbit.name) is not None
                assert (state, gone_out) not in {("kept", True), ("released", False)}, (at, answers)
                ends[gone_out].add(state)
    assert "releasing" in ends[True], "it went out, and the answer was lost"
    assert "releasing" in ends[False], "it was lost on its way"
    assert "released" in ends[True]


def test_a_message_is_given_up_with_a_reason_and_never_goes_out(post: Post) -> None:
    number = kept(post)
    [answer] = post.hands.discard([number], by=ANN, reason="a test of the partner's")
    assert answer.answer == "discarded"
    assert message(post, number).why == "by ann: a test of the partner's"
    assert post.hands.release([number], by=ANN, reason="no")[0].answer == "skipped"
    assert post.hands.discard([number, 10_000], by=ANN, reason="no")[1].why == "there is no such message"
    assert post.take(post.name) is None


def test_what_is_in_a_message_is_an_admins_to_see_and_audited(rabbit: Post) -> None:
    number = kept(rabbit)
    shown = rabbit.hands.get(number, by=ANN)
    assert (shown.body, shown.headers, shown.size) == (b"", "", 3)
    with pytest.raises(NotAllowed):
        rabbit.hands.reveal(number, by=ANN, reason="curious")
    assert rabbit.hands.reveal(number, by=ADMIN, reason="what is it?").body == b"\x80\x04\xff"
    with pytest.raises(NotAllowed):
        rabbit.hands.list(by=Actor("eve", tenant="acme", origin="here"))
    said = [f"{row.action} {row.outcome}" for row in reversed(rabbit.store.audited())]
    assert said == [
        "quarantine.reveal refused",
        "quarantine.reveal intended",
        "quarantine.reveal done",
        "quarantine.look refused",
    ]


# -- a broker's own dead-letter queue ---------------------------------------------------------------------------------


def test_what_rabbitmq_has_set_aside_is_drained_with_why_and_from_where(rabbit: Post) -> None:
    for body in (b"one", b"two"):
        rabbit.send(body, rabbit.name, headers={"id": body.decode()}, correlation_id="7e")
        rabbit.take(rabbit.name, reject=True)
    assert rabbit.hands.drain(rabbit.dead, by=ANN, reason="since the deployment") == 2
    two, one = rabbit.store.quarantined()
    assert (one.queue, two.queue) == (rabbit.name, rabbit.name)
    assert "rejected" in one.reason
    assert rabbit.dead in one.reason
    assert message(rabbit, one.id).body == b"one"
    assert rabbit.take(rabbit.dead) is None
    assert rabbit.hands.drain(rabbit.dead, by=ANN, reason="again") == 0
    rabbit.hands.release([one.id], by=ANN, reason="mended")
    back = rabbit.take(rabbit.name)
    assert (back.body, back.headers["id"], back.properties["correlation_id"]) == (b"one", "one", "7e")
    assert "x-death" not in back.headers


def test_a_drain_that_is_killed_between_store_and_broker_keeps_the_message_once(
    rabbit: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"one", b"two"):
        rabbit.send(body, rabbit.name)
        rabbit.take(rabbit.name, reject=True)
    hands = rabbit.hands

    def dies(message: Any) -> None:
        Quarantine._keep(hands, message)
        raise KeyboardInterrupt

    monkeypatch.setattr(hands, "_keep", dies)
    with pytest.raises(KeyboardInterrupt):
        hands.drain(rabbit.dead, by=ANN, reason="killed in the middle")
    assert len(rabbit.store.quarantined()) == 1
    assert rabbit.hands.drain(rabbit.dead, by=ANN, reason="once more") == 2
    assert [message(rabbit, found.id).body for found in rabbit.store.quarantined()] == [b"two", b"one"]


@pytest.mark.parametrize("end", ["released", "discarded"])
def test_a_message_that_comes_back_after_it_was_handled_waits_for_a_person_again(post: Post, end: str) -> None:
    post.send(b"one", post.dead, headers={"id": "one"})
    assert post.hands.drain(post.dead, by=ANN, reason="since the deployment") == 1
    [kept] = post.store.quarantined()
    if end == "released":
        post.hands.release([kept.id], by=ANN, reason="mended, it seems", queue=post.dead)
    else:
        post.hands.discard([kept.id], by=ANN, reason="a test of the partner's")
        post.send(b"one", post.dead, headers={"id": "one"})
    assert post.hands.drain(post.dead, by=ANN, reason="once more") == 1
    [back] = post.store.quarantined()
    assert (back.state, back.handled, f"after it was {end}" in back.why) == ("kept", None, True)
    assert post.hands.release([back.id], by=ANN, reason="mended now", queue=post.name)[0].answer == "released"
    assert post.take(post.name).body == b"one"


def test_a_queue_of_the_apps_own_is_not_drained(rabbit: Post) -> None:
    with pytest.raises(MoveRefused, match="own tasks"):
        rabbit.hands.drain(f"{rabbit.name}-work", by=ANN, reason="mistyped")


def test_a_queue_that_is_not_there_is_said(rabbit: Post) -> None:
    with pytest.raises(ConnectionError, match="none"):
        rabbit.hands.drain(f"{rabbit.name}-none", by=ANN, reason="mistyped")
