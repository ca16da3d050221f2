"""DUP: one message that comes many times, and one call that is spelled in many ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from celery_guard.errors import JobFailed, KeyConflict
from celery_guard.job.envelope import HEADER
from celery_guard.job.state import State
from celery_guard.job.verdict import Conflict

from .faults import APP, causes, entered, ignored, received, stranger, typed
from .fleet import Fleet, Worker, eventually

pytestmark = pytest.mark.integration

ON_BOTH = pytest.mark.parametrize("stack", ["redis-postgresql", "redis-redis"])

#: Copies of what is held for longer than a second come back every second.
IMPATIENT = {"visibility_timeout": 1, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


def with_the_broker(fleet: Fleet) -> dict[str, int]:
    """Messages of the fleet that the broker still has: waiting, and taken but not acknowledged."""
    with fleet.app.app.connection_for_write() as connection:
        channel = connection.default_channel
        waiting = channel.queue_declare(queue=fleet.queue).message_count
        with channel.conn_or_acquire() as client:
            return {"waiting": waiting, "taken": int(client.hlen("unacked"))}


def headers_of(fleet: Fleet, id: str) -> Any:
    """The headers of the stored message."""
    payload = fleet.store.payload(id)
    assert payload is not None
    return json.loads(payload.headers)


# -- DUP-1 --------------------------------------------------------------------------------------------------------------


def test_dup_1_a_countdown_over_the_visibility_timeout_waits_in_the_store(make_fleet: Callable[..., Fleet]) -> None:
    """No copy can come of it: the broker does not have it before it is due, and then without an ETA."""
    fleet = make_fleet("redis-postgresql", APP, transport=IMPATIENT)
    relay = fleet.app.guard.relay()
    id = fleet.app.remind.apply_async((7,), countdown=1.5).id
    assert relay.drain() == 0
    assert with_the_broker(fleet) == {"waiting": 0, "taken": 0}
    eventually(lambda: relay.drain() == 1)
    assert with_the_broker(fleet) == {"waiting": 1, "taken": 0}
    assert headers_of(fleet, id)["eta"] is None


@ON_BOTH
def test_dup_1_twenty_copies_that_come_due_on_two_nodes_run_the_body_once(
    stack: str, make_fleet: Callable[..., Fleet]
) -> None:
    """Copies with an ETA can only come from a publisher without the guard: all of them are adopted as one job."""
    fleet = make_fleet(stack, APP)
    nodes = [fleet.worker(concurrency=4, ready=False) for _ in range(2)]
    for node in nodes:
        node.ready()
    id, app = str(uuid4()), stranger(fleet)
    for _ in range(20):
        app.send_task("tests.integration.app_faults.remind", (7,), task_id=id, countdown=1.5)
    eventually(lambda: sum(received(node, id) for node in nodes) == 20)
    assert all(received(node, id) for node in nodes)
    assert fleet.lines() == []
    job = fleet.settled(id)
    # the adopted row is due, so a relay may add a copy of its own before the claim is seen
    eventually(lambda: sum(ignored(node, id) for node in nodes) >= 19)
    eventually(lambda: with_the_broker(fleet) == {"waiting": 0, "taken": 0})
    assert fleet.marks() == ["remind 7"]
    assert (job.state.value, job.attempts, job.crashes, job.retries) == ("succeeded", 1, 0, 0)
    assert fleet.app.app.AsyncResult(id).get(timeout=30) == "reminded 7"


# -- DUP-2 --------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["redis-postgresql", "redis-redis"])
def redelivered(request: pytest.FixtureRequest, make_fleet: Callable[..., Fleet]) -> tuple[Fleet, str, Worker]:
    """A long body runs on node A; node B was given its message by the broker, and did nothing with it but acknowledge it."""
    fleet = make_fleet(request.param, APP, transport=IMPATIENT)
    nodes = [fleet.worker("prefork", 1, ready=False) for _ in range(2)]
    for node in nodes:
        node.ready()
    id = fleet.app.long_steps.delay("go").id
    eventually(lambda: any(received(node, id) for node in nodes), what="A runs")
    a, b = sorted(nodes, key=lambda node: received(node, id), reverse=True)
    eventually(lambda: ignored(b, id), what="B had a copy")
    eventually(lambda: with_the_broker(fleet) == {"waiting": 0, "taken": 0}, what="no copy is left")
    return fleet, id, a


def test_dup_2_i_redelivered_copies_of_a_running_job_do_nothing(redelivered: tuple[Fleet, str, Worker]) -> None:
    """They are not deferred to the lease's end: the store brings the job back if its owner dies."""
    fleet, id, _ = redelivered
    fleet.raise_flag("go")
    job = fleet.settled(id)
    assert set(entered(fleet, id)) == {("step", 1, 1)}
    assert (job.state.value, job.attempts, job.crashes, job.retries, job.failures) == ("succeeded", 1, 0, 0, ())
    assert fleet.app.app.AsyncResult(id).get(timeout=30) > 0


