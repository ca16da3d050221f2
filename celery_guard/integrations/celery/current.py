"""The app that a process has imported, for those who are not told which: Celery's current one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from celery import Celery, current_app

from celery_guard.errors import ConfigurationError

from .runtime import ATTRIBUTE, Runtime, runtime_of

__all__ = ["celery_app", "guarded_app", "load_tasks"]

#: Celery's word for leaving out Django's checks, which it runs whenever it imports tasks.
_SKIP = "CELERY_SKIP_CHECKS"


def celery_app() -> Celery:
    """The current app."""
    app: Celery = current_app._get_current_object()
    return app


def guarded_app() -> Runtime | None:
    """The guard of the current app; None where it has none, or where no app is imported."""
    app = celery_app()
    return runtime_of(app) if ATTRIBUTE in app.__dict__ else None


def load_tasks(app: Celery) -> None:
    """Import the modules that the app's tasks are in, without running Django's checks for it: this is called by one of them.

    Raises:
        ConfigurationError: one of them cannot be imported.
    """
    try:
        with _checked_already():
            app.loader.import_default_modules()
    except ImportError as error:
        raise ConfigurationError(f"The tasks of the app {app.main!r} cannot be imported: {error}") from error
    app.finalize(auto=True)


@contextmanager
def _checked_already() -> Iterator[None]:
    said = os.environ.get(_SKIP)
    os.environ[_SKIP] = "1"
    try:
        yield
    finally:
        if said is None:
            del os.environ[_SKIP]
        else:
            os.environ[_SKIP] = said
