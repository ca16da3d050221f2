"""The real stores do what the model says: a random walk through both, verdict by verdict and column by column.

Nothing waits for time here: what is to be due is given no time at all, and what is not is given an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from celery_guard.job.row import Attempt
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Granted, Leased, NotDue, Settled
from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import LONG, NONE, new_id, new_job
from celery_guard.testing.databases import empty

from . import rules
from .rules import ENDED, LATER, NEVER, NOW, End, Mine, Row, Seen

SOON = st.booleans()

ENDS = st.sampled_from(
    [
        End("succeeded"), End("succeeded", told=True), End("dead", "failed"), End("dead", "failed", told=True),
        End("pending", "retry"), End("pending", "interrupted", charged=False), End("cancelled"),
    ]
)  # fmt: skip
RECOVERIES = st.sampled_from(
    [
        End("pending", "lost", crashed=True), End("pending", "lost"), End("dead", "crashed", crashed=True), End("cancelled"),
    ]
)  # fmt: skip


def after(soon: bool) -> timedelta:
    return NONE if soon else LONG


class Walk(RuleBasedStateMachine):
    """One job, in a store and in the model."""

    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.id = new_id()
        self.store.enqueue([new_job(id=self.id)])
        self.row = Row()
        self.grants: list[Mine] = []
        self.tokens: list[str] = []
        self.looks: list[Attempt] = []

    def now_is(self, row: Row | None, soon: bool = False) -> bool:
        """The model's step, and whether it was one."""
        if row is not None:
            self.row = (rules.come(row) or row) if soon else row
        return row is not None

    def settlement(self, how: End, mine: Mine, soon: bool) -> Settlement:
        return Settlement(
            self.id, mine.fence, str(mine.owner), State(how.state), Reason(how.reason) if how.reason else None, after(soon),
            told=how.told, tell_within=after(soon), charged=how.charged, crashed=how.crashed,
        )  # fmt: skip

    @rule(soon=SOON)
    def claim(self, soon: bool) -> None:
        verdict = self.store.claim(self.id, "worker", after(soon))
        before = self.row
        if isinstance(verdict, Granted):
            assert self.now_is(rules.claim(before, verdict.owner), soon), (verdict, before)
            assert (verdict.fence, verdict.attempts, verdict.crashes, verdict.cancel) == (
                self.row.fence, self.row.attempts, self.row.crashes, self.row.cancel,
            )  # fmt: skip
            self.grants.append(Mine(verdict.fence, verdict.owner, verdict.attempts))
            return
        assert rules.claim(before, "worker") is None, (verdict, before)
        if before.state == "running":
            assert verdict == Leased(self.id, str(before.owner))
        elif before.state in ENDED:
            spoken = rules.speak(before, before.state, before.fence)
            assert isinstance(verdict, Settled)
            assert (verdict.state.value, verdict.tell, verdict.fence) == (
                before.state,
                spoken is not None,
                before.fence,
            )
            if spoken is not None:
                self.row = spoken._replace(due=before.due if soon else LATER)
        else:
            assert isinstance(verdict, NotDue)

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), soon=SOON)
    def renew(self, data: Any, soon: bool) -> None:
        mine = data.draw(st.sampled_from(self.grants))
        kept = self.store.renew([(self.id, mine.fence, str(mine.owner))], after(soon))
        assert bool(kept) is self.now_is(rules.renew(self.row, mine), soon)

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), how=ENDS, soon=SOON)
    def settle(self, data: Any, how: End, soon: bool) -> None:
        mine = data.draw(st.sampled_from(self.grants))
        written = self.store.settle(self.settlement(how, mine, soon))
        assert written is self.now_is(rules.settle(self.row, mine, how), soon)

    @rule(behind=st.integers(0, 2))
    def told(self, behind: int) -> None:
        fence = self.row.fence - behind
        self.store.told([(self.id, fence)])
        self.now_is(rules.told(self.row, fence))

    @rule(soon=SOON)
    def take(self, soon: bool) -> None:
        token = new_id()
        taken = [row for row in self.store.take(token, 10_000, after(soon)) if row.id == self.id]
        assert bool(taken) is self.now_is(rules.take(self.row, token), soon)
        if taken:
            self.tokens.append(token)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), soon=SOON)
    def sent(self, data: Any, soon: bool) -> None:
        token = data.draw(st.sampled_from(self.tokens))
        marked = self.store.sent(token, [self.id], after(soon))
        assert bool(marked) is self.now_is(rules.published(self.row, token), soon)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), soon=SOON)
    def postpone(self, data: Any, soon: bool) -> None:
        token = data.draw(st.sampled_from(self.tokens))
        given_back = self.store.postpone(token, [(self.id, after(soon))], refused=False)
        assert bool(given_back) is self.now_is(rules.postpone(self.row, token, LATER), soon)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), soon=SOON)
    def end(self, data: Any, soon: bool) -> None:
        token, how = data.draw(st.sampled_from(self.tokens)), End("dead", "unpublishable")
        ended = self.store.end(token, self.settlement(how, Mine(0, "", 0), soon))
        assert ended is self.now_is(rules.end(self.row, token, how), soon)

    @rule()
    def look(self) -> None:
        seen = [row for row in (*self.store.lapsed(10_000), *self.store.suspects(10_000)) if row.id == self.id]
        assert bool(seen) is rules.lapsed(self.row)
        self.looks += seen

    @precondition(lambda self: self.looks)
    @rule(data=st.data(), how=RECOVERIES, soon=SOON)
    def recover(self, data: Any, how: End, soon: bool) -> None:
        attempt: Attempt = data.draw(st.sampled_from(self.looks))
        reason = attempt.reason and attempt.reason.value
        seen = Seen(attempt.state.value, reason, attempt.fence, attempt.owner or None)
        moved = self.store.recover(attempt, self.settlement(how, Mine(attempt.fence, attempt.owner, 0), soon))
        assert moved is self.now_is(rules.recover(self.row, seen, how), soon)

    @rule()
    def cancel(self) -> None:
        self.row, answer = rules.cancel(self.row)
        assert self.store.cancel(self.id).answer == answer

    @rule()
    def replay(self) -> None:
        [answer] = self.store.replay([self.id])
        assert (answer.answer == "replayed") is self.now_is(rules.replay(self.row))

    @invariant()
    def the_row_is_the_models(self) -> None:
        job = self.store.job(self.id)
        assert job is not None
        due = NEVER if job.due is None else NOW if job.due < datetime.now(timezone.utc) + LONG / 2 else LATER
        found = Row(
            job.state.value, job.reason and job.reason.value, job.fence, job.owner, job.attempts, job.crashes,
            job.publications, None, due, job.told, job.cancel,
        )  # fmt: skip
        assert found == self.row._replace(relay=None)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb", "redis"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    name = "redis_store_url" if request.param == "redis" else f"{request.param}_url"
    url = request.getfixturevalue(name)
    opened = open_store(url)
    opened.upgrade()
    # what other tests have left there may be no row of any model
    empty(url)
    yield opened
    opened.close()


# Cut off by the clock on a busy machine, a walk is taken for one that has failed, and then, since it does not fail again, for one that is drawn
# differently each time (``FlakyStrategyDefinition``).
@pytest.mark.timeout(900)
def test_the_store_does_what_the_model_says(store: Store) -> None:
    walk = type("WalkHere", (Walk,), {"store": store})
    run_state_machine_as_test(
        walk,
        settings=settings(
            max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
