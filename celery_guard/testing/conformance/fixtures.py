"""The store that every test is given: open for the module, empty for the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_guard.store.protocol import Store

from .subject import Subject

__all__ = ["opened_store", "store"]


@pytest.fixture(scope="module")
def opened_store(subject: Subject) -> Iterator[Store]:
    """One store for the module, as a process would have it, with the tables of this version."""
    store = subject.open(subject.url)
    store.upgrade()
    store.check()
    yield store
    store.close()


@pytest.fixture
def store(opened_store: Store, subject: Subject) -> Store:
    """The store with nothing in it."""
    subject.empty(subject.url)
    return opened_store
