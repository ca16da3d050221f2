"""What people ask of few jobs among many is answered from an index, as PostgreSQL plans it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.sql.selectable import Select

from celery_guard.job.state import STANDING, State
from celery_guard.job.verdict import Granted
from celery_guard.store import open_store
from celery_guard.store.sql.statements import listing, people
from celery_guard.store.sql.tables import job
from celery_guard.testing.conformance.builders import LONG, keyed, succeeded
from celery_guard.testing.databases import database
from celery_guard.testing.services import POSTGRESQL

#: Jobs of the shop beside the few that are asked for; all have ended and are counted but for one in a hundred of each kind.
MANY = 20_000

STILL_MOVING = ("guard_job_waiting", "guard_job_due", "guard_job_cause", "guard_job_uncounted")
LISTINGS = ("guard_job_created", "guard_job_key", "guard_job_started", "guard_job_task", "guard_job_tenant")

_FILL = text(
    "INSERT INTO guard_job (id, task, queue, tenant, kind, key_hash, state, counted, created, due, started, finished, keep_until) "
    "SELECT 'job-' || n, CASE WHEN n % 5000 = 0 THEN 'shop.rare' ELSE 'shop.charge' END, "
    "CASE WHEN n % 5000 = 1 THEN 'slow' ELSE 'fast' END, CASE WHEN n % 5000 = 2 THEN 'acme' ELSE 'other' END, "
    "'run', md5(CAST(n AS TEXT)), CASE n % 100 WHEN 0 THEN 'pending' WHEN 1 THEN 'sent' WHEN 2 THEN 'running' ELSE 'succeeded' END, "
    "CASE WHEN n % 100 <= 3 THEN 0 ELSE -1 END, n, CASE WHEN n % 100 <= 2 THEN n END, n, "
    "CASE WHEN n % 100 > 2 THEN n END, CASE WHEN n % 100 > 2 THEN n END FROM generate_series(1, :many) n"
)


@pytest.fixture(scope="module")
def many() -> Iterator[Engine]:
    """A store with many jobs in it."""
    with database(POSTGRESQL.need()) as url:
        store = open_store(url)
        store.upgrade()
        store.close()
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(_FILL, {"many": MANY})
            connection.execute(text("ANALYZE guard_job"))
        yield engine
        engine.dispose()


def plan(engine: Engine, statement: Select[Any]) -> str:
    """How PostgreSQL would answer."""
    with engine.connect() as connection:
        text_of = statement.compile(engine, compile_kwargs={"literal_binds": True})
        return "\n".join(connection.exec_driver_sql(f"EXPLAIN {text_of}".replace("%", "%%")).scalars())


def asked(
    states: tuple[State, ...] = (), older: int | None = None, after: str | None = None, **wanted: str
) -> Select[Any]:
    return listing.jobs(states, list(wanted.items()), [("created", older, None)], 50, after, job.c.id, apart=True)


@pytest.mark.parametrize(
    ("statement", "indexes"),
    [
        (asked(task="shop.rare"), ("guard_job_task", *STILL_MOVING)),
        (asked(task="shop.rare", states=(State.SUCCEEDED,)), ("guard_job_task", "guard_job_uncounted")),
        (asked(tenant="acme"), ("guard_job_tenant", *STILL_MOVING)),
        (asked(key_hash="c4ca4238a0b923820dcc509a6f75849b"), ("guard_job_key", *STILL_MOVING)),
        (asked(states=(State.DEAD,)), ("guard_job_cause",)),
        (asked(states=(State.DEAD,), cause="c0ffee"), ("guard_job_cause",)),
        (asked(states=(State.PENDING, State.SENT)), ("guard_job_waiting",)),
        (asked(states=(State.RUNNING,)), ("guard_job_due",)),
        (asked(states=(State.UNKNOWN,)), ("guard_job_cause",)),
        (asked(), ("guard_job_created", *STILL_MOVING)),
        (asked(after="job-10000"), ("guard_job_created", *STILL_MOVING)),
        (listing.last_start("slow", apart=True), ("guard_job_started", "guard_job_due", "guard_job_uncounted")),
        (listing.counts("acme", (), apart=True), ("guard_job_tenant", *STILL_MOVING)),
        (listing.counts(None, STANDING, apart=True), ("guard_job_due", "guard_job_cause")),
        (listing.counts("acme", STANDING, apart=True), ("guard_job_due", "guard_job_cause")),
        (people.backlog(State.PENDING, 1000), ("guard_job_due",)),
        (people.backlog(State.SENT, 1000), ("guard_job_due",)),
    ],
    ids=[
        "task", "task and state", "tenant", "key", "dead", "cause", "waiting", "running", "unknown", "newest", "a later page", "last start", "counts",
        "what stands", "what stands of a tenant", "due", "published",
    ],
)  # fmt: skip
def test_few_jobs_are_found_by_an_index(many: Engine, statement: Select[Any], indexes: tuple[str, ...]) -> None:
    planned = plan(many, statement)
    for index in indexes:
        assert index in planned, planned
    assert "Seq Scan" not in planned, planned


def test_a_job_is_in_no_index_of_the_listings_until_it_is_written_no_more() -> None:
    """Or PostgreSQL would enter it again with each of its writes."""
    with database(POSTGRESQL.need()) as url:
        store = open_store(url)
        store.upgrade()
        engine = create_engine(url)
        new = keyed("order 1", tenant="acme", queue="fast")
        store.enqueue([new])
        [taken] = store.take("relay", 1, LONG)
        store.sent("relay", [taken.id], LONG)
        granted = store.claim(new.id, "worker", LONG)
        assert isinstance(granted, Granted)
        assert store.settle(succeeded(granted))
        assert pages(engine) == dict.fromkeys(LISTINGS, 1), "an index with an entry has a second page"
        assert store.fold(10)
        assert pages(engine) == dict.fromkeys(LISTINGS, 2)
        engine.dispose()
        store.close()


def pages(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        size = text("SELECT pg_relation_size(CAST(:name AS regclass)) / current_setting('block_size')::int")
        return {name: connection.execute(size, {"name": name}).scalar_one() for name in LISTINGS}
