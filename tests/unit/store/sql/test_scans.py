"""What relay and sweep look for is found in the index of what is due, however many jobs have ended."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, text
from sqlalchemy.engine import Connection
from sqlalchemy.sql.selectable import Select

from celery_guard.job.state import State
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql.statements import relay, sweep
from celery_guard.store.sql.tables import job

_ANALYZE = {"sqlite": "ANALYZE", "postgresql": "ANALYZE guard_job", "mysql": "ANALYZE TABLE guard_job"}
_EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN", "mysql": "EXPLAIN"}

_SEARCHES = {
    "what waits": relay.candidates(True, 100, False),
    "what was not told": relay.candidates(False, 100, False),
    "the next of each": relay.next_due(),
    "what has lapsed": sweep.overdue(State.RUNNING, 100),
    "what may be lost": sweep.overdue(State.SENT, 100),
}


@pytest.fixture
def crowded(store: SqlStore) -> SqlStore:
    """A store where two thousand jobs have ended and a few are due."""
    common = {"task": "t", "queue": "q", "kind": "run", "created": 1}
    rows = [
        {
            **common,
            "id": f"ended {n}",
            "state": "succeeded" if n % 2 else "dead",
            "told": 1,
            "due": None,
            "keep_until": 2**53,
        }
        for n in range(2000)
    ]
    rows += [
        {**common, "id": f"{state} {n}", "state": state, "told": 0, "due": n + 1, "keep_until": None}
        for state in ("pending", "sent", "running")
        for n in range(5)
    ]
    with store._database.engine.connect() as connection:
        connection.execute(insert(job), rows)
        connection.execute(text(_ANALYZE[connection.dialect.name]))
    return store


def _plan(connection: Connection, search: Select[object]) -> str:
    sql = str(search.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True}))
    name = connection.dialect.name
    rows = connection.exec_driver_sql(f"{_EXPLAIN[name]} {sql}").fetchall()
    return "\n".join(str(tuple(row)) for row in rows)


@pytest.mark.parametrize("search", _SEARCHES.values(), ids=_SEARCHES.keys())
def test_a_search_for_what_is_due_reads_the_index_of_what_is_due(crowded: SqlStore, search: Select[object]) -> None:
    with crowded._database.engine.connect() as connection:
        plan = _plan(connection, search)
    assert "guard_job_due" in plan
    assert "Seq Scan on guard_job" not in plan
    assert "SCAN guard_job" not in plan
    assert "'ALL'" not in plan
