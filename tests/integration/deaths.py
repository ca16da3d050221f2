"""Jobs that die at a named point: how they are sent, what they leave, and what would be right.

What is right follows from two moments in the record of a job that died nowhere, and from nothing else::

                       claimed                             settled
    ----------------------|------- body.before ----------------|---------------->
    attempts              1                 2                  |       1
    crashes               0                 1                  |       0
    entries into the body 1        1        |        2         |       1

All else is the same wherever it happens: one end, one result, what follows it once, and Celery is told.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from celery import chord
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from celery_guard.job.state import ENDED
from celery_guard.testing.faults import RECORD, Faults

from .fleet import Fleet, Worker

__all__ = ["MODULE", "Case", "Deaths", "life_before", "right"]

MODULE = "tests.integration.app_kill"

#: Rows that a job of each kind leaves: its own, and what follows.
_ROWS = {"plain": 1, "chain": 3, "chord": 3, "book": 2, "again": 1}

#: The steps that a child takes; the others are a relay's.
_CHILD = ("claim.", "body.", "settle.", "commit.", "tell.", "result.", "part.", "told.")


@dataclass(frozen=True)
class Case:
    """A job, or the members of a chord, that dies at ``aim``."""

    kind: str
    aim: str
    number: int
    ids: tuple[str, ...]
    #: The handle of the whole: of a chain's last step, of a chord's body.
    result: Any

    @property
    def value(self) -> int:
        """What the whole comes to."""
        if self.kind == "chord":
            return self.number + 1000
        return (self.number + 1) * 10 if self.kind == "chain" else self.number + 1

    @property
    def marks_of_followers(self) -> list[str]:
        """What everybody who follows leaves, each once."""
        followers = {
            "chain": [f"step {self.number + 1}", f"step {-self.number}"],
            "chord": [f"sum {[self.number, 1000]}"],
            "book": [f"step {self.number}"],
        }
        return sorted(followers.get(self.kind, []))


class Deaths:
    """The cases of one fleet, and workers that die over them."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.folder = fleet.folder / "deaths"
        self.folder.mkdir()
        self.faults = Faults(self.folder)
        self.cases: list[Case] = []
        url = fleet.environment["CELERY_GUARD_STORE"]
        #: Where bodies book; a Redis store has no place for that.
        self._engine = None if url.startswith("redis") else create_engine(url, poolclass=NullPool)
        if self._engine is not None:
            with self._engine.begin() as connection:
                connection.execute(text("CREATE TABLE IF NOT EXISTS shop_booking (job VARCHAR(200))"))
                connection.execute(text("DELETE FROM shop_booking"))

    def worker(self, concurrency: int, act: str = "die") -> Worker:
        """A worker whose children do this at the points that they are to die at: ``die`` or ``stay``."""
        return self.fleet.worker("prefork", concurrency, GUARD_TEST_FAULTS=str(self.folder), GUARD_TEST_FAULT=act)

    def send(self, kind: str, aim: str) -> Case:
        """Enqueue a job of a kind that dies at ``aim``."""
        app, number = self.fleet.app, len(self.cases)
        id = f"{aim}@{kind}-{number}"
        ids: tuple[str, ...] = (id,)
        if kind == "chord":
            ids = (f"{id}~1", f"{id}~2")
            members = [app.part.s(value).set(task_id=id) for id, value in zip(ids, (number, 1000), strict=True)]
            result = chord(members, app.sum_up.s()).delay()
        elif kind == "chain":
            head = app.work.s(number).set(task_id=id, link=app.step.si(-number))
            result = app.chain(head, app.step.s()).delay()
        else:
            result = (app.book if kind == "book" else app.work).apply_async((number,), task_id=id)
        self.cases.append(Case(kind, aim, number, ids, result))
        return self.cases[-1]

    def record(self, kind: str, before: str = "") -> Case:
        """Enqueue a job that dies nowhere, or only at ``before``; its way is written down."""
        return self.send(kind, before + RECORD)

    def recorded(self, case: Case) -> list[str]:
        """The points it passed in a child; of a chord's members the longer way, which is that of the one that came last."""
        ways = [[point for point in self.faults.recorded(id) if point.startswith(_CHILD)] for id in case.ids]
        return max(map(_of_one_delivery, ways), key=len)

    def rest(self, seconds: float = 100, expected: int = 0) -> None:
        """Wait until all that is to come has come, and was told. What is missing by then is missing in :meth:`left`."""
        expected = expected or sum(_ROWS[case.kind] for case in self.cases)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._rested(expected):
                return
            time.sleep(0.1)

    def still(self, held: Set[str]) -> bool:
        """Whether every job has ended, but for these, which are where their first attempt got to."""
        rows = self.fleet.store.jobs(limit=10_000)
        return all(job.state in ENDED or (job.id in held and _is_first_time(job)) for job in rows)

    def left(self, cases: Sequence[Case]) -> dict[Case, dict[str, Any]]:
        """What each of the cases has left."""
        rows = self.fleet.store.jobs(limit=10_000)
        booked: Counter[str] = Counter()
        if self._engine is not None:
            with self._engine.connect() as connection:
                booked.update(connection.execute(text("SELECT job FROM shop_booking")).scalars())
        return {case: self._left(case, rows, booked) for case in cases}

    def _rested(self, expected: int) -> bool:
        counts = self.fleet.store.counts()
        if sum(counts.values()) < expected or {state.value for state in counts} & {"pending", "sent", "running"}:
            return False
        return all(job.told for job in self.fleet.store.jobs(limit=10_000))

    def _left(self, case: Case, rows: list[Any], booked: Counter[str]) -> dict[str, Any]:
        own = [job for job in rows if job.id in case.ids]
        follow = [job for job in rows if job.root_id in case.ids and job.id not in case.ids]
        if case.kind == "chord":
            follow = [job for job in rows if job.id == case.result.id]
        followers = {job.id for job in follow}
        lines = self.fleet.lines()
        return {
            "ends": {job.state.value for job in (*own, *follow)},
            "told": all(job.told for job in (*own, *follow)),
            "attempts": sum(job.attempts for job in own),
            "crashes": sum(job.crashes for job in own),
            "entries": sum(id in case.ids for _, id, _, _ in lines),
            "booked": sum(booked[id] for id in case.ids),
            "followers": len(follow),
            "the handle's own": case.result.id in {*case.ids, *followers},
            "marks of followers": sorted(mark for mark, id, _, _ in lines if id in followers),
            "result": (case.result.state, case.result.result),
            "deaths": self.faults.struck(case.ids[0]),
        }


