"""Of a message that is of no use: what a relay says of it, and what it tells Celery about its job."""

from __future__ import annotations

import json
from typing import Any

import pytest
from celery import Celery, states
from kombu import Queue

from celery_guard.errors import JobFailed
from celery_guard.integrations.celery.publisher import BrokerPublisher
from celery_guard.job.row import Outgoing, StoredPayload
from celery_guard.job.state import Kind, Reason, State

DAMAGED = {
    "gone": None,
    "no headers": StoredPayload(b"[[], {}, {}]", "{", "{}"),
    "no body": StoredPayload(b"\xff", '{"task": "shop.charge"}', "{}"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_celery_is_told_of_a_death_though_the_message_is_of_no_use(damage: str) -> None:
    app = Celery("told", broker="memory://", backend="cache+memory://")
    row = Outgoing(
        damage, "shop.charge", "default", Kind.RUN, State.DEAD, Reason.UNPUBLISHABLE, 0, 0, 0, 0, DAMAGED[damage], None
    )
    assert BrokerPublisher(app).tell(row, JobFailed("the message is gone"))
    result = app.AsyncResult(damage)
    assert (result.state, str(result.result)) == (states.FAILURE, "the message is gone")


WHOLE = {
    "exchange": "", "exchange_type": "direct", "routing_key": "q", "queue": "q", "declare": True, "priority": None,
    "content_type": "application/json", "content_encoding": "utf-8", "properties": {},
}  # fmt: skip
PARTLY = {name: value for name, value in WHOLE.items() if name not in ("declare", "queue")}


def refusal(headers: str = "{}", delivery: str = json.dumps(WHOLE), **conf: Any) -> Exception:
    """Why a message is refused, beside one that goes out."""
    app = Celery("refuses", broker="memory://", set_as_current=False)
    app.conf.update(conf)
    rows = [
        Outgoing(id, "t", "q", Kind.RUN, State.PENDING, Reason.NEW, 3, 0, 0, 0, StoredPayload(b"[]", *said), None)
        for id, said in (
            ("bad", (headers, delivery)),
            ("good", ("{}", json.dumps({**WHOLE, "queue": "there", "routing_key": "there"}))),
        )
    ]
    published = BrokerPublisher(app).publish(rows)
    assert (published.sent, published.outage) == (("good",), None)
    [(id, error)] = published.refused
    assert id == "bad"
    return error


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (
            {"delivery": json.dumps(PARTLY)},
            "delivery with it was damaged, by hand or in the store: found no declare, queue,",
        ),
        ({"delivery": "{"}, "delivery with it was damaged, by hand or in the store: found no JSON (Expecting"),
        ({"delivery": "[1]"}, "found a value of type list,"),
        ({"headers": "null"}, "headers with it was damaged, by hand or in the store: found a value of type NoneType,"),
    ],
)
def test_a_message_that_was_damaged_says_what_was_found_and_what_to_do(damage: dict[str, str], found: str) -> None:
    error = refusal(**damage)
    assert isinstance(error, JobFailed)
    assert str(error).startswith("The stored message of job bad (generation 3) cannot be published: ")
    assert found in str(error)
    assert "Make the call again, under a new id" in str(error)


def test_a_queue_that_the_relay_does_not_know_is_named_and_may_be_known_later() -> None:
    error = refusal(task_create_missing_queues=False, task_queues=[Queue("there")])
    assert type(error) is LookupError
    assert "The queue 'q' is not in this relay's task_queues" in str(error)
