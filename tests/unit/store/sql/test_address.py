"""Where the database is."""

from __future__ import annotations

import sys

import pytest
from sqlalchemy import event

from celery_guard.errors import SettingError
from celery_guard.store.sql import open_store
from celery_guard.store.sql.address import address


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("postgresql://h/d", "postgresql+psycopg://h/d"),
        ("postgres://h/d", "postgresql+psycopg://h/d"),
        ("postgresql+psycopg2://h/d", "postgresql+psycopg2://h/d"),
        ("mysql://h/d", "mysql+pymysql://h/d"),
        ("mariadb://h/d", "mariadb+pymysql://h/d"),
        ("sqlite:///guard.db", "sqlite:///guard.db"),
    ],
)
def test_a_url_without_a_driver_is_given_the_one_that_is_installed_with_the_guard(written: str, meant: str) -> None:
    assert address(written).render_as_string() == meant


@pytest.mark.parametrize("wrong", ["", "guard.db", "oracle://h/d", "postgresql://h:port/d"])
def test_what_is_no_url_of_a_known_database_is_a_setting_error(wrong: str) -> None:
    with pytest.raises(SettingError):
        open_store(wrong)


def test_a_driver_that_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingError, match=r"celery-guard\[postgresql\]"):
        open_store("postgresql://h/d")


@pytest.mark.parametrize("url", ["postgresql+nobody://h/d", "mysql+nobody://h/d", "sqlite+nobody:///guard.db"])
def test_a_driver_that_nobody_knows_is_not_said_to_be_missing(url: str) -> None:
    with pytest.raises(SettingError, match=r"knows no driver called \w+\+nobody"):
        open_store(url)


@pytest.mark.parametrize("url", ["postgresql+asyncpg://h/d", "sqlite+aiosqlite:///guard.db", "mysql+asyncmy://h/d"])
def test_a_driver_of_asyncio_is_refused_with_a_plain_one(url: str) -> None:
    with pytest.raises(SettingError, match="for asyncio"):
        open_store(url)


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
@pytest.mark.parametrize(("query", "seconds"), [("", 10), ("?connect_timeout=3", 3)])
def test_a_connection_is_made_in_time_or_given_up(kind: str, query: str, seconds: int) -> None:
    asked: list[dict[str, object]] = []

    def connect(dialect: object, record: object, arguments: object, options: dict[str, object]) -> None:
        asked.append(options)
        raise RuntimeError("seen")

    store = open_store(f"{kind}://h/d{query}")
    event.listen(store._database.engine, "do_connect", connect)
    with pytest.raises(RuntimeError, match="seen"):
        store.check()
    assert [int(str(options["connect_timeout"])) for options in asked] == [seconds]
    store.close()


def test_opening_a_store_opens_no_connection() -> None:
    store = open_store("postgresql+psycopg://nobody@192.0.2.1/nowhere")
    assert "nowhere" in repr(store)
    store.close()


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(open_store("postgresql://user:secret@h/d"))


def test_a_database_in_memory_says_what_it_cannot_keep() -> None:
    store = open_store("sqlite://")
    assert set(store.limits) == {"G1", "G5"}
    with pytest.raises(NotImplementedError, match="G5"):
        store.begin()


def test_a_database_on_disk_keeps_every_guarantee(embedded: object) -> None:
    assert embedded.limits == {}  # type: ignore[attr-defined]
