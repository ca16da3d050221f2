"""Whether the Redis that is the broker knows what kombu asks of it, looked at before a worker starts.

kombu does not look, and the worker ends by the server's refusal: "value is not an integer or out of range".
"""

from __future__ import annotations

import logging

import kombu
from celery import Celery

from celery_guard.errors import ConfigurationError

__all__ = ["refuse_old_broker"]

logger = logging.getLogger("celery_guard.worker")

#: From this kombu on consumers need this Redis: ``ZRANGE .. BYSCORE``.
_KOMBU = (5, 7)
_REDIS = (6, 2)


def refuse_old_broker(app: Celery) -> None:
    """Raise ``ConfigurationError`` where the broker is a Redis that is too old; nothing is said of one that does not answer."""
    found = _redis_version(app) if kombu.VERSION[:2] >= _KOMBU else None
    if found is not None and tuple(map(int, found.split(".")[:2])) < _REDIS:
        raise ConfigurationError(
            f"broker_url: found Redis {found}, expected {'.'.join(map(str, _REDIS))} or later, which kombu {kombu.__version__} needs to consume. "
            "To repair: upgrade the server; or install 'celery<5.7' with 'kombu<5.7', which do without."
        )


def _redis_version(app: Celery) -> str | None:
    """The version of the broker's server; None where it is no Redis, or does not say."""
    with app.connection_for_read() as connection:
        try:
            if getattr(connection.get_transport_cls(), "driver_type", None) != "redis":
                return None
            with connection.channel() as channel:
                found: str | None = channel.client.info("server").get("redis_version")
        except ImportError as error:
            logger.debug("the broker's transport cannot be looked at: %s", error)
            return None
        except (*connection.connection_errors, *connection.channel_errors) as error:
            logger.debug("the broker's version was not said: %s", error)
            return None
    return found
