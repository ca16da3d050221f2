"""Options that say which jobs are meant: ``--state``, ``--task``, ``--key`` and so on."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from celery_guard.contract.failure_class import FailureClass
from celery_guard.flow.admin.which import Which
from celery_guard.job.state import State

from .filters import AGE, whose_options
from .target import Target

__all__ = ["Words", "which_options"]

F = TypeVar("F", bound=Callable[..., Any])

_HASH = re.compile(r"[0-9a-f]{64}")


class Words:
    """What was typed. A key's hash needs the task's contract, so the filter is made when a command asks for it."""

    def __init__(self, states: tuple[str, ...], key: str | None, words: dict[str, Any]) -> None:
        self._states = tuple(map(State, states))
        self._key = key
        self._words = words

    @property
    def given(self) -> bool:
        """Whether anything was."""
        return bool(self._states or self._key or any(self._words.values()))

    def which(self, target: Target) -> Which:
        """The filter. Raises ``MoveRefused`` where no such key can be made."""
        return Which(states=self._states, key=self._hash(target), **self._words)

    def _hash(self, target: Target) -> str | None:
        if self._key is None or _HASH.fullmatch(self._key):
            return self._key
        if self._words["task"] is None:
            raise click.UsageError("--key is a key of one task: name it with --task.")
        target.load_tasks()
        return target.admin.jobs.key(self._words["task"], _value(self._key), self._words["tenant"])


def _value(text: str) -> Any:
    """The value that was typed: JSON where it is, else text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def which_options(command: F) -> F:
    """Which jobs; the command is given :class:`Words` as ``words``."""
    names = ("task", "queue", "tenant", "cause", "failure_class", "older", "younger")

    @functools.wraps(command)
    def with_words(*args: Any, states: tuple[str, ...], key: str | None, **kwargs: Any) -> Any:
        words = {name: kwargs.pop(name) for name in names}
        return command(*args, words=Words(states, key, words), **kwargs)

    options = (
        click.option(
            "--state", "states", multiple=True, type=click.Choice([state.value for state in State]),
            help="Only in this state; may be repeated.",
        ),
        click.option(
            "--key", metavar="VALUE",
            help="Only under this key of --task: its value, or a JSON object of its values, or its hash. With --tenant where the contract has one.",
        ),
        click.option("--older", type=AGE, metavar="AGE", help="Only accepted longer ago: 90s, 15m, 2h, 7d."),
        click.option("--younger", type=AGE, metavar="AGE", help="Only accepted more recently."),
        click.option(
            "--failure-class", type=click.Choice([str(found) for found in FailureClass]), help="Only last failed like this."
        ),
        click.option("--cause", help="Only of this cause group: what failed alike."),
    )  # fmt: skip
    for option in reversed(options):
        with_words = option(with_words)
    return whose_options(with_words)  # type: ignore[return-value]
