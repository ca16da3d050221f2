"""Messages of a batch on Redis: what is put together is what kombu would have built, and whoever has a hand in it still has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from celery import Celery
from kombu import Exchange, Queue

from celery_guard.errors import JobFailed
from celery_guard.integrations.celery import publisher, templates
from celery_guard.integrations.celery.publisher import BrokerPublisher
from celery_guard.job.row import Outgoing, StoredPayload
from celery_guard.job.state import Kind, Reason, State

pytestmark = pytest.mark.integration

DELIVERY = {
    "exchange": "", "exchange_type": "direct", "routing_key": "q", "queue": "q", "declare": True, "priority": 0,
    "content_type": "application/json", "content_encoding": "utf-8",
}  # fmt: skip
PROPERTIES = {"reply_to": "me", "argsrepr": "()", "kwargsrepr": "{'é': ***}", "delivery_mode": 2}
COUNT = 12


def row(id: str = "", *, retries: int = 0, body: bytes = b"", headers: Any = None, **said: Any) -> Outgoing:
    """A due row, whose message is as Celery writes it."""
    id = id or str(uuid4())
    headers = {"task": "t", "id": id, "root_id": id, "retries": 0, "named": "ünï"} if headers is None else headers
    properties = {"correlation_id": id, **PROPERTIES, **said.pop("properties", {})}
    delivery = {**DELIVERY, **said, "properties": properties}
    texts = [part if isinstance(part, str) else json.dumps(part) for part in (headers, delivery)]
    payload = StoredPayload(body or f'[[], {{"id": "{id}"}}, {{}}]'.encode(), *texts)
    return Outgoing(id, "t", "q", Kind.RUN, State.PENDING, Reason.NEW, 0, retries, 0, 0, payload, None)


@pytest.fixture
def make_app(redis_url: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Celery]]:
    """An app on the broker, with keys of its own."""
    prefixes: list[str] = []

    def make(**transport: Any) -> Celery:
        prefixes.append(f"templates-{uuid4().hex}:")
        app = Celery("templates", broker=f"{redis_url}1", set_as_current=False)
        app.conf.broker_transport_options = {"global_keyprefix": prefixes[-1], **transport}
        return app

    yield make
    with redis.Redis.from_url(f"{redis_url}1") as client:
        for prefix in prefixes:
            if keys := list(client.scan_iter(f"{prefix}*")):
                client.delete(*keys)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of what was built by kombu."""
    plain, seen = BrokerPublisher._send, []

    def send(self: Any, producer: Any, row: Outgoing, **options: Any) -> None:
        seen.append(row.id)
        plain(self, producer, row, **options)

    monkeypatch.setattr(BrokerPublisher, "_send", send)
    return seen


def published(app: Celery, rows: list[Outgoing]) -> Any:
    sender = BrokerPublisher(app)
    try:
        return sender.publish(rows)
    finally:
        sender.close()


def lying(app: Celery) -> dict[str, list[str]]:
    """The texts in the broker, by key, in the order in which they came; each tag was random, and is taken out."""
    prefix = app.conf.broker_transport_options.get("global_keyprefix", "")
    with redis.Redis.from_url(app.conf.broker_url, decode_responses=True) as client:
        lists = {key: client.lrange(key, 0, -1)[::-1] for key in client.scan_iter(f"{prefix}*", _type="list")}
    texts = [text for each in lists.values() for text in each]
    tags = [json.loads(text)["properties"]["delivery_tag"] for text in texts]
    assert len(set(tags)) == len(tags)
    assert all(str(UUID(tag, version=4)) == tag for tag in tags)
    return {
        key.removeprefix(prefix): [text.replace(json.loads(text)["properties"]["delivery_tag"], "tag") for text in each]
        for key, each in lists.items()
    }


