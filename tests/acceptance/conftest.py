"""The examples are whole programs, whose tasks are any app's that comes after them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery import _state


@pytest.fixture(autouse=True)
def shares_no_task() -> Iterator[None]:
    """Here they are forgotten with the test, and nothing is said about it."""
    before = set(_state._on_app_finalizers)
    yield
    _state._on_app_finalizers.intersection_update(before)
