"""A worker whose broker is a Redis that is too old for kombu says so, and does not start."""

from __future__ import annotations

from typing import Any

import kombu
import pytest
import redis
from celery import Celery

from celery_guard.errors import ConfigurationError
from celery_guard.integrations.celery.redis_broker import refuse_old_broker

pytestmark = pytest.mark.integration


@pytest.fixture
def app(redis_url: str) -> Celery:
    return Celery("unit", broker=f"{redis_url}1", set_as_current=False)


def says(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]) -> None:
    monkeypatch.setattr(redis.Redis, "info", lambda self, *section: said)


@pytest.mark.parametrize("found", ["6.0.16", "5.0.14"])
def test_a_redis_that_kombu_cannot_consume_from_is_refused_with_what_to_do(
    app: Celery, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    says(monkeypatch, {"redis_version": found})
    monkeypatch.setattr(kombu, "VERSION", (5, 7, 0))
    with pytest.raises(ConfigurationError, match=rf"found Redis {found}, expected 6\.2 or later.*To repair: upgrade"):
        refuse_old_broker(app)
    monkeypatch.setattr(kombu, "VERSION", (5, 6, 2))
    refuse_old_broker(app)


@pytest.mark.parametrize("said", [{"redis_version": "6.2.0"}, {"redis_version": "10.0"}, {}], ids=str)
def test_a_redis_that_is_new_enough_or_does_not_say_is_taken(
    app: Celery, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    refuse_old_broker(app)
    says(monkeypatch, said)
    refuse_old_broker(app)


@pytest.mark.parametrize("broker", ["redis://127.0.0.1:1/0", "memory://", "amqp://127.0.0.1:1//"])
def test_a_broker_that_does_not_answer_and_one_that_is_no_redis_are_left_to_celery(broker: str) -> None:
    refuse_old_broker(Celery("unit", broker=broker, set_as_current=False))