def test_dup_2_ii_a_job_whose_copies_did_nothing_completes_when_its_node_is_killed(
    redelivered: tuple[Fleet, str, Worker],
) -> None:
    fleet, id, a = redelivered
    a.kill()
    eventually(lambda: ("step", 2, 2) in entered(fleet, id), what="B runs")
    fleet.raise_flag("go")
    job = fleet.settled(id)
    assert (job.state.value, job.attempts, job.crashes) == ("succeeded", 2, 1)
    assert causes(job) == ["worker lost"]
    marks = entered(fleet, id)
    assert marks == sorted(marks)


# -- DUP-4 --------------------------------------------------------------------------------------------------------------


def test_dup_4_every_spelling_is_one_job_and_the_worker_has_the_key_of_the_publisher(standing: Fleet) -> None:
    sync, name = standing.app.sync, uuid4().hex
    first = sync.delay(name, 2)
    others = [sync.delay(name=name, n=2), sync.delay(name, n=2), sync.delay(name)]
    assert [(other.id, other.duplicate) for other in others] == [(first.id, True)] * 3
    job = standing.settled(first.id)
    assert entered(standing, first.id) == [(f"sync {job.key}", 1, 1)]
    assert headers_of(standing, first.id)[HEADER]["key"] == job.key


def test_dup_4_a_key_that_a_worker_computes_is_the_one_that_a_publisher_computes(standing: Fleet) -> None:
    """A message without the guard has no key until a worker adopts it, which sees what the serializer has made of the call."""
    name, n = uuid4().hex, {"b": (1, 2), "a": "é"}
    id = stranger(standing).send_task("tests.integration.app_faults.sync", (name, n)).id
    assert standing.settled(id).state is State.SUCCEEDED
    again = standing.app.sync.delay(n={"a": "é", "b": [1, 2]}, name=name)
    assert (again.id, again.duplicate) == (id, True)
    assert not standing.app.sync.delay(name, {**n, "a": "e\u0301"}).duplicate


def test_dup_4_the_same_key_with_another_payload_is_a_conflict_and_never_run(standing: Fleet) -> None:
    charge, order = standing.app.charge, int(uuid4())
    first = charge.delay(order, amount=1)
    assert first.get(timeout=30) == f"charged {order}"
    with pytest.raises(KeyConflict, match="other arguments") as refused:
        charge.delay(order, amount=2)
    assert refused.value.holder == first.id
    (answer,) = [result.answer for result in charge.enqueue_many([{"order": order, "amount": 2}])]
    assert answer == Conflict(answer.id, first.id, State.SUCCEEDED)
    assert standing.counted()[f"charge {order}"] == 1


def test_dup_4_a_conflict_of_the_next_step_is_a_dead_letter(standing: Fleet) -> None:
    app, order = standing.app, int(uuid4())
    holder = app.charge.delay(order, amount=1)
    assert holder.get(timeout=30) == f"charged {order}"
    refused = app.chain(app.add.s(1, 1), app.charge.si(order, amount=2)).delay()
    with pytest.raises(JobFailed, match="KeyConflict"):
        refused.get(timeout=30)
    assert refused.id in [dead["id"] for dead in typed(standing, "dlq", "list")]
    (failure,) = typed(standing, "dlq", "show", refused.id)["failures"]
    assert failure["type_name"] == "celery_guard.errors.KeyConflict"
    assert holder.id in failure["message"]
    assert standing.counted()[f"charge {order}"] == 1


def test_dup_4_a_conflict_of_a_message_without_the_guard_is_set_aside(standing: Fleet) -> None:
    app, order = standing.app, int(uuid4())
    holder = app.charge.delay(order, amount=1)
    assert holder.get(timeout=30) == f"charged {order}"
    id = stranger(standing).send_task("tests.integration.app.charge", (order, 2)).id
    with pytest.raises(KeyConflict):
        app.app.AsyncResult(id).get(timeout=30)
    (message,) = [message for message in typed(standing, "quarantine", "list") if holder.id in message["reason"]]
    reveal = ("--reveal", "--role", "admin", "--reason", "which order?")
    assert str(order) in typed(standing, "quarantine", "show", str(message["id"]), *reveal)["body"]
    assert standing.store.job(id) is None
    assert standing.counted()[f"charge {order}"] == 1
