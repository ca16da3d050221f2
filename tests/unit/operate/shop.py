"""A store that gives canned answers, and jobs for it to give."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

from click.testing import Result

from celery_guard.job.row import Job, StoredFailure
from celery_guard.job.state import Kind, State

__all__ = ["NOW", "Canned", "Run", "a_failure", "a_job", "answer_of"]

NOW = datetime.now(timezone.utc)

Run = Callable[..., Result]


def a_job(**given: Any) -> Job:
    """A job as the store hands it out."""
    values = {
        "id": "7e1f",
        "task": "shop.charge",
        "queue": "celery",
        "kind": Kind.RUN,
        "state": State.SENT,
        "reason": None,
    }
    return Job(**{**values, "created": NOW - timedelta(minutes=3), **given})


class Canned(SimpleNamespace):
    """A store that gives the answers it was made with, and keeps the questions."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        answers = {"audit": None, "audited": [], "replays": [], "replays_with": [], **answers}
        super().__init__(**{name: self._answering(name, answer) for name, answer in answers.items()})

    def _answering(self, name: str, answer: Any) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            self.asked.append((name, args, kwargs))
            if isinstance(answer, Exception):
                raise answer
            return answer(*args, **kwargs) if callable(answer) else answer

        return method

    def close(self) -> None:
        self.asked.append(("close", (), {}))


def a_failure(**given: Any) -> StoredFailure:
    """A failed attempt as the store hands it out."""
    values = {
        "failure_class": "permanent",
        "type_name": "shop.CardDeclined",
        "message": "card declined",
        "worker": "w@host",
    }
    return StoredFailure(**{**values, "traceback": "Traceback ...", "cause": "c0ffee", "at": NOW, **given})


def answer_of(result: Result) -> Any:
    """The JSON that was printed."""
    return json.loads(result.stdout)
