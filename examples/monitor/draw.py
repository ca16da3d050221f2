"""Draw the dashboard's panels from a run of the shop: ``python -m examples.monitor.draw docs/howto/monitor.svg``.

The shop with a beat, ``guard metrics`` and a Prometheus (Debian's package ``prometheus``) run for two minutes, each on a port of its own on
the loopback. At first all is well but for some orders; then the worker is ended, and another comes. Somebody mends the addresses and replays what
could not be shipped, and replays what could not be charged, which nobody has mended. What the dashboard asks of Prometheus is asked here too, word for
word, and drawn; what is drawn in grey is the time from the end of the worker's process until a relay is alive again, as it was.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from celery_guard import KeyConflict
from celery_guard.watch.dashboard import PANELS, Panel
from celery_guard.watch.metrics import PREFIX

from .picture import picture

ROOT = Path(__file__).parents[2]
#: When the worker is told to end, for how long there is none, and when the letters of an owner are replayed; in seconds.
SECONDS, AWAY, GONE_FOR, REPLAYED = 120, 40, 12, {82: "ship", 86: "charge"}
APP = "examples.monitor.shop"


def main(file: str) -> None:
    """Run the shop, and draw."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "queue").mkdir()
        os.environ["SHOP_FOLDER"] = name
        port = free_port()
        celery("guard", "store", "upgrade").wait()
        with (
            running(celery("guard", "metrics", "--port", str(port))),
            running(celery("beat", "-s", str(folder / "schedule"), "-l", "ERROR")),
            prometheus(folder, port) as server,
        ):
            worker = new_worker()
            until(lambda: relay_alive() and asked(server, f"{PREFIX}relays_alive == 1"))
            began = time.time()
            away = trade(worker)
            text = picture([(panel, series_of(panel, server, began)) for panel in PANELS], SECONDS, away)
    Path(file).write_text(text, encoding="utf-8")


def trade(worker: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Orders come in, whether or not there is a worker; from when to when there was none."""
    from . import shop

    began, order = time.monotonic(), 0
    left = back = float(SECONDS)
    replays = dict(REPLAYED)
    others: list[subprocess.Popen[bytes]] = []
    while (now := time.monotonic() - began) < SECONDS:
        order += 1
        buy(order)
        if now > AWAY and left == SECONDS:
            if not others:
                worker.send_signal(signal.SIGTERM)
                others.append(worker)
            elif worker.poll() is not None:
                left = now
        elif now > left + GONE_FOR and worker.poll() is not None:
            worker = new_worker()
        elif back == SECONDS and now > left and relay_alive():
            back = now
        for at in [at for at in replays if now > at]:
            shop.MENDED.touch()
            task = f"{APP}.{replays.pop(at)}"
            others.append(celery("guard", "dlq", "replay", "--task", task, "--reason", "mended", "--no-watch"))
        time.sleep(0.3)
    for process in (worker, *others):
        end(process)
    return left, back


def buy(order: int) -> None:
    """One order; one in nine is sent twice, one in forty the second time with another amount."""
    from .shop import charge, ship

    amount = 10 + order % 90
    charge.delay(order=order, amount=amount)
    if order % 2:
        ship.delay(order=order)
    if order % 9 == 0:
        charge.delay(order=order, amount=amount)
    if order % 40 == 0:
        with suppress(KeyConflict):
            charge.delay(order=order, amount=amount + 1)


def relay_alive() -> bool:
    """Whether the store says so."""
    from .shop import guard

    return any(beat.live for beat in guard.store.heartbeats() if beat.is_relay)


def until(found: Callable[[], Any]) -> None:
    """Wait for it, not for ever."""
    for _ in range(300):
        if found():
            return
        time.sleep(0.2)
    raise SystemExit("the shop did not open within a minute")


def new_worker() -> subprocess.Popen[bytes]:
    """Three children, each for twenty jobs, and a relay beside them."""
    return celery(
        "worker", "-c", "3", "--max-tasks-per-child", "20", "-l", "ERROR", "--without-gossip", "--without-mingle"
    )


def celery(*words: str) -> subprocess.Popen[bytes]:
    """A process of the shop's, in a group of its own."""
    command = [sys.executable, "-m", "celery", "-A", APP, *words]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """In order if it can, else all of its group."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Until the block ends."""
    try:
        yield
    finally:
        end(process)


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[str]:
    """A Prometheus that scrapes the shop each second; its address."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("needs prometheus (Debian: apt-get install prometheus)")
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "guard", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    command = [
        program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    with running(subprocess.Popen(command, start_new_session=True)):
        yield f"http://127.0.0.1:{port}"


def asked(server: str, query: str) -> list[Any]:
    """What Prometheus answers now; nothing while it starts."""
    try:
        with urlopen(f"{server}/api/v1/query?{urlencode({'query': query})}", timeout=30) as answer:  # noqa: S310
            found: list[Any] = json.load(answer)["data"]["result"]
    except URLError:
        return []
    return found


def series_of(panel: Panel, server: str, began: float) -> list[tuple[str, list[tuple[float, float]]]]:
    """(name, [(seconds since the beginning, value)]) of each line of a panel."""
    found = []
    for query, name in panel.queries:
        words = {"query": query.format(p=PREFIX, r="12s"), "start": began, "end": began + SECONDS, "step": 1}
        with urlopen(f"{server}/api/v1/query_range?{urlencode(words)}", timeout=30) as answer:  # noqa: S310
            results = json.load(answer)["data"]["result"]
        for one in results:
            points = [(at - began, float(value)) for at, value in one["values"] if value != "NaN"]
            found.append((named(name.format(), one["metric"]), points))
    return found


def named(legend: str, labels: dict[str, Any]) -> str:
    """As Grafana fills a legend in: with nothing where a line has no such label."""
    for label, value in labels.items():
        legend = legend.replace(f"{{{{{label}}}}}", value.removeprefix(f"{APP}."))
    return re.sub(r"{{\w+}}", "", legend).strip()


def free_port() -> int:
    """One that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


if __name__ == "__main__":
    main(sys.argv[1])
