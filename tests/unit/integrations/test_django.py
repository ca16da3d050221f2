"""Django's part in processes that have nothing to do with Django, or have none; the rest is in ``tests/django``."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from celery import Celery

from celery_guard import Guard, GuardedTask, SettingError
from celery_guard.integrations.django import default_store, is_of_django

WITHOUT = """
import sys
sys.modules["django"] = None
from celery_guard.integrations.django import default_store
assert default_store() is None
"""

USES = """
from celery import Celery
from celery_guard import Guard, GuardedTask

app = Celery("shop", broker="memory://")
guard = Guard(app, store="sqlite:///:memory:")

@app.task(base=GuardedTask)
def charge(): ...

guard.store.upgrade()
charge.delay()
assert sum(guard.store.counts().values()) == 1
"""


def run(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_nobody_needs_django() -> None:
    run(WITHOUT + USES)


def test_who_does_not_use_django_does_not_import_its_database_part() -> None:
    run(USES + "import sys; assert 'django.db' not in sys.modules")


def test_without_a_project_there_is_no_default_store() -> None:
    assert default_store() is None


def test_a_text_is_no_transaction_without_a_project() -> None:
    app = Celery("shop", broker="memory://", set_as_current=False)
    guard = Guard(app, store="sqlite:///:memory:")
    with pytest.raises(TypeError, match="DJANGO_SETTINGS_MODULE"), guard.using("default"):
        pass


def test_what_is_of_django_is_known_by_its_name() -> None:
    assert is_of_django(type("QuerySet", (), {"__module__": "django.db.models"})())
    assert not is_of_django(SimpleNamespace(alias="default"))


def namespaced(**said: object) -> Guard:
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.config_from_object(SimpleNamespace(**said), namespace="CELERY")
    return Guard(app)


def test_settings_are_read_under_celerys_namespace() -> None:
    guard = namespaced(CELERY_GUARD_STORE="sqlite://", CELERY_GUARD_LEASE="20s", CELERY_TASK_TRACK_STARTED=True)
    assert (guard.settings.store, guard.settings.lease.total_seconds()) == ("sqlite://", 20)


def test_what_is_set_on_the_configuration_wins_over_its_file() -> None:
    guard = namespaced(CELERY_GUARD_STORE="sqlite://", CELERY_GUARD_LEASE="20s")
    guard.app.conf.guard_lease = 40
    assert guard.settings.lease.total_seconds() == 40


def test_a_slip_under_the_namespace_is_refused() -> None:
    with pytest.raises(SettingError, match="did you mean 'lease'"):
        _ = namespaced(CELERY_GUARD_STORE="sqlite://", CELERY_GUARD_LAESE="20s").settings


def test_delay_on_commit_with_another_store_is_celerys_own() -> None:
    """Which asks Django for a hook, and so says that there is no project here."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    Guard(app, store="sqlite:///:memory:")

    @app.task(base=GuardedTask, shared=False)
    def charge() -> None: ...

    from django.core.exceptions import ImproperlyConfigured

    with pytest.raises(ImproperlyConfigured):
        charge.delay_on_commit()
