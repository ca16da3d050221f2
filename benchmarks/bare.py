"""The least that two round trips cost: what no guard that claims and settles can be faster than, in this language and on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

__all__ = ["asking", "prepare"]


def prepare(url: str) -> None:
    """Make what :func:`asking` writes to."""
    if not url.startswith("redis"):
        with _connection(url) as connection:
            connection.execute("CREATE TABLE bench_bare (process integer PRIMARY KEY, asked bigint NOT NULL)")


def asking(url: str) -> Callable[[], None]:
    """One write of one number, for good before it is answered, through the driver that the store uses, on a connection of this process's own."""
    return _redis(url) if url.startswith("redis") else _postgresql(url)


def _redis(url: str) -> Callable[[], None]:
    from celery_guard.store.redis.address import address
    from celery_guard.store.redis.connections import Connections

    place = Connections({**address(url).options, "protocol": 2}, most=1, timeout=5).take()
    command = "HINCRBY", "bench_bare", os.getpid(), 1

    def ask() -> None:
        place.connection.send_command(*command)
        place.connection.read_response()

    return ask


def _postgresql(url: str) -> Callable[[], None]:
    connection = _connection(url)
    cursor, mine = connection.cursor(), (os.getpid(),)
    cursor.execute("INSERT INTO bench_bare VALUES (%s, 0)", mine)
    words = "UPDATE bench_bare SET asked = asked + 1 WHERE process = %s RETURNING asked"

    def ask() -> None:
        cursor.execute(words, mine, prepare=True)
        cursor.fetchall()

    return ask


def _connection(url: str) -> Any:
    import psycopg

    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
