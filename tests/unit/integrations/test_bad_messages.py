"""A message on the wire may be anything: it is opened, set aside or refused, and nothing escapes into the worker's loop."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.app.trace import trace_task_ret
from celery.worker.consumer import Consumer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kombu.message import Message

from celery_guard import GuardedTask
from celery_guard.integrations.celery.worker import ConsumerStep
from tests.noise import KINDS, Noise, noise


class Channel:
    """What a message is acknowledged at."""

    no_ack_consumers = None

    def __init__(self) -> None:
        self.answers: list[str] = []

    def basic_ack(self, *_: Any, **__: Any) -> None:
        self.answers.append("ack")

    def basic_reject(self, *_: Any, **__: Any) -> None:
        self.answers.append("reject")


class Bench:
    """A consumer without a worker: what it is given to run is kept."""

    def __init__(self, app: Celery) -> None:
        self.app = app
        self.opened: list[Any] = []
        self.refused: list[Any] = []
        consumer = Consumer.__new__(Consumer)
        none: Callable[..., None] = lambda *_, **__: None  # noqa: E731
        consumer.__dict__.update(
            app=app, hostname="unit", connection_errors=(), event_dispatcher=None, disable_rate_limits=True, task_buckets={},
            timer=SimpleNamespace(call_at=none), controller=SimpleNamespace(state=SimpleNamespace(revoked={})),
            pool=SimpleNamespace(apply_async=none), qos=SimpleNamespace(increment_eventually=none), strategies={},
            on_task_request=self.opened.append, on_task_message=set(), restart_count=0, _maximum_prefetch_restored=True,
            apply_eta_task=self.opened.append, call_soon_ack=lambda call, *a, **k: call(*a, **k),
        )  # fmt: skip
        consumer.on_unknown_task = lambda body, message, error: self.refused.append(message)
        consumer.call_soon = lambda call, *a, **k: call(*a, **k)
        ConsumerStep(consumer)
        for name, task in app.tasks.items():
            consumer.strategies[name] = task.start_strategy(app, consumer)
        self.consumer = consumer
        self.handle = consumer.create_task_handler()

    def deliver(self, noise: Noise) -> str:
        """What became of it."""
        channel = Channel()
        message = Message(
            noise.body, delivery_tag="1", content_type=noise.content_type, content_encoding=noise.content_encoding,
            headers=json.loads(json.dumps(noise.headers)), properties=noise.properties, channel=channel,
            delivery_info={"routing_key": "q"}, accept={"application/json"}, postencode="utf-8",
        )  # fmt: skip
        aside, refused, opened = self.set_aside(), len(self.refused), len(self.opened)
        if message.errors:
            message._reraise_error(self.consumer.on_decode_error)
        else:
            self.handle(message)
        if len(self.opened) > opened:
            return self._run(self.opened[-1])
        if len(self.refused) > refused:
            return "refused"
        assert self.set_aside() == aside + 1, "it is nowhere"
        assert channel.answers == ["ack"]
        return "set aside"

    def _run(self, request: Any) -> str:
        """As a child of the pool does."""
        aside = self.set_aside()
        trace_task_ret(
            request.type, request.id, request.request_dict, request.body, request.content_type, request.content_encoding,
            app=self.app,
        )  # fmt: skip
        if self.set_aside() > aside:
            return "set aside by the child"
        job = self.app.guard.store.job(request.id)
        assert job is not None, "it is nowhere"
        assert job.state.value in ("succeeded", "dead", "pending"), job
        return "ran"

    def set_aside(self) -> int:
        return len(self.app.guard.store.quarantined(100_000))


@pytest.fixture
def bench(make_app: Callable[..., Celery]) -> Bench:
    app = make_app(task_ignore_result=True)

    @app.task(base=GuardedTask, name="take", shared=False)
    def take(value: Any) -> Any:
        return None

    app.finalize()
    return Bench(app)


_NUMBERS = itertools.count()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(draw=st.randoms(use_true_random=False))
def test_whatever_comes_is_run_set_aside_or_refused(bench: Bench, draw: random.Random) -> None:
    # ids of their own: the store is the same for all, and knows those that came before
    assert bench.deliver(noise(draw, next(_NUMBERS), "take"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_noise_is_dealt_with(bench: Bench, kind: str) -> None:
    draw = random.Random(kind)
    seen = {bench.deliver(noise(draw, number, "take", kind)) for number in range(40)}
    print(kind, seen)
    assert seen


def test_a_good_message_runs(bench: Bench) -> None:
    assert bench.deliver(noise(random.Random(1), 1, "take", "none")) == "ran"
