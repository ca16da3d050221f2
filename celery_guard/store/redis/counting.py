"""What a Redis store has counted: scripts count as they move (``scripts/tally.lua``), so nothing is left to add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from celery_guard.job.state import State
from celery_guard.job.tally import Count, Counted, Standing
from celery_guard.store.calls import batches

from . import rows
from .opened import OpenStore

__all__ = ["RedisCounting"]

_STANDING = (State.PENDING, State.SENT, State.RUNNING, State.UNKNOWN, State.DEAD)

#: How many rows one script looks at.
_BUDGET = 1000


class RedisCounting(OpenStore):
    """The part of a store that metrics are read from."""

    def count(self, what: Count, ids: Sequence[str]) -> None:
        """Count something that no row says, once for each of these jobs."""
        for batch in batches(ids):
            self._server.run("count", {"what": what.value, "ids": batch})

    def fold(self, limit: int) -> int:
        """Nothing is left to add up: each script counts what it does."""
        return 0

    def counted(self) -> list[Counted]:
        """Every total since the store was made, at one moment."""
        return rows.counted(self._server.run("counted", {}))

    def counts(self, tenant: str | None = None, states: Collection[State] = ()) -> Mapping[State, int]:
        """How many jobs are in each state that has any. One tenant's are counted row by row, a thousand a round trip."""
        wanted = [state for state in State if not states or state in states]
        if tenant is None:
            found = self._server.run("counts", {"states": [state.value for state in wanted]})
            return {state: count for state, count in zip(wanted, found, strict=True) if count}
        totals: Counter[State] = Counter()
        place, many = 0, _BUDGET
        while many == _BUDGET:
            many, *page = self._server.run("counts_of", {"tenant": tenant, "from": place, "limit": _BUDGET})
            totals.update(State(rows.text(state)) for state in page)
            place += many
        return {state: totals[state] for state in wanted if totals[state]}

    def standing(self) -> list[Standing]:
        """What has not ended, and what is dead; a thousand rows a round trip."""
        return [standing for state in _STANDING for standing in self._standing(state)]

    def _standing(self, state: State) -> list[Standing]:
        pages: list[Any] = []
        place, many = 0, _BUDGET
        while many == _BUDGET:
            many, *page = self._server.run("standing", {"state": state.value, "from": place, "limit": _BUDGET})
            pages += page
            place += many
        return rows.standing(state, pages)
