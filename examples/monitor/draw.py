"""Draw the dashboard's panels from a run of the shop: ``python -m examples.monitor.draw docs/howto/monitor.svg``.

The shop, ``guard metrics`` and a Prometheus (Debian's package ``prometheus``) run for a minute and a half, each on a port of its own on
the loopback. For half of that all is well but for some orders; then the workers are away, and come back. What the dashboard asks
of Prometheus is asked here too, word for word, and drawn.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from celery_guard.watch.dashboard import PANELS, Panel
from celery_guard.watch.metrics import PREFIX

from .picture import picture

ROOT = Path(__file__).parents[2]
SECONDS, AWAY, BACK = 96, 45, 62
APP = "examples.monitor.shop"


def main(file: str) -> None:
    """Run the shop, and draw."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "queue").mkdir()
        os.environ["SHOP_FOLDER"] = name
        port = free_port()
        celery("guard", "store", "upgrade").wait()
        with running(celery("guard", "metrics", "--port", str(port))), prometheus(folder, port) as server:
            began = time.time()
            trade()
            text = picture([(panel, series_of(panel, server, began)) for panel in PANELS], SECONDS, (AWAY, BACK))
    Path(file).write_text(text, encoding="utf-8")


def trade() -> None:
    """Orders come in; the workers go away and come back."""
    from .shop import charge, ship

    began, order = time.monotonic(), 0
    worker = new_worker()
    away = False
    while (now := time.monotonic() - began) < SECONDS:
        if not away and now > AWAY:
            end(worker)
            away = True
        if away and now > BACK and worker.poll() is not None:
            worker = new_worker()
        order += 1
        charge.delay(order=order)
        if order % 2:
            ship.delay(order=order)
        if order % 9 == 0:
            charge.delay(order=order - 1)
        time.sleep(0.25)
    end(worker)


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
    """As Grafana fills a legend in."""
    for label, value in labels.items():
        legend = legend.replace(f"{{{{{label}}}}}", value.removeprefix(f"{APP}."))
    return legend


def free_port() -> int:
    """One that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


if __name__ == "__main__":
    main(sys.argv[1])
