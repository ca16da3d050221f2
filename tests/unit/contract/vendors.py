"""Exceptions that look like those of libraries which need not be installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from celery_guard.contract.classify import FailureClass, classify
from celery_guard.contract.retry import Retry


def known(error: BaseException) -> FailureClass:
    """The class of an error about which the contract says nothing."""
    return classify(error, Retry()).failure_class


def foreign(dotted: str, *parents: type, **attributes: Any) -> type[Exception]:
    """A class that looks like one of a library which is not installed here."""
    module, _, name = dotted.rpartition(".")
    return type(name, parents or (Exception,), {"__module__": module, **attributes})


def answer(status: int, headers: dict[str, str] | None = None) -> Exception:
    """An HTTP answer, as requests raises it."""
    error = foreign("requests.exceptions.HTTPError", OSError)()
    error.response = SimpleNamespace(status_code=status, headers=headers or {})  # type: ignore[attr-defined]
    return error