def _is_first_time(job: Any) -> bool:
    return job.publications < 2 and (job.state.value, job.attempts) in (("sent", 0), ("running", 1))


def right(case: Case, points: list[str]) -> dict[str, Any]:
    """What the case should leave, by where it died."""
    lives = Counter(life_before(points, aim) for aim in case.aim.split("+"))
    members = len(case.ids)
    lost = lives["claimed"] + lives["entered"]
    return {
        "ends": {"succeeded"},
        "told": True,
        "attempts": members + lost,
        "crashes": lost,
        "entries": members + lives["entered"],
        "booked": int(case.kind == "book"),
        "followers": len(case.marks_of_followers),
        "the handle's own": True,
        "marks of followers": case.marks_of_followers,
        "result": ("SUCCESS", case.value),
        "deaths": case.aim.count("+") + 1,
    }


def life_before(points: list[str], aim: str) -> str:
    """How far the row had come when the process died: ``new``, ``claimed``, ``entered`` (the body) or ``settled``."""
    if "body.before" not in points:
        # the record of a delivery that only tells what is settled
        return "settled"
    place = points.index(aim)
    if place < points.index("claim.1.after"):
        return "new"
    if place <= points.index("body.before"):
        return "claimed"
    return "entered" if place < points.index(_settling(points)) else "settled"


def _settling(points: list[str]) -> str:
    """The point right behind the write with which the end of the attempt counts: the last one of settle, or of commit."""
    return [point for point in points if re.fullmatch(r"(settle|commit)\.\d+\.after", point)][-1]


def _of_one_delivery(points: list[str]) -> list[str]:
    """Without the claims of messages that came once more, which found the job taken: on a busy machine a relay may send one again."""
    claimed = points.index("claim.after") + 1 if "claim.after" in points else len(points)
    return points[:claimed] + [point for point in points[claimed:] if not point.startswith("claim.")]
