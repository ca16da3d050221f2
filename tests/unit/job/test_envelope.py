"""The guard's header on a message."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from celery_guard.job.envelope import VERSION, Envelope, Unreadable, open_header
from celery_guard.job.instant import Instant

FULL = Envelope(
    id="a-b",
    key="k" * 64,
    fingerprint="f" * 64,
    generation=3,
    created=1714564800.5,
    deadline=Instant(1714564800_000001),
    tenant="Größe",
    correlation_id="c",
)


@pytest.mark.parametrize("envelope", [FULL, Envelope(id="a")])
def test_an_envelope_comes_back_through_json(envelope: Envelope) -> None:
    assert open_header(json.loads(json.dumps(envelope.to_header()))) == envelope


def test_an_envelope_is_a_value_and_its_parts_have_names() -> None:
    with pytest.raises(FrozenInstanceError):
        FULL.id = "b"  # type: ignore[misc]
    kind: Any = Envelope
    with pytest.raises(TypeError):
        kind("a")


def test_the_longest_texts_and_largest_numbers_are_read() -> None:
    header = {"version": 1, "id": "i" * 512, "deadline": 2**63 - 1, "created": -(2**63 - 1)}
    assert open_header(header) == Envelope(id="i" * 512, deadline=Instant(2**63 - 1), created=-(2**63 - 1))
    assert isinstance(open_header({**header, "id": "i" * 513}), Unreadable)


def test_what_is_not_set_is_not_sent() -> None:
    assert Envelope(id="a").to_header() == {"version": 1, "id": "a", "generation": 0}


def test_fields_of_a_later_release_are_left_alone() -> None:
    assert open_header({**FULL.to_header(), "shard": 7}) == FULL


def test_a_newer_version_says_so() -> None:
    found = open_header({"version": VERSION + 1, "id": {"new": "shape"}})
    assert isinstance(found, Unreadable)
    assert found.newer
    assert found.version == VERSION + 1
    assert f"version {VERSION + 1}" in found.reason


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (None, "no guard header"),
        ("text", "not a mapping"),
        ([], "not a mapping"),
        ({}, "no version"),
        ({"version": "1", "id": "a"}, "no version"),
        ({"version": True, "id": "a"}, "no version"),
        ({"version": 0, "id": "a"}, "no version"),
        ({"version": 1}, "id"),
        ({"version": 1, "id": ""}, "id"),
        ({"version": 1, "id": 7}, "id"),
        ({"version": 1, "id": "a" * 1000}, "id"),
        ({"version": 1, "id": "a", "key": 7}, "key"),
        ({"version": 1, "id": "a", "fingerprint": []}, "fingerprint"),
        ({"version": 1, "id": "a", "generation": -1}, "generation"),
        ({"version": 1, "id": "a", "generation": True}, "generation"),
        ({"version": 1, "id": "a", "generation": 1.5}, "generation"),
        ({"version": 1, "id": "a", "created": float("nan")}, "created"),
        ({"version": 1, "id": "a", "created": "now"}, "created"),
        ({"version": 1, "id": "a", "deadline": 1.5}, "deadline"),
        ({"version": 1, "id": "a", "deadline": 2**63}, "deadline"),
        ({"version": 1, "id": "a", "tenant": 7}, "tenant"),
        ({"version": 1, "id": "a", "correlation_id": {}}, "correlation_id"),
    ],
)
def test_what_is_no_envelope_is_an_answer_and_no_error(header: Any, named: str) -> None:
    found = open_header(header)
    assert isinstance(found, Unreadable)
    assert named in found.reason
    assert not found.newer


def test_a_wrong_value_is_not_printed() -> None:
    found = open_header({"version": 1, "id": "a", "tenant": ["secret"]})
    assert isinstance(found, Unreadable)
    assert "secret" not in found.reason


@pytest.mark.parametrize(
    "name", ["key", "fingerprint", "created", "deadline", "tenant", "correlation_id", "generation"]
)
def test_an_explicit_null_is_no_value(name: str) -> None:
    assert open_header({"version": 1, "id": "a", name: None}) == Envelope(id="a")
