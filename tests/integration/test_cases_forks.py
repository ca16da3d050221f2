"""DB-1 in web servers that fork: gunicorn with ``--preload`` imports the app once, and its workers are forks of that."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, text

from celery_guard.testing.databases import database
from celery_guard.testing.services import POSTGRESQL

from .fleet import Fleet, Process, eventually

pytestmark = pytest.mark.integration

pytest.importorskip("gunicorn")


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    with database(POSTGRESQL.need()) as url:
        made = make_fleet("redis-postgresql", "tests.integration.app_outbox", own_store=url)
        yield made
        for worker in made.workers:
            worker.kill()
        made.store.close()


class Server(Process):
    """gunicorn, with two workers of the plain kind."""

    def __init__(self, fleet: Fleet, *options: str, **environment: str) -> None:
        command = [
            sys.executable, "-m", "gunicorn", "--preload", "-w", "2", "-k", "sync", "-b", "127.0.0.1:0", *options,
            "tests.integration.app_web:application",
        ]  # fmt: skip
        super().__init__(
            command, {**fleet.environment, "APP_SESSIONS": "1", **environment}, fleet.folder / "gunicorn.log"
        )
        fleet.workers.append(self)
        self.says("Listening at: ")
        found = re.search(r"Listening at: (http://[\d.:]+)", self.output())
        assert found is not None
        self.url = found[1]

    def order(self, number: int) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/{number}", timeout=30) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found


def sessions(fleet: Fleet) -> dict[int, set[int]]:
    """The server's sessions that each process has used."""
    used = defaultdict(set)
    for mark in fleet.marks():
        if mark.startswith("session"):
            _, process, session = mark.split()
            used[int(process)].add(int(session))
    return used


def test_db_1_a_preloaded_web_server_connects_nothing_before_it_forks_and_loses_no_job(
    fleet: Fleet, shop: Engine
) -> None:
    server = Server(fleet)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(server.order, range(40)))
    while len({answer["pid"] for answer in answers}) < 2:
        answers.append(server.order(len(answers)))
    assert server.terminate() == 0
    used = sessions(fleet)
    assert set(used) == {answer["pid"] for answer in answers}, "the master has connected"
    assert not set.intersection(*used.values()), "a connection was used by two processes"
    fleet.worker()
    fleet.all_quiet(60)
    assert {fleet.state(id) for answer in answers for id in answer["jobs"]} == {"succeeded"}
    assert all(fleet.counted()[f"order {number} found"] == 1 for number in range(len(answers)))


def test_db_1_what_the_master_has_opened_before_it_forked_stays_its_own(fleet: Fleet, shop: Engine) -> None:
    """Its workers are recycled, too: one that goes does not hang up for its parent."""
    server = Server(fleet, "--max-requests", "5", APP_TOUCHES="1")
    for number in range(30):
        server.order(number)
    used = sessions(fleet)
    master = server.process.pid
    assert fleet.counted()[f"imported by {master}"] == 1
    assert len(used) > 3, "the workers were not recycled"
    everywhere = [session for each in used.values() for session in each]
    assert len(everywhere) == len(set(everywhere)), "a connection was used by two processes"
    [masters] = used[master]
    with shop.connect() as connection:
        alive = connection.scalar(text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid"), {"pid": masters})
    assert alive == 1, "a worker closed its parent's connection"
    eventually(lambda: fleet.store.counts())
    assert sum(fleet.store.counts().values()) == 60
    assert server.terminate() == 0
