"""What is remembered: the :class:`~celery_guard.store.protocol.Store` protocol, and the stores that keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery_guard.errors import SettingError

if TYPE_CHECKING:
    from .protocol import Store

__all__ = ["open_store"]

_SQL = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")
_REDIS = ("redis", "rediss", "unix")


def open_store(url: str, *, notify: bool = True, **options: Any) -> Store:
    """The store for a URL. Opens no connection before the first use.

    Raises:
        SettingError: there is no store for this kind of URL, or its driver is not installed.
    """
    scheme = url.partition("://")[0].partition("+")[0]
    if scheme in _SQL:
        from .sql import open_store as open_sql

        return open_sql(url, notify=notify, **options)
    if scheme in _REDIS:
        try:
            from .redis import open_store as open_redis
        except ImportError as error:
            raise SettingError(
                f"Setting store: the driver of {scheme}:// is not installed ({error}). Install it: pip install "
                "'celery-guard[redis]'."
            ) from error
        return open_redis(url, notify=notify, **options)
    raise SettingError(
        f"Setting store: there is no store for {scheme!r} URLs. Use one of {', '.join(_SQL + _REDIS)}, for example "
        "postgresql+psycopg://user@host/database, sqlite:///guard.db or redis://host/0?name=shop."
    )
