"""The app of the tests for the outbox, the relay, connections and databases: the tasks of ``app.py``, and faults at chosen points.

What goes wrong in which process is said by its environment, so that two relays of one app can meet different fates.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl

import redis
from celery import signals
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, Pool

from celery_guard import GuardedTask
from celery_guard.store.redis.connections import Connections

from .app import FLAGS, add, app, await_flag, chain, flag, group, guard, mark, note, plain, task, wait_for

__all__ = ["FLAGS", "add", "app", "await_flag", "chain", "group", "guard", "note", "plain", "wait_for"]

#: What happens to a relay of this process between "the broker has taken them" and "they are marked as published".
BEFORE_MARK = os.environ.get("APP_BEFORE_MARK", "")


def shop() -> Engine:
    """The user's own connections to the database that the store is in."""
    return create_engine(guard.settings.store, poolclass=NullPool)


# -- the relay --------------------------------------------------------------------------------------------------------


def _before_mark(plain_sent: Callable[..., int]) -> Callable[..., int]:
    def sent(token: str, ids: Sequence[str], *rest: Any) -> int:
        mark(f"published {os.getpid()} {len(ids)}")
        if BEFORE_MARK == "die" and flag("died"):
            os.kill(os.getpid(), signal.SIGKILL)
        if BEFORE_MARK == "stop" and flag("stopped"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if BEFORE_MARK == "wait":
            await_flag("mark")
        marked = plain_sent(token, ids, *rest)
        mark(f"marked {os.getpid()} {marked}")
        return marked

    return sent


if BEFORE_MARK:
    vars(guard.store)["sent"] = _before_mark(guard.store.sent)


# -- the outbox -------------------------------------------------------------------------------------------------------


@task(base=GuardedTask, bind=True)
def look_up(self: Any, order: int) -> bool:
    """Whether the order is there by the time its job runs."""
    with shop().connect() as connection:
        found = connection.scalar(text("SELECT id FROM shop_order WHERE id = :id"), {"id": order}) is not None
    mark(f"order {order} {'found' if found else 'missing'}", self)
    return found


# -- connections to databases -------------------------------------------------------------------------------------------


def _note_session(connection: Any, record: Any, proxy: Any) -> None:
    """A connection of some pool is about to be used here: by which process, and which session of the server's it is."""
    mark(f"session {os.getpid()} {connection.info.backend_pid}")


def _note_redis_sessions() -> None:
    """The same for connections to a Redis store."""
    plain = Connections.take

    def noted(self: Connections) -> Any:
        place = plain(self)
        place.connection.send_command("CLIENT", "ID")
        mark(f"session {os.getpid()} {place.connection.read_response()}")
        return place

    Connections.take = noted  # type: ignore[method-assign]


def _touch(**_: Any) -> None:
    """The worker's main process uses the store, between forks of its children."""
    guard.store.counts()
    mark(f"parent {os.getpid()}")


if os.environ.get("APP_SESSIONS"):
    event.listen(Pool, "checkout", _note_session)
    _note_redis_sessions()
if os.environ.get("APP_PARENT_TOO"):
    signals.worker_ready.connect(_touch, weak=False)
    signals.worker_shutting_down.connect(_touch, weak=False)


@task(base=GuardedTask, bind=True)
def forks(self: Any) -> None:
    """A body that forks, and whose child uses the store too, without a word to anybody."""
    child = os.fork()
    if child == 0:
        note.delay("from a fork")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    mark(f"forks {status}", self)


@task(base=GuardedTask, bind=True, acks_late=True)
def late_note(self: Any, what: Any) -> Any:
    mark(f"late note {what}", self)
    return what


def hang_up_on_everybody() -> None:
    """Have the server close every session on the store's database, of whichever process."""
    if guard.settings.store.startswith("redis"):
        _hang_up_redis()
        return
    postgresql = guard.settings.store.startswith("postgresql")
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        if postgresql
        else "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    )
    with shop().connect() as connection:
        for (session,) in connection.execute(text(others)).all():
            if not postgresql:
                # one that has just ended by itself is fine too
                with suppress(DBAPIError):
                    connection.execute(text("KILL :id"), {"id": session})


def _hang_up_redis() -> None:
    """The store's sessions have a name in its URL."""
    place, _, query = guard.settings.store.partition("?")
    with redis.Redis.from_url(place) as client:
        for session in client.client_list():
            if session["name"] == dict(parse_qsl(query))["client_name"]:
                # one that has just ended by itself is fine too
                client.client_kill_filter(_id=session["id"])


@task(base=GuardedTask, bind=True)
def hung_up_on(self: Any, what: str) -> str:
    mark(f"hung up {what}", self)
    hang_up_on_everybody()
    return what


@task(base=GuardedTask, bind=True)
def hung_up_on_inside(self: Any) -> None:
    """The connection of its own writes is closed before they commit; once."""
    mark("writes", self)
    self.job.transaction().execute(text("INSERT INTO shop_order (id) VALUES (7)"))
    if flag("hung up"):
        hang_up_on_everybody()


@task(base=GuardedTask, bind=True)
def poisons_own_session(self: Any) -> None:
    """Leaves a session of its own as it is, in a transaction that the database has given up; and swallows why."""
    global _left_open
    _left_open = Session(shop())
    _left_open.execute(text("INSERT INTO shop_order (id) VALUES (8)"))
    with suppress(DBAPIError):
        _left_open.execute(text("SELECT 1 / 0 FROM nowhere"))
    mark("poisoned", self)


@task(base=GuardedTask, bind=True)
def poisons_its_transaction(self: Any) -> None:
    session = self.job.transaction()
    session.execute(text("INSERT INTO shop_order (id) VALUES (9)"))
    with suppress(DBAPIError):
        session.execute(text("SELECT 1 / 0 FROM nowhere"))
    mark("poisoned", self)


_left_open: Session | None = None


@task(base=GuardedTask, bind=True)
def dies_in_its_transaction(self: Any) -> None:
    """Killed once, with a write of its own that is not committed."""
    self.job.transaction().execute(text("INSERT INTO shop_order (id) VALUES (7)"))
    mark("in its transaction", self)
    if flag("died in its transaction"):
        os.kill(os.getpid(), signal.SIGKILL)
