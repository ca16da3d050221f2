"""The buffer of an asynchronous transaction against any order of savepoints: what is committed is what was not rolled back, once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from celery_guard.job.row import NewJob
from celery_guard.job.verdict import Accepted, Enqueued
from celery_guard.store.sql.buffer import Buffer
from celery_guard.testing.conformance.builders import new_job


class Database:
    """Rows in the order in which they were written, and how many there were when each savepoint was set."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.savepoints: list[int] = []

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self.rows += [job.id for job in jobs]
        return [Accepted(job.id) for job in jobs]


class Expected:
    """The same, for jobs that would be written where they are enqueued."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.savepoints: list[int] = []


@example(known=0, steps=["job", "savepoint", "write", "rollback"])
@example(known=1, steps=["job", "write", "savepoint", "job", "rollback", "release"])
@given(
    known=st.integers(0, 2),
    steps=st.lists(st.sampled_from(["job", "savepoint", "release", "rollback", "write"]), max_size=30),
)
def test_what_a_buffer_writes_is_what_its_savepoints_left(known: int, steps: list[str]) -> None:
    """``known`` savepoints are open before the buffer hears of the transaction."""
    buffer, database, expected, number = Buffer(), Database(), Expected(), known
    open_savepoints = list(range(known))
    database.savepoints, expected.savepoints = [0] * known, [0] * known
    for step in steps:
        if step == "job":
            job = new_job()
            buffer.add([job])
            expected.rows.append(job.id)
        elif step == "savepoint":
            number += 1
            open_savepoints.append(number)
            buffer.mark(number)
            database.savepoints.append(len(database.rows))
            expected.savepoints.append(len(expected.rows))
        elif step == "write":
            # what a session does whose inner commit then fails
            buffer.write(database)
            buffer._committing = False
        elif open_savepoints:
            savepoint = open_savepoints.pop()
            count, right = database.savepoints.pop(), expected.savepoints.pop()
            if step == "release":
                buffer.write(database)
                buffer.released(savepoint)
            else:
                del database.rows[count:]
                del expected.rows[right:]
                buffer.rolled_back(savepoint)
    while open_savepoints:
        buffer.write(database)
        buffer.released(open_savepoints.pop())
    buffer.write(database)
    assert database.rows == expected.rows
