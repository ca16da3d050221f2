"""Whoever waits on a connection that carries nothing any more is told within half a minute."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from typing import Any

import pytest

from celery_guard.store.patience import Patience
from celery_guard.store.sql.database import Database

OPTIONS = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


def options(connection: Any) -> list[int]:
    descriptor = getattr(connection, "_sock", connection).fileno()
    with socket.socket(fileno=os.dup(descriptor)) as end:
        found = [end.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in OPTIONS]
        return [end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), *found]


def opened(url: str) -> Database:
    return Database(url, pool_size=1, pool_timeout=5, patience=Patience())


@pytest.fixture(params=["postgresql", "mariadb"])
def server_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.mark.skipif(not all(hasattr(socket, name) for name in OPTIONS), reason="needs Linux's options of TCP")
def test_a_connection_that_has_gone_silent_is_given_up_in_half_a_minute(server_url: str) -> None:
    database = opened(server_url)
    expected = [1, 10, 5, 3, 30_000]
    for engine in (database.engine, database.bodies):
        with engine.connect() as connection:
            assert options(connection.connection.driver_connection) == expected
        engine.dispose()
    with closing(database.connect()) as listening:
        assert options(listening) == expected


def test_a_default_timeout_of_the_process_changes_no_connection(server_url: str) -> None:
    """Celery's beat has one; Python makes each new object for a socket non-blocking then, and the driver's connection with it."""
    patient = "SELECT pg_sleep(0.3)" if server_url.startswith("postgres") else "SELECT SLEEP(0.3)"
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)
    try:
        database = opened(server_url)
        with database.engine.connect() as connection:
            connection.exec_driver_sql(patient)
        database.engine.dispose()
    finally:
        socket.setdefaulttimeout(before)


def test_what_the_url_says_about_silence_is_left_alone(postgresql_url: str) -> None:
    database = opened(f"{postgresql_url}?keepalives_idle=77&tcp_user_timeout=9000")
    with closing(database.connect()) as connection:
        assert options(connection)[1::3] == [77, 9000]


def test_a_connection_that_is_no_socket_has_nothing_to_notice(sqlite_url: str) -> None:
    with closing(opened(sqlite_url).connect()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
