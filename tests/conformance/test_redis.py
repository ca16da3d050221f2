"""The conformance suite on Redis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from celery_guard.job.audit import NewAudit, Outcome
from celery_guard.job.state import ENDED, State
from celery_guard.job.verdict import Accepted, Duplicate
from celery_guard.store import open_store
from celery_guard.store.calls import BATCH, BATCH_BYTES
from celery_guard.store.protocol import Store
from celery_guard.store.redis import store as redis_store
from celery_guard.testing.conformance import *  # noqa: F403
from celery_guard.testing.conformance import Subject, refuse_callers
from celery_guard.testing.conformance.builders import keyed, new_job, payload
from celery_guard.testing.conformance.moves import accept, taken_ids
from celery_guard.testing.databases import empty, lose_message


@pytest.fixture(scope="module")
def subject(redis_store_url: str) -> Subject:
    return Subject(
        name="Redis",
        url=redis_store_url,
        open=open_store,
        empty=empty,
        lose_message=lose_message,
        round_trips={"enqueue": 1, "claim": 1, "settle": 1, "renew": 1},
    )


@pytest.fixture
def caller(store: Store) -> None:
    refuse_callers(store)


def test_jobs_that_come_together_leave_in_the_order_in_which_they_came(store: Store) -> None:
    jobs = [new_job() for _ in range(1200)]
    accept(store, *jobs)
    assert taken_ids(store, limit=2000) == [job.id for job in jobs]
    assert [job.id for job in store.jobs(limit=2000)] == [job.id for job in reversed(jobs)]


def test_rows_of_the_audit_that_were_evicted_are_passed_over(store: Store, subject: Subject) -> None:
    """A sweep that failed at one would forget nothing any more."""
    said = {"entry": "e", "outcome": Outcome.DONE, "actor": "ann", "role": "", "origin": "", "action": "a"}
    store.audit([NewAudit(token=f"token {number}", **said) for number in range(3)])  # type: ignore[arg-type]
    place, _, name = subject.url.partition("?name=")
    with redis.Redis.from_url(place) as client:
        assert client.delete(f"{{guard:{name}}}:audit:2") == 1
    assert [entry.number for entry in store.audited()] == [3, 1]
    assert store.retain_audit(timedelta(0), 10) == 3
    assert store.audited() == []


class _Dies(BaseException):
    """What a process that is killed would be to itself."""


def test_a_call_that_dies_between_two_scripts_leaves_whole_batches_and_is_completed_by_the_same_call(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [keyed(f"order {number}") for number in range(1100)]
    calls: list[int] = []
    run = store._server.run  # type: ignore[attr-defined]

    def dying(name: str, words: dict[str, Any], *parts: bytes, **more: Any) -> Any:
        if len(calls) == 2:
            raise _Dies
        calls.append(len(words["jobs"]))
        return run(name, words, *parts, **more)

    monkeypatch.setattr(store._server, "run", dying)  # type: ignore[attr-defined]
    with pytest.raises(_Dies):
        store.enqueue(jobs)
    monkeypatch.undo()
    assert calls == [BATCH, BATCH]
    assert store.counts() == {State.PENDING: 1000}
    again = [keyed(f"order {number}") for number in range(1100)]
    answers = store.enqueue(again)
    assert (
        answers[:1000]
        == [Duplicate(new.id, job.id, State.PENDING) for new, job in zip(again, jobs, strict=True)][:1000]
    )
    assert answers[1000:] == [Accepted(new.id) for new in again[1000:]]
    assert store.counts() == {State.PENDING: 1100}


def test_no_script_is_given_more_than_a_batch_of_jobs_or_of_bytes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, int]] = []
    run = store._server.run  # type: ignore[attr-defined]

    def sized(name: str, words: dict[str, Any], *parts: bytes, **more: Any) -> Any:
        sizes.append((len(words["jobs"]), sum(map(len, parts))))
        return run(name, words, *parts, **more)

    monkeypatch.setattr(store._server, "run", sized)  # type: ignore[attr-defined]
    store.enqueue([new_job(payload=payload(b"x" * 1024 * 1024)) for _ in range(9)])
    store.enqueue([new_job() for _ in range(2 * BATCH + 1)])
    store.enqueue([new_job(payload=payload(b"x" * (BATCH_BYTES + 1)))])
    store.enqueue([])
    assert [jobs for jobs, _ in sizes] == [4, 4, 1, BATCH, BATCH, 1, 1]
    assert max(size for _, size in sizes[:-1]) <= BATCH_BYTES + 1024


@pytest.mark.parametrize(("most", "most_bytes"), [(2, 1000), (1000, 20)], ids=["messages", "bytes"])
def test_the_quarantine_does_not_fill_the_memory_that_jobs_are_accepted_into(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, most: int, most_bytes: int
) -> None:
    monkeypatch.setattr(redis_store, "QUARANTINE_MOST", most)
    monkeypatch.setattr(redis_store, "QUARANTINE_BYTES", most_bytes)
    words = {"queue": "q", "headers": "", "content_type": "", "content_encoding": "", "reason": ""}
    numbers = [store.quarantine(body=b"x" * 10, **words) for _ in range(5)]
    assert [message.id for message in store.quarantined()] == numbers[:2:-1]
    assert caplog.text.count("the quarantine is full: its 1 oldest messages are gone") == 3
    large = store.quarantine(body=b"x" * 30, **words)
    kept = [message.id for message in store.quarantined()]
    assert kept[0] == large, "what is larger than all the room there is has it for itself"
    assert store.retain_quarantined(10, timedelta(0)) == len(kept)
    store.quarantine(body=b"x" * 10, **words)
    assert len([store.quarantine(body=b"x" * 10, **words), *store.quarantined()]) == 3, (
        "the bytes of what went count no more"
    )


#: What the keys of an index begin with.
_INDICES = ("due:", "state:", "cause:", "running:", "keep", "created", "keys")


@pytest.fixture(autouse=True)
def indices_agree(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test also proves this: each index says exactly what follows from the rows."""
    yield
    if "store" in request.fixturenames:
        place, _, name = request.getfixturevalue("subject").url.partition("?name=")
        with redis.Redis.from_url(place, decode_responses=True) as client:
            tag = f"{{guard:{name}}}:"
            keys = {key.removeprefix(tag) for key in client.scan_iter(f"{tag}*", count=5000)}
            rows = _rows(client, tag, keys)
            assert _read(client, tag, keys) == _expected(rows)
            assert {key for key in keys if key.startswith("payload:")} == {f"payload:{id}" for id in rows}


