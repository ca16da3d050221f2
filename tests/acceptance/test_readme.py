"""The README's first guarded task, and the commands under it, as a reader types them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.fleet import eventually

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent

#: The reader's own: an order, a database, and a bank that is down for as long as a file is there.
SHOP = """
from pathlib import Path
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

class CardDeclined(Exception): ...

class payments:
    @staticmethod
    def charge(order_id, amount, idempotency_key):
        if Path("bank-is-down").exists():
            raise CardDeclined(f"order {order_id}")
        with Path("charged").open("a") as log:
            log.write(f"{order_id} {amount} {idempotency_key}\\n")
        return f"charged {amount}"

class Base(DeclarativeBase): ...

class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]

engine = create_engine("sqlite:///shop.db")
Base.metadata.create_all(engine)
order = Order(total=30)
"""


def block(kind: str, beginning: str) -> str:
    found = [text for text in re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) if beginning in text]
    assert len(found) == 1, f"the README has {len(found)} blocks of {kind} with {beginning!r}"
    return str(found[0])


def test_the_readmes_first_task_runs_as_it_is_written(tmp_path: Path) -> None:
    code = block("python", "def charge")
    imports, body = code.split("\n\n\nwith Session", 1)
    # its servers become the embedded default; nothing else is changed
    for server, embedded in (
        ("redis://localhost", "files://broker"),
        ("postgresql+psycopg:///shop", "sqlite:///shop.db"),
    ):
        assert server in imports
        imports = imports.replace(server, embedded)
    (tmp_path / "shop.py").write_text(f"{SHOP}\n{imports}\n", encoding="utf-8")
    (tmp_path / "buy.py").write_text(f"from shop import *\nwith Session{body}", encoding="utf-8")
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}

    def typed(command: str) -> str:
        done = subprocess.run(
            shlex.split(command), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "`celery -A shop guard store upgrade` makes the tables" in PAGE
    typed("celery -A shop guard store upgrade")
    (tmp_path / "bank-is-down").touch()
    typed("python buy.py")
    commands = [line.split("#")[0].strip() for line in block("console", "dlq replay").splitlines()]
    listing, showing, replaying = commands
    (job,) = json.loads(typed(f"{listing} --json"))
    assert job["state"] == "pending"

    def is_now(state: str) -> None:
        show = f"celery -A shop guard jobs show {job['id']} --json"
        eventually(lambda: json.loads(typed(show))["state"] == state, seconds=60, what=f"the job is {state}")

    worker = subprocess.Popen(
        shlex.split("celery -A shop worker --concurrency 1"),
        cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        is_now("dead")
        assert "CardDeclined" in typed(showing.replace("5f0c...", job["id"]))
        (tmp_path / "bank-is-down").unlink()
        typed(replaying.replace("5f0c...", job["id"]))
        is_now("succeeded")
    finally:
        worker.terminate()
        worker.wait(30)
    (charged,) = (tmp_path / "charged").read_text().splitlines()
    assert re.fullmatch(r"1 30 [0-9a-f]{32}", charged)
