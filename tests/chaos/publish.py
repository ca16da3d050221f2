"""The publisher: takes the steps of a plan one after the other, and notes what it was told about each.

A step that fails because the store is out is asked about, and repeated where it left nothing: each unit is written in one transaction, or is one job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from celery_guard.errors import StoreError

from .plan import Plan, Step, Unit

__all__ = ["Noted", "Publisher"]

#: A step is tried so often; more would mean that the store never comes back.
_TRIES = 100

#: So many bodies are to return that have not yet: jobs are under way at any time, and not all at once.
_AHEAD = 250


@dataclass
class Noted:
    """What the publisher knows."""

    accepted: set[str] = field(default_factory=set)
    rolled_back: set[str] = field(default_factory=set)
    #: By name of the unit: the job that each of its sends was answered with.
    answers: dict[str, list[str]] = field(default_factory=dict)
    #: By id: what a cancel was answered with, and the fence that the job had then.
    cancels: dict[str, tuple[str, int]] = field(default_factory=dict)


class _RolledBackError(Exception):
    """The transaction is given up on purpose."""


class Publisher(threading.Thread):
    """Publishes in a thread of its own.

    Args:
        m: the app's module.
        joins: whether the store joins transactions.
        returned: how many bodies have returned so far.
    """

    def __init__(self, plan: Plan, m: Any, *, joins: bool, returned: Callable[[], int]) -> None:
        super().__init__(name="publisher", daemon=True)
        self.noted = Noted()
        self.error: BaseException | None = None
        self._plan = plan
        self._m = m
        self._engine = m.shop() if joins else None
        self._returned = returned
        self._pause = threading.Event()

    def run(self) -> None:
        try:
            due = 0
            for step in self._plan.steps:
                self._keep_pace(due)
                self._take(step)
                due += step.unit.returns if step.what == "send" else 0
        except BaseException as error:  # raised again in the test's own thread
            self.error = error
            raise

    def finish(self) -> None:
        """Wait until all is published; raises what went wrong."""
        self.join()
        if self.error is not None:
            raise self.error

    def _keep_pace(self, due: int) -> None:
        """Not too far ahead of the workers; but wherever they hang, it goes on after a while."""
        for _ in range(40):
            if due - self._returned() < _AHEAD:
                return
            self._pause.wait(0.05)

    def _take(self, step: Step) -> None:
        for _ in range(_TRIES):
            try:
                self._step(step)
                return
            except _RolledBackError:
                self.noted.rolled_back.add(step.unit.name)
                return
            except (StoreError, SQLAlchemyError):
                if step.what == "send" and self._is_there(step.unit):
                    self.noted.accepted.add(step.unit.name)
                    return
                self._pause.wait(0.2)
        raise TimeoutError(f"{step} cannot be taken")

    def _is_there(self, unit: Unit) -> bool:
        for _ in range(_TRIES):
            try:
                return self._m.guard.store.job(unit.promises[0].id) is not None
            except StoreError:
                self._pause.wait(0.2)
        raise TimeoutError(f"nobody says whether {unit.name} was accepted")

    def _step(self, step: Step) -> None:
        unit = step.unit
        if step.what == "cancel":
            self._cancel(unit.id())
        elif step.what == "again":
            handle = self._m.once.apply_async((unit.number,), task_id=unit.id(step.turn))
            self.noted.answers.setdefault(unit.name, []).append(handle.id)
        elif unit.kind == "order":
            self._order(unit)
        else:
            self._send(unit)
        if step.what == "send":
            self.noted.accepted.add(unit.name)

    def _cancel(self, id: str) -> None:
        answer = self._m.guard.store.cancel(id).answer
        job = self._m.guard.store.job(id)
        self.noted.cancels[id] = (answer, job.fence)

    def _order(self, unit: Unit) -> None:
        assert self._engine is not None
        with self._engine.begin() as connection:
            connection.execute(text("INSERT INTO chaos_order (name) VALUES (:name)"), {"name": unit.name})
            found = self._m.found.using(connection)
            found.apply_async((unit.name, unit.number), task_id=unit.id())
            if unit.is_rolled_back:
                raise _RolledBackError

    def _send(self, unit: Unit) -> None:
        sent = self._signature(unit)
        if unit.kind in ("chain", "group", "chord", "nested", "twins") and self._engine is not None:
            with self._engine.begin() as connection, self._m.guard.using(connection):
                sent.apply_async()
            return
        handle = sent.apply_async(countdown=3 if unit.kind == "cancel" else None)
        if unit.kind == "keyed":
            self.noted.answers.setdefault(unit.name, []).append(handle.id)

    def _signature(self, unit: Unit) -> Any:
        m, n, id = self._m, unit.number, unit.id

        def part(name: object, *args: Any, **kwargs: Any) -> Any:
            return m.part.s(*args, **kwargs).set(task_id=id(name))

        def total(name: object) -> Any:
            return m.total.s().set(task_id=id(name))

        match unit.kind:
            case "late":
                return m.late.s(n).set(task_id=id())
            case "nap":
                return part(0, 0, n, seconds=0.3)
            case "flaky":
                return part(0, 0, n, failures=unit.how)
            case "doomed" | "exhausted":
                return m.fails.s(for_good=unit.kind == "doomed").set(task_id=id())
            case "poison":
                return m.poison.s().set(task_id=id())
            case "keyed":
                return m.once.s(n).set(task_id=id())
            case "book":
                return m.book.s(n, id("child")).set(task_id=id())
            case "chain":
                return m.chain(part(0, 0, n), part(1, 1), part(2, 1))
            case "group":
                return m.group([part(member, 0, n + member) for member in range(4)])
            case "chord":
                return m.chord(
                    [part(member, 0, n + member, failures=2 if member == 0 else 0) for member in range(3)], total("sum")
                )
            case "nested":
                inner = m.chord(
                    [part(member, 0, n + member, failures=2 if member == 0 else 0) for member in range(2)],
                    total("inner"),
                )
                return m.chord([inner, part("last", 0, n)], total("sum"))
            case "twins":
                return m.chord([m.once.s(n).set(task_id=id(member)) for member in range(2)], total("sum"))
            case _:
                return part(0, 0, n)
