"""``python manage.py guard``: found here by Django, at home in ``operate``."""

from __future__ import annotations

from importlib import import_module

__all__ = ["Command"]

# By name, as Celery finds `celery guard`: the rooms that operators hold are above this one, which does not import them.
Command = import_module("celery_guard.operate.django.command").Command
