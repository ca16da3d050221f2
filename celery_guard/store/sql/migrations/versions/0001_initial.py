"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _exact() -> dict[str, Any]:
    """Compare ids, hashes and names exactly: usual collations fold case and accents, and most take no note of spaces at
    the end. The two servers have another name each for the one that does."""
    collation = "utf8mb4_nopad_bin" if getattr(op.get_context().dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
    return {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": collation}


def upgrade() -> None:
    """Make them."""
    _job()
    _beside_the_job()
    _operations()
    _store()


def downgrade() -> None:
    """Drop them, and every job in them."""
    for name in (
        "store", "heartbeat", "audit", "quarantine", "replay", "checkpoint", "step", "failure", "result", "payload", "job",
    ):  # fmt: skip
        op.drop_table(f"guard_{name}")


def _id(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.String(255), **options)


def _word(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.String(32), **{"nullable": False, **options})


def _instant(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, **options)


def _count(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, nullable=False, server_default="0")


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.SmallInteger, nullable=False, server_default="0")


def _text(name: str, **options: Any) -> sa.Column[Any]:
    long = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
    return sa.Column(name, long, **{"nullable": False, **options})


def _bytes(name: str, **options: Any) -> sa.Column[Any]:
    long = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
    return sa.Column(name, long, **{"nullable": False, **options})


def _number() -> sa.Column[Any]:
    counted = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("number", counted, primary_key=True, autoincrement=True)


def _left_over(table: str, index: str | None = None) -> bool:
    """Whether it is there already. MySQL commits each table as it is made, so an upgrade that was killed leaves some."""
    context = op.get_context()
    if context.as_sql or context.dialect.name not in ("mysql", "mariadb"):
        return False
    found = sa.inspect(op.get_bind())
    if index is None:
        return found.has_table(table)
    return index in {each["name"] for each in found.get_indexes(table)}


def _table(name: str, *columns: sa.Column[Any]) -> None:
    if not _left_over(name):
        op.create_table(name, *columns, **_exact())


def _index(name: str, table: str, columns: list[str], *, unique: bool = False, where: str | None = None) -> None:
    partial: dict[str, Any] = (
        {} if where is None else {"postgresql_where": sa.text(where), "sqlite_where": sa.text(where)}
    )
    if not _left_over(table, name):
        op.create_index(name, table, columns, unique=unique, **partial)


def _job() -> None:
    _table(
        "guard_job",
        _id("id", primary_key=True),
        _id("task", nullable=False),
        _id("queue", nullable=False),
        sa.Column("priority", sa.Integer),
        _id("tenant"),
        _word("kind"),
        _id("key_hash"),
        _id("held_key"),
        _id("fingerprint"),
        _id("holder"),
        _word("state"),
        _word("reason", nullable=True),
        sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
        _id("owner"),
        *map(_count, ("generation", "attempts", "crashes", "retries", "publications", "refusals", "replays")),
        _id("relay"),
        *map(_flag, ("cancel", "followers", "told")),
        _instant("created", nullable=False),
        *map(_instant, ("due", "deadline", "sent", "started", "finished", "keep_until")),
        *map(_id, ("parent_id", "root_id", "group_id", "correlation_id")),
        _text("progress", nullable=True),
        _word("failure_class", nullable=True),
        _id("cause"),
    )
    _index("guard_job_due", "guard_job", ["state", "due"], where="due IS NOT NULL")
    _index("guard_job_held_key", "guard_job", ["held_key"], unique=True, where="held_key IS NOT NULL")
    _index("guard_job_holder", "guard_job", ["holder"], where="holder IS NOT NULL")
    _index("guard_job_keep_until", "guard_job", ["keep_until"], where="keep_until IS NOT NULL")
    letters = "state IN ('dead', 'unknown', 'dropped', 'resolved')"
    _index("guard_job_cause", "guard_job", ["state", "cause"], where=letters)
    _index("guard_job_created", "guard_job", ["created"])


def _beside_the_job() -> None:
    _table(
        "guard_payload",
        _id("job", primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        _bytes("body"),
        _text("headers"),
        _text("delivery"),
    )
    _table(
        "guard_result",
        _id("job", primary_key=True),
        _bytes("body"),
        _id("content_type", nullable=False),
        _id("content_encoding", nullable=False),
    )
    _table(
        "guard_failure",
        _id("job", primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        _instant("at", nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        _word("failure_class"),
        _id("type_name", nullable=False),
        _text("message"),
        _text("traceback"),
        _id("cause", nullable=False),
        _id("worker", nullable=False),
        _flag("truncated"),
    )
    _table(
        "guard_step",
        _id("job", primary_key=True),
        _id("name", primary_key=True),
        _word("state"),
        sa.Column("fence", sa.BigInteger, nullable=False),
        _id("fingerprint"),
        _instant("started", nullable=False),
        _instant("finished"),
        _bytes("body", nullable=True),
        _id("content_type"),
        _id("content_encoding"),
    )
    _table(
        "guard_checkpoint",
        _id("job", primary_key=True),
        _id("name", primary_key=True),
        sa.Column("fence", sa.BigInteger, nullable=False),
        _instant("written", nullable=False),
        _bytes("body"),
    )


def _operations() -> None:
    _table(
        "guard_replay",
        _id("batch", primary_key=True),
        _id("job", primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        _word("state"),
        _text("why", nullable=True),
        _id("actor", nullable=False),
        _text("reason"),
        _instant("created", nullable=False),
        _instant("done"),
    )
    _index("guard_replay_next", "guard_replay", ["batch", "state", "position"])
    _table(
        "guard_quarantine",
        _number(),
        _id("token", nullable=False),
        _instant("received", nullable=False),
        _id("queue", nullable=False),
        _id("content_type", nullable=False),
        _id("content_encoding", nullable=False),
        _text("reason"),
        _text("headers"),
        sa.Column("size", sa.BigInteger, nullable=False),
        _bytes("body"),
    )
    _index("guard_quarantine_token", "guard_quarantine", ["token"], unique=True)
    _table(
        "guard_audit",
        _number(),
        _instant("at", nullable=False),
        _id("actor", nullable=False),
        _id("action", nullable=False),
        _id("job"),
        _text("reason"),
        _text("detail"),
    )
    _index("guard_audit_job", "guard_audit", ["job"])
    _table(
        "guard_heartbeat",
        _id("name", primary_key=True),
        _id("token", nullable=False),
        _instant("beat", nullable=False),
        _instant("until", nullable=False),
        _text("detail"),
    )


def _store() -> None:
    """The table that says which store this is, with its one row."""
    _table("guard_store", _id("id", primary_key=True), _instant("created", nullable=False))
    name = op.get_context().dialect.name
    if name == "postgresql":
        row = "CAST(gen_random_uuid() AS VARCHAR), CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
    elif name == "sqlite":
        row = "lower(hex(randomblob(16))), CAST(strftime('%s', 'now') AS INTEGER) * 1000000"
    else:
        row = "UUID(), TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
    alone = "FROM (SELECT count(*) AS known FROM guard_store) stores WHERE known = 0"
    op.execute(sa.text(f"INSERT INTO guard_store (id, created) SELECT {row} {alone}"))
