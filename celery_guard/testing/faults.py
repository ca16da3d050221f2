"""Killing a process at a named point of a job's journey, once: to see what is left, and who goes on.

A process that dies cannot tidy up, so the only honest way to test what survives it is to kill it, at every place where it could
die. The places are named for the journey::

    claim.before   claim.1.before   claim.1.after   ...   claim.after      what the store does, and each of its writes
    body.before    ...              body.after                             the body, and what it writes through the guard
    settle. ...    commit. ...                                             the attempt's end, alone or in the body's transaction
    tell.before    result.before    result.after   part. ...   tell.after  the result backend, its result and its chord part
    told. ...                                                              noting that Celery was told
    take. ...      publish.1.before ...            sent. ...               the relay; a number here is a message of the batch

Numbers count what a step writes on this thread: each INSERT, UPDATE, DELETE, BEGIN and COMMIT as it passes the driver. A read is no
place of its own (to die before it is to die after the write before it), and neither is what a connection asks when it is opened. So
a statement that is added tomorrow is a new point by itself: let a job be recorded first, and kill others where it passed.

**Who dies where** is said by the job's id, so that one worker can serve every point: ``<point>@<anything>``. ``claim.1.after@7`` kills
the first process in which that job passes that point. Points are joined by ``+`` for one death after another, ``record`` kills nobody
and writes down what is passed, and jobs that share everything before a ``~`` share one death. ``Faults.at`` names a point for whoever
passes it, or records ``anybody``. What has struck is a file in the folder, made before the deed, so that it strikes once whoever dies.

Where the steps are, and how a worker gets them, is in :mod:`celery_guard.testing.steps`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["RECORD", "Faults", "die", "stay"]

#: The aim of a job that dies nowhere: the points it passes are written down.
RECORD = "record"

#: How long a process stays where it was told to stay, in seconds. Only reached where nobody comes to kill it.
_PATIENCE = 120.0


def die() -> None:
    """End this process as the kernel would: nothing is flushed, closed, released or said."""
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def stay() -> None:
    """Go no further, and let everything else in this process go on, until somebody kills the whole node."""
    threading.Event().wait(_PATIENCE)
    die()


class Faults:
    """Which processes die, and where.

    Args:
        folder: where deaths and records are kept, for all processes of a test.
        act: what happens at the point.
        at: a point for whoever passes it, besides those that ids name.
    """

    def __init__(self, folder: Path, act: Callable[[], None] = die, at: str | None = None) -> None:
        self.at = at
        self._folder = folder
        self._act = act
        self._here = threading.local()

    @contextmanager
    def step(self, name: str, ids: Iterable[str] = ()) -> Iterator[Callable[[Iterable[str]], None]]:
        """A step of the journey, by these jobs: its two ends are points. Yields what to call with ids that show later."""
        step = _Step(name, list(ids))
        stack = self._stack()
        self._pass(f"{name}.before", step.ids)
        stack.append(step)
        try:
            yield step.ids.extend
        finally:
            stack.pop()
        self._pass(f"{name}.after", step.ids)

    @contextmanager
    def write(self, only: str | None = None) -> Iterator[None]:
        """A write inside the innermost step of this thread: a point before it, and one after it. Outside a step it is none."""
        stack = self._stack()
        if not stack or only not in (None, stack[-1].name):
            yield
            return
        step = stack[-1]
        step.writes += 1
        place = f"{step.name}.{step.writes}"
        self._pass(f"{place}.before", step.ids)
        try:
            yield
        except BaseException:
            # refused, by a file that is locked, say: it is made again, and is the same write
            step.writes -= 1
            raise
        self._pass(f"{place}.after", step.ids)

    def aims(self, id: str, step: str) -> bool:
        """Whether the job's next death is in this step."""
        name, points = _aims(id)
        turn = self._turn(name, points)
        return turn < len(points) and points[turn].partition(".")[0] == step

    def struck(self, id: str) -> int:
        """How many deaths the job (or those that share it) has caused so far."""
        return self._turn(*_aims(id))

    def recorded(self, id: str) -> list[str]:
        """The points that a job, or ``anybody``, passed while it was recorded, in order."""
        file = self._folder / f"{id}.{RECORD}"
        return file.read_text().split() if file.exists() else []

    def _pass(self, point: str, ids: Iterable[str]) -> None:
        for id in ids:
            name, points = _aims(id)
            turn = self._turn(name, points)
            if turn == len(points):
                continue
            if points[turn] == RECORD:
                self._record(id, point)
            elif points[turn] == point and self._first(f"{name}.{turn}"):
                self._act()
        if self.at == RECORD:
            self._record("anybody", point)
        elif point == self.at and self._first(point):
            self._act()

    def _stack(self) -> list[_Step]:
        found: list[_Step] | None = getattr(self._here, "stack", None)
        if found is None:
            found = self._here.stack = []
        return found

    def _turn(self, name: str, points: list[str]) -> int:
        return next((n for n in range(len(points)) if not (self._folder / f"{name}.{n}").exists()), len(points))

    def _first(self, flag: str) -> bool:
        try:
            os.close(os.open(self._folder / flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _record(self, id: str, point: str) -> None:
        descriptor = os.open(self._folder / f"{id}.{RECORD}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, f"{point}\n".encode())
        finally:
            os.close(descriptor)


class _Step:
    """A step that a thread is in."""

    __slots__ = ("ids", "name", "writes")

    def __init__(self, name: str, ids: list[str]) -> None:
        self.name = name
        self.ids = ids
        self.writes = 0


def _aims(id: str) -> tuple[str, list[str]]:
    """The name under which a job's deaths are kept, and its points."""
    aim, at, _ = id.partition("@")
    return id.partition("~")[0], aim.split("+") if at else []
