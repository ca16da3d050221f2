"""Sessions on Django's database that end before their time."""

from __future__ import annotations

from django.db import connection, connections

__all__ = ["end_my_session", "sessions"]

_MINE = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
_END = {"postgresql": "SELECT pg_terminate_backend(%s)", "mysql": "KILL %s"}


def end_my_session() -> None:
    """Have the server end the session of Django's connection of this thread, which does not know it yet."""
    with connection.cursor() as cursor:
        cursor.execute(_MINE[connection.vendor])
        session = cursor.fetchone()
    killer = connections.create_connection("default")
    with killer.cursor() as cursor:
        cursor.execute(_END[connection.vendor], session)
    killer.close()


def sessions() -> int:
    """How many sessions PostgreSQL has on Django's database, this one included."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])
