"""The Celery app, as Celery's page on Django has it, and its guard."""

import os

from celery import Celery

from celery_guard import Guard

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
guard = Guard(app)
