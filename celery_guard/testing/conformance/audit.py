"""The audit: appended in order, found by what it says, forgotten only when it is old."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from celery_guard.job.audit import NewAudit, Outcome
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, new_id
from .crowd import together
from .moves import eventually

__all__ = ["TestAudit"]


def _row(**given: Any) -> NewAudit:
    values = {
        "token": new_id(), "entry": new_id(), "outcome": Outcome.DONE, "actor": "ann", "role": "operator", "origin": "cli ann@host",
        "action": "jobs.cancel",
    }  # fmt: skip
    return NewAudit(**{**values, **given})


def _details(store: Store, **wanted: Any) -> list[str]:
    return [row.detail for row in store.audited(**wanted)]


class TestAudit:
    def test_a_row_says_all_that_it_was_given(self, store: Store) -> None:
        row = _row(
            target="job 7",
            job="7",
            tenant="acmé",
            reason="gateway is back",
            detail="1 cancelled",
            outcome=Outcome.REFUSED,
        )
        store.audit([row])
        [found] = store.audited()
        given = {name: getattr(row, name) for name in NewAudit.__dataclass_fields__ if name != "token"}
        assert {name: getattr(found, name) for name in given} == given
        assert found.at.utcoffset() == NONE

    def test_rows_come_newest_first_in_the_order_of_writing(self, store: Store) -> None:
        store.audit([_row(detail="1"), _row(detail="2")])
        store.audit([_row(detail="3")])
        assert _details(store) == ["3", "2", "1"]
        numbers = [row.number for row in store.audited()]
        assert numbers == sorted(numbers, reverse=True)

    def test_pages_together_show_each_row_once(self, store: Store) -> None:
        store.audit([_row(detail=str(n)) for n in range(7)])
        seen: list[str] = []
        after = None
        while page := store.audited(limit=3, after=after):
            seen += [row.detail for row in page]
            after = page[-1].number
        assert seen == [str(n) for n in reversed(range(7))]

    @pytest.mark.parametrize(
        ("name", "value"),
        [("actor", "bob"), ("action", "dlq.purge"), ("outcome", Outcome.FAILED), ("job", "7e"), ("tenant", "acme"), ("entry", "e1")],
    )  # fmt: skip
    def test_rows_are_found_by_what_they_say(self, store: Store, name: str, value: Any) -> None:
        store.audit([_row(detail="other"), _row(detail="wanted", **{name: value}), _row(detail="other")])
        assert _details(store, **{name: value}) == ["wanted"]
        assert _details(store, **{name: value, "since": LONG}) == ["wanted"]

    def test_the_same_row_written_twice_is_there_once(self, store: Store) -> None:
        row = _row(detail="1")
        store.audit([row])
        store.audit([row, _row(detail="2")])
        assert _details(store) == ["2", "1"]

    def test_rows_of_many_who_write_at_once_are_all_there(self, store: Store) -> None:
        def write(who: int) -> None:
            for n in range(5):
                store.audit([_row(detail=f"{who}.{n}")])

        together(4, write)
        assert sorted(_details(store)) == sorted(f"{who}.{n}" for who in range(4) for n in range(5))

    def test_young_rows_are_kept(self, store: Store) -> None:
        store.audit([_row(), _row(job="7e")])
        assert store.retain_audit(LONG, 100) == 0
        assert len(store.audited()) == 2

    def test_old_rows_go_the_oldest_first_and_no_more_than_the_limit(self, store: Store) -> None:
        store.audit([_row(detail="1", job="7e")])
        # the clock of some databases has milliseconds
        eventually(lambda: store.audited() and not store.audited(since=timedelta(milliseconds=2)))
        store.audit([_row(detail="2", job="7e")])
        assert eventually(lambda: store.retain_audit(NONE, 1)) == 1
        assert _details(store) == ["2"]
        assert _details(store, job="7e") == ["2"]
        assert eventually(lambda: store.retain_audit(NONE, 5)) == 1
        assert _details(store) == []

    @pytest.mark.parametrize("odd", ["\x00", "\ud800"], ids=["NUL", "surrogate"])
    def test_text_that_no_database_takes_does_not_hinder_the_audit(self, store: Store, odd: str) -> None:
        text = f"before{odd}after"
        store.audit([_row(actor=text, origin=text, target=text, reason=text, detail=text)])
        [row] = store.audited()
        for found in (row.actor, row.origin, row.target, row.reason, row.detail):
            assert found.startswith("before")
            assert found.endswith("after")
