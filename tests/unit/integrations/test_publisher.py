"""What a relay tells Celery about a dead job, where its message is of no use any more."""

from __future__ import annotations

import pytest
from celery import Celery, states

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
