"""The project's one app; it imports the Celery app, as Celery's page on Django has it."""

from .celery import app as celery_app

__all__ = ["celery_app"]
