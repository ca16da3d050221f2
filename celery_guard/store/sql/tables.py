"""The tables: one narrow row that moves, and rows beside it that are written once.

Instants are integers, microseconds since the epoch by the database's clock (:mod:`.clock`). ``due`` is the one instant
at which somebody has to look at a job again; what for, its state says (:mod:`celery_guard.job.state`). A job that is
over has no ``due``, and so is in none of the indexes that relay and sweep read, however many such jobs there are.

There are no foreign keys: the payload is written before the job, so that a caller whose connection is in autocommit
never shows a job without its message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import mysql

from celery_guard.job.state import State

__all__ = [
    "STARTED_BEFORE",
    "WAITING",
    "audit",
    "cause_note",
    "checkpoint",
    "count",
    "failure",
    "heartbeat",
    "job",
    "metadata",
    "payload",
    "quarantine",
    "replay",
    "replay_batch",
    "result",
    "step",
    "store",
]

metadata = MetaData()


def _in(states: Iterable[State]) -> str:
    return f"state IN ({', '.join(repr(state.value) for state in states)})"


#: States of jobs that a person may want to see together: what failed alike.
_LETTERS = _in((State.DEAD, State.UNKNOWN, State.DROPPED, State.RESOLVED))
#: States of rows that may wait for long, and be many.
WAITING = (State.PENDING, State.SENT)
#: States of rows that do not run, and may have been started before.
STARTED_BEFORE = (*WAITING, State.UNKNOWN)
#: Rows that are written no more.
_COUNTED = "counted < 0"

# With a collation that compares exactly, which MySQL and MariaDB call by different names: the migration chooses it.
_INNODB: Any = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4"}


def _partial(condition: str) -> dict[str, Any]:
    """A partial index where the database has them; MySQL's index holds every row and answers the same."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


def _listing(condition: str | None = None, beside: str = _COUNTED) -> dict[str, Any]:
    """An index for people. PostgreSQL enters a row into it each time the row is written, so there it holds those that are written no more."""
    narrow = beside if condition is None else f"{condition} AND {beside}"
    return {"postgresql_where": text(narrow), "sqlite_where": None if condition is None else text(condition)}


def _id(name: str, **options: Any) -> Column[str]:
    return Column(name, String(255), **options)


def _long_text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"), nullable=nullable)


def _bytes(name: str) -> Column[bytes]:
    return Column(name, LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"), nullable=False)


def _instant(name: str, *, nullable: bool = True, **options: Any) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable, **options)


def _count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default="0")


def _flag(name: str) -> Column[int]:
    return Column(name, SmallInteger, nullable=False, server_default="0")


def _word(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, String(32), nullable=nullable)


