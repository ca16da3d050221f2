"""A store of the test's own, in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_guard.store import open_store
from celery_guard.store.protocol import Store


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'guard.db'}"


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = open_store(store_url)
    store.upgrade()
    yield store
    store.close()
