"""A store whose place somebody else says, as Django does: asked for each connection, and left when it has changed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from celery_guard.store.sql import SqlStore
from celery_guard.testing.conformance.builders import new_job


class Settings:
    """Somebody else's, which may change while the process runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = "shop"
        self.asked = 0

    def connect(self) -> dict[str, Any]:
        self.asked += 1
        return {"database": str(self.folder / f"{self.name}.db"), "check_same_thread": False}

    def place(self) -> str:
        return self.name


def opened(settings: Settings) -> SqlStore:
    return SqlStore("sqlite:///shown.db", connect=settings.connect, place=settings.place)


def test_nothing_is_asked_before_the_first_use(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    store = opened(settings)
    settings.name = "test_shop"
    assert settings.asked == 0
    store.upgrade()
    assert os.listdir(tmp_path)[0].startswith("test_shop.db")
    store.close()


def test_a_place_that_has_changed_is_another_database(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    store = opened(settings)
    store.upgrade()
    identity = store._own_identity()
    store.enqueue([new_job()])
    settings.name = "test_shop"
    store.upgrade()
    assert store.counts() == {}
    assert store._own_identity() != identity
    settings.name = "shop"
    assert sum(store.counts().values()) == 1
    assert store._own_identity() == identity
    store.close()


def test_connections_are_kept_while_the_place_is_the_same(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    store = opened(settings)
    store.upgrade()
    asked = settings.asked
    for _ in range(3):
        store.counts()
    assert settings.asked == asked
    store.close()


def test_a_file_without_a_log_that_is_being_written_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    store = SqlStore(f"sqlite:///{path}")
    store.upgrade()
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = DELETE")
        writer.execute("BEGIN IMMEDIATE")
        assert store.counts() == {}
        writer.execute("ROLLBACK")
    store.close()