BATCHES: dict[str, Callable[[], list[Outgoing]]] = {
    "alike": lambda: [row() for _ in range(COUNT)],
    "other bodies": lambda: [row(body=bytes([n, 255]) * n) for n in range(1, COUNT)],
    "two queues in turn": lambda: [row(routing_key=f"q{n % 2}", queue=f"q{n % 2}") for n in range(2 * COUNT)],
    "priorities in turn": lambda: [row(priority=n % 3 * 4) for n in range(3 * COUNT)],
    "other properties in between": lambda: [
        row(properties={"reply_to": "you"} if n == 6 else {}) for n in range(COUNT)
    ],
    "other modes in between": lambda: [row(properties={"delivery_mode": 1 + n % 2}) for n in range(COUNT)],
    "retried in between": lambda: [row(retries=n // 4) for n in range(COUNT)],
    "ids that stand elsewhere too": lambda: [
        row(id, queue=id, routing_key=id) for id in ("q", "u", "celery", *"abcdefgh")
    ],
    "an id that stands where another's key stood": lambda: [
        *(row("foo", queue="foo", routing_key="foo") for _ in range(3)),
        *(row(id, queue="foo", routing_key=id, properties={"correlation_id": "foo"}) for id in ("bar", *"abcdefgh")),
    ],
    "ids that no JSON shows as they are": lambda: [row(f'a"{n}\\ü') for n in range(COUNT)],
    "an id that is empty": lambda: [row() if n % 4 else replace(row(), id="") for n in range(COUNT)],
    "headers that no UTF-8 can hold as they are": lambda: [
        row(headers='{"retries": 0, "of": "\ud83d"}' if n == 7 else None) for n in range(COUNT)
    ],
    "headers in another order": lambda: [row(headers={"retries": 0, "n": n}) for n in range(COUNT)],
    "headers without retries": lambda: [row(headers={"n": n}) for n in range(COUNT)],
    "without a declaration": lambda: [row(declare=False) for _ in range(COUNT)],
}


@pytest.mark.parametrize("batch", BATCHES)
def test_what_is_put_together_is_what_kombu_builds(
    make_app: Callable[..., Celery], monkeypatch: pytest.MonkeyPatch, batch: str
) -> None:
    rows, ours, kombus = BATCHES[batch](), make_app(), make_app()
    assert published(ours, rows).sent == tuple(each.id for each in rows)
    monkeypatch.setattr(publisher, "templates_for", lambda channel, count: None)
    published(kombus, rows)
    assert lying(ours) == lying(kombus)


def test_kombu_builds_two_of_a_kind(make_app: Callable[..., Celery], built: list[str]) -> None:
    rows = [row(queue=f"q{n % 2}", routing_key=f"q{n % 2}") for n in range(2 * COUNT)]
    published(make_app(), rows)
    assert built == [each.id for each in rows[:4]]


def test_few_are_built_by_kombu(make_app: Callable[..., Celery], built: list[str]) -> None:
    published(make_app(), [row() for _ in range(5)])
    assert len(built) == 5


def test_a_message_that_was_edited_means_the_same(make_app: Callable[..., Celery]) -> None:
    edited = [row(headers=f'{{"id": "é{n}",   "retries":0}}') for n in range(COUNT)]
    app = make_app()
    published(app, edited)
    found = [json.loads(text)["headers"] for text in lying(app)["q"]]
    assert found == [{"id": f"é{n}", "retries": 0} for n in range(COUNT)]


@pytest.mark.parametrize("damage", ["{", '{"retries": 0} x', "null", "[0]", '{"a":' * 100_000])
def test_a_damaged_one_among_those_put_together_is_refused_alone(make_app: Callable[..., Celery], damage: str) -> None:
    rows = [row(headers=damage if n == 8 else None) for n in range(COUNT)]
    answer = published(make_app(), rows)
    assert [id for id, _ in answer.refused] == [rows[8].id]
    assert answer.sent == tuple(each.id for n, each in enumerate(rows) if n != 8)
    assert damage.startswith('{"a') or isinstance(answer.refused[0][1], JobFailed)


def test_what_lies_behind_an_exchange_is_looked_up_by_kombu_for_each(
    make_app: Callable[..., Celery], built: list[str]
) -> None:
    app = make_app()
    app.conf.task_queues = [Queue("q", Exchange("x", "topic"), routing_key="a.*")]
    published(app, [row(exchange="x", exchange_type="topic", routing_key="a.b") for _ in range(COUNT)])
    assert len(built) == len(lying(app)["q"]) == COUNT


def test_a_queue_that_expires_is_seen_to_by_kombu_for_each(make_app: Callable[..., Celery], built: list[str]) -> None:
    app = make_app()
    app.conf.task_queues = [Queue("q", expires=600)]
    published(app, [row() for _ in range(COUNT)])
    assert len(built) == COUNT


def test_bodies_that_are_encoded_in_another_way_are_built_by_kombu(
    make_app: Callable[..., Celery], built: list[str]
) -> None:
    published(make_app(body_encoding="utf-8"), [row(body=b"[]") for _ in range(COUNT)])
    assert len(built) == COUNT


def test_a_patch_of_what_publishes_is_called_for_each(
    make_app: Callable[..., Celery], patched_publish: list[Any]
) -> None:
    published(make_app(), [row() for _ in range(COUNT)])
    assert len(patched_publish) == COUNT


@pytest.mark.parametrize("part", ["filled", "learn"])
def test_kombu_builds_the_rest_where_the_short_way_fails(
    make_app: Callable[..., Celery], built: list[str], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("a fault of its own")

    monkeypatch.setattr(templates.Templates, part, fails)
    rows = [row() for _ in range(COUNT)]
    assert published(make_app(), rows).sent == tuple(each.id for each in rows)
    assert built == [each.id for each in rows]
