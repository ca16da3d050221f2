"""What relay and sweep look for is found in an index, however many jobs have ended, and however large a replay is."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, text
from sqlalchemy.engine import Connection
from sqlalchemy.sql.selectable import Select

from celery_guard.job.replay import SAME_CAUSE
from celery_guard.job.state import State
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql.statement import Statement
from celery_guard.store.sql.statements import relay, replays, sweep
from celery_guard.store.sql.tables import job, replay

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


@pytest.mark.parametrize(
    ("statement", "values", "indexes"),
    [
        (relay.take_at_once, {"token_": "t", "limit_": 3, "hold_": 1}, {"guard_job_due", "guard_job_pkey", "guard_payload_pkey"}),
        (relay.mark_at_once, {"token_": "t", "ids_": ["pending 1", "pending 2"], "pause_": 1, "part_": "p"}, {"guard_job_pkey"}),
    ],
    ids=["take", "mark"],
)  # fmt: skip
def test_what_postgresql_does_at_once_reads_no_table(
    crowded: SqlStore, statement: Statement, values: dict[str, object], indexes: set[str]
) -> None:
    if crowded._database.traits.name != "postgresql":
        pytest.skip("several statements there")
    text = crowded._database.texts.of(statement)
    with crowded._database.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN {text.sql}", text.parameters(values)).fetchall()
    words = "\n".join(str(row[0]) for row in plan)
    for whole_tables in ("Seq Scan", "Hash Join", "Merge Join", "Join Filter"):
        assert whole_tables not in words, words
    assert {index for index in indexes if index in words} == indexes, words


@pytest.fixture
def long(store: SqlStore) -> SqlStore:
    """A replay of five thousand jobs, half of which have succeeded, in its twentieth wave."""
    common = {"batch": "r", "actor": "ann", "reason": "", "created": 1}
    rows = [
        {**common, "job": f"job {n}", "position": n, "state": "succeeded" if n < 2500 else "waiting", "wave": n // 125 if n < 2500 else None}
        for n in range(5000)
    ]  # fmt: skip
    rows += [{**common, "batch": f"r {n}", "job": "j", "position": 0, "state": "failed", "wave": 1} for n in range(100)]
    with store._database.engine.connect() as connection:
        connection.execute(insert(replay), rows)
        connection.execute(text(_ANALYZE[connection.dialect.name].replace("guard_job", "guard_replay")))
    return store


@pytest.mark.parametrize(
    ("look", "index"),
    [(replays.wave_counts("r", 20), "guard_replay_wave"), (replays.standing("r", 1, SAME_CAUSE), "guard_replay_")],
    ids=["a wave", "the rest"],
)
def test_a_step_of_a_replay_reads_its_wave_and_not_its_set(long: SqlStore, look: Select[object], index: str) -> None:
    with long._database.engine.connect() as connection:
        plan = _plan(connection, look)
    assert index in plan, plan
    assert "Seq Scan" not in plan, plan
    assert "SCAN guard_replay" not in plan, plan
    assert "'guard_replay', 'ALL'" not in plan, plan
    assert "'PRIMARY', '" not in plan, "all that is in the replay: " + plan
