"""The tables' versions: bring them to this one, print how, or say what is wrong.

Migrations are Alembic's, in this package, with a version table of their own. Two processes that upgrade at once do so one after
the other, and the second finds nothing to do.

Revisions are numbers of four digits, the first two of which are a series: 0001, 0002 ... Within a series a migration only adds (tables, indexes, columns
that may be left out), so the code of an earlier revision works on the tables of a later one, starts on them, and finds nothing to upgrade: that is
how a fleet is upgraded while it works. What takes away or changes begins a series (0100).
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, inspect, text
from sqlalchemy.engine import Connection, Dialect

from celery_guard.errors import COMMAND, StoreSchemaError, StoreUnavailableError

from .tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = [
    "HEAD",
    "VERSION_TABLE",
    "check",
    "downgrade_statements",
    "revisions",
    "upgrade",
    "upgrade_sql",
    "upgrade_statements",
]

logger = logging.getLogger("celery_guard.store")

VERSION_TABLE = "guard_version"

#: The newest revision. Said here too, so that a worker that only checks does not load Alembic.
HEAD = "0010"

#: How many digits of a revision name its series.
_SERIES = 2

_INVALID = text(
    "SELECT named.relname FROM pg_index JOIN pg_class AS named ON named.oid = indexrelid JOIN pg_class AS job ON job.oid = indrelid "
    "WHERE NOT indisvalid AND pg_table_is_visible(job.oid) AND job.relname IN :tables ORDER BY 1"
).bindparams(bindparam("tables", expanding=True))

_UPGRADE = f"`{COMMAND} store upgrade`"

#: Any number that others are unlikely to lock, and a wait for those who upgrade, in seconds.
_LOCK = 0x6365_6C67
_LOCK_WAIT = 60


def upgrade(connection: Connection) -> None:
    """Bring the tables to this version, in the transaction that the connection is in, where tables can be made in one."""
    from alembic import command
    from alembic.util.exc import CommandError

    config = _config()
    config.attributes["connection"] = connection
    with _alone(connection):
        if _only_adds(_current(connection)):
            return
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise _too_new(_current(connection)) from error


def upgrade_sql(dialect: Dialect) -> str:
    """The statements that an upgrade from nothing would run."""
    from alembic import command

    written = io.StringIO()
    config = _config(written)
    config.attributes["dialect"] = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
    command.upgrade(config, "head", sql=True)
    return written.getvalue()


def upgrade_statements(kind: str, found: str | None, wanted: str) -> list[str]:
    """The statements from one revision to a later one, for others who run them on a connection of their own.

    ``kind`` is the database: ``postgresql``, ``mysql``, ``mariadb`` or ``sqlite``; ``found`` None: from nothing.

    Raises:
        StoreSchemaError: ``found`` is no revision that this version knows.
    """
    from alembic import command

    known = revisions()
    if found is not None and found not in known:
        raise _too_new(found)
    if found is not None and known.index(found) >= known.index(wanted):
        return []
    written = _Statements()
    config = _config(written)
    config.attributes["dialect"] = kind
    command.upgrade(config, wanted if found is None else f"{found}:{wanted}", sql=True)
    return written.all


def downgrade_statements(kind: str, found: str, wanted: str | None) -> list[str]:
    """The statements back from one revision to an earlier one; None: to nothing, with every job."""
    from alembic import command

    written = _Statements()
    config = _config(written)
    config.attributes["dialect"] = kind
    command.downgrade(config, f"{found}:{wanted or 'base'}", sql=True)
    return [*written.all, *([] if wanted else [f"DROP TABLE {VERSION_TABLE}"])]


class _Statements(io.StringIO):
    """Alembic writes one statement at a time; those that begin and end transactions are the caller's affair."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[str] = []

    def write(self, text: str, /) -> int:
        statement = text.strip().removesuffix(";").strip()
        if statement and not statement.startswith("--") and statement.upper() not in ("BEGIN", "COMMIT"):
            self.all.append(statement)
        return len(text)


def check(connection: Connection) -> None:
    """Raise ``StoreSchemaError`` unless the tables are those of this version, or of a later one that only adds to them."""
    found = _current(connection)
    if found == HEAD or _only_adds(found):
        _warn_of_invalid_indexes(connection)
        return
    if found is None:
        raise StoreSchemaError(f"The store's tables are missing in {_shown(connection)}. Run {_UPGRADE}.")
    if found not in revisions():
        raise _too_new(found)
    raise StoreSchemaError(
        f"The store's tables in {_shown(connection)} are of version {found}, this celery-guard needs {HEAD}. Run {_UPGRADE}."
    )


def _warn_of_invalid_indexes(connection: Connection) -> None:
    """PostgreSQL keeps an index whose making was interrupted: it is written with every row, and no query uses it."""
    if connection.dialect.name != "postgresql":
        return
    for name in connection.execute(_INVALID, {"tables": list(metadata.tables)}).scalars():
        logger.warning(
            "the index %s is invalid: its making was interrupted, or goes on; no query uses it. To repair: REINDEX INDEX CONCURRENTLY %s",
            name, name,
        )  # fmt: skip


def _only_adds(found: str | None) -> bool:
    """Whether the tables are of a later revision, in the series of this one."""
    same_series = found is not None and len(found) == len(HEAD) and found[:_SERIES] == HEAD[:_SERIES]
    return same_series and str(found).isdecimal() and str(found) > HEAD


def _current(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM guard_version")).scalar()
    return found


def revisions() -> list[str]:
    """Every revision of the tables, the oldest first."""
    from alembic.script import ScriptDirectory

    found = [revision.revision for revision in ScriptDirectory.from_config(_config()).walk_revisions()]
    return found[::-1]


def _too_new(found: str | None) -> StoreSchemaError:
    return StoreSchemaError(
        f"The store's tables are of version {found}, which this celery-guard does not know: they were made by a newer one. "
        "Install the celery-guard that made them, or a newer one."
    )


def _shown(connection: Connection) -> str:
    return connection.engine.url.render_as_string(hide_password=True)


def _config(output: io.StringIO | None = None) -> Config:
    from alembic.config import Config

    config = Config(output_buffer=output) if output is not None else Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """One upgrade at a time. On SQLite the transaction that writes is alone as it is."""
    if connection.dialect.name in ("mysql", "mariadb"):
        with _named_lock(connection):
            yield
        return
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    yield


@contextmanager
def _named_lock(connection: Connection) -> Iterator[None]:
    """MySQL commits each table as it is made, so that only a lock of the session's holds others off."""
    name = {"name": f"celery_guard.{connection.engine.url.database}"[:64], "wait": _LOCK_WAIT}
    if not connection.execute(text("SELECT GET_LOCK(:name, :wait)"), name).scalar():
        raise StoreUnavailableError(
            f"Another process has been upgrading the store for {_LOCK_WAIT} s. Try again later."
        )
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": name["name"]})
