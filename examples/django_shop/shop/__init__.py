"""The project. It imports the Celery app, so that Django's commands find it."""

from .celery import app as celery_app

__all__ = ["celery_app"]
