"""The store on Redis."""

from __future__ import annotations

from .store import RedisStore

__all__ = ["RedisStore", "open_store"]


def open_store(url: str, *, notify: bool = True, pool_size: int = 5, pool_timeout: float = 10) -> RedisStore:
    """The store that a URL names. Opens no connection before its first use.

    Args:
        url: for example ``redis://host/0?name=shop``; see :mod:`celery_guard.store.redis.address`.
        notify: have idle relays called by the server. Off, they look again after a while.
        pool_size: connections that one process opens at most; one more for a relay that waits.
        pool_timeout: how long to wait for one of them, in seconds.

    Raises:
        SettingError: the URL is no store's.

    >>> open_store("redis://localhost/0?name=shop")
    RedisStore('redis://localhost/0?name=shop')
    """
    return RedisStore(url, notify=notify, pool_size=pool_size, pool_timeout=pool_timeout)
