"""Which errors of Redis pass by themselves, as the driver says them, on servers old and new."""

from __future__ import annotations

import pytest
from redis import exceptions

from celery_guard.errors import StoreSchemaError, StoreUnavailableError
from celery_guard.store.redis.transient import explained, is_transient, word_of
from celery_guard.store.redis.version import VERSION

PASSING = [
    exceptions.ConnectionError("Connection refused"),
    exceptions.TimeoutError("Timeout reading from socket"),
    exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
    exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    exceptions.ReadOnlyError("You can't write against a read only replica."),
    exceptions.MasterDownError("Link with MASTER is down"),
    exceptions.ClusterDownError("Hash slot not served"),
    exceptions.TryAgainError("Multiple keys request during rehashing of slot"),
    exceptions.ResponseError("BUSY Redis is busy running a script."),
    exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
    exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."),
    exceptions.ResponseError(
        "Error running script (call to f_0): @user_script:1: -OOM command not allowed when used memory > 'maxmemory'."
    ),
]

LASTING = [
    exceptions.AuthenticationError("invalid username-password pair or user is disabled."),
    exceptions.NoPermissionError("this user has no permissions to run the 'evalsha' command"),
    exceptions.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
    exceptions.ResponseError("GUARDVERSION none"),
    exceptions.ResponseError("Error compiling script"),
    ValueError("OOM"),
]


@pytest.mark.parametrize("error", PASSING, ids=str)
def test_what_passes_by_itself_is_transient(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize("error", LASTING, ids=str)
def test_what_lasts_is_not_tried_again(error: Exception) -> None:
    assert not is_transient(error)


def test_a_refusal_within_a_script_is_known_by_its_word() -> None:
    assert word_of(PASSING[-1]) == "OOM"


@pytest.mark.parametrize("error", LASTING[:2], ids=str)
def test_a_closed_door_is_said_with_where_to_look(error: Exception) -> None:
    said = explained(error, "redis://h/0")
    assert isinstance(said, StoreUnavailableError)
    assert "Check the setting store" in str(said)


@pytest.mark.parametrize(
    ("found", "says"), [("none", "missing"), (str(VERSION + 1), "newer than"), (str(VERSION - 1), "older than")]
)
def test_a_store_of_another_version_is_said_with_what_to_do(found: str, says: str) -> None:
    said = explained(exceptions.ResponseError(f"GUARDVERSION {found}"), "redis://h/0")
    assert isinstance(said, StoreSchemaError)
    assert says in str(said)


def test_what_is_no_error_of_the_server_is_left_as_it_is() -> None:
    error = KeyError("x")
    assert explained(error, "redis://h/0") is error