job = Table(
    "guard_job",
    metadata,
    _id("id", primary_key=True),
    _id("task", nullable=False),
    _id("queue", nullable=False),
    Column("priority", Integer),
    _id("tenant"),
    _word("kind"),
    # The key stays known for as long as the row is; held_key is the hold on it, and NULL once it is free.
    _id("key_hash"),
    _id("held_key"),
    _id("fingerprint"),
    _id("holder"),
    _word("state"),
    _word("reason", nullable=True),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    _id("owner"),
    _count("generation"),
    _count("attempts"),
    _count("crashes"),
    _count("retries"),
    _count("publications"),
    _count("refusals"),
    _count("replays"),
    # In a row: an attempt that comes to an end of its own starts the count anew.
    _count("interruptions"),
    # The token of the relay that has taken the row to publish it, until it is claimed.
    _id("relay"),
    _flag("cancel"),
    # Whether others wait for this job's outcome; set by the relay when it meets one that waits.
    _flag("followers"),
    _flag("told"),
    _instant("created", nullable=False),
    _instant("due"),
    _instant("deadline"),
    _instant("sent"),
    _instant("started"),
    _instant("finished"),
    _instant("keep_until"),
    _id("parent_id"),
    _id("root_id"),
    _id("group_id"),
    _id("correlation_id"),
    _long_text("progress", nullable=True),
    _word("failure_class", nullable=True),
    _id("cause"),
    # When a person first asked for the job to stop.
    _instant("asked"),
    # Up to which fence what the row says is in guard_count: -1 where all of it is.
    _instant("counted", nullable=False, server_default="0"),
    # The task that it is counted as, where it has replaced itself by another.
    _id("counted_as"),
    _id("schedule"),  # the name of the one that sent it
    Index("guard_job_uncounted", "counted", "finished", **_partial("counted >= 0 AND finished IS NOT NULL")),
    Index("guard_job_due", "state", "due", **_partial("due IS NOT NULL")),
    Index("guard_job_held_key", "held_key", unique=True, **_partial("held_key IS NOT NULL")),
    Index("guard_job_holder", "holder", **_partial("holder IS NOT NULL")),
    Index("guard_job_keep_until", "keep_until", **_partial("keep_until IS NOT NULL")),
    Index("guard_job_cause", "state", "cause", **_partial(_LETTERS)),
    # For people, who ask of few jobs among many: see statements/listing.py. The first is made by the migration, on PostgreSQL only.
    Index("guard_job_waiting", "created", postgresql_where=text(_in(WAITING)), info={"only": "postgresql"}),
    Index("guard_job_created", "created", **_listing()),
    Index("guard_job_task", "task", "created", **_listing()),
    Index("guard_job_tenant", "tenant", "created", **_listing("tenant IS NOT NULL")),
    Index("guard_job_key", "key_hash", **_listing("key_hash IS NOT NULL")),
    # The last start in a queue.
    Index(
        "guard_job_started",
        "queue",
        "started",
        **_listing("started IS NOT NULL", f"({_COUNTED} OR {_in(STARTED_BEFORE)})"),
    ),
    **_INNODB,
)

