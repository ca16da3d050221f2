"""A Django project with a guarded Celery app, on the database that the environment names."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

try:
    import MySQLdb  # noqa: F401
except ImportError:
    import pymysql

    pymysql.install_as_MySQLdb()

_ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql"}


def database(url: str) -> dict[str, Any]:
    """Django's words for the URL of a database."""
    parts = urlsplit(url)
    kind = parts.scheme.partition("+")[0]
    found: dict[str, Any] = {"ENGINE": f"django.db.backends.{_ENGINES[kind]}", "NAME": parts.path[1:]}
    if kind == "sqlite":
        # tests in a file, as several processes have it; Django's own choice for tests would be memory
        return {**found, "TEST": {"NAME": f"{parts.path[1:]}-test"}, "OPTIONS": {"timeout": 5}}
    return {
        **found,
        "HOST": parts.hostname,
        "PORT": str(parts.port or ""),
        "USER": parts.username,
        "PASSWORD": unquote(parts.password or ""),
    }


_STORE = os.environ["GUARD_DJANGO_STORE"]

SECRET_KEY = "for tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["celery_guard.integrations.django", "tests.django.shop"]
DATABASES = {"default": database(_STORE), "other": database(f"{_STORE}_other")}
DATABASE_ROUTERS = ["tests.django.shop.routers.Router"]

# A worker of a test works on the test's databases. Django 6.1 looks at each that is MySQL or MariaDB before it starts.
if "GUARD_DJANGO_NAME" in os.environ:
    DATABASES["default"]["NAME"] = os.environ["GUARD_DJANGO_NAME"]
    other = DATABASES["other"]
    other["NAME"] = other.get("TEST", {}).get("NAME") or f"test_{other['NAME']}"

CELERY_BROKER_URL = os.environ.get("GUARD_DJANGO_BROKER", "memory://")
CELERY_RESULT_BACKEND = os.environ.get("GUARD_DJANGO_BACKEND")
CELERY_TASK_DEFAULT_QUEUE = os.environ.get("GUARD_DJANGO_QUEUE", "celery")
CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": f"{CELERY_TASK_DEFAULT_QUEUE}:"}
CELERY_GUARD_LEASE = "4s"
CELERY_GUARD_POLL = "200ms"
CELERY_GUARD_SWEEP_EVERY = "300ms"
CELERY_GUARD_CRASH_BASE = "100ms"
CELERY_GUARD_CRASH_CAP = "500ms"
