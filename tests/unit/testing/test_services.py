"""Where the servers of the tests are, and what happens when one does not answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from celery_guard.testing.services import Server


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        yield door


def _server(port: int) -> Server:
    return Server("nowheredb", f"nowheredb://127.0.0.1:{port}/test", 1)


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


def test_a_server_that_answers_is_given_by_its_url(listening: socket.socket) -> None:
    server = _server(listening.getsockname()[1])
    assert server.answers
    assert server.need() == server.default


def test_a_server_that_does_not_answer_is_skipped_by_name_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    server = _server(_closed_port())
    with pytest.raises(pytest.skip.Exception, match=f"nowheredb.*{server.address[1]}.*GUARD_TEST_NOWHEREDB"):
        server.need()


def test_a_server_that_does_not_answer_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="nowheredb"):
        _server(_closed_port()).need()


def test_the_environment_says_where_a_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("nowheredb", "nowheredb://127.0.0.1/test", 777)
    assert server.address == ("127.0.0.1", 777)
    monkeypatch.setenv("GUARD_TEST_NOWHEREDB", "nowheredb://db.example:99/other")
    assert (server.url, server.address) == ("nowheredb://db.example:99/other", ("db.example", 99))


def test_a_server_is_asked_once_a_run(listening: socket.socket) -> None:
    server = _server(listening.getsockname()[1])
    assert server.answers
    listening.close()
    assert server.answers