payload = Table(
    "guard_payload",
    metadata,
    _id("job", primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    _bytes("body"),
    _long_text("headers"),
    _long_text("delivery"),
    **_INNODB,
)

result = Table(
    "guard_result",
    metadata,
    _id("job", primary_key=True),
    _bytes("body"),
    _id("content_type", nullable=False),
    _id("content_encoding", nullable=False),
    **_INNODB,
)

failure = Table(
    "guard_failure",
    metadata,
    _id("job", primary_key=True),
    # A random number of the writer's, so that a write whose answer was lost can be repeated.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    _instant("at", nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    _word("failure_class"),
    _id("type_name", nullable=False),
    _long_text("message"),
    _long_text("traceback"),
    _id("cause", nullable=False),
    _id("worker", nullable=False),
    _flag("truncated"),
    _flag("retried"),  # whether another run was its answer
    **_INNODB,
)

step = Table(
    "guard_step",
    metadata,
    _id("job", primary_key=True),
    _id("name", primary_key=True),
    _word("state"),
    Column("fence", BigInteger, nullable=False),
    _id("fingerprint"),
    _instant("started", nullable=False),
    _instant("finished"),
    Column("body", LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")),
    _id("content_type"),
    _id("content_encoding"),
    **_INNODB,
)

checkpoint = Table(
    "guard_checkpoint",
    metadata,
    _id("job", primary_key=True),
    _id("name", primary_key=True),
    Column("fence", BigInteger, nullable=False),
    _instant("written", nullable=False),
    _bytes("body"),
    **_INNODB,
)

replay = Table(
    "guard_replay",
    metadata,
    _id("batch", primary_key=True),
    _id("job", primary_key=True),
    Column("position", BigInteger, nullable=False),
    _word("state"),
    _long_text("why", nullable=True),
    _id("actor", nullable=False),
    _long_text("reason"),
    _instant("created", nullable=False),
    _instant("done"),
    # What the job was when the set was frozen, and how often it had been replayed once it was sent again.
    _id("tenant"),
    _id("cause"),
    Column("replays", Integer),
    Column("wave", Integer),
    Index("guard_replay_next", "batch", "state", "position"),
    Index("guard_replay_wave", "batch", "state", "wave"),
    Index("guard_replay_cause", "cause", "done", **_partial("done IS NOT NULL")),
    **_INNODB,
)

replay_batch = Table(
    "guard_replay_batch",
    metadata,
    _id("id", primary_key=True),
    _word("state"),
    _id("actor", nullable=False),
    _id("role", nullable=False),
    _id("origin", nullable=False),
    _id("tenant"),
    _long_text("target"),
    _long_text("reason"),
    _long_text("why", nullable=True),
    _instant("created", nullable=False),
    _instant("ended"),
    # When the next job may be released, and how long from one to the next.
    _instant("next_at", nullable=False),
    Column("every", BigInteger, nullable=False),
    Column("cap", Integer),
    Column("stop_share", Integer, nullable=False),
    Column("same_cause", Integer, nullable=False),
    _count("total"),
    _count("wave"),
    _count("run"),
    Index("guard_replay_batch_state", "state", "created"),
    **_INNODB,
)

cause_note = Table(
    "guard_cause_note",
    metadata,
    _id("cause", primary_key=True),
    _long_text("note"),
    _id("actor", nullable=False),
    _instant("at", nullable=False),
    **_INNODB,
)

# SQLite numbers rows by itself only where the key is spelled INTEGER.
_number = BigInteger().with_variant(Integer(), "sqlite")

quarantine = Table(
    "guard_quarantine",
    metadata,
    Column("number", _number, primary_key=True, autoincrement=True),
    # Names the write, so that one whose answer was lost can be repeated.
    _id("token", nullable=False),
    _instant("received", nullable=False),
    _id("queue", nullable=False),
    _id("content_type", nullable=False),
    _id("content_encoding", nullable=False),
    _long_text("reason"),
    _long_text("headers"),
    Column("size", BigInteger, nullable=False),
    _bytes("body"),
    # Where it is to be published again, and with what, as JSON; NULL where that was not kept.
    _long_text("delivery", nullable=True),
    # What a person has done about it: kept, releasing, released or discarded; when, and why.
    Column("state", String(32), nullable=False, server_default="kept"),
    _instant("handled"),
    _long_text("why", nullable=True),
    Index("guard_quarantine_token", "token", unique=True),
    Index("guard_quarantine_handled", "handled", **_partial("handled IS NOT NULL")),
    **_INNODB,
)

audit = Table(
    "guard_audit",
    metadata,
    Column("number", _number, primary_key=True, autoincrement=True),
    _instant("at", nullable=False),
    _id("actor", nullable=False),
    _id("action", nullable=False),
    _id("job"),
    _long_text("reason"),
    _long_text("detail"),
    # Names the write, so that one whose answer was lost can be repeated; and the action, whose rows share it.
    _id("token"),
    _id("entry"),
    _id("role"),
    _id("origin"),
    _id("tenant"),
    _word("outcome", nullable=True),
    _long_text("target", nullable=True),
    Index("guard_audit_job", "job"),
    Index("guard_audit_token", "token", unique=True),
    Index("guard_audit_entry", "entry"),
    Index("guard_audit_at", "at"),
    **_INNODB,
)

heartbeat = Table(
    "guard_heartbeat",
    metadata,
    _id("name", primary_key=True),
    _id("token", nullable=False),
    _instant("beat", nullable=False),
    _instant("until", nullable=False),
    _long_text("detail"),
    **_INNODB,
)

# What rows said that are gone or will not move again (part is empty), and what no row says, a part a write. The sweep puts parts together.
count = Table(
    "guard_count",
    metadata,
    Column("part", String(32), primary_key=True),
    Column("what", String(32), primary_key=True),
    _id("task", primary_key=True),
    Column("state", String(32), primary_key=True),
    Column("reason", String(32), primary_key=True),
    Column("failure_class", String(32), primary_key=True),
    Column("total", BigInteger, nullable=False),
    **_INNODB,
)

store = Table(
    "guard_store",
    metadata,
    _id("id", primary_key=True),
    _instant("created", nullable=False),
    **_INNODB,
)
