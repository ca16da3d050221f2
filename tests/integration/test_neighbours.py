"""Packages that live beside Celery go on working: one smoke test each, with guarded tasks.

They are no part of ``dev``: `tox -e neighbours` installs them. A package that is missing skips its test by name.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import celery.contrib.testing.tasks  # noqa: F401 - what it shares is a task of every app from here on, and not one test's leavings
import pytest
from celery import Celery, Task

from celery_guard import Guard, GuardedTask
from celery_guard.errors import ContractError
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.testing.servers import private_redis

from .fleet import ROOT, Fleet, Process, eventually

pytestmark = pytest.mark.integration

if find_spec("pytest_celery") is None:
    pytest_plugins = ("celery.contrib.pytest",)
else:
    # its plug-in hands on Celery's fixtures, but for this one, which is a container there
    from celery.contrib.pytest import celery_worker as celery_worker

MODULE = "tests.integration.app_neighbours"
ADD = "tests.integration.app.add"
TICK = {"task": "tests.integration.app.note", "schedule": 1.0, "args": ["tick"]}


def slots(fleet: Fleet) -> list[str]:
    payloads = [fleet.store.payload(job.id) for job in fleet.store.jobs(limit=1000)]
    return [json.loads(payload.headers)["guard_slot"] for payload in payloads if payload is not None]


# -- Flower -------------------------------------------------------------------------------------------------------------------


def test_flower_shows_guarded_tasks_as_ever(make_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    pytest.importorskip("flower")
    fleet = make_fleet("redis-postgresql")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "celery", "-A", fleet.module, "flower", "--address=127.0.0.1", f"--port={port}",
    ]  # fmt: skip
    flower = Process(command, {**fleet.environment, "FLOWER_UNAUTHENTICATED_API": "true"}, tmp_path / "flower.log")
    fleet.workers.append(flower)
    fleet.worker("threads", 2, "-E")

    def asked(path: str) -> Any:
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return json.load(answer)
        except (URLError, ConnectionError):
            return None

    eventually(lambda: asked("/api/workers?refresh=true"), 60, "Flower and the worker have met")
    good, bad, again = fleet.app.add.delay(1, 2), fleet.app.fails.delay("why"), fleet.app.flaky.delay(1)
    assert good.get(timeout=30) == 3
    assert again.get(timeout=30) == "after 2"
    fleet.all_quiet()
    expected = {good.id: "SUCCESS", bad.id: "FAILURE", again.id: "SUCCESS"}
    shown = eventually(
        lambda: (
            (tasks := asked("/api/tasks") or {})
            and {id: task["state"] for id, task in tasks.items() if id in expected} == expected
            and tasks
        ),
        60,
        "all three, as they ended",
    )
    assert (shown[good.id]["name"], shown[good.id]["result"]) == (ADD, "3")
    assert "why" in shown[bad.id]["exception"]


# -- Django -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def django_fleet(make_fleet: Callable[..., Fleet], tmp_path: Path) -> Fleet:
    """A fleet whose results and schedules are kept by Django, in a database of its own."""
    for package in ("django_celery_results", "django_celery_beat"):
        pytest.importorskip(package)
    fleet = make_fleet("embedded", MODULE)
    fleet.environment["APP_DJANGO"] = str(tmp_path / "django.db")
    fleet.environment["APP_BACKEND"] = "django-db"
    django(fleet, "from django.core.management import call_command; call_command('migrate', verbosity=0)")
    return fleet


def django(fleet: Fleet, code: str) -> str:
    """Run code with the app and Django set up, in a process of its own; what it prints."""
    whole = f"import {MODULE}\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", whole], cwd=ROOT, env=fleet.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


RESULTS = """
import json
from django_celery_results.models import TaskResult
print(json.dumps({result.task_id: [result.status, result.result] for result in TaskResult.objects.all()}))
"""


def test_django_celery_results_keeps_the_results_of_guarded_tasks(django_fleet: Fleet) -> None:
    pytest.importorskip("django_celery_results")
    fleet = django_fleet
    fleet.worker("prefork", 2)
    sent = django(
        fleet,
        "from tests.integration.app import add, fails, flaky\n"
        "print(add.delay(1, 2).id, fails.delay('why').id, flaky.delay(1).id)",
    )
    good, bad, again = sent.split()
    for id in (good, bad, again):
        eventually(lambda id=id: fleet.job(id).told, 60, "told")  # type: ignore[misc]
    kept = json.loads(django(fleet, RESULTS))
    assert kept[good] == ["SUCCESS", "3"]
    assert kept[again] == ["SUCCESS", '"after 2"']
    assert kept[bad][0] == "FAILURE"
    assert json.loads(kept[bad][1])["exc_message"] == ["why"]


SCHEDULE = """
from django_celery_beat.models import IntervalSchedule, PeriodicTask
every, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
PeriodicTask.objects.create(name="often", task="tests.integration.app.note", args='["tick"]', interval=every)
"""


def test_django_celery_beat_schedules_guarded_tasks_and_two_of_it_run_a_slot_once(django_fleet: Fleet) -> None:
    pytest.importorskip("django_celery_beat")
    fleet = django_fleet
    django(fleet, SCHEDULE)
    fleet.worker("threads", 2)
    _two_beats(fleet, "django_celery_beat.schedulers:DatabaseScheduler")


# -- redbeat --------------------------------------------------------------------------------------------------------------------


def test_redbeat_schedules_guarded_tasks_and_two_of_it_without_a_lock_run_a_slot_once(
    make_fleet: Callable[..., Fleet], redis_url: str
) -> None:
    pytest.importorskip("redbeat")
    fleet = make_fleet("embedded", beat_schedule={"often": TICK}, redbeat_redis_url=f"{redis_url}3")
    fleet.configure(redbeat_key_prefix=f"{fleet.folder.name}:", redbeat_lock_key=None)
    fleet.worker("threads", 2)
    _two_beats(fleet, "redbeat.RedBeatScheduler")


def _two_beats(fleet: Fleet, scheduler: str) -> None:
    beats = [fleet.beat("-S", scheduler, "--max-interval", "1") for _ in range(2)]
    eventually(lambda: len(slots(fleet)) >= 4, 60, "four slots")
    eventually(lambda: any("enqueued before, as job" in beat.output() for beat in beats), 60, "a second send")
    for beat in beats:
        beat.terminate()
    fleet.all_quiet()
    found = slots(fleet)
    assert len({*found}) == len(found)
    assert fleet.counted() == {"note tick": len(found)}


# -- celery-batches -----------------------------------------------------------------------------------------------------------


def test_celery_batches_is_refused_where_it_is_declared() -> None:
    batches = pytest.importorskip("celery_batches")
    with pytest.raises(ContractError, match="Strategy") as refused:
        type("Both", (batches.Batches, GuardedTask), {})
    assert refused.value.code == "GUARD-102"
    app = Celery("shop", set_as_current=False, task_cls=GuardedTask)

    @app.task(base=batches.Batches, shared=False)
    def many(requests: Any) -> None: ...

    assert isinstance(app.tasks[many.name], Task)
    assert not isinstance(app.tasks[many.name], GuardedTask)


# -- Celery's own fixtures ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def celery_config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of Celery's fixtures: the app that they make has this configuration."""
    return {"broker_url": "memory://", "result_backend": "cache+memory://"}


