"""Where the database is: the URL as people write it, with the driver that this package installs where it names none."""

from __future__ import annotations

from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from celery_guard.errors import SettingError

__all__ = ["address", "engine_at", "in_memory"]

#: Spellings of a database, and the driver it is given, with the extra that installs it.
_DRIVERS = {
    "postgres": ("postgresql+psycopg", "postgresql"),
    "postgresql": ("postgresql+psycopg", "postgresql"),
    "mysql": ("mysql+pymysql", "mysql"),
    "mariadb": ("mariadb+pymysql", "mysql"),
}


def address(text: str) -> URL:
    """The URL to connect to.

    Raises:
        SettingError: it is no URL.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise SettingError(
            "Setting store: this is no URL of a database. Give one like postgresql+psycopg://user@host/database or "
            "sqlite:///guard.db."
        ) from error
    if url.drivername in _DRIVERS:
        return url.set(drivername=_DRIVERS[url.drivername][0])
    return url


def engine_at(url: URL, **options: Any) -> Engine:
    """An engine, not connected yet.

    Raises:
        SettingError: nobody knows its driver, it is not installed, or it is one of asyncio's.
    """
    usual, extra = _DRIVERS.get(url.get_backend_name(), ("", ""))
    try:
        dialect = url.get_dialect()
        if dialect.is_async and url.get_driver_name() != "psycopg":
            raise SettingError(
                f"Setting store: {url.drivername} is a driver for asyncio; the store works in threads and processes. "
                f"Name a plain one: {usual or url.get_backend_name()}://… Your own sessions may go on using this one."
            )
        # what is in a statement's parameters, messages among it, is in no log and no error
        return create_engine(url, hide_parameters=True, **options)
    except NoSuchModuleError as error:
        raise SettingError(
            f"Setting store: SQLAlchemy knows no driver called {url.drivername}. Use {usual or url.get_backend_name()}, which is tested, or "
            "install the one that you mean."
        ) from error
    except ImportError as error:
        how = f"Install it: pip install 'celery-guard[{extra}]'." if extra else "Install it, or name another one."
        raise SettingError(
            f"Setting store: the driver of {url.drivername} is not installed ({error}). {how}"
        ) from error


def in_memory(url: URL) -> bool:
    """Whether the database is gone with the process."""
    return url.get_backend_name() == "sqlite" and (
        url.database in (None, "", ":memory:") or url.query.get("mode") == "memory"
    )
