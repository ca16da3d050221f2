"""``rpc://``: results go to a queue of the process that enqueued, which is made when it enqueues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .fleet import Fleet

pytestmark = pytest.mark.integration


def test_a_result_comes_back_by_rpc(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet("rabbitmq-postgresql", result_backend="rpc://")
    result = fleet.app.add.delay(2, 3)
    assert type(fleet.app.app.backend).__name__ == "RPCBackend"
    fleet.worker()
    try:
        assert result.get(timeout=30) == 5
    finally:
        fleet.app.app.backend.result_consumer.stop()
