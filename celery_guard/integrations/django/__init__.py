"""Django's part: put ``celery_guard.integrations.django`` into ``INSTALLED_APPS``, and the store is Django's own database.

The file here asks whether there is a Django at all, and imports none of it. ``address`` and ``store`` find the store in
``settings.DATABASES``, ``door`` writes jobs into Django's open transaction, ``transaction`` is a body's own one, ``migration`` lets
Django's runner make the tables, ``checks`` speaks to ``manage.py check``, ``testing`` is for tests of yours.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

__all__ = ["APP", "default_store", "in_project", "is_djangos", "is_of_django"]

#: The name of the app.
APP = __name__

_SCHEME = "django://"


def in_project() -> bool:
    """Whether this process belongs to a Django project."""
    if find_spec("django") is None:
        return False
    from django.conf import settings

    return bool(settings.configured or os.environ.get("DJANGO_SETTINGS_MODULE"))


def default_store() -> str | None:
    """The store of a project that names none and has this app installed; None where there is no such project."""
    if not in_project():
        return None
    from django.conf import settings

    installed = any(name == APP or name.startswith(f"{APP}.") for name in settings.INSTALLED_APPS)
    return f"{_SCHEME}default" if installed else None


def is_djangos(url: str) -> bool:
    """Whether a store is one of Django's databases: ``django://default``."""
    return url.startswith(_SCHEME)


def is_of_django(thing: object) -> bool:
    """Whether something is Django's, without importing Django for it."""
    return any(kind.__module__.split(".")[0] == "django" for kind in type(thing).__mro__)
