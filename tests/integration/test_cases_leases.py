"""LOCK: what is held is a short lease that is kept alive, fenced, and judged by the store's clock."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from celery_guard.job.row import Job
from celery_guard.job.state import State
from celery_guard.job.verdict import Duplicate

from .faults import APP, entered, found, ignored, received, stranger, typed
from .fleet import Fleet, Worker, eventually

pytestmark = pytest.mark.integration

ON_BOTH = pytest.mark.parametrize("stack", ["redis-postgresql", "redis-redis"])


def number() -> int:
    """One that no other test uses as a key."""
    return uuid4().int >> 80


def two_nodes(fleet: Fleet, concurrency: int, *environments: dict[str, str]) -> list[Worker]:
    """Started together."""
    nodes = [
        fleet.worker("prefork", concurrency, ready=False, **environment) for environment in environments or ({}, {})
    ]
    return [node.ready() for node in nodes]


def owner_first(nodes: list[Worker], id: str) -> list[Worker]:
    """The node that has had the job, then the other."""
    return sorted(nodes, key=lambda node: received(node, id), reverse=True)


def classes(job: Job) -> list[tuple[int, str]]:
    """(fence, class) of each failure."""
    return [(failure.fence, failure.failure_class) for failure in job.failures]


# -- LOCK-1 -------------------------------------------------------------------------------------------------------------


def test_lock_1_a_held_key_says_who_holds_it_and_until_when_and_an_operator_frees_it(standing: Fleet) -> None:
    unique, n = standing.app.unique, number()
    first = unique.delay(n, how="waits")
    standing.until(first.id, "running")
    refused = unique.delay(n)
    assert (refused.duplicate, refused.answer) == (True, Duplicate(refused.answer.id, first.id, State.RUNNING))
    shown = typed(standing, "jobs", "show", first.id)
    assert shown["key"] == found(standing, first.id).key
    assert shown["owner"]
    assert shown["started"] < shown["due"]
    (answer,) = typed(standing, "jobs", "cancel", first.id, "--reason", "test")
    assert answer["answer"] == "asked"
    assert standing.settled(first.id).state is State.CANCELLED
    assert unique.delay(n).get(timeout=30) == "well"


@pytest.mark.parametrize(("how", "reason"), [("sigkill", "crashed"), ("hook", "failed")])
def test_lock_1_a_key_is_free_once_its_holder_is_dead(standing: Fleet, how: str, reason: str) -> None:
    unique, n = standing.app.unique, number()
    first = unique.delay(n, how=how)
    job = standing.settled(first.id)
    assert (job.state.value, job.reason.value) == ("dead", reason)
    second = unique.delay(n)
    assert (second.get(timeout=30), second.duplicate) == ("well", False)


def test_lock_1_a_key_is_free_after_its_holders_node_was_killed(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet("redis-postgresql", APP)
    node = fleet.worker("prefork", 1)
    unique, n = fleet.app.unique, number()
    first = unique.delay(n, how="waits")
    fleet.until(first.id, "running")
    node.kill()
    relay = fleet.app.guard.relay()
    eventually(relay.sweep, what="the sweep finds the lapsed lease")
    job = found(fleet, first.id)
    assert (job.state.value, job.reason and job.reason.value) == ("dead", "crashed")
    assert not unique.delay(n).duplicate


def test_lock_1_a_key_is_free_at_once_where_the_hard_limit_is_seen(standing: Fleet) -> None:
    """By the process that is ended: its lease has an hour to go."""
    unique, n = standing.app.unique_for_long, number()
    first = unique.apply_async((n,), {"how": "hangs"}, time_limit=1)
    job = standing.settled(first.id)
    assert (job.state.value, job.reason.value) == ("dead", "time_limit")
    assert unique.delay(n).get(timeout=30) == "well"


def test_lock_1_a_key_is_free_at_once_when_its_holder_is_revoked_before_it_starts(standing: Fleet) -> None:
    unique, n = standing.app.unique_for_long, number()
    first = unique.apply_async((n,), countdown=3600)
    first.revoke()
    assert standing.state(first.id) == "cancelled"
    assert unique.delay(n).get(timeout=30) == "well"
    assert entered(standing, first.id) == []


def test_lock_1_arguments_that_do_not_fit_hold_no_key(standing: Fleet) -> None:
    """Neither where the guard is asked, nor in a message that was sent without it."""
    unique, n = standing.app.unique_for_long, number()
    with pytest.raises(TypeError, match="nonsense"):
        unique.delay(n, nonsense=1)
    id = stranger(standing).send_task(unique.name, (n,), {"nonsense": 1}).id
    with pytest.raises(TypeError, match="nonsense"):
        standing.app.app.AsyncResult(id).get(timeout=30)
    assert any("nonsense" in message["reason"] for message in typed(standing, "quarantine", "list"))
    assert unique.delay(n).get(timeout=30) == "well"


# -- LOCK-2 -------------------------------------------------------------------------------------------------------------


def effects_of(fleet: Fleet) -> Engine | None:
    """A table of the bodies' own in the store's database; none where the store does not take their writes."""
    if "G5" in fleet.store.limits:
        return None
    engine = create_engine(fleet.environment["CELERY_GUARD_STORE"], poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE effects (fence INTEGER)"))
    return engine


@ON_BOTH
def test_lock_2_an_owner_that_wakes_up_after_its_lease_changes_nothing(
    stack: str, make_fleet: Callable[..., Fleet]
) -> None:
    fleet = make_fleet(stack, APP)
    engine = effects_of(fleet)
    nodes = two_nodes(fleet, 2)
    id = fleet.app.writes.delay().id
    eventually(lambda: entered(fleet, id), what="A runs")
    a, b = owner_first(nodes, id)
    a.pause()
    eventually(lambda: ("writes", 2, 2) in entered(fleet, id), what="B has taken over")
    stranger(fleet).send_task(fleet.app.writes.name, (), task_id=id)
    eventually(lambda: ignored(b, id), what="C does not start")

    fleet.raise_flag("write-1")
    a.resume()
    eventually(lambda: (1, "superseded") in classes(found(fleet, id)), what="A's attempt is noted")
    job = found(fleet, id)
    assert (job.state.value, job.fence, job.cancel) == ("running", 2, False)
    assert classes(job) == [(1, "unknown"), (1, "superseded")]  # found lost, and then refused

    fleet.raise_flag("write-2")
    job = fleet.settled(id)
    assert (job.state.value, job.fence, len(job.failures)) == ("succeeded", 2, 2)
    assert fleet.app.app.AsyncResult(id).get(timeout=30) == 2
    assert entered(fleet, id) == [
        ("writes", 1, 1),
        ("writes", 2, 2),
        ("owned: False", 1, 1),
        ("owned: True", 2, 2),
    ]
    if engine is not None:
        with engine.begin() as connection:
            assert connection.execute(text("SELECT fence FROM effects")).scalars().all() == [2]
            connection.execute(text("DROP TABLE effects"))


# -- LOCK-3 -------------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_lock_3_nodes_whose_clocks_are_minutes_apart_take_nothing_early_and_take_over(
    stack: str, make_fleet: Callable[..., Fleet]
) -> None:
    fleet = make_fleet(stack, APP)
    nodes = two_nodes(fleet, 1, {"APP_SKEW": "-180"}, {"APP_SKEW": "180"})
    id = fleet.app.holds.delay("done").id
    eventually(lambda: entered(fleet, id), what="A runs")
    a, b = owner_first(nodes, id)
    ends = found(fleet, id).due
    eventually(lambda: found(fleet, id).due != ends, what="A has renewed its lease")
    for _ in range(3):  # one of them may wait in A, which is busy
        stranger(fleet).send_task(fleet.app.holds.name, ("done",), task_id=id)
    eventually(lambda: ignored(b, id), what="B takes nothing")
    assert entered(fleet, id) == [("holds", 1, 1)]

    a.kill()
    eventually(lambda: ("holds", 2, 2) in entered(fleet, id), what="B has taken over")
    fleet.raise_flag("done")
    assert fleet.settled(id).state is State.SUCCEEDED
    eventually(lambda: "the clock of the publisher" in a.output() + b.output(), what="the publisher is warned about")
