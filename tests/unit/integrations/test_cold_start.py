"""What a process imports that only declares its tasks: every web process, every command and every test pays for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

SENDER = """
import json, sys
from celery import Celery
from celery_guard import Contract, Guard, GuardedTask, Retry
app = Celery("shop", broker="memory://")
guard = Guard(app, store="postgresql+psycopg:///shop")

@app.task(base=GuardedTask, contract=Contract(owner="payments", key="order_id", retry=Retry(max_attempts=3)))
def charge(order_id: int, note: str = "") -> None: ...

app.finalize()
print(json.dumps(sorted(sys.modules)))
"""

#: What the settings, a store, a worker, a relay or an operator needs, and a declaration does not.
NEEDLESS = (
    "pydantic", "sqlalchemy", "alembic", "psycopg", "redis", "rich", "asyncio", "celery.worker.request", "celery.app.control",
    "celery.app.trace", "celery_guard.settings", "celery_guard.contract.payload", "celery_guard.store.protocol", "celery_guard.store.sql",
    "celery_guard.store.redis", "celery_guard.flow.admin", "celery_guard.flow.relay", "celery_guard.flow.run", "celery_guard.flow.sweep",
    "celery_guard.job.event", "celery_guard.operate", "celery_guard.testing", "celery_guard.watch.lines", "celery_guard.watch.metrics",
    "celery_guard.watch.spans", "celery_guard.integrations.celery.perform", "celery_guard.integrations.celery.relay",
    "celery_guard.integrations.celery.worker",
)  # fmt: skip


def test_a_process_that_declares_tasks_imports_nothing_that_only_others_need() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "CELERY"))}
    done = subprocess.run([sys.executable, "-c", SENDER], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported = json.loads(done.stdout)
    assert "celery_guard.integrations.celery.send" in imported
    assert [name for name in imported if any(f"{name}.".startswith(f"{module}.") for module in NEEDLESS)] == []
