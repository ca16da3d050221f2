"""Logs as JSON, one object a line, by python-json-logger."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

from celery_guard.errors import ConfigurationError

from .logs import FIELDS, hidden_here

__all__ = ["json_formatter", "need_json"]


def need_json() -> None:
    """Raises ``ConfigurationError`` where python-json-logger is missing."""
    if find_spec("pythonjsonlogger") is None:
        raise ConfigurationError(
            "log_format is json, and python-json-logger is not installed. To repair: pip install 'celery-guard[json]'."
        )


def json_formatter() -> logging.Formatter:
    """For any handler, and for ``logging.config``: ``{"()": "celery_guard.watch.json_lines.json_formatter"}``.

    A record inside a job has the fields of :data:`~celery_guard.watch.logs.FIELDS`, by their names without ``guard_``; what a record has under such
    a name already (by ``extra=``) stays. Raises ``ConfigurationError`` where python-json-logger is missing.
    """
    need_json()
    from pythonjsonlogger.json import JsonFormatter

    class JobJsonFormatter(JsonFormatter):
        """With the job's fields by their plain names."""

        def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
            for name in FIELDS:
                value = log_data.pop(name, None)
                if value is not None:
                    log_data.setdefault(name.removeprefix("guard_"), value)
            hidden = hidden_here()
            return super().process_log_record(hidden.data(log_data) if hidden else log_data)

    return JobJsonFormatter(
        "{levelname}{name}{message}{processName}{process}", style="{", timestamp=True,
        rename_fields={"levelname": "level", "name": "logger", "processName": "process_name"},
    )  # fmt: skip
