"""The app beside other people's packages: Django's result backend and scheduler, where the test asks for them."""

from __future__ import annotations

import os

from .app import add, app, fails, flaky, guard, note

__all__ = ["add", "app", "fails", "flaky", "guard", "note"]

if "APP_DJANGO" in os.environ:
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["APP_DJANGO"]}},
            INSTALLED_APPS=["django_celery_results", "django_celery_beat"],
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
            USE_TZ=True,
        )
        django.setup()
