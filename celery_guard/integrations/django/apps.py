"""The app, as Django knows it."""

from __future__ import annotations

from django.apps import AppConfig

from . import APP

__all__ = ["GuardConfig"]


class GuardConfig(AppConfig):  # type: ignore[misc]
    """``celery_guard.integrations.django`` in ``INSTALLED_APPS``."""

    name = APP
    label = "celery_guard"
    verbose_name = "celery-guard"

    def ready(self) -> None:
        """Register the checks. Opens nothing, and imports no Celery app."""
        from . import checks

        checks.register_all()