@pytest.fixture
def guarded_app(celery_app: Celery, tmp_path: Path) -> Iterator[Celery]:
    """The app of Celery's fixture, guarded, before its worker starts."""
    guard = Guard(celery_app, store=f"sqlite:///{tmp_path / 'guard.db'}", poll=0.05)
    guard.store.upgrade()

    @celery_app.task(base=GuardedTask, name="shop.add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    yield celery_app
    guard.store.close()


def test_the_worker_of_celerys_own_pytest_fixtures_runs_guarded_tasks(guarded_app: Celery, celery_worker: Any) -> None:
    """``celery_app`` and ``celery_worker``, with and without pytest-celery beside them."""
    result = guarded_app.tasks["shop.add"].delay(1, 2)
    assert result.get(timeout=30) == 3
    store = runtime_of(guarded_app).store
    job = eventually(lambda: (found := store.job(result.id)) and found.told and found)
    assert job.state.value == "succeeded"


# -- pytest-celery ----------------------------------------------------------------------------------------------------------------


def test_what_pytest_celery_puts_into_its_containers_runs_guarded_tasks(tmp_path: Path) -> None:
    """Its app, its tasks, its command and its environment, in a process; the container around them needs Docker."""
    plugin = pytest.importorskip("pytest_celery")
    tasks = pytest.importorskip("pytest_celery.vendors.worker.tasks")
    from . import app_in_container

    container = plugin.CeleryWorkerContainer
    store = f"sqlite:///{tmp_path / 'guard.db'}"

    class Guarded(plugin.CeleryTestSetup):  # type: ignore[misc,name-defined]
        @classmethod
        def update_app_config(cls, app: Celery) -> None:
            app.task_cls = GuardedTask
            Guard(app, store=store).store.upgrade()

    with ExitStack() as stack:
        redis = stack.enter_context(private_redis()).start().url
        kinds = ("celery_broker_cluster_config", "celery_backend_cluster_config")
        cluster = {kind: {"urls": [redis], "host_urls": [redis]} for kind in kinds}
        app = Guarded.create_setup_app(Guarded.config(cluster), Guarded.name())
        stack.callback(runtime_of(app).store.close)
        content = container.initial_content(app_module=app_in_container, worker_app=app)
        for name, source in content.items():
            path = tmp_path / "app" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source)
        environment = {**os.environ, **container.initial_env(cluster), "CELERY_GUARD_STORE": store}
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "app"), str(ROOT)])
        command = [sys.executable, "-m", *container.command()]
        worker = Process(command, environment, tmp_path / "worker.log", tmp_path / "app")
        stack.callback(worker.kill)
        worker.says(" ready.")

        def sent(task: Any, *args: Any) -> Any:
            return app.tasks[task.name].delay(*args)

        def state(id: str) -> str | None:
            job = runtime_of(app).store.job(id)
            return job.state.value if job is not None and job.told else None

        ping, replaced, failing = sent(tasks.ping), sent(tasks.add_replaced, 1, 2), sent(tasks.fail)
        assert ping.get(timeout=60) == "pong"
        assert replaced.get(timeout=60) == 3
        with pytest.raises(RuntimeError, match="expected to fail"):
            failing.get(timeout=60)
        ends = [eventually(partial(state, result.id)) for result in (ping, replaced, failing)]
        assert ends == ["succeeded", "succeeded", "dead"]
