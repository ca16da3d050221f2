"""Which models and tables live where: the shop's in both databases, the guard's wherever Django asks for them, unless a test objects."""

from __future__ import annotations

from typing import Any

#: Aliases on which the guard's tables are not wanted.
refused: set[str] = set()


class Router:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "celery_guard" and db in refused else None
