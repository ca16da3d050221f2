"""What an enqueue, a claim and a settle cost, in round trips counted on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from celery_guard.job.progress import progress_text
from celery_guard.job.verdict import Granted
from celery_guard.store.protocol import Store
from celery_guard.testing.wire import Wire, wire

from .builders import LONG, NONE, dead, failure, keyed, new_id, new_job, retried, succeeded
from .moves import accept, claim, lease_of, start, take
from .subject import Subject

__all__ = ["TestRoundTrips", "wired"]

_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "redis": 6379}

#: Calls before counting starts: connections are made, statements compiled and prepared.
_WARM = 8


@pytest.fixture(scope="module")
def wired(subject: Subject, opened_store: Store) -> Iterator[tuple[Wire, Store]]:
    """A store whose round trips are counted."""
    if not subject.round_trips:
        pytest.skip(f"{subject.name} has no wire")
    with wire(subject.url, _PORTS[subject.url.partition(":")[0].partition("+")[0]]) as one:
        store = subject.open(one.url)
        yield one, store
        store.close()


def _cost(wired: tuple[Wire, Store], prepare: Callable[[], object], call: Callable[[], object]) -> int:
    """The round trips of a call, once warm; all calls have to cost the same."""
    costs = set()
    for number in range(_WARM + 4):
        prepare()
        before = wired[0].round_trips
        call()
        if number >= _WARM:
            costs.add(wired[0].round_trips - before)
    [cost] = costs
    return cost


class TestRoundTrips:
    @pytest.mark.parametrize("keyed_or_not", [new_job, lambda: keyed(new_id())], ids=["without a key", "with a key"])
    def test_an_enqueue(
        self, store: Store, wired: tuple[Wire, Store], subject: Subject, keyed_or_not: Callable[[], object]
    ) -> None:
        cost = _cost(wired, lambda: None, lambda: wired[1].enqueue([keyed_or_not()]))  # type: ignore[list-item]
        assert 1 <= cost <= subject.round_trips["enqueue"]

    def test_an_enqueue_of_many_costs_no_more_for_each(
        self, store: Store, wired: tuple[Wire, Store], subject: Subject
    ) -> None:
        cost = _cost(wired, lambda: None, lambda: wired[1].enqueue([new_job() for _ in range(50)]))
        assert cost <= subject.round_trips.get("enqueue 50", 50 * subject.round_trips["enqueue"] + 2)

    def test_a_claim(self, store: Store, wired: tuple[Wire, Store], subject: Subject) -> None:
        ids: list[str] = []

        def prepare() -> None:
            job = new_job()
            accept(store, job)
            ids.append(job.id)

        cost = _cost(wired, prepare, lambda: claim(wired[1], ids[-1]))
        assert 1 <= cost <= subject.round_trips["claim"]

    @pytest.mark.parametrize(
        "end",
        [
            succeeded,
            lambda g: succeeded(g, progress=progress_text(1, 1, "all", LONG)),
            lambda g: dead(g, failure=failure()),
            lambda g: retried(g, failure=failure(), delay=LONG),
        ],
        ids=["succeeded", "succeeded, with progress", "dead", "retried"],
    )
    def test_a_settle(
        self, store: Store, wired: tuple[Wire, Store], subject: Subject, end: Callable[[Granted], object]
    ) -> None:
        granted: list[Granted] = []

        def settle() -> None:
            assert wired[1].settle(end(granted[-1]))  # type: ignore[arg-type]

        cost = _cost(wired, lambda: granted.append(start(store)), settle)
        assert 1 <= cost <= subject.round_trips["settle"]

    @pytest.mark.parametrize("saying", [0, 7, 20])
    def test_a_renewal_of_many_leases_whatever_their_attempts_say(
        self, store: Store, wired: tuple[Wire, Store], subject: Subject, saying: int
    ) -> None:
        granted = [start(store) for _ in range(20)]
        leases = [lease_of(each) for each in granted]
        said = {lease: progress_text(1, 2, "page", LONG) for lease in leases[:saying]}
        cost = _cost(wired, lambda: None, lambda: wired[1].renew(leases, LONG, said))
        assert 1 <= cost <= subject.round_trips.get("renew", len(leases) // 2)

    def test_a_relay_that_finds_nothing(self, store: Store, wired: tuple[Wire, Store]) -> None:
        assert 1 <= _cost(wired, lambda: None, lambda: take(wired[1], hold=NONE)) <= 4
