"""The publisher, a process of its own: takes the steps of a plan one after the other, and notes what it was told about each.

A step that fails because the store is out is asked about, and repeated where it left nothing: each unit is written in one transaction, or is one job.
So is a step that one before it was killed in: it asks the store first, as any caller would who does not know, and sends with the same ids.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from celery_guard.errors import StoreError

from .effects import Effects
from .notes import Notes
from .plan import IN_TRANSACTIONS, Plan, Step, Unit, make_plan

__all__ = ["main"]

#: A step is tried so often; more would mean that the store never comes back.
_TRIES = 100

#: So many bodies are to return that have not yet: jobs are under way at any time, and not all at once.
_AHEAD = 250


class _RolledBackError(Exception):
    """The transaction is given up on purpose."""


class _Publisher:
    """Publishes what the notes do not say was published.

    Args:
        m: the app's module.
        joins: whether the store joins transactions.
        returned: how many bodies have returned so far.
    """

    def __init__(self, plan: Plan, m: Any, notes: Notes, *, joins: bool, returned: Callable[[], int]) -> None:
        self._plan = plan
        self._m = m
        self._notes = notes
        self._engine = m.shop() if joins else None
        self._returned = returned
        self._pause = threading.Event()

    def run(self) -> None:
        """Take every step that has no answer yet."""
        lines = self._notes.lines()
        asked = {place for place, word, *_ in lines if word == "asked"}
        answered = {place for place, word, *_ in lines if word != "asked"}
        due = 0
        for place, step in enumerate(self._plan.steps):
            if place not in answered:
                self._keep_pace(due)
                self._notes.write(place, "asked")
                self._notes.write(place, *self._take(step, doubted=place in asked))
            due += step.unit.returns if step.what == "send" else 0

    def _keep_pace(self, due: int) -> None:
        """Not too far ahead of the workers; but wherever they hang, it goes on after a while."""
        for _ in range(40):
            if due - self._returned() < _AHEAD:
                return
            self._pause.wait(0.05)

    def _take(self, step: Step, *, doubted: bool) -> tuple[Any, ...]:
        """Take it; what it was answered with. ``doubted``: it may have been taken before."""
        for _ in range(_TRIES):
            if doubted and step.what == "send" and self._is_there(step.unit):
                return ("accepted",)
            try:
                return self._step(step)
            except _RolledBackError:
                return ("rolled back",)
            except (StoreError, SQLAlchemyError):
                doubted = True
                self._pause.wait(0.2)
        raise TimeoutError(f"{step} cannot be taken")

    def _is_there(self, unit: Unit) -> bool:
        for _ in range(_TRIES):
            try:
                return self._m.guard.store.job(unit.written[0]) is not None
            except StoreError:
                self._pause.wait(0.2)
        raise TimeoutError(f"nobody says whether {unit.name} was accepted")

    def _step(self, step: Step) -> tuple[Any, ...]:
        unit = step.unit
        if step.what == "cancel":
            return self._cancel(unit.id())
        if step.what == "again":
            handle = self._m.once.apply_async((unit.number,), task_id=unit.id(step.turn))
            return ("answered", handle.id)
        return self._order(unit) if unit.kind == "order" else self._send(unit)

    def _cancel(self, id: str) -> tuple[str, str, int]:
        answer = self._m.guard.store.cancel(id).answer
        job = self._m.guard.store.job(id)
        return "cancel", answer, job.fence

    def _order(self, unit: Unit) -> tuple[str, ...]:
        assert self._engine is not None
        with self._engine.begin() as connection:
            connection.execute(text("INSERT INTO chaos_order (name) VALUES (:name)"), {"name": unit.name})
            found = self._m.found.using(connection)
            found.apply_async((unit.name, unit.number), task_id=unit.id())
            if unit.is_rolled_back:
                raise _RolledBackError
        return ("accepted",)

    def _send(self, unit: Unit) -> tuple[str, ...]:
        sent = self._signature(unit)
        if unit.kind in ("chain", "group", "chord", "nested", "twins") and self._engine is not None:
            with self._engine.begin() as connection, self._m.guard.using(connection):
                sent.delay()
            return ("accepted",)
        handle = sent.apply_async(countdown=3) if unit.kind == "cancel" else sent.delay()
        return ("accepted", handle.id) if unit.kind == "keyed" else ("accepted",)

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


def main(arguments: Sequence[str]) -> None:
    """Publish the plan of this seed and size, without these kinds, as far as the notes do not say that it was published."""
    from tests.integration.app import EFFECTS

    from . import app as m

    notes, seed, size, *without = arguments
    m.app.finalize()
    m.app.set_default()
    publisher = _Publisher(
        make_plan(int(seed), int(size), without), m, Notes(Path(notes)), joins=not IN_TRANSACTIONS & {*without},
        returned=Effects(EFFECTS).returned,
    )  # fmt: skip
    publisher.run()


if __name__ == "__main__":
    main(sys.argv[1:])
