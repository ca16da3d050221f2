"""What a job takes in bytes: its message, its rows, and what PostgreSQL writes ahead for it (with full pages, as by default)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import psycopg

from celery_guard.testing.servers import private_postgresql

from .lab import Lab
from .options import Options

__all__ = ["of_a_job"]

_SIZES = """
SELECT avg(pg_column_size(guard_job.*)), (SELECT avg(pg_column_size(guard_payload.*)) FROM guard_payload) FROM guard_job
"""
_WRITTEN = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"


def of_a_job(lab: Lab, options: Options) -> dict[str, Any]:
    """On a server of its own, since nobody else may write meanwhile. The ratio is that of the message: guarded by plain."""
    jobs = min(options.jobs, 2_000)
    with lab.side("plain", "redis", "redis") as plain:
        message = plain.inside("size")
    with private_postgresql() as server, lab.side("guarded", "redis", server.start().url) as side:
        with psycopg.connect(side.store_url.replace("+psycopg", ""), autocommit=True) as connection:

            def written() -> float:
                return float(connection.execute(_WRITTEN).fetchall()[0][0])

            marks = [written()]
            side.inside("loop", jobs)
            marks.append(written())
            side.inside("relay")
            marks.append(written())
            side.drain(jobs, relay=False)
            marks.append(written())
            row, payload = connection.execute(_SIZES).fetchall()[0]
        # last: its message is taken by nobody who would run it
        guarded = side.inside("size")
    enqueue, relay, attempt = (round((after - before) / jobs) for before, after in pairwise(marks))
    return {
        "ratio": guarded / message, "message": {"plain": message, "guarded": guarded},
        "rows": {"job": round(float(row)), "payload": round(float(payload))},
        "wal": {"enqueue": enqueue, "relay": relay, "attempt": attempt}, "jobs": jobs, "relay": "measured", "results": "ignored",
    }  # fmt: skip
