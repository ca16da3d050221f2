"""The shop's jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import shared_task
from django.db import Error, IntegrityError, connection, transaction
from django.db.models import F

from celery_guard import Contract, GuardedTask

from .models import Order


def mark(words: str) -> None:
    """Leave a trace that no transaction takes back."""
    with Path(os.environ["GUARD_DJANGO_MARKS"]).open("a", encoding="utf-8") as marks:
        marks.write(words + "\n")


def first_time(what: str) -> bool:
    """Whether nobody has been here before, in any process."""
    try:
        Path(os.environ["GUARD_DJANGO_MARKS"] + f".{what}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@shared_task(base=GuardedTask, contract=Contract(owner="sales"))
def look_up(number: int) -> bool:
    """Whether the order is there by the time its job runs."""
    found: bool = Order.objects.filter(number=number).exists()
    mark(f"order {number} {'found' if found else 'missing'}")
    return found


@shared_task(base=GuardedTask, contract=Contract(owner="sales", key="number"))
def charge(number: int, amount: int = 1) -> None:
    Order.objects.filter(number=number).update(charged=F("charged") + amount)


@shared_task
def plain(what: str) -> None:
    """A task without a guard."""
    mark(f"plain {what}")


def _charged(task: Any, number: int) -> None:
    with task.job.transaction():
        Order.objects.filter(number=number).update(charged=F("charged") + 1)
        look_up.delay(number)
    mark(f"charging {number}")


@shared_task(base=GuardedTask, bind=True, contract=Contract(owner="sales"))
def charge_once(self: Any, number: int) -> str:
    _charged(self, number)
    return "charged"


@shared_task(base=GuardedTask, bind=True, contract=Contract(owner="sales"))
def charge_and_die_once(self: Any, number: int) -> None:
    """Killed after its writes and before its job is settled; the next attempt is not."""
    _charged(self, number)
    if first_time(f"died-{number}"):
        os.kill(os.getpid(), signal.SIGKILL)


@shared_task(base=GuardedTask, bind=True, contract=Contract(owner="sales"))
def charge_and_fail(self: Any, number: int) -> None:
    _charged(self, number)
    raise ValueError("after its writes")


@shared_task(base=GuardedTask, bind=True, contract=Contract(owner="sales"))
def charge_with_trouble(self: Any, number: int, trouble: str) -> None:
    _charged(self, number)
    _TROUBLES[trouble](number)


def _undone_block(number: int) -> None:
    """A block of its own that fails, and is undone alone."""
    with suppress(IntegrityError), transaction.atomic():
        Order.objects.create(number=number + 1000)
        Order.objects.create(number=number)


def _swallowed(number: int) -> None:
    """An error of the database inside the transaction, swallowed: what came before cannot be trusted to be there."""
    with suppress(Error), connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


def _closed(number: int) -> None:
    connection.close()


def _hook_fails(number: int) -> None:
    def fail() -> None:
        raise ValueError("after the commit")

    transaction.on_commit(fail)


def _nested(number: int) -> None:
    with transaction.atomic(), transaction.atomic():
        Order.objects.filter(number=number).update(charged=F("charged") + 1)


_TROUBLES: dict[str, Callable[[int], None]] = {
    "undone block": _undone_block,
    "swallowed": _swallowed,
    "closed": _closed,
    "hook fails": _hook_fails,
    "nested": _nested,
}


@shared_task(base=GuardedTask, bind=True, contract=Contract(owner="sales"))
def charge_inside_atomic(self: Any, number: int) -> None:
    """Asks for the job's transaction where another one is open."""
    with transaction.atomic():
        _charged(self, number)
