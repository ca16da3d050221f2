"""The report: what was measured on what, as JSON."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

import psycopg
import redis

from celery_guard.testing.services import POSTGRESQL

from .lab import CONCURRENCY, Lab

__all__ = ["machine"]

_PACKAGES = ("celery-guard", "celery", "kombu", "billiard", "redis", "amqp", "psycopg", "sqlalchemy")


def machine(lab: Lab) -> dict[str, Any]:
    """Where and on what it was measured, and how busy the machine was with other things."""
    return {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "load_before": round(os.getloadavg()[0], 1),
        "pool": f"prefork -c {CONCURRENCY}",
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in _PACKAGES},
            **_servers(lab),
        },
        "postgresql": _settings(),
    }


def _servers(lab: Lab) -> dict[str, str]:
    with redis.Redis.from_url(lab.redis + "0") as client:
        found = {"Redis": str(client.info("server")["redis_version"])}
    with _postgresql() as connection:
        found["PostgreSQL"] = f"{connection.info.server_version // 10000}.{connection.info.server_version % 10000}"
    return found


def _settings() -> dict[str, str]:
    names = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers")
    with _postgresql() as connection:
        rows = connection.execute(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)", [list(names)]
        )
        return dict(rows.fetchall())


def _postgresql() -> Any:
    return psycopg.connect(POSTGRESQL.need().replace("+psycopg", ""))
