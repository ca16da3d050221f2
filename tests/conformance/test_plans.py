"""What people ask of few jobs among many is answered from an index, as PostgreSQL plans it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.sql.selectable import Select

from celery_guard.job.state import State
from celery_guard.store import open_store
from celery_guard.store.sql.statements import people
from celery_guard.store.sql.tables import job
from celery_guard.testing.databases import database
from celery_guard.testing.services import POSTGRESQL

#: Jobs of the shop beside the few that are asked for.
MANY = 20_000

_FILL = text(
    "INSERT INTO guard_job (id, task, queue, tenant, kind, key_hash, state, created, started, keep_until) "
    "SELECT 'job-' || n, CASE WHEN n % 5000 = 0 THEN 'shop.rare' ELSE 'shop.charge' END, "
    "CASE WHEN n % 5000 = 1 THEN 'slow' ELSE 'fast' END, CASE WHEN n % 5000 = 2 THEN 'acme' ELSE 'other' END, "
    "'run', md5(CAST(n AS TEXT)), 'succeeded', n, n, n FROM generate_series(1, :many) n"
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


def asked(states: tuple[State, ...] = (), older: int | None = None, **wanted: str) -> Select[Any]:
    return people.jobs(states, list(wanted.items()), [("created", older, None)], 50, None, job.c.id)


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (asked(task="shop.rare"), "guard_job_task"),
        (asked(task="shop.rare", states=(State.SUCCEEDED,)), "guard_job_task"),
        (asked(tenant="acme"), "guard_job_tenant"),
        (asked(key_hash="c4ca4238a0b923820dcc509a6f75849b"), "guard_job_key"),
        (asked(states=(State.DEAD,)), "guard_job_cause"),
        (asked(states=(State.DEAD,), cause="c0ffee"), "guard_job_cause"),
        (asked(), "guard_job_created"),
        (people.last_start("slow"), "guard_job_started"),
        (people.backlog(State.PENDING, 1000), "guard_job_due"),
        (people.backlog(State.SENT, 1000), "guard_job_due"),
    ],
    ids=["task", "task and state", "tenant", "key", "dead", "cause", "newest", "last start", "due", "published"],
)
def test_few_jobs_are_found_by_an_index(many: Engine, statement: Select[Any], index: str) -> None:
    planned = plan(many, statement)
    assert index in planned, planned
    assert "Seq Scan" not in planned, planned
