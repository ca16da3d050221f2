"""The Celery app of the project. Nothing is said here about the store: it is Django's database."""

from __future__ import annotations

from celery import Celery

from celery_guard import Guard

app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
guard = Guard(app)
app.autodiscover_tasks(["tests.django.shop"])
