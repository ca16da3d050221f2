"""``guard jobs``, ``dlq`` and ``quarantine``: what is shown, what is not, and how it ends."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.job.progress import Progress
from celery_guard.job.row import StoredPayload
from celery_guard.job.state import Kind, Reason, State
from celery_guard.store.protocol import Cancelled, Quarantined

from .shop import NOW, Canned, Run, a_failure, a_job, answer_of

SECRET = "4111-1111"
MESSAGE = StoredPayload(
    body=f'[["{SECRET}"], {{}}, {{}}]'.encode(), headers=f'{{"argsrepr": "{SECRET}"}}', delivery='{"queue": "celery"}'
)
DEAD = a_job(
    state=State.DEAD, reason=Reason.FAILED, failure_class="permanent", cause="c0ffee", attempts=1, finished=NOW,
    owner="host:7:ab", fence=3, failures=(a_failure(fence=3, attempt=1),),
)  # fmt: skip


def dead_store(**given: Any) -> Canned:
    return Canned(**{"job": DEAD, "payload": MESSAGE, **given})


# -- jobs -----------------------------------------------------------------------------------------------------------


def test_a_list_asks_the_store_for_what_was_typed(run: Run) -> None:
    store = Canned(jobs=[])
    result = run(
        "jobs", "list", "--state", "dead", "--state", "sent", "--task", "t", "--queue", "q", "--tenant", "x", "--limit", "7",
        "--after", "9", store=store,
    )  # fmt: skip
    assert result.exit_code == 0
    [(_, _, asked)] = [call for call in store.asked if call[0] == "jobs"]
    assert {name: value for name, value in asked.items() if value is not None} == {
        "states": (State.DEAD, State.SENT), "task": "t", "queue": "q", "tenant": "x", "after": "9", "limit": 8,
    }  # fmt: skip


def test_a_list_that_goes_on_says_how(run: Run) -> None:
    result = run("jobs", "list", "--limit", "2", store=Canned(jobs=[a_job(id=id) for id in "abc"]))
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["ID", "a", "b"]
    assert "--after b" in result.stderr


def test_a_list_that_ends_says_nothing_more(run: Run) -> None:
    result = run("jobs", "list", "--limit", "2", store=Canned(jobs=[a_job(id=id) for id in "ab"]))
    assert result.stderr == ""


def test_a_message_of_a_task_without_a_guard_is_published_and_no_success(run: Run) -> None:
    store = Canned(jobs=[a_job(state=State.SUCCEEDED, kind=Kind.CARRIED)])
    listed = run("jobs", "list", store=store).stdout
    assert "published" in listed
    assert "succeeded" not in listed


def test_a_running_job_that_was_asked_to_stop_is_cancelling(run: Run) -> None:
    store = Canned(jobs=[a_job(state=State.RUNNING, cancel=True)])
    assert "cancelling" in run("jobs", "list", store=store).stdout
    assert answer_of(run("jobs", "list", "--json", store=store))[0]["shown_state"] == "cancelling"


@pytest.mark.parametrize("words", [("--json", "jobs", "list"), ("jobs", "list", "--json")])
def test_json_may_be_asked_for_before_or_after_the_word(run: Run, words: tuple[str, ...]) -> None:
    assert answer_of(run(*words, store=Canned(jobs=[a_job()])))[0]["id"] == "7e1f"


def test_a_job_is_shown_with_its_failures_and_who_holds_it(run: Run) -> None:
    job = a_job(
        state=State.RUNNING, owner="host:7:ab", fence=3, attempts=2, due=NOW + timedelta(hours=1),
        failures=(a_failure(fence=2, attempt=1),),
    )  # fmt: skip
    result = run("jobs", "show", "7e1f", store=Canned(job=job))
    lines = {line.split("  ")[0]: line for line in result.stdout.splitlines() if line}
    assert lines["held by"].endswith("host:7:ab (fence 3)")
    assert "(in " in lines["lease ends"]
    assert "attempts 2" in lines["counts"]
    assert re.search(r"\(\d+m", lines["accepted"])
    [failed] = [line for line in result.stdout.splitlines() if "  failed  " in line]
    assert [word for word in ("permanent", "shop.CardDeclined", "card declined", "w@host") if word not in failed] == []
    assert "Traceback" not in result.stdout


SAID = Progress(412, 1000, "page\x1b[2J 7", NOW - timedelta(seconds=40))
SHOWN = "412 of 1000 (41 %): page\\x1b[2J 7"


def test_how_far_a_job_has_said_it_is_is_shown_with_its_age_and_in_its_story(run: Run) -> None:
    store = Canned(job=a_job(state=State.RUNNING, started=NOW, owner="host:7:ab", fence=3, progress=SAID))
    lines = run("jobs", "show", "7e1f", store=store).stdout.splitlines()
    [labelled] = [line for line in lines if line.startswith("progress")]
    assert re.search(re.escape(SHOWN) + r" \([^()]+ ago\)$", labelled)
    [told] = [line for line in lines if "  progress  " in line]
    assert [word for word in (SHOWN, "host:7:ab", "3") if word not in told] == []


def test_how_far_a_job_has_said_it_is_is_a_record_in_json(run: Run) -> None:
    store = Canned(job=a_job(progress=SAID), jobs=[a_job(progress=SAID), a_job()])
    record = {"done": 412, "total": 1000, "note": SAID.note, "at": SAID.at.isoformat()}
    assert answer_of(run("jobs", "show", "7e1f", "--json", store=store))["progress"] == record
    assert [job["progress"] for job in answer_of(run("jobs", "list", "--json", store=store))] == [record, None]


def test_who_watches_hears_of_progress(run: Run) -> None:
    jobs = iter([a_job(state=State.RUNNING, progress=replace(SAID, done=done)) for done in (1, 1, 2)])
    done = a_job(state=State.SUCCEEDED, progress=SAID)
    result = run("jobs", "watch", "7e1f", "--every", "0.1", store=Canned(job=lambda id: next(jobs, done)))
    assert [line.split("  ")[-1] for line in result.stdout.splitlines()] == [
        f"{part} of 1000 ({share} %): page\\x1b[2J 7" for part, share in ((1, 0), (2, 0), (412, 41))
    ]


def test_a_traceback_is_shown_where_it_is_asked_for(run: Run) -> None:
    assert "Traceback ..." in run("jobs", "show", "7e1f", "--traceback", store=dead_store()).stdout
    shown = answer_of(run("jobs", "show", "7e1f", "--traceback", "--json", store=dead_store()))
    assert shown["failures"][0]["traceback"] == "Traceback ..."
    assert "traceback" not in answer_of(run("jobs", "show", "7e1f", "--json", store=dead_store()))["failures"][0]


def test_a_job_that_is_not_there_is_said_and_ends_with_1(run: Run) -> None:
    for word in ("jobs", "dlq"):
        result = run(word, "show", "nobody\x1b", store=Canned(job=None))
        assert (result.exit_code, result.stdout) == (1, "")
        assert "nobody" in result.stderr
        assert "\x1b" not in result.stderr
        assert "secret" not in result.stderr


def test_counts_are_by_state_in_the_order_of_a_life(run: Run) -> None:
    counts = {State.DEAD: 2, State.PENDING: 30}
    store = Canned(counts=counts)
    run("jobs", "counts", "--scope", "acme", store=store)
    assert ("counts", ("acme",), {}) in store.asked
    result = run("jobs", "counts", store=Canned(counts=counts))
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [["pending", "30"], ["dead", "2"]]
    assert answer_of(run("jobs", "counts", "--json", store=Canned(counts=counts)))["running"] == 0


@pytest.mark.parametrize(
    ("answer", "state", "said", "status"),
    [
        ("cancelled", State.CANCELLED, "cancelled", 0),
        ("asked", State.RUNNING, "asked to stop", 0),
        ("too late", State.SUCCEEDED, "too late: it is succeeded", 1),
        ("too late", None, "there is no such job", 1),
    ],
)
def test_cancel_1_a_cancel_says_what_it_did(run: Run, answer: str, state: State | None, said: str, status: int) -> None:
    store = Canned(job=a_job(), cancel=lambda id: Cancelled(id, answer, state))
    result = run("jobs", "cancel", "7e1f", "--reason", "wrong file", "--actor", "ann", store=store)
    assert result.exit_code == status
    assert said in result.stdout
    assert result.stderr.endswith("by ann: wrong file\n")


def test_one_cancel_that_came_too_late_does_not_hinder_the_others(run: Run) -> None:
    ended = {"b": ("too late", State.DEAD)}
    cancel = lambda id: Cancelled(id, *ended.get(id, ("cancelled", State.CANCELLED)))  # noqa: E731
    result = run("jobs", "cancel", "a", "b", "c", "--reason", "r", "--json", store=Canned(job=a_job(), cancel=cancel))
    assert [entry["answer"] for entry in answer_of(result)] == ["cancelled", "too late", "cancelled"]
    assert result.exit_code == 1


def test_a_job_that_is_not_there_is_not_said_to_have_been_cancelled_too_late(run: Run) -> None:
    store = Canned(job=None, cancel=lambda id: Cancelled(id, "too late", None))
    result = run("jobs", "cancel", "7e1f", "--reason", "r", "--actor", "ann", store=store)
    assert result.stderr == "0 cancelled, 0 asked to stop, 0 too late, 1 not found, by ann: r\n"


# -- dlq ------------------------------------------------------------------------------------------------------------


def test_dead_letters_are_listed_with_owner_reason_class_and_cause(run: Run) -> None:
    store = Canned(jobs=[DEAD])
    [_, line] = run("dlq", "list", "--cause", "c0ffee", store=store).stdout.splitlines()
    assert line.split()[:4] == ["7e1f", "shop.charge", "payments", "failed"]
    assert {"permanent", "c0ffee"} <= set(line.split())
    [(_, _, asked)] = [call for call in store.asked if call[0] == "jobs"]
    assert (asked["states"], asked["cause"]) == ([State.DEAD], "c0ffee")


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("words", [("jobs", "show"), ("dlq", "show"), ("dlq", "list"), ("jobs", "list")])
def test_arguments_are_not_shown_by_themselves(run: Run, words: tuple[str, str], as_json: bool) -> None:
    given = () if words[1] == "list" else ("7e1f",)
    result = run(*words, *given, *(["--json"] if as_json else []), store=dead_store(jobs=[DEAD]))
    assert result.exit_code == 0
    assert SECRET not in result.output


REVEAL = ("dlq", "show", "7e1f", "--reveal", "--role", "admin", "--reason", "what was it?")


def test_the_whole_message_of_a_dead_letter_is_shown_where_an_admin_asks_for_it_and_says_why(run: Run) -> None:
    assert SECRET in run(*REVEAL, store=dead_store()).stdout
    shown = answer_of(run(*REVEAL, "--json", store=dead_store()))
    assert (shown["headers"], shown["delivery"]) == ({"argsrepr": SECRET}, {"queue": "celery"})
    assert shown["body"] == MESSAGE.body.decode()
    assert (shown["contract_owner"], shown["message_bytes"]) == ("payments", len(MESSAGE.body))


def test_a_dead_letter_is_shown_with_what_can_be_done_about_it(run: Run) -> None:
    said = run("dlq", "show", "7e1f", store=dead_store()).stderr
    assert "dlq replay 7e1f --reason TEXT" in said
    assert "dlq resolve 7e1f --reason TEXT" in said
    assert "dlq replay" not in run("dlq", "show", "7e1f", "--json", store=dead_store()).output


def test_a_body_that_is_no_text_is_shown_as_base64(run: Run) -> None:
    raw = StoredPayload(body=b"\xff\x00", headers="{}", delivery="{}")
    assert answer_of(run(*REVEAL, "--json", store=dead_store(payload=raw)))["body"] == "base64:/wA="


def test_a_job_that_is_no_dead_letter_is_said_to_be_none(run: Run) -> None:
    result = run("dlq", "show", "7e1f", store=Canned(job=a_job(state=State.SUCCEEDED)))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "it is succeeded" in result.stderr


# -- quarantine -----------------------------------------------------------------------------------------------------


QUARANTINED = Quarantined(
    id=7, received=NOW, queue="celery", content_type="application/x-python-serialize", content_encoding="binary",
    reason="undecodable", size=len(SECRET), headers=f'{{"argsrepr": "{SECRET}"}}', body=SECRET.encode(),
)  # fmt: skip


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("words", [("list",), ("show", "7")])
def test_pay_5_messages_in_quarantine_are_shown_without_what_is_in_them(
    run: Run, words: tuple[str, ...], as_json: bool
) -> None:
    store = Canned(quarantined=[QUARANTINED], message=QUARANTINED)
    result = run("quarantine", *words, *(["--json"] if as_json else []), store=store)
    assert result.exit_code == 0
    assert "undecodable" in result.stdout
    assert SECRET not in result.output


def test_what_is_in_a_message_is_shown_where_it_is_asked_for(run: Run) -> None:
    words = ("quarantine", "show", "7", "--reveal", "--role", "admin", "--reason", "what is it?")
    shown = run(*words, store=Canned(message=QUARANTINED)).stdout
    assert shown.count(SECRET) == 2
    as_json = answer_of(run(*words, "--json", store=Canned(message=QUARANTINED)))
    assert as_json["body"] == SECRET


def test_a_message_that_is_not_there_ends_with_1(run: Run) -> None:
    assert run("quarantine", "show", "8", store=Canned(message=None)).exit_code == 1
