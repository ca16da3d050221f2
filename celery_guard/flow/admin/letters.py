"""Which dead letters are meant: ids, or a filter; walked a page at a time, so that 50,000 of them take no more memory than 500."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from celery_guard.errors import NotFound
from celery_guard.job.row import Job
from celery_guard.job.state import State
from celery_guard.store.protocol import Store

from .actor import Actor, Target

__all__ = ["ALL", "PAGE", "Letters", "asked", "count", "pages", "target_of"]

PAGE = 500


@dataclass(frozen=True, slots=True)
class Letters:
    """A choice of dead letters: the given ids, or all that the filter finds; an empty choice is all there are."""

    ids: tuple[str, ...] = ()
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    cause: str | None = None
    failure_class: str | None = None
    #: Died at least, or at most, so long ago.
    older: timedelta | None = None
    younger: timedelta | None = None

    @property
    def filter(self) -> dict[str, Any]:
        """The words of the filter that were said."""
        said = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "ids"}
        return {name: value for name, value in said.items() if value is not None}


#: All there are.
ALL = Letters()


def target_of(letters: Letters, count: int | None = None) -> Target:
    """The choice as the audit and the rule of who may see it."""
    which = {name: str(value) for name, value in letters.filter.items()}
    return Target(
        ids=letters.ids, which=which, tenant=letters.tenant, count=count, name="" if letters.ids else "dead letters"
    )


def pages(store: Store, letters: Letters, actor: Actor, states: Sequence[State] = (State.DEAD,)) -> Iterator[list[Job]]:
    """The letters of the choice that the actor sees, a page at a time; the next page is found before this one is given out.

    Raises:
        NotFound: one of the given ids is no job, or another tenant's.
    """
    if letters.ids:
        yield from _by_id(store, letters, actor)
        return
    wanted = {"tenant": actor.tenant, **asked(letters)}
    page = store.jobs(states=states, limit=PAGE, **wanted)
    while page:
        # found now: what is done to this page may take its last job away, behind which the next begins
        following = store.jobs(states=states, limit=PAGE, after=page[-1].id, **wanted) if len(page) == PAGE else []
        yield page
        page = following


def asked(letters: Letters) -> dict[str, Any]:
    """The filter as the store is asked: letters are as old as their death, jobs as their acceptance."""
    return {_ASKED.get(name, name): value for name, value in letters.filter.items()}


_ASKED = {"older": "ended_before", "younger": "ended_since"}


def _by_id(store: Store, letters: Letters, actor: Actor) -> Iterator[list[Job]]:
    ids = list(dict.fromkeys(letters.ids))
    for start in range(0, len(ids), PAGE):
        found = [(id, store.job(id)) for id in ids[start : start + PAGE]]
        for id, job in found:
            if job is None or not actor.may_see(job.tenant):
                raise NotFound(f"There is no job {id}.")
        yield [job for _, job in found if job is not None]


def count(store: Store, letters: Letters, actor: Actor, states: Sequence[State] = (State.DEAD,)) -> int:
    """How many they are. Raises ``NotFound``."""
    return sum(len(page) for page in pages(store, letters, actor, states))
