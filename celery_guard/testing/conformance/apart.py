"""Races of processes that share nothing but the database, started fresh as on another host."""

from __future__ import annotations

from multiprocessing.synchronize import Barrier
from typing import Any

from celery_guard.job.verdict import Granted
from celery_guard.store.protocol import Store

from .builders import LONG, new_id, new_job
from .crowd import processes
from .moves import accept, taken_ids
from .subject import Subject

__all__ = ["TestProcesses"]

PATIENCE = 60.0


def _claim_all(subject: Subject, gate: Barrier, number: int, ids: list[str]) -> list[int | None]:
    """Claim each job at the same moment as the other processes; the fences that were granted."""
    store = subject.open(subject.url)
    try:
        fences: list[int | None] = []
        for id in ids:
            gate.wait(PATIENCE)
            verdict = store.claim(id, f"process-{number}", LONG)
            fences.append(verdict.fence if isinstance(verdict, Granted) else None)
        return fences
    finally:
        store.close()


def _take_all(subject: Subject, gate: Barrier, number: int, limit: Any) -> list[str]:
    """Take and mark rows until there are none; what was marked as published."""
    store = subject.open(subject.url)
    try:
        gate.wait(PATIENCE)
        mine: list[str] = []
        while True:
            token = new_id()
            ids = taken_ids(store, token=token, limit=limit)
            if not ids:
                return mine
            assert store.sent(token, ids, LONG) == len(ids), f"relay {number} lost rows that it held"
            mine += ids
    finally:
        store.close()


class TestProcesses:
    def test_of_many_processes_exactly_one_is_granted(self, store: Store, subject: Subject) -> None:
        jobs = [new_job() for _ in range(25)]
        accept(store, *jobs)
        rounds = zip(*processes(4, _claim_all, subject, [job.id for job in jobs]), strict=True)
        for fences in rounds:
            assert sorted(fence is not None for fence in fences) == [False, False, False, True]

    def test_relays_in_processes_never_take_the_same_row(self, store: Store, subject: Subject) -> None:
        jobs = [new_job() for _ in range(300)]
        accept(store, *jobs)
        taken = [id for mine in processes(3, _take_all, subject, 7) for id in mine]
        assert len(taken) == len({*taken})
        assert sorted([*taken, *taken_ids(store)]) == sorted(job.id for job in jobs)
