"""Errors travel between processes, and each is a page of the runbook."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from celery_guard import errors
from celery_guard.errors import GuardError

ALL: list[type[GuardError]] = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, GuardError)
]


def _attributes(kind: type[GuardError]) -> list[str]:
    """What errors of this class carry beside their message."""
    if kind.__init__ is Exception.__init__:
        return []
    return [name for name in inspect.signature(kind).parameters if name != "message"]


def _made(kind: type[GuardError]) -> GuardError:
    """An error of this class, with something in each of its attributes."""
    return kind("what was found, what was expected and what to do", *(f"{name} é🎈" for name in _attributes(kind)))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling_with_all_it_says(kind: type[GuardError], protocol: int) -> None:
    error = _made(kind)
    again = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301  (what was written here)
    assert type(again) is kind
    assert (str(again), again.args, vars(again), again.code) == (str(error), error.args, vars(error), error.code)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_is_made_again_from_its_arguments(kind: type[GuardError]) -> None:
    """Result backends that keep JSON keep an exception's class and arguments only."""
    error = _made(kind)
    again = kind(*error.args)
    assert (str(again), vars(again)) == (str(error), vars(error))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_survives_copying(kind: type[GuardError]) -> None:
    error = _made(kind)
    again = copy.deepcopy(error)
    assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_says_its_message_and_nothing_else(kind: type[GuardError]) -> None:
    assert str(_made(kind)) == "what was found, what was expected and what to do"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_attribute_of_an_error_is_kept(kind: type[GuardError]) -> None:
    error = _made(kind)
    for name in _attributes(kind):
        assert getattr(error, name) == f"{name} é🎈"


def test_the_public_errors_are_all_there_are() -> None:
    assert sorted(kind.__name__ for kind in ALL) == sorted(errors.__all__)


def test_every_error_has_a_code_of_its_own() -> None:
    assert len({kind.code for kind in ALL}) == len(ALL)
    assert all(kind.code.startswith("GUARD-") and kind.code[6:].isdigit() for kind in ALL)


def test_the_tree_is_drawn_as_it_is() -> None:
    drawn = inspect.getdoc(errors) or ""
    for kind in ALL:
        if kind is not GuardError:
            [line] = [line for line in drawn.splitlines() if f"- {kind.__name__} " in line]
            assert kind.code in line


def test_only_faults_end_in_error() -> None:
    answers = {
        "KeyConflict",
        "KeyBusy",
        "Interruption",
        "LeaseLost",
        "JobCancelled",
        "DeadlinePassed",
        "JobFailed",
        "SnapshotExpired",
        "Refused",
        "NotAllowed",
        "ConfirmationNeeded",
        "NotFound",
        "ReasonMissing",
        "MoveRefused",
        "EditRefused",
    }
    assert {kind.__name__ for kind in ALL if not kind.__name__.endswith("Error")} == answers
