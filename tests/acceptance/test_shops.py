"""The shops of the examples, each as its README says: requests, and a real worker on SQLite and the file broker."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.fleet import Process, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "queue").mkdir()
    said = {
        "SHOP_DATABASE": f"sqlite:///{tmp_path / 'shop.db'}",
        "SHOP_BROKER": f"files://localhost{tmp_path / 'queue'}",
    }
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CELERY")}
    return {**kept, **said}


@pytest.fixture
def shop(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Set a shop up and start its worker; the module with its web application."""
    processes: list[Process] = []
    modules: set[str] = set()

    def opened(package: str, tasks: str, web: str) -> Any:
        modules.add(package)
        upgrade = [sys.executable, "-m", "celery", "-A", f"{package}.{tasks}", "guard", "store", "upgrade"]
        processes.append(Process(upgrade, environment, tmp_path / "upgrade.log"))
        assert processes[-1].process.wait(60) == 0, processes[-1].output()
        worker = [sys.executable, "-m", "celery", "-A", f"{package}.{tasks}", "worker", "-c", "1", "-l", "INFO"]
        processes.append(Process(worker, environment, tmp_path / "worker.log"))
        return importlib.import_module(f"{package}.{web}")

    yield opened
    for process in processes:
        process.kill()
        print(process.output()[-4000:])
    for name in [name for name in sys.modules if name.startswith(tuple(modules))]:
        del sys.modules[name]


def _shows(client: Any, order: int, expected: dict[str, Any]) -> bool:
    answer = client.get(f"/orders/{order}")
    return bool((answer.json() if callable(answer.json) else answer.json) == expected)


def test_the_fastapi_shop_charges_for_orders_that_were_placed_and_for_no_others(shop: Callable[..., Any]) -> None:
    testclient = pytest.importorskip("fastapi.testclient")
    web = shop("examples.fastapi_shop", "tasks", "web")
    with testclient.TestClient(web.web) as client:
        client.portal.call(importlib.import_module("examples.fastapi_shop.database").create_tables)
        assert client.post("/orders", json={"amount": 2000}).status_code == 402
        placed = [client.post("/orders", json={"amount": amount}) for amount in (5, 7)]
        assert [answer.status_code for answer in placed] == [202, 202]
        for answer in placed:
            eventually(partial(_shows, client, answer.json()["id"], {"paid": True}))
        jobs = web.guard.store.jobs()
        assert {job.id for job in jobs} == {answer.json()["job"] for answer in placed}
        for answer in placed:
            place = answer.headers["Location"]
            eventually(lambda place=place: client.get(place).json()["status"] == "done")  # type: ignore[misc]
            assert client.get(place).json()["progress"] is None
            assert "Retry-After" not in client.get(place).headers
            assert client.get(place, headers={"Tenant": "another"}).status_code == 404
        assert client.get("/jobs/nobody").status_code == 404
        other = client.post("/orders", json={"amount": 9}, headers={"Tenant": "another"})
        assert client.get(other.headers["Location"]).status_code == 404
        assert client.get(other.headers["Location"], headers={"Tenant": "another"}).status_code == 200
        client.portal.call(importlib.import_module("examples.fastapi_shop.database").engine.dispose)
    web.guard.store.close()


def test_the_flask_shop_charges_in_its_application_context(shop: Callable[..., Any]) -> None:
    pytest.importorskip("flask")
    web = shop("examples.flask_shop", "shop", "shop")
    database = importlib.import_module("examples.flask_shop.database")
    database.Base.metadata.create_all(database.engine)
    client = web.web.test_client()
    assert client.post("/orders", data={"amount": 2000}).status_code == 400
    placed = [client.post("/orders", data={"amount": amount}) for amount in (5, 7)]
    assert [answer.status_code for answer in placed] == [202, 202]
    for answer, paid in zip(placed, ("5 EUR", "7 EUR"), strict=True):
        eventually(partial(_shows, client, answer.json["id"], {"paid": paid}))
    assert {job.id for job in web.guard.store.jobs()} == {answer.json["job"] for answer in placed}
    database.engine.dispose()
    web.guard.store.close()
