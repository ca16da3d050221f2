"""Payload models: versions, upcasts, snapshots, and what of them is on the wire."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import new_class
from typing import Any
from uuid import UUID

import pytest

from celery_guard import ContractError, Payload, PayloadError, PayloadVersionError, Snapshot, upcast
from celery_guard.contract.payload import encoded, opened, validated


class Charge(Payload, version=3):
    order: int
    cents: int
    currency: str = "EUR"

    @upcast(1)
    def in_cents(data: Any) -> Any:
        return {"order": data["order"], "cents": data.pop("euros") * 100}

    @upcast(2)
    def with_currency(data: Any) -> Any:
        return {**data, "currency": "USD"}


def test_each_older_version_is_brought_up_step_by_step() -> None:
    assert opened(Charge, {"order": 7, "euros": 5}, 1, "charge") == Charge(order=7, cents=500, currency="USD")
    assert opened(Charge, {"order": 7, "cents": 5}, 2, "charge") == Charge(order=7, cents=5, currency="USD")
    assert opened(Charge, {"order": 7, "cents": 5}, 3, "charge") == Charge(order=7, cents=5)


def test_an_upcast_cannot_change_the_message() -> None:
    data = {"order": 7, "euros": 5}
    opened(Charge, data, 1, "charge")
    assert data == {"order": 7, "euros": 5}


def test_what_has_no_version_is_taken_for_the_first() -> None:
    assert opened(Charge, {"order": 7, "euros": 5}, None, "charge").cents == 500


def test_a_newer_version_is_no_failure_of_the_data() -> None:
    with pytest.raises(PayloadVersionError, match="version 4; this worker reads up to version 3") as caught:
        opened(Charge, {"anything": 1}, 4, "charge")
    assert caught.value.version == 4


@pytest.mark.parametrize(
    ("data", "version", "words"),
    [
        ({"order": "x", "cents": 1}, 3, "order: Input should be a valid integer"),
        ({"order": 1}, 3, "cents: Field required"),
        ({"order": 1, "cents": 1, "more": 1}, 3, "more: Extra inputs are not permitted"),
        ({"order": 1}, 1, "the upcast of Charge from version 1 failed: KeyError"),
        ([1], 3, "is no Charge of version 3"),
    ],
    ids=["wrong type", "missing", "unknown field", "upcast", "no mapping"],
)
def test_data_that_is_not_what_it_says_is_refused_by_its_field(data: Any, version: int, words: str) -> None:
    with pytest.raises(PayloadError, match=words):
        opened(Charge, data, version, "charge")


def test_a_refusal_shows_no_value() -> None:
    with pytest.raises(PayloadError) as caught:
        validated(Charge, {"order": "4111-1111", "cents": 1}, "charge")
    assert "4111" not in str(caught.value)


def declare(**versions: Any) -> Any:
    def one(data: Any) -> Any:
        return data

    steps = versions.pop("steps", ())
    upcasts = {f"from_{n}": upcast(version)(one) for n, version in enumerate(steps)}
    return new_class("Made", (Payload,), versions, lambda body: body.update(upcasts))


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({"version": 2}, "no upcast 1 -> 2"),
        ({"version": 4, "steps": (1, 3)}, "no upcast 2 -> 3"),
        ({"version": 2, "steps": (1, 1)}, "two upcasts"),
        ({"version": 2, "steps": (1, 2)}, "upcast from version 2"),
        ({"version": 3, "oldest": 3, "steps": (2,)}, "upcast from version 2"),
        ({"version": 0}, "1 or more"),
        ({"version": "2"}, "whole number"),
        ({"version": 1, "oldest": 2}, "at most version=1"),
    ],
)
def test_a_gap_between_versions_is_refused_where_the_model_is_declared(versions: Any, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        declare(**versions)


def test_versions_before_the_oldest_are_not_read_any_more() -> None:
    model = declare(version=3, oldest=2, steps=(2,))
    assert opened(model, {}, 2, "made") == model()
    with pytest.raises(PayloadError, match="versions before 2 are not read any more"):
        opened(model, {}, 1, "made")


class Everything(Payload):
    day: date
    at: datetime
    amount: Decimal
    id: UUID
    parts: tuple[int, ...]
    within: timedelta
    raw: bytes = b"x"
    inner: Charge | None = None


def test_what_json_lacks_goes_as_text_and_comes_back_as_it_was() -> None:
    sent = Everything(
        day=date(2026, 1, 2), at=datetime(2026, 1, 2, tzinfo=timezone.utc), amount=Decimal("1.10"), id=UUID(int=7),
        parts=(1, 2), within=timedelta(hours=1), inner=Charge(order=1, cents=2),
    )  # fmt: skip
    data = json.loads(json.dumps(encoded(sent, "all")))
    assert data["amount"] == "1.10"
    assert opened(Everything, data, 1, "all") == sent


class Loose(Payload):
    value: Any


@pytest.mark.parametrize("value", [date(2026, 1, 2), {1: "a"}, {1, 2}], ids=repr)
def test_a_field_whose_json_loses_its_value_is_refused_at_enqueue(value: Any) -> None:
    with pytest.raises(PayloadError, match=r"value of Loose does not come back"):
        encoded(Loose(value=value), "loose")


class Price(Snapshot, version=1, good_for=timedelta(minutes=15)):
    cents: int


class Dearer(Price, version=1):
    extra: int = 0


def test_a_snapshot_says_when_it_was_taken_and_expires() -> None:
    price = Dearer(cents=1, snapshot_taken_at=datetime(2026, 1, 1, tzinfo=timezone.utc))
    assert not price.expired(datetime(2026, 1, 1, 0, 15, tzinfo=timezone.utc))
    assert price.expired(datetime(2026, 1, 1, 0, 15, 1, tzinfo=timezone.utc))
    assert opened(Dearer, encoded(price, "price"), 1, "price") == price


def test_a_message_without_the_moment_of_its_snapshot_is_not_taken_for_fresh() -> None:
    with pytest.raises(PayloadError, match="when it was taken"):
        opened(Price, {"cents": 1}, 1, "price")


def test_a_snapshot_has_to_say_how_long_it_is_good() -> None:
    with pytest.raises(ContractError, match="good_for"):
        new_class("Bad", (Snapshot,))
