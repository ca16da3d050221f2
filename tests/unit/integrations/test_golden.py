"""Golden messages: what any release has put on the wire opens for ever, and today's wire is one that is kept there."""

from __future__ import annotations

import inspect
import json
import os
import zlib
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from celery_guard import Contract, GuardedTask, Payload, Snapshot
from celery_guard.contract.shape import shape_of
from celery_guard.flow.context import RunningJob, running_job
from celery_guard.flow.lease import LeaseKeeper
from celery_guard.flow.ownership import Ownership
from celery_guard.integrations.celery.capture import decode
from celery_guard.job.encryption import Encryption
from celery_guard.job.envelope import ENCRYPTED, HEADER, PLAIN, VERSION, Envelope, open_header
from celery_guard.job.instant import Instant
from celery_guard.job.row import StoredPayload as Stored
from celery_guard.job.verdict import Granted

FOLDER = Path(__file__).parents[2] / "golden"
FILES = sorted(FOLDER.glob("*.json"))

#: The key of the golden messages that are encrypted. It keeps nothing secret.
KEY = "Z29sZGVuLWdvbGRlbi1nb2xkZW4tZ29sZGVuLWdvbGQ="

#: Of the envelope: what differs from one message to the next.
VOLATILE = ("id", "created")


class Line(Payload, version=1):
    sku: str
    count: int


class Quote(Snapshot, version=1, good_for=timedelta(days=1)):
    lines: tuple[Line, ...]
    note: str | None = None


def charge(order: int, tenant: str, note: str = "") -> None: ...


def quote(quote: Quote, urgent: bool = False) -> None: ...


#: The job that sends them, from which they inherit.
PARENT = Granted(
    id="parent", fence=1, owner="o", generation=0, attempts=1, crashes=0, retries=0, cancel=False, remaining=None,
    deadline=Instant(1_800_000_000_000_000), age=timedelta(0), tenant="acme", key=None, correlation_id="request-1", holder=None,
)  # fmt: skip

#: What is sent for each golden message.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda charge, quote: charge.delay(7, "Größe", note="x"),
    "in-a-chain": lambda charge, quote: (
        charge.si(7, "acme").set(link=charge.si(8, "acme"), priority=3).apply_async(countdown=60)
    ),
    "compressed": lambda charge, quote: charge.apply_async((7, "acme"), compression="zlib"),
    "payload": lambda charge, quote: quote.delay(
        Quote(lines=(Line(sku="a", count=2),), snapshot_taken_at=datetime(2026, 1, 2, tzinfo=timezone.utc)), urgent=True
    ),
}


@pytest.fixture
def today(app: Celery) -> Callable[[str], dict[str, Any]]:
    """Today's message for one of the calls, as it is kept in a golden file."""
    return messages_of(app)


@pytest.fixture
def encrypted_today(make_app: Callable[..., Celery]) -> Callable[[str], dict[str, Any]]:
    """The same of an app that encrypts."""
    need_cryptography()
    return messages_of(make_app(guard={"encryption_keys": [KEY], "encrypt": True}))


def need_cryptography() -> None:
    if not os.environ.get("CI"):
        pytest.importorskip("cryptography", reason="pip install 'celery-guard[encryption]'")


def messages_of(app: Celery) -> Callable[[str], dict[str, Any]]:
    tasks = [
        app.task(body, base=GuardedTask, name=f"golden.{body.__name__}", shared=False, contract=contract)
        for body, contract in ((charge, Contract(key="order")), (quote, None))
    ]

    def made(name: str) -> dict[str, Any]:
        own = Ownership(PARENT, app.guard.store, timedelta(seconds=30), None, 0.0)
        running = RunningJob(own, LeaseKeeper(app.guard.store))
        token = running_job.set(running)
        try:
            sent = CALLS[name](*tasks)
        finally:
            running_job.reset(token)
        return as_kept(app.guard.store.payload(sent.id))

    return made


def as_kept(stored: Stored) -> dict[str, Any]:
    return {
        "body": stored.body.hex(" ", 32),
        "headers": json.loads(stored.headers),
        "delivery": json.loads(stored.delivery),
    }


