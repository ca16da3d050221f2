"""A chord's member whose part was turned away is told once more, so that the chord cannot be lost with the process that sent its body."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from celery_guard.integrations.celery.tell import Telling


class ClaimlessBackend:
    """What a result backend is told."""

    def __init__(self, claim: Any = None) -> None:
        self.client = SimpleNamespace(get={"group-1.c": claim}.get)
        self.told: list[str] = []

    def get_key_for_group(self, group: str, suffix: str) -> str:
        return f"{group}{suffix}"

    def mark_as_done(self, task_id: str, *given: Any) -> None:
        self.told.append(task_id)

    def mark_as_failure(self, task_id: str, *given: Any, **more: Any) -> None:
        self.told.append(task_id)

    def mark_as_revoked(self, task_id: str, *given: Any, **more: Any) -> None:
        self.told.append(task_id)


class Backend(ClaimlessBackend):
    """One with claims on chords, as Celery's for Redis has them."""

    _chord_part_return_script = None


def member(**more: Any) -> Any:
    return SimpleNamespace(**{"chord": "body", "group": "group-1", "guard_tells": 7, "guard_hands_back": True, **more})


def tell(backend: Any, request: Any, how: str = "done") -> Any:
    """Tell, and say what fence is still to be noted as told."""
    given = {"done": (1, request), "failure": (ValueError("no"), None, request), "revoked": ("cancelled", request)}
    noted: list[Any] = []
    keeper: Any = SimpleNamespace(told=lambda id, fence: noted.append((id, fence)))
    getattr(Telling(backend, keeper), f"mark_as_{how}")("job-1", *given[how])
    assert noted == ([("job-1", request.guard_tells)] if request.guard_tells is not None else [])
    assert backend.told == ["job-1"]
    return request.guard_tells


@pytest.mark.parametrize("how", ["done", "failure", "revoked"])
def test_a_part_that_is_returned_again_during_a_claim_is_returned_once_more(how: str) -> None:
    assert tell(Backend(b"a-token"), member(), how) is None


@pytest.mark.parametrize("how", ["done", "failure", "revoked"])
@pytest.mark.parametrize("claim", [None, b"done", "done"])
def test_a_part_that_is_returned_again_without_a_claim_is_told(claim: Any, how: str) -> None:
    assert tell(Backend(claim), member(), how) == 7


def test_a_first_part_is_told_whoever_sends_the_body() -> None:
    assert tell(Backend(b"a-token"), member(guard_hands_back=False)) == 7


@pytest.mark.parametrize("alone", [{"chord": None}, {"group": None}])
def test_a_job_outside_a_chord_is_told(alone: dict[str, Any]) -> None:
    assert tell(Backend(b"a-token"), member(**alone)) == 7


def test_a_backend_that_knows_no_claims_is_not_asked() -> None:
    backend = ClaimlessBackend(b"a-token")
    assert tell(backend, member()) == 7
