"""How the system stands, in the facts of one look at the store; what is wrong with it, and what to do, is in :mod:`.explain`.

An actor with a tenant is told what is that tenant's, and of what all share in whether a relay is alive: no name of a process or a machine, and
nothing of when or how much others have to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from celery_guard.job.replay import OPEN, Replay
from celery_guard.job.state import STANDING, State
from celery_guard.store.protocol import Heartbeat, Store

__all__ = ["Overview", "look_over"]

_UNDER_WAY = (State.SENT, State.RUNNING)


@dataclass(frozen=True, slots=True)
class Overview:
    """Who was heard lately, what waits, and for how long."""

    #: Of what waits, runs, is unknown or has failed: what has ended well is not counted here.
    counts: Mapping[State, int]
    relays_alive: int
    #: Replays that are not over.
    replays: tuple[Replay, ...]
    #: Until the next job is due, negative where one waits; None where none does, and for an actor with a tenant.
    due: timedelta | None
    #: Who was heard lately; None for an actor with a tenant.
    heartbeats: tuple[Heartbeat, ...] | None

    @property
    def well(self) -> bool:
        """Whether somebody relays, or there is nothing to relay just now: nothing waits that is due, and nothing is under way."""
        if self.relays_alive:
            return True
        # of one tenant it is not known when a job is due: then any that waits counts
        waits = (
            self.counts.get(State.PENDING, 0) if self.heartbeats is None else self.due is not None and not self.later
        )
        return not waits and not any(self.counts.get(state) for state in _UNDER_WAY)

    @property
    def later(self) -> bool:
        """Whether the next job is due later than now."""
        return self.due is not None and self.due > timedelta(0)


def look_over(store: Store, tenant: str | None) -> Overview:
    """How it stands, as far as an actor of this tenant is told."""
    beats = tuple(store.heartbeats())
    return Overview(
        counts=store.counts(tenant, STANDING),
        relays_alive=sum(beat.live and beat.is_relay for beat in beats),
        replays=tuple(store.replays(states=OPEN, tenant=tenant)),
        due=store.next_due() if tenant is None else None,
        heartbeats=beats if tenant is None else None,
    )
