"""Whether finished jobs are in the way of the others: the same work beside an empty table and beside a full one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import psycopg

from .cost import Cost
from .lab import Lab, Side
from .options import Options
from .rounds import compare

__all__ = ["throughput"]

#: Finished an hour ago, told, counted, and kept for a week: what a busy system holds most of.
_JOBS = """
INSERT INTO guard_job
    (id, task, queue, kind, state, fence, attempts, told, created, sent, started, finished, keep_until, counted, root_id,
     correlation_id)
SELECT 'done-' || n, 'benchmarks.app.nothing', 'bench', 'run', 'succeeded', 1, 1, 1,
       t.now + n, t.now + n, t.now + n, t.now + n, t.now + 604800000000 + n, -1, 'done-' || n, 'done-' || n
FROM generate_series(1, %s) AS n,
     (SELECT CAST(EXTRACT(EPOCH FROM now()) * 1000000 AS BIGINT) - 3600000000 AS now) AS t
"""
_PAYLOADS = """
INSERT INTO guard_payload (job, generation, body, headers, delivery)
SELECT 'done-' || n, 0, '[[], {"number": 1}, {}]', repeat('h', 100), repeat('d', 100) FROM generate_series(1, %s) AS n
"""


def throughput(lab: Lab, options: Options) -> dict[str, Any]:
    """Relay and worker together, from rows to finished jobs. What stands under "plain" is the empty table."""
    with ExitStack() as stack:
        empty, full = (stack.enter_context(lab.side("guarded", "redis", "postgresql")) for _ in range(2))
        _fill(full, options.finished)

        def drain(side: Side) -> Cost:
            side.inside("rows", options.jobs)
            return side.drain(options.jobs, relay=True)

        return compare(
            options.rounds, lambda: drain(empty), lambda: drain(full), relay="in the worker", results="ignored",
            finished=options.finished,
        )  # fmt: skip


def _fill(side: Side, finished: int) -> None:
    with psycopg.connect(side.store_url.replace("+psycopg", ""), autocommit=True) as connection:
        # only of this session, and of rows that nobody will miss
        connection.execute("SET synchronous_commit = off")
        for statement in (_JOBS, _PAYLOADS):
            connection.execute(statement, [finished])
        connection.execute("VACUUM ANALYZE guard_job")
        connection.execute("VACUUM ANALYZE guard_payload")
        # what so many rows leave the server to do is not measured with the work
        connection.execute("CHECKPOINT")