def opened(kept: dict[str, Any]) -> tuple[Envelope, Any, Any]:
    """The reader: envelope, args, kwargs."""
    envelope = open_header(kept["headers"][HEADER])
    assert isinstance(envelope, Envelope), envelope
    stored = Stored(bytes.fromhex(kept["body"]), json.dumps(kept["headers"]), json.dumps(kept["delivery"]))
    if envelope.version == ENCRYPTED:
        need_cryptography()
        stored = Encryption([KEY]).decrypt_message(envelope.id, stored)
    args, kwargs, _ = decode(stored.body, json.loads(stored.delivery), json.loads(stored.headers))
    return envelope, args, kwargs


def steady(kept: dict[str, Any]) -> Any:
    """What of a message is the guard's own, or the arguments', without what differs each time."""
    envelope = {name: value for name, value in kept["headers"][HEADER].items() if name not in VOLATILE}
    _, args, kwargs = opened(kept)
    return envelope, args, kwargs, sorted(kept["delivery"])


def read(file: Path) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return kept


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_message_opens_for_ever(file: Path) -> None:
    kept = read(file)
    envelope, args, kwargs = opened(kept)
    assert envelope.id == kept["headers"]["id"]
    assert str(envelope.version) == file.stem.partition("-")[0]
    bodies: dict[str, Callable[..., Any]] = {"golden.charge": charge, "golden.quote": quote}
    body = bodies[kept["headers"]["task"]]
    shape = shape_of(kept["headers"]["task"], body, inspect.signature(body), named=False)
    opened_args, opened_kwargs, _ = shape.open(args, kwargs, envelope.payloads)
    inspect.signature(body).bind(*opened_args, **opened_kwargs)


@pytest.mark.parametrize("name", CALLS)
def test_todays_message_is_one_that_is_kept(today: Callable[[str], dict[str, Any]], name: str) -> None:
    """Fails when the wire changes: then keep the old file, raise ``VERSION`` or find the file a new name, and add one."""
    keep_and_compare(today(name), FOLDER / f"{PLAIN}-{name}.json")


@pytest.mark.parametrize("name", ["in-a-chain", "compressed"])
def test_todays_encrypted_message_is_one_that_is_kept(
    encrypted_today: Callable[[str], dict[str, Any]], name: str
) -> None:
    message = encrypted_today(name)
    assert message["headers"][HEADER]["version"] == ENCRYPTED
    keep_and_compare(message, FOLDER / f"{ENCRYPTED}-{name}.json")


def keep_and_compare(message: dict[str, Any], file: Path) -> None:
    if os.environ.get("ADD_GOLDEN") and not file.exists():
        file.write_text(json.dumps(message, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert steady(message) == steady(read(file))


def reader_1(kept: dict[str, Any]) -> tuple[Any, Any]:
    """How a worker of wire version 1 reads a message, written down once more and never changed: (args, kwargs)."""
    header = kept["headers"]["guard"]
    assert header["version"] == 1
    assert isinstance(header["id"], str)
    assert 0 < len(header["id"]) <= 512
    assert all(isinstance(header.get(name, ""), str) for name in ("key", "fingerprint", "tenant", "correlation_id"))
    assert isinstance(header.get("generation"), int)
    assert isinstance(header.get("created"), float)
    assert isinstance(header.get("deadline", 0), int)
    body = bytes.fromhex(kept["body"])
    if kept["headers"].get("compression") == "application/x-gzip":
        body = zlib.decompress(body)
    assert (kept["delivery"]["content_type"], kept["delivery"]["content_encoding"]) == ("application/json", "utf-8")
    args, kwargs, _embed = json.loads(body)
    payloads = header.get("payloads", {})
    assert all(isinstance(version, int) and isinstance(kwargs[name], dict) for name, version in payloads.items())
    return args, kwargs


@pytest.mark.parametrize("name", CALLS)
def test_todays_message_opens_for_a_worker_of_the_first_version(
    today: Callable[[str], dict[str, Any]], name: str
) -> None:
    assert reader_1(today(name)) == reader_1(read(FOLDER / f"1-{name}.json"))


def test_every_version_of_the_wire_has_its_golden_messages() -> None:
    assert {int(file.stem.partition("-")[0]) for file in FILES} == set(range(1, VERSION + 1))
