"""Where a database of Django's is, in the words of the store: read from ``settings.DATABASES``, so that nothing is said twice.

Read anew for each new connection: a test runner puts the name of its own database into the settings while the process runs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from django.db import connections

from celery_guard.errors import SettingError
from celery_guard.integrations.celery.current import guarded_app

from . import default_store, is_djangos

__all__ = ["alias_of", "arguments", "place", "shown_url", "store_alias", "wrapper"]

#: Django's driver, by the name of its module, and SQLAlchemy's word for it. ``MySQLdb`` may be PyMySQL, which then says so.
_DRIVERS = {
    "psycopg": "postgresql+psycopg",
    "psycopg2": "postgresql+psycopg2",
    "MySQLdb": "mysql+mysqldb",
    "pymysql": "mysql+pymysql",
    "sqlite3": "sqlite",
}

#: What Django hands to its driver for itself alone: adapters, cursors and conversions of its own.
_DJANGOS_OWN = ("context", "cursor_factory", "conv", "detect_types", "uri", "check_same_thread")


def alias_of(url: str) -> str:
    """``default`` of ``django://default``.

    Raises:
        SettingError: there is no such database in ``settings.DATABASES``, or it is of a kind that no store is written for.
    """
    alias = urlsplit(url).netloc or urlsplit(url).path.strip("/")
    if alias not in connections:
        raise SettingError(
            f"Setting store: found {url!r}, and settings.DATABASES has no {alias!r}; it has {', '.join(map(repr, connections))}. "
            "Name one of these: django://default."
        )
    _driver(alias)
    return alias


def store_alias() -> str | None:
    """The database that the project's store is in; None where the store is none of Django's.

    Raises:
        SettingError: the guard's settings make no sense.
    """
    runtime = guarded_app()
    url = default_store() if runtime is None else runtime.settings.store
    return alias_of(url) if url is not None and is_djangos(url) else None


def wrapper(alias: str) -> Any:
    """Django's connection of this thread, which may not be open yet."""
    return connections[alias]


def _driver(alias: str) -> str:
    connection = connections[alias]
    module = getattr(connection.Database, "__name__", "").partition(".")[0]
    if module not in _DRIVERS:
        raise SettingError(
            f"Setting store: django://{alias} is a {connection.display_name} database with the driver {module!r}; there are stores "
            f"for {', '.join(_DRIVERS)}. Name another database."
        )
    return _DRIVERS[module]


def arguments(alias: str) -> Mapping[str, Any]:
    """What the driver is to be called with now, for a connection like Django's own."""
    connection = connections[alias]
    found = {name: value for name, value in connection.get_connection_params().items() if name not in _DJANGOS_OWN}
    if connection.vendor == "sqlite":
        found.update(database=str(found["database"]), uri=True, check_same_thread=False)
    if role := connection.settings_dict["OPTIONS"].get("assume_role"):
        found["options"] = f"{found.get('options', '')} -c role={role}".strip()
    return found


def place(alias: str, connection: Any = None) -> Hashable:
    """What tells this database from others: another one under the same alias is another place."""
    settings = (connections[alias] if connection is None else connection).settings_dict
    return tuple(str(settings[name]) for name in ("ENGINE", "NAME", "HOST", "PORT", "USER"))


def shown_url(alias: str) -> str:
    """Driver and place as a URL, without a password: to be shown, and to choose the dialect by."""
    settings, driver = connections[alias].settings_dict, _driver(alias)
    name = str(settings["NAME"] or "")
    if driver == "sqlite":
        return "sqlite:///:memory:" if "mode=memory" in name else "sqlite:///" + quote(name, safe="/:")
    host = str(settings["HOST"] or "")
    return f"{driver}://{host if not host.startswith('/') else ''}/{quote(name, safe='')}"
