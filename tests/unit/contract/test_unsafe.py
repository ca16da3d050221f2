"""What is unsafe: each finding is made by the facts that call for it, and by no others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from celery_guard.contract.contract import Effective
from celery_guard.contract.facts import AppFacts, Finding, Severity, TaskFacts
from celery_guard.contract.retry import Retry
from celery_guard.contract.unsafe import CODES, findings

HOUR = timedelta(hours=1)
SAFE = Effective(task="shop.charge", owner="payments", key="order_id", retry=Retry(max_attempts=3))


def guarded(**given: Any) -> TaskFacts:
    return TaskFacts(**{"name": "shop.charge", "guarded": True, "contract": SAFE, **given})


def plain(**given: Any) -> TaskFacts:
    return TaskFacts(**{"name": "shop.mail", "guarded": False, **given})


def app(*tasks: TaskFacts, **given: Any) -> AppFacts:
    return AppFacts(**{"tasks": tasks, "store": "postgresql+psycopg:///shop", **given})


def coded(facts: AppFacts) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity.value) for finding in findings(facts)]


def kept(**given: str | None) -> dict[str, str | None]:
    """A server of Redis that keeps what it is given, but for what is said."""
    safe = {"maxmemory": "1000000", "maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always"}
    return {**safe, **given}


LATE_AND_LOST = {"acks_late": True, "reject_on_worker_lost": True}
LATE_AND_KEPT = {**LATE_AND_LOST, "acks_on_timeout": False}
UNDER_REDIS = {"visibility_timeout": HOUR}

UNSAFE: Sequence[tuple[str, AppFacts, list[tuple[str, str]]]] = [
    ("late acks, rejecting lost", app(plain(**LATE_AND_LOST)), [("CHECK-101", "warning")]),
    ("the same, guarded", app(guarded(**LATE_AND_LOST)), [("CHECK-101", "info")]),
    ("late acks alone", app(plain(acks_late=True)), [("CHECK-102", "warning")]),
    ("the same, guarded", app(guarded(acks_late=True)), [("CHECK-102", "info")]),
    ("kept on timeout", app(plain(**LATE_AND_KEPT)), [("CHECK-101", "warning"), ("CHECK-103", "warning")]),
    ("the same, guarded", app(guarded(**LATE_AND_KEPT)), [("CHECK-101", "info"), ("CHECK-103", "info")]),
    ("limit over visibility", app(guarded(limit=2 * HOUR), **UNDER_REDIS), [("CHECK-104", "warning")]),
    ("the same, plain", app(plain(limit=2 * HOUR), **UNDER_REDIS), [("CHECK-104", "warning")]),
    ("endless and late", app(plain(**LATE_AND_LOST), **UNDER_REDIS), [("CHECK-101", "warning"), ("CHECK-104", "warning")]),
    ("the same, guarded", app(guarded(**LATE_AND_LOST), **UNDER_REDIS), [("CHECK-101", "info"), ("CHECK-104", "info")]),
    ("hard limit in threads", app(guarded(limit=HOUR), pool="threads"), [("CHECK-201", "warning")]),
    ("hard limit in solo", app(guarded(limit=HOUR), pool="solo"), [("CHECK-201", "warning")]),
    ("soft limit in threads", app(plain(soft=HOUR), pool="threads"), [("CHECK-202", "warning")]),
    ("gevent", app(guarded(), pool="gevent"), [("CHECK-203", "warning")]),
    (
        "limits in gevent",
        app(guarded(limit=HOUR, soft=HOUR / 2), pool="gevent"),
        [("CHECK-201", "warning"), ("CHECK-202", "warning"), ("CHECK-203", "warning")],
    ),
    ("no owner", app(guarded(contract=replace(SAFE, owner=None))), [("CHECK-301", "info")]),
    ("a contract nobody reads", app(plain(unread=("contract",))), [("CHECK-303", "error")]),
    ("a failure that is not there", app(guarded(unknown_failures=("CardDeclinedd",))), [("CHECK-304", "warning")]),
    ("retries without a key", app(guarded(contract=replace(SAFE, key=None))), [("CHECK-302", "info")]),
    ("pickle accepted", app(serializers={"accept_content": ("json", "pickle")}), [("CHECK-401", "error")]),
    ("pickle by its type", app(serializers={"accept_content": ("application/x-python-serialize",)}), [("CHECK-401", "error")]),
    ("pickle written", app(serializers={"task_serializer": ("pickle",)}), [("CHECK-401", "error")]),
    ("pickle in a task", app(plain(serializer="pickle")), [("CHECK-401", "error")]),
    ("eager", app(always_eager=True), [("CHECK-402", "warning")]),
    ("keys that nothing is encrypted with", app(has_keys=True), [("CHECK-403", "info")]),
    ("encrypted, and the backend keeps it plain", app(has_keys=True, encrypts=True, result_backend="redis"), [("CHECK-404", "info")]),
    ("a file", app(store="sqlite:///guard.db"), [("CHECK-501", "info")]),
    ("in memory", app(store="sqlite://"), [("CHECK-502", "warning")]),
    ("in memory, named", app(store="sqlite:///:memory:"), [("CHECK-502", "warning")]),
    ("in memory, as a URI", app(store="sqlite:///file:x?mode=memory&uri=true"), [("CHECK-502", "warning")]),
    ("what the store cannot keep", app(limits={"G2": "no transaction"}), [("CHECK-503", "info")]),
    ("evicts anything", app(server=kept(**{"maxmemory-policy": "allkeys-lru"})), [("CHECK-511", "error")]),
    (
        "would evict, without a limit",
        app(server=kept(**{"maxmemory-policy": "allkeys-lfu", "maxmemory": "0"})),
        [("CHECK-511", "warning")],
    ),
    ("evicts what expires", app(server=kept(**{"maxmemory-policy": "volatile-lru"})), [("CHECK-511", "warning")]),
    ("keeps no log", app(server=kept(appendonly="no", appendfsync=None)), [("CHECK-512", "warning")]),
    ("a second behind", app(server=kept(appendfsync="everysec")), [("CHECK-512", "info")]),
    ("far behind", app(server=kept(appendfsync="no")), [("CHECK-512", "warning")]),
    ("says nothing", app(server=dict.fromkeys(kept())), [("CHECK-513", "warning")]),
    ("no relay", app(relay=False), [("CHECK-504", "info")]),
    ("a store beside Django's databases", app(beside_django=True), [("CHECK-505", "warning")]),
    ("a counting backend", app(counts_chords_by_increment=True), [("CHECK-601", "warning")]),
]  # fmt: skip

SOUND = [
    ("nothing declared", app(guarded(), plain())),
    ("early acks, whatever a lost or timed-out one would do", app(plain(reject_on_worker_lost=True, acks_on_timeout=False))),
    ("limits in prefork", app(guarded(limit=HOUR, soft=HOUR / 2))),
    ("a limit under the visibility timeout", app(guarded(limit=HOUR / 2), **UNDER_REDIS)),
    ("a limit at the visibility timeout", app(guarded(limit=HOUR), **UNDER_REDIS)),
    ("a broker without visibility timeout", app(guarded(limit=100 * HOUR))),
    ("no limit and early acks", app(guarded(), plain(), **UNDER_REDIS)),
    ("no limits in threads", app(guarded(), pool="threads")),
    ("a pool that nobody knows", app(guarded(limit=HOUR, soft=HOUR / 2), pool="ours")),
    ("gevent without guarded tasks", app(plain(), pool="gevent")),
    ("no key and no retries", app(guarded(contract=Effective(task="shop.charge", owner="payments")))),
    ("Celery's own tasks have no owner", app(guarded(name="celery.chord_unlock", contract=Effective(task="x")))),
    ("JSON and msgpack", app(plain(serializer="msgpack"), serializers={"accept_content": ("json", "msgpack")})),
    ("a file with memory in its name", app(store="postgresql:///memory")),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), [case[1:] for case in UNSAFE], ids=[case[0] for case in UNSAFE])
def test_what_is_unsafe_is_found(facts: AppFacts, expected: list[tuple[str, str]]) -> None:
    assert sorted(coded(facts)) == sorted(expected)


@pytest.mark.parametrize("facts", [case[1] for case in SOUND], ids=[case[0] for case in SOUND])
def test_what_is_sound_is_left_alone(facts: AppFacts) -> None:
    assert coded(facts) == []


def test_every_code_is_found_by_something() -> None:
    assert {code for _, _, expected in UNSAFE for code, _ in expected} == set(CODES)


def test_every_code_has_its_place_in_the_runbook() -> None:
    page = Path(__file__).parents[3] / "docs" / "runbook" / "checks.md"
    assert tuple(re.findall(r"^## (CHECK-\d+)$", page.read_text(encoding="utf-8"), re.MULTILINE)) == CODES


@pytest.mark.parametrize("facts", [case[1] for case in UNSAFE], ids=[case[0] for case in UNSAFE])
def test_a_finding_says_what_why_and_what_to_do(facts: AppFacts) -> None:
    for finding in findings(facts):
        assert finding.found
        assert finding.why.endswith(".")
        assert finding.fix.endswith(".")


def test_the_worst_comes_first() -> None:
    facts = app(guarded(acks_late=True, serializer="pickle"), always_eager=True, relay=False)
    assert [finding.severity for finding in findings(facts)] == [
        Severity.ERROR,
        Severity.WARNING,
        Severity.INFO,
        Severity.INFO,
    ]


def test_a_finding_names_all_its_tasks_and_shows_three() -> None:
    tasks = [plain(name=f"shop.{letter}", acks_late=True) for letter in "edcba"]
    [finding] = findings(app(plain(name="celery.map", acks_late=True), *tasks))
    assert finding.tasks == ("shop.a", "shop.b", "shop.c", "shop.d", "shop.e", "celery.map")
    assert finding.found.endswith(": shop.a, shop.b, shop.c and 3 more")


def test_crash_3_late_acks_are_named_as_unsafe_in_each_of_their_forms() -> None:
    """Only late acks, and late acks that are kept on a hard limit: the configurations that people believe to be safe."""
    assert ("CHECK-102", "warning") in coded(app(plain(acks_late=True)))
    assert ("CHECK-103", "warning") in coded(app(plain(acks_late=True, acks_on_timeout=False)))


def test_dup_2_a_visibility_timeout_under_the_limit_is_named_with_both_times() -> None:
    [finding] = findings(app(guarded(limit=timedelta(seconds=10)), visibility_timeout=timedelta(seconds=3)))
    assert isinstance(finding, Finding)
    assert "0:00:03" in finding.found
    assert "3 now" in finding.fix
