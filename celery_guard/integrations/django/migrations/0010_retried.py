"""Failures know whether another run followed."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from celery_guard.integrations.django.migration import UpgradeStore


class Migration(migrations.Migration):  # type: ignore[misc]
    """Revision 0010."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("celery_guard", "0009_listings")]
    operations: ClassVar[list[Operation]] = [UpgradeStore("0010", "0009")]
