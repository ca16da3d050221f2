"""Transactions of somebody else's program, with SQLAlchemy, on the database of the store that is examined; and a watch on its moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
import redis
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from celery_guard.job.state import LEGAL, State
from celery_guard.store.protocol import Store
from celery_guard.store.redis import scripts
from celery_guard.testing.conformance.subject import Subject
from celery_guard.testing.databases import database

_INSERT = text("INSERT INTO shop_note (words) VALUES (:words)")


def _engine(url: str) -> Engine:
    # prepared statements are a session's, which a pooler hands around
    options = {"connect_args": {"prepare_threshold": None}} if url.startswith("postgresql") else {}
    engine = create_engine(url, poolclass=NullPool, **options)
    if engine.dialect.name == "sqlite":
        # Savepoints as SQLite has them need a BEGIN that Python's driver does not send.
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS shop_note (words VARCHAR(80))"))
    return engine


class _Program:
    """A caller that works with a connection, or with a session."""

    def __init__(self, transaction: Connection | Session) -> None:
        self.transaction = transaction

    def write(self, words: str) -> None:
        self.transaction.execute(_INSERT, {"words": words})

    def savepoint(self) -> AbstractContextManager[object]:
        return self.transaction.begin_nested()

    def commit(self) -> None:
        self.transaction.commit()

    def rollback(self) -> None:
        self.transaction.rollback()


class _Programs:
    """Where callers come from."""

    def __init__(self, kind: str, url: str, strange_urls: tuple[str, str], closing: ExitStack) -> None:
        self._kind = kind
        self._engine = _engine(url)
        self._strange_urls = strange_urls
        self._closing = closing
        with self._engine.begin() as connection:
            connection.execute(text("DELETE FROM shop_note"))

    def __call__(self) -> _Program:
        return self._program(self._engine)

    def stranger(self, *, guarded: bool) -> _Program:
        return self._program(_engine(self._strange_urls[guarded]))

    def autocommitting(self) -> _Program:
        return self._program(create_engine(self._engine.url, poolclass=NullPool, isolation_level="AUTOCOMMIT"))

    def write_with(self, session: Session, words: str) -> None:
        session.execute(_INSERT, {"words": words})

    def written(self) -> list[str]:
        with self._engine.connect() as connection:
            return list(connection.execute(text("SELECT words FROM shop_note")).scalars())

    def _program(self, engine: Engine) -> _Program:
        transaction = Session(engine) if self._kind == "session" else engine.connect()
        self._closing.callback(transaction.close)
        return _Program(transaction)


@pytest.fixture(params=["session", "connection"])
def caller(request: pytest.FixtureRequest, subject: Subject, strange_urls: tuple[str, str]) -> Iterator[_Programs]:
    """Callers with an ORM session, and with a connection."""
    with ExitStack() as closing:
        yield _Programs(request.param, subject.url, strange_urls, closing)


@pytest.fixture(scope="module")
def strange_urls(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two databases that are not the store's: one that knows no guard, one with a store of its own."""
    with ExitStack() as dropping:
        if subject.url.startswith("sqlite"):
            files = tmp_path_factory.mktemp("strange")
            bare, guarded = f"sqlite:///{files / 'bare.db'}", f"sqlite:///{files / 'guarded.db'}"
        else:
            bare, guarded = (dropping.enter_context(database(subject.url)) for _ in range(2))
        other = subject.open(guarded)
        other.upgrade()
        other.close()
        yield bare, guarded


Watch = Callable[[], set[tuple[str, str]]]

#: The database itself notes each move of a job, whoever makes it.
_WATCH = {
    "sqlite": (
        (
            "CREATE TRIGGER IF NOT EXISTS watch_moves AFTER UPDATE OF state ON guard_job"
            " BEGIN INSERT INTO seen_move (was, became) VALUES (OLD.state, NEW.state); END"
        ),
    ),
    "postgresql": (
        (
            "CREATE OR REPLACE FUNCTION watch_moves() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN INSERT INTO seen_move (was, became) VALUES (OLD.state, NEW.state); RETURN NULL; END'"
        ),
        # CREATE OR REPLACE TRIGGER is PostgreSQL 14's.
        "DROP TRIGGER IF EXISTS watch_moves ON guard_job",
        "CREATE TRIGGER watch_moves AFTER UPDATE OF state ON guard_job FOR EACH ROW EXECUTE FUNCTION watch_moves()",
    ),
    "mysql": (
        "DROP TRIGGER IF EXISTS watch_moves",
        (
            "CREATE TRIGGER watch_moves AFTER UPDATE ON guard_job FOR EACH ROW"
            " INSERT INTO seen_move (was, became) SELECT OLD.state, NEW.state FROM DUAL WHERE OLD.state <> NEW.state"
        ),
    ),
}


@pytest.fixture(scope="module")
def watched(subject: Subject, opened_store: Store) -> Iterator[Watch | None]:
    """What says how jobs have moved since it was last asked; None where the store's database cannot note it."""
    if subject.url.startswith("redis"):
        yield from _watched_redis(subject.url)
        return
    engine = create_engine(subject.url, poolclass=NullPool)
    watch = _WATCH.get(engine.dialect.name)
    if watch is None:
        yield None
        return
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS seen_move (was VARCHAR(20), became VARCHAR(20))"))
        for statement in watch:
            connection.execute(text(statement))

    def seen() -> set[tuple[str, str]]:
        with engine.begin() as connection:
            moves = {(was, became) for was, became in connection.execute(text("SELECT * FROM seen_move"))}
            connection.execute(text("DELETE FROM seen_move"))
        return moves

    yield seen
    with engine.begin() as connection:
        on = " ON guard_job" if engine.dialect.name == "postgresql" else ""
        connection.execute(text(f"DROP TRIGGER watch_moves{on}"))
    engine.dispose()


def _watched_redis(url: str) -> Iterator[Watch]:
    """The scripts themselves note each move, where the one function that writes rows has found one."""
    found = "if to.state and to.state ~= row.state then\n        if row.state then\n"
    note = found + "            redis.call('SADD', STORE .. 'seen', row.state .. ' ' .. to.state)\n"
    plain = scripts._read
    assert found in plain("row"), "the place where a move is written was not found"
    scripts.script.cache_clear()
    scripts._read = lambda name: plain(name).replace(found, note)
    place, _, name = url.partition("?name=")
    with redis.Redis.from_url(place) as client:

        def seen() -> set[tuple[str, str]]:
            words = client.smembers(f"{{guard:{name}}}:seen")
            client.delete(f"{{guard:{name}}}:seen")
            return {(was, became) for was, became in (word.decode().split() for word in words)}

        yield seen
    scripts._read = plain
    scripts.script.cache_clear()


@pytest.fixture(autouse=True)
def legal_moves(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test of a store also proves this: no job moved in a way that ``job.state`` does not list."""
    if "subject" not in request.fixturenames:
        yield
        return
    watch: Watch | None = request.getfixturevalue("watched")
    yield
    if watch is None:
        return
    seen = {(State(was), State(became)) for was, became in watch()}
    illegal = {move for move in seen if move not in LEGAL and move[0] is not move[1]}
    assert not illegal, f"not among the legal moves of job.state: {sorted(illegal)}"