def _rows(client: Any, tag: str, keys: set[str]) -> dict[str, dict[str, str]]:
    ids = [key.removeprefix("job:") for key in keys if key.startswith("job:")]
    with client.pipeline(transaction=False) as asked:
        for id in ids:
            asked.hgetall(f"{tag}job:{id}")
        found: list[dict[str, str]] = asked.execute()
    return dict(zip(ids, found, strict=True))


def _read(client: Any, tag: str, keys: set[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for key in keys:
        if key == "keys":
            found[key] = client.hgetall(tag + key)
        elif key.startswith(_INDICES):
            found[key] = {id: int(score) for id, score in client.zrange(tag + key, 0, -1, withscores=True)}
    return found


def _expected(rows: dict[str, dict[str, str]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for id, row in rows.items():
        created = int(row["created"])
        found["created"][id] = created
        found[f"state:{row['state']}"][id] = created
        if "due" in row:
            found["due:ended" if State(row["state"]) in ENDED else f"due:{row['state']}"][id] = int(row["due"])
        if "keep_until" in row:
            found["keep"][id] = int(row["keep_until"])
        if "cause" in row:
            found[f"cause:{row['cause']}"][id] = created
        if "held_key" in row:
            found["keys"][row["held_key"]] = id
        if row["state"] == "running" and int(row.get("sent", 0)) >= int(row["created"]):
            found[f"running:{row['queue']}"][id] = int(row["sent"])
    return dict(found)
