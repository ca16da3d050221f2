"""What metrics are made of."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from celery_guard.integrations.django.migration import UpgradeStore


class Migration(migrations.Migration):  # type: ignore[misc]
    """Revision 0006."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("celery_guard", "0005_replay")]
    operations: ClassVar[list[Operation]] = [UpgradeStore("0006", "0005")]
