"""How the URL of a Redis store is read, and what is wrong with one."""

from __future__ import annotations

import sys

import pytest
from redis.connection import SSLConnection, UnixDomainSocketConnection

from celery_guard.errors import SettingError
from celery_guard.store import open_store
from celery_guard.store.redis.address import address


def test_the_name_is_the_tag_of_every_key() -> None:
    assert address("redis://h/0?name=shop").tag == "{guard:shop}"
    assert address("redis://h").tag == "{guard:main}"


def test_a_server_is_where_the_url_says() -> None:
    found = address("redis://me:p%40ss@h:7000/3?name=shop&socket_timeout=2")
    assert (found.kind, found.nodes) == ("server", ())
    said = {name: found.options[name] for name in ("host", "port", "db", "username", "password", "socket_timeout")}
    assert said == {"host": "h", "port": 7000, "db": 3, "username": "me", "password": "p@ss", "socket_timeout": 2.0}


def test_every_connection_has_a_bound_on_its_answers() -> None:
    found = address("redis://h").options
    assert found["socket_timeout"] > 0
    assert found["socket_connect_timeout"] > 0


def test_tls_and_sockets_are_connections_of_their_kind() -> None:
    assert address("rediss://h").options["connection_class"] is SSLConnection
    local = address("unix:///run/redis.sock?db=2&name=shop").options
    assert (local["connection_class"], local["path"], local["db"]) == (UnixDomainSocketConnection, "/run/redis.sock", 2)


def test_sentinels_are_asked_for_a_service() -> None:
    found = address("redis+sentinel://:pw@a:1,b/4?service=shop&name=orders")
    assert (found.kind, found.service, found.nodes) == ("sentinel", "shop", (("a", 1), ("b", 26379)))
    assert (found.options["db"], found.options["password"], found.tag) == (4, "pw", "{guard:orders}")


def test_a_cluster_is_any_of_its_nodes() -> None:
    found = address("rediss+cluster://a:1,b:2")
    assert (found.kind, found.nodes) == ("cluster", (("a", 1), ("b", 2)))
    assert found.options["connection_class"] is SSLConnection


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h?name=a{b", "letters, digits"),
        ("redis://h?name=", "letters, digits"),
        ("redis://h?nam=shop", "no option 'nam'"),
        ("redis://h?protocol=3", "no option 'protocol'"),
        ("redis://h?socket_timeout=soon", "socket_timeout"),
        ("redis://h:port", "no URL"),
        ("redis+sentinel://h", "service="),
        ("redis+sentinel://h:x/?service=a", "host and port"),
        ("redis+cluster://h/3", "no numbered databases"),
        ("redis+cluster://h?db=3", "no option 'db'"),
        ("redis+proxy://h", "'proxy'"),
    ],
)
def test_what_is_no_address_is_refused_by_name(url: str, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        address(url)


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(open_store("redis://me:secret@h/0?name=shop"))
    assert "secret" not in repr(open_store("redis://h/0?name=shop&password=secret"))


def test_opening_connects_to_nothing() -> None:
    open_store("redis://192.0.2.1/0").close()


def test_a_driver_that_is_not_installed_is_said_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("celery_guard.store.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(SettingError, match=r"celery-guard\[redis\]"):
        open_store("redis://h")
