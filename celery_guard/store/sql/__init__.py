"""The store on SQL databases: SQLite, PostgreSQL, MySQL and MariaDB."""

from __future__ import annotations

from .store import SqlStore

__all__ = ["SqlStore", "open_store"]


def open_store(url: str, *, notify: bool = True, pool_size: int = 5, pool_timeout: float = 10) -> SqlStore:
    """The store on the database of an SQLAlchemy URL. Opens no connection before its first use.

    Args:
        url: for example ``postgresql+psycopg://user@host/shop``, ``mysql+pymysql://…`` or ``sqlite:///guard.db``.
        notify: wake relays that rest with NOTIFY on PostgreSQL. Off, they poll, as on the other databases.
        pool_size: connections that one process opens at most; on PostgreSQL one more for a relay that listens.
        pool_timeout: how long to wait for one of them, in seconds.

    Raises:
        SettingError: there is no store for this kind of database.

    >>> store = open_store("sqlite:///:memory:")
    >>> store.upgrade()
    >>> store.counts()
    {}
    """
    return SqlStore(url, notify=notify, pool_size=pool_size, pool_timeout=pool_timeout)
