"""What ``manage.py check`` says: the findings of ``guard check``, and the state of the store, under their own codes.

The database is only looked at where Django does so itself (``check --database default``, ``migrate``, tests). What is wrong with the
tables is a warning there, since an error would keep `migrate` from repairing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from django.core import checks

from celery_guard.contract.facts import Finding, Severity
from celery_guard.contract.unsafe import findings
from celery_guard.errors import GuardError, StoreError
from celery_guard.integrations.celery.current import celery_app, guarded_app, load_tasks
from celery_guard.integrations.celery.facts import read_facts

from .address import store_alias
from .store import DjangoStore

__all__ = ["TAG", "check_app", "check_store", "register_all"]

TAG = "celery_guard"

_LEVELS = {Severity.INFO: checks.INFO, Severity.WARNING: checks.WARNING, Severity.ERROR: checks.ERROR}


def register_all() -> None:
    """Have Django run them."""
    checks.register(check_app, TAG)
    checks.register(check_store, checks.Tags.database)


def check_app(app_configs: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """The project's Celery app: its settings, contracts and tasks. Connects to nothing."""
    try:
        app = celery_app()
        load_tasks(app)
        if guarded_app() is None:
            return [
                checks.Warning(
                    "The project imports no Celery app that has a guard.",
                    hint="Import yours in the project's __init__.py, and make a Guard beside it: Guard(app).",
                    id="GUARD-103",
                )
            ]
        return [_message(finding) for finding in findings(read_facts(app))]
    except GuardError as error:
        return [checks.Error(str(error), id=error.code)]


def check_store(app_configs: Any = None, databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """The store's tables, where the store is in one of ``databases``."""
    try:
        alias = store_alias()
        if alias is None or alias not in (databases or ()):
            return []
        # one of its own, closed at once: a connection that stayed would keep a test runner from dropping its database
        with closing(DjangoStore(alias)) as store:
            store.check()
    except StoreError as error:
        return [checks.Warning(str(error), hint="python manage.py migrate, or guard store upgrade.", id=error.code)]
    except GuardError as error:
        return [checks.Error(str(error), id=error.code)]
    return []


def _message(finding: Finding) -> checks.CheckMessage:
    return checks.CheckMessage(
        _LEVELS[finding.severity], f"{finding.found}. {finding.why}", hint=finding.fix, id=finding.code
    )
